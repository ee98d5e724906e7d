"""Source of the interpolating part of a GPU kernel: every program sums its own taps.

The loops run over the taps of all dimensions, in the order in which CPU kernels add: outermost is
the dimension that is summed up last. Weights come from the filter's table as they are needed
(kernels/taps.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .expr import Expr, walk

if TYPE_CHECKING:
    from .gpu import Writer


class SamplerWriter:
    """Writes the lines of the sampler; works for one `Writer`."""

    def __init__(self, writer: Writer) -> None:
        assert writer.spec.sampler is not None
        self.writer = writer
        self.spec = writer.spec
        self.value = writer.spec.sampler.value
        self.axes = writer.spec.sampler.axes
        self.lanes = range(writer.spec.sampler.lanes)

    def name(self, e: Expr) -> str:
        """The variable of a `sample` leaf."""
        return f"sampled_{e.attr}"

    def lines(self) -> Iterator[str]:
        dims = [str(k) for k in range(len(self.axes))]
        for k, axis in zip(dims, self.axes, strict=True):
            yield from self._dimension(k, axis)
        outer, *inner = [dims[-1], *dims[:-1]]
        if len(dims) == 2:
            yield from self._turned()
            outer, inner = "outer", ["inner"]
        for lane in self.lanes:
            yield f"sampled_{lane} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield f"for tap_{outer} in range(tap_count_{outer}):"
        yield from _indent(self._tap_weight(outer))
        for lane in self.lanes:
            yield f"    row_{lane} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield from _indent(self._rows(inner, []))
        for lane in self.lanes:
            yield f"    sampled_{lane} = sampled_{lane} + w_{outer} * row_{lane}"

    def _turned(self) -> Iterator[str]:
        """Which of two dimensions is summed up last depends on the sample: see NOTE [order of
        sums]."""
        names = [f"tap_{what}" for what in ("count", "base", "in", "table", "stretch")]
        for name in (*names, "first", "at", "total"):
            yield f"{name}_outer = tl.where(tap_last_0 != 0, {name}_0, {name}_1)"
            yield f"{name}_inner = tl.where(tap_last_0 != 0, {name}_1, {name}_0)"

    def _rows(self, dims: list[str], done: list[str]) -> Iterator[str]:
        """The loops over the taps of these dimensions, and the sum of the values there."""
        if dims:
            k, *rest = dims
            yield f"for tap_{k} in range(tap_count_{k}):"
            yield from _indent([*self._tap_weight(k), *self._rows(rest, [*done, k])])
            return
        if len(self.axes) == 2:
            yield "p_0 = tl.where(tap_last_0 != 0, p_outer, p_inner)"
            yield "p_1 = tl.where(tap_last_0 != 0, p_inner, p_outer)"
        weight = " * ".join(f"w_{k}" for k in done) or "1.0"
        yield f"weight = {weight}"
        for lane in self.lanes:
            text, value = self._tap(lane)
            yield from text
            yield f"row_{lane} = row_{lane} + weight * {value}"

    def _tap_weight(self, k: str) -> Iterator[str]:
        """The normalised weight of a tap, and the pixel that it reads."""
        yield from self._weight(k, f"tap_{k}")
        yield f"w_{k} = tl.div_rn(w_{k}, total_{k})"
        yield f"p_{k} = tl.maximum(tap_base_{k} + first_{k} + tap_{k}, 0)"
        yield f"p_{k} = tl.minimum(p_{k}, tap_in_{k} - 1).to(INDEX)"

    def _dimension(self, k: str, axis: int | None) -> Iterator[str]:
        """Where the taps of a dimension begin, and the sum of their weights."""
        o = "lane * 0" if axis is None else f"o_{axis}"
        yield f"out_{k}_ = tl.maximum(tap_step_{k} * ({o}) + tap_at_{k}, 0)"
        yield f"out_{k}_ = tl.minimum(out_{k}_, tap_n_{k} - 1).to(tl.int32)"
        yield f"half_{k} = tl.where(tap_nearest_{k} == 0, 0.0, 0.5)"
        yield f"at_{k} = (out_{k}_.to(tl.float32) + half_{k}) * tap_scale_{k} + tap_origin_{k}"
        yield f"if tap_nearest_{k} == 2:"
        yield f"    at_{k} = tap_origin_{k} + 0.5 * tap_scale_{k} + out_{k}_.to(tl.float32) * 0.0"
        yield f"    for step in range(tap_n_{k}):"
        yield f"        at_{k} = tl.where(step < out_{k}_, at_{k} + tap_scale_{k}, at_{k})"
        # far outside all taps are the border pixel, and an integer holds the position
        yield f"far_{k} = (tap_in_{k} + tap_count_{k} + 1).to(tl.float32)"
        yield f"at_{k} = tl.minimum(tl.maximum(at_{k}, 0.0 - far_{k}), far_{k})"
        yield f"first_{k} = tl.where(tap_nearest_{k} != 0, tl.floor(at_{k}), tl.ceil(at_{k}))"
        yield f"first_{k} = first_{k}.to(tl.int32)"
        yield f"total_{k} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield f"for tap in range(tap_count_{k}):"
        yield from _indent(self._weight(k, "tap"))
        yield f"    total_{k} = total_{k} + w_{k}"

    def _weight(self, k: str, tap: str) -> Iterator[str]:
        """The filter, read from its table, at the distance of a tap."""
        yield f"d_{k} = ((first_{k} + {tap}).to(tl.float32) - at_{k}) * tap_stretch_{k}"
        yield f"j_{k} = d_{k}.to(tl.int32)"
        yield f"knot_{k} = tap_table_{k}.to(tl.pointer_type(tl.float32)) + j_{k}"
        yield f"w_{k} = tl.load(knot_{k})"
        yield f"next_{k} = tl.load(knot_{k} + 1)"
        yield f"w_{k} = w_{k} + (d_{k} - j_{k}.to(tl.float32)) * (next_{k} - w_{k})"

    def _tap(self, lane: int) -> tuple[list[str], str]:
        """Lines that compute the value of one tap, and its name."""
        writer, rank = self.writer, self.spec.rank
        names = dict(writer.names)  # of what has been computed outside of the loops
        lines: list[str] = []
        for e in walk([self.value]):
            if e.op == "const" or e in names:
                continue
            name = f"v{lane}_{len(lines)}"
            if e.op == "load":
                access = self.spec.loads[e.attr]
                positions = [*(f"p_{k}" for k in range(len(self.axes))), str(lane)]
                positions = positions[: len(access.strides) - rank]
                pointer = writer.pointer("in", e.attr, access, (), True, positions)
                loaded = f"tl.load({pointer}, mask=inside, other=0)"
                lines.append(f"{name} = {loaded}" + (" != 0" if e.dtype.name == "bool" else ""))
            else:
                writer.names[e] = name
                lines += writer.assign(e, masked=True)
            writer.names[e] = name
        value = writer.typed(self.value)
        writer.names = names
        return lines, value


def _indent(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return ("    " + line for line in lines)
