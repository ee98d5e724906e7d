"""Rows of large results, which kernels store past the caches.

An ordinary store reads the cache line first that it writes to. A result that is larger than the
caches is pushed out of them before anybody reads it, so that this read is all for nothing. For such
results a kernel computes a piece of a row on its stack, and then stores it line by line with
instructions that neither read nor keep the line (native/streamed_stores.py). Column `streams` of
the table says whether to do so; if not, the same loop writes to the result itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..common.memo import memoized
from ..ir.core import Column
from ..ir.expr import cost, walk
from ..ir.spec import Access, KernelSpec
from .native.block_sizes import PIECE_BYTES

if TYPE_CHECKING:
    from .render import Writer

COLUMN: Column = ("streams",)
MAX_RUNS = 4  # that a kernel stores at once; each needs a piece of the stack
_USUAL_CACHE = 32 << 20
# Estimated cost of the stored values up to which rows are stored past the caches. While a kernel
# stores a piece, it computes nothing. CPU time of batches of 38 MB, stored past the caches and not:
# a cast (cost 1) 1.02 and 1.26 ms, a normalisation to planes (18) 1.25 and 1.45, a blur before it
# (25) 4.25 and 5.31, a resize before it (44) 10.8 and 10.9; colours and normalisation in one
# expression (219) 1.92 and 1.61 (Zen 5, one thread).
_MOST_COST = 64
# Values that are read at computed positions, or not read outside of a window, are stored directly,
# because LLVM makes slower loops of them within the loop over pieces, also of small results: crops
# with a clamped border took 6.1 instead of 3.0 ms, pads 1.19 instead of 1.09, and a chain by table
# that was stored past the caches 3.7 instead of 3.2 (the same CPU).
_SCATTERED = frozenset({"fetch", "lookup", "window"})


class StreamedRun(NamedTuple):
    """Elements that a turn of the innermost loop stores side by side, such as channels."""

    store: int
    first: tuple[tuple[int, int], ...]  # the point of the unrolled axes with the first element
    step: int  # how many they are, and how far the next ones are along the innermost loop


@memoized(256)
def streamed_runs(spec: KernelSpec) -> tuple[StreamedRun, ...]:
    """The runs of a kernel that writes every row without gaps; () for other kernels."""
    if cost(*spec.values) > _MOST_COST or any(e.op in _SCATTERED for e in walk(spec.values)):
        return ()
    found = dict.fromkeys(
        run for k, access in enumerate(spec.stores) for run in _runs(spec, k, access)
    )
    runs = [run for run in found if run is not None]
    return tuple(runs) if len(runs) == len(found) <= MAX_RUNS else ()


def _runs(spec: KernelSpec, k: int, access: Access) -> Iterator[StreamedRun | None]:
    step = access.strides[spec.loop_axes[-1]] if spec.loop_axes else None
    if step is None or step < 1 or access.guarded or step * access.dtype.bytes > PIECE_BYTES // 128:
        yield None
        return
    places: dict[StreamedRun, list[int]] = {}
    for point in spec.static_points:
        run, place = _place(k, access, step, point)
        places.setdefault(run, []).append(place)
    for run, taken in places.items():
        yield run if sorted(taken) == list(range(step)) else None


def _place(k: int, access: Access, step: int, point: dict[int, int]) -> tuple[StreamedRun, int]:
    """The run of a point of the unrolled axes, and which of its elements the point is."""
    near = {a: s for a in point if (s := access.strides[a]) is not None and s < step}
    first = tuple((a, 0 if a in near else at) for a, at in point.items())
    return StreamedRun(k, first, step), sum(s * point[a] for a, s in near.items())


class StreamedRows:
    """Writes the loop over pieces of a row, for one `Writer`."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.runs = streamed_runs(writer.spec)
        self.is_inside = False  # whether the loop is being written

    def allocate(self) -> Iterator[str]:
        """Lines before the loop over samples."""
        for number in range(len(self.runs)):
            yield f"piece_{number} = staging()"
            yield f"put_i64(piece_{number}, 0, 0)"
            yield f"put_i64(piece_{number}, 1, 0)"
        yield "streams = 0"

    def end_sample(self) -> Iterator[str]:
        """Lines at the end of a sample."""
        yield "if streams:"
        for number in range(len(self.runs)):
            yield f"    {self._call('end_rows')}(piece_{number})"

    def finish(self) -> Iterator[str]:
        """Lines after the loop over samples."""
        self.writer.imports.add("finish_streams")
        yield "if streams:"
        yield "    finish_streams()"

    def pieces(self, axis: int, loops: Iterable[str]) -> Iterator[str]:
        """The loop over pieces, around `loops`, which run from `tile` to `tile_end`."""
        stores = self.writer.spec.stores
        widest = max(run.step * stores[run.store].dtype.bytes for run in self.runs)
        yield f"size_of_piece = {PIECE_BYTES // widest} if streams else max(n_{axis}, 1)"
        yield f"for tile in range(0, n_{axis}, size_of_piece):"
        yield f"    tile_end = min(tile + size_of_piece, n_{axis})"
        for number, run in enumerate(self.runs):
            access = stores[run.store]
            at: dict[int, int | str] = {**dict(run.first), axis: "tile"}
            place = self.writer.offset("out", run.store, access, tuple(at.items()))
            yield f"    put_at_{number} = out_{run.store} + ({place}) * {access.dtype.bytes}"
        yield "    if streams:"
        for number, run in enumerate(self.runs):
            nbytes = f"(tile_end - tile) * {run.step * stores[run.store].dtype.bytes}"
            yield f"        {self._call('add_to_piece')}(piece_{number}, put_at_{number}, {nbytes})"
            begin = f"(get_i64(piece_{number}, 0) & -64)"
            yield f"        put_at_{number} = piece_{number} + 64 + put_at_{number} - {begin}"
        yield from (f"    {line}" for line in loops)

    def _call(self, helper: str) -> str:
        self.writer.helpers.add(helper)
        return helper

    def target(self, point: dict[int, int], k: int) -> tuple[str, str]:
        """Address and offset of an element that the innermost loop stores."""
        access, axis = self.writer.spec.stores[k], self.writer.spec.loop_axes[-1]
        step = access.strides[axis]
        assert step is not None
        run, place = _place(k, access, step, point)
        return f"put_at_{self.runs.index(run)}", f"(o_{axis} - tile) * {step} + {place}"


# -- at run time -----------------------------------------------------------------------------------


def is_streamed(nbytes: int) -> bool:
    """Whether a kernel should store results of this size past the caches.

    Whoever reads the results from memory afterwards takes longer than from a cache, so they must be
    almost as large as the last cache. CPU time in µs per image of 224 × 224 × 3, to normalise bytes
    and to add up the results once, stored past the caches and not, with a last cache of 32 MB:
    images of 10 MB in all 38 and 28, 19 MB 34 and 36, 29 MB 34 and 38, 39 MB 33 and 40, 58 MB 35
    and 38 (Zen 5, one thread).
    """
    return nbytes >= stream_from()


@memoized(1)
def stream_from() -> int:
    """Bytes from which on results are stored past the caches."""
    return last_cache_bytes() // 4 * 3


def last_cache_bytes() -> int:
    """The size of the largest cache that the system reports."""
    sizes = [_bytes_of(file) for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")]
    return max(sizes, default=0) or _USUAL_CACHE


def _bytes_of(file: Path) -> int:
    try:
        text = file.read_text().strip()
    except OSError:
        return 0
    units = {"K": 1 << 10, "M": 1 << 20}
    number = text.rstrip("KM")
    return int(number) * units.get(text[-1:], 1) if number.isdigit() else 0
