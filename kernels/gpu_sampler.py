"""Source of the interpolating part of a GPU kernel: every program sums its own taps.

The loops run over the taps of all dimensions, the last one outermost, in the order in which CPU
kernels add; weights come from the filter's table as they are needed (kernels/taps.py).
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
        for k, axis in enumerate(self.axes):
            yield from self._dimension(k, axis)
        last = len(self.axes) - 1
        for lane in self.lanes:
            yield f"even_{lane} = tl.full((BLOCK,), 0.0, tl.float32)"
            yield f"odd_{lane} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield f"for tap_{last} in range(tap_count_{last}):"
        yield from _indent(self._column(last))
        for lane in self.lanes:
            yield f"sampled_{lane} = even_{lane} + odd_{lane}"

    def _column(self, last: int) -> Iterator[str]:
        """One tap of the last dimension: the sum of its rows, weighted.

        Even and odd taps are summed up apart: see NOTE [pairs of taps].
        """
        yield from self._tap_weight(last)
        for lane in self.lanes:
            yield f"row_{lane} = tl.full((BLOCK,), 0.0, tl.float32)"
        yield from self._rows(0, last)
        yield f"is_odd = tap_{last} % 2 == 1"
        for lane in self.lanes:
            for name, other in (("even", "odd"), ("odd", "even")):
                own = f"tl.fma(w_{last}, row_{lane}, {name}_{lane})"
                kept = f"{name}_{lane}"
                first, second = (kept, own) if other == "odd" else (own, kept)
                yield f"{name}_{lane} = tl.where(is_odd, {first}, {second})"

    def _rows(self, k: int, last: int) -> Iterator[str]:
        """The loops over the taps of all dimensions but the last."""
        if k == last:
            weight = " * ".join(f"w_{j}" for j in range(last)) or "1.0"
            yield f"weight = {weight}" if last else "weight = tl.full((BLOCK,), 1.0, tl.float32)"
            for lane in self.lanes:
                text, value = self._tap(lane)
                yield from text
                yield f"row_{lane} = tl.fma(weight, {value}, row_{lane})"
            return
        yield f"for tap_{k} in range(tap_count_{k}):"
        yield from _indent([*self._tap_weight(k), *self._rows(k + 1, last)])

    def _tap_weight(self, k: int) -> Iterator[str]:
        """The normalised weight of a tap, and the pixel that it reads."""
        yield from self._weight(k, f"tap_{k}")
        yield f"w_{k} = tl.div_rn(w_{k}, total_{k})"
        yield f"p_{k} = tl.maximum(tap_base_{k} + first_{k} + tap_{k}, 0)"
        yield f"p_{k} = tl.minimum(p_{k}, tap_in_{k} - 1).to(INDEX)"

    def _dimension(self, k: int, axis: int | None) -> Iterator[str]:
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

    def _weight(self, k: int, tap: str) -> Iterator[str]:
        """The filter, read from its table, at the distance of a tap."""
        yield f"d_{k} = ((first_{k} + {tap}).to(tl.float32) - at_{k}) * tap_stretch_{k}"
        yield f"j_{k} = d_{k}.to(tl.int32)"
        yield f"w_{k} = tl.load(tap_table_{k} + j_{k})"
        yield f"next_{k} = tl.load(tap_table_{k} + j_{k} + 1)"
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
