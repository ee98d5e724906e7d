"""Finds kernels that only move elements, and writes calls that move whole rows of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..ir.expr import Expr, walk
from ..ir.spec import Access

if TYPE_CHECKING:
    from .render import Stores, Writer

MOVED_SIZES = (1, 3, 4)  # bytes of a pixel: see native/row_moves.py
MAX_SAMPLE_TESTS = 2  # each doubles the source


def is_moved(writer: Writer) -> bool:
    """Whether all results are loads, or numbers per sample, which tests choose between."""
    values = [value for _, _, value in writer.stores]
    parts = _choices(writer, values)
    if sum(test.op != "window" for test in tests_of(writer, values)) > MAX_SAMPLE_TESTS:
        return False
    return all(p.op == "load" or writer.depths[p] == 0 or _is_choice(writer, p) for p in parts)


def tests_of(writer: Writer, values: list[Expr]) -> list[Expr]:
    """The tests that choose between the parts of moved values."""
    parts = _choices(writer, values)
    return list(dict.fromkeys(p.args[0] for p in parts if _is_choice(writer, p)))


def guards_of(values: list[Expr]) -> list[Expr]:
    """Windows outside of which loads among these values are never used."""
    guards = [v.args[0] for v in values if v.op == "load" and v.args]
    parts = [walk([guard]) for guard in guards]
    plain = [p for p in parts if all(e.op in ("window", "and", "const") for e in p)]
    return list(dict.fromkeys(e for p in plain for e in p if e.op == "window"))


def _is_choice(writer: Writer, e: Expr) -> bool:
    """Whether a window, or a test that has one result for a whole sample, chooses a value."""
    return e.op == "select" and (e.args[0].op == "window" or writer.depths[e.args[0]] == 0)


def _choices(writer: Writer, values: list[Expr]) -> list[Expr]:
    """Values, and the values that they choose between."""
    found = dict.fromkeys(values)
    stack = list(values)
    while stack:
        e = stack.pop()
        new = [a for a in e.args[1:] if a not in found] if _is_choice(writer, e) else []
        found.update(dict.fromkeys(new))
        stack += new
    return list(found)


class _Source(NamedTuple):
    """Where a row of one channel is read."""

    slot: int  # its operand
    offset: int  # elements between the operand's first channel and this one
    stride: int | None
    address: str


def move_call(writer: Writer, axis: int, stores: Stores, begin: str, end: str) -> list[str] | None:
    """Calls that move positions `begin` to `end` along `axis`; None if a loop must move them."""
    found = [_source(writer, axis, k, value, begin) for _, k, value in stores]
    sources = [f for f in found if f is not None]
    target = channels_side_by_side(writer, axis, stores)
    if not sources or len(sources) < len(found) or target is None:
        return None
    n = len(sources)
    point, k, _ = stores[0]
    size = writer.spec.stores[k].dtype.bytes
    access = writer.spec.stores[k]
    at = _address(writer, "out", k, access, (*point.items(), (axis, begin)))
    count = end if begin == "0" else f"{end} - {begin}"
    first = sources[0]
    is_whole = all(
        s[:3] == (first.slot, first.offset + c, first.stride) for c, s in enumerate(sources)
    )
    if is_whole and first.stride == n:
        return _call(writer, "copy_row", first.address, at, f"({count}) * {n * size}")
    # LLVM repeats one pixel and mirrors rows faster than `move_row` does (0.031 ms against 0.061
    # for 375×500×3 bytes).
    if is_whole and n * size in MOVED_SIZES and first.stride not in (-n, 0):
        step = f"in_stride_{first.slot}_{axis}" if first.stride is None else str(first.stride)
        name = f"move_row_{n * size}"
        return _call(
            writer, name, first.address, at, count, f"{step} * {size}" if size > 1 else step
        )
    if n == 3 and size == 1 and all(s.stride == 3 for s in sources):
        return _call(writer, "weave_row", *(s.address for s in sources), at, count)
    return None


def turn_call(writer: Writer, down: int, right: int, stores: Stores) -> list[str] | None:
    """A call that moves an image whose rows may be columns of the source, along two loops; None if
    loops must move it."""
    if tests_of(writer, [value for _, _, value in stores]):
        return None
    found = [_source(writer, right, k, value, "0") for _, k, value in stores]
    sources = [f for f in found if f is not None]
    if len(sources) < len(found) or len(sources) != 3:
        return None
    if channels_side_by_side(writer, right, stores) is None:
        return None
    first, (point, k, _) = sources[0], stores[0]
    access, target = writer.spec.loads[first.slot], writer.spec.stores[k]
    likely = access.likely[right] if access.likely else None
    if access.dtype.bytes > 1 or first.stride is not None or likely is not None:
        return None
    if any(s[:2] != (first.slot, first.offset + c) for c, s in enumerate(sources)):
        return None
    pinned = stores[0][2].attr[1]
    shift = writer.operand(stores[0][2].attr[0])[1]
    source = _address(writer, "in", first.slot, access, (*pinned, (down, "0"), (right, "0")), shift)
    at = _address(writer, "out", k, target, (*point.items(), (down, "0"), (right, "0")))
    steps = [_stride(writer, "in", first.slot, access, axis) for axis in (down, right)]
    row = _stride(writer, "out", k, target, down)
    return _call(writer, "turn_pixels", source, *steps, at, row, f"n_{down}", f"n_{right}")


def _stride(writer: Writer, kind: str, k: int, access: Access, axis: int) -> str:
    stride = access.strides[axis]
    return f"{kind}_stride_{k}_{axis}" if stride is None else str(stride)


def _call(writer: Writer, name: str, *args: str) -> list[str]:
    writer.helpers.add(name)
    return [f"{name}({', '.join(args)})"]


def channels_side_by_side(writer: Writer, axis: int, stores: Stores) -> bool | None:
    """True if the results are the channels of one pixel after the other; else None."""
    for c, (point, k, _) in enumerate(stores):
        access = writer.spec.stores[k]
        if k != stores[0][1] or access.strides[axis] != len(stores):
            return None
        if constant_offset(access, tuple(point.items())) != c:
            return None
    return True


def _source(writer: Writer, axis: int, k: int, value: Expr, begin: str) -> _Source | None:
    if value.op != "load" or value.dtype is not writer.spec.stores[k].dtype:
        return None
    if any(guard.op != "const" or not guard.attr for guard in value.args):
        return None
    slot, pinned = value.attr
    operand, shift = writer.operand(slot)
    access = writer.spec.loads[operand]
    offset = constant_offset(access, pinned)
    if offset is None or len(access.strides) > writer.spec.rank:
        return None
    address = _address(writer, "in", operand, access, (*pinned, (axis, begin)), shift)
    stride = writer.fixed.get((operand, axis), access.strides[axis])
    return _Source(operand, offset + shift, stride, address)


def constant_offset(access: Access, pinned: tuple[tuple[int, int], ...]) -> int | None:
    """The offset of a point of the unrolled axes; None if it is known only at run time."""
    steps = [(access.strides[a], at) for a, at in pinned]
    if any(step is None for step, at in steps if at):
        return None
    return sum(step * at for step, at in steps if step is not None)


def _address(
    writer: Writer, kind: str, k: int, access: Access,
    pinned: tuple[tuple[int, int | str], ...], shift: int = 0,
) -> str:  # fmt: skip
    offset = writer.offset(kind, k, access, pinned)
    offset = f"{offset} + {shift}" if shift else offset
    size = access.dtype.bytes
    return f"{kind}_{k} + {offset}" if size == 1 else f"{kind}_{k} + ({offset}) * {size}"
