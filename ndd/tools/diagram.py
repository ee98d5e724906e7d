"""Draws plans: an Explanation enters, SVG or HTML for a notebook leaves.

Boxes are inputs and groups, in layers: a group stands below everything it reads. A group lists its
ops, one per row, in the order of the calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from .explain import Explanation, size_text

CHAR_PX, ROW_PX, PAD_PX = 6.7, 22, 12  # for 11 px monospace text
GAP_X, GAP_Y, ARC_PX = 28, 46, 40
MAX_CHARS = 76
# All rules are under one class, because in a notebook styles apply to the whole page.
_STYLE = "".join(
    f".ndd-plan {rule}"
    for rule in (
        "text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#1b1f24}",
        ".name{font-weight:bold}",
        ".note{fill:#57606a}",
        "a text{fill:#0550ae}",
        ".kernel{fill:#eef4ff;stroke:#54749e}",
        ".opaque{fill:#fff7e6;stroke:#b08531;stroke-dasharray:4 3}",
        ".input{fill:#f3f4f6;stroke:#8c959f}",
        ".op{fill:#fff;stroke:#c3cbd4}",
        ".edge{fill:none;stroke:#6e7781;stroke-width:1.3}",
    )
)


@dataclass
class _DiagramRow:
    """One line of text in a box; `op` is the position of the value that it describes."""

    text: str
    style: str = ""
    op: int | None = None
    link: str = ""


@dataclass
class _Box:
    """An input or a group, with its position in the drawing and the values it reads and makes."""

    kind: str
    rows: list[_DiagramRow]
    makes: tuple[int, ...]
    reads: tuple[int, ...]
    title: str = ""
    level: int = 0
    x: float = 0.0
    y: float = 0.0
    width: float = field(init=False)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.text) > MAX_CHARS:
                row.text = f"{row.text[: MAX_CHARS - 1]}…"
        longest = max(len(row.text) for row in self.rows)
        arcs = ARC_PX if self.kind == "kernel" else 0
        self.width = longest * CHAR_PX + 2 * PAD_PX + arcs

    @property
    def height(self) -> float:
        return len(self.rows) * ROW_PX + PAD_PX

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def svg(found: Explanation, links: list[str] | None = None) -> str:
    """The drawing; `links` has a target for each kernel name, by default its source file."""
    if links is None:
        links = [g.source.as_uri() if g.source else "" for g in found.groups]
    boxes = _boxes(found, links)
    _place(boxes)
    ends = [len(found.savings) * CHAR_PX + PAD_PX, *(b.x + b.width for b in boxes)]
    width = max(ends) + PAD_PX
    height = max((b.y + b.height for b in boxes), default=0.0) + PAD_PX + ROW_PX
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ndd-plan" role="img" {size} '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>{escape(found.summary)}</title><style>{_STYLE}</style>",
        '<defs><marker id="ndd-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#6e7781"/></marker></defs>',
        f'<rect {size} fill="#fff"/>',
        *_edges(found, boxes),
        *(part for box in boxes for part in _drawn(found, box)),
        _text(PAD_PX, height - PAD_PX, found.savings, "note"),
        "</svg>",
    ]
    return "\n".join(p for p in parts if p)


def html(found: Explanation) -> str:
    """The drawing, with the generated source of every kernel folded below it."""
    page = hashlib.sha256(str(found).encode()).hexdigest()[:8]
    names = [f"ndd-{page}-{k}" for k in range(len(found.groups))]
    links = [
        f"#{n}" if g.spec is not None else "" for n, g in zip(names, found.groups, strict=True)
    ]
    parts = [f"<div><p>{escape(found.summary)}</p>", svg(found, links)]
    for name, g in zip(names, found.groups, strict=True):
        if g.spec is None:
            continue
        about = f"{escape(g.kernel)} <small>{escape(g.moved)}; source: {escape(str(g.source))}"
        parts.append(
            f"<details><summary>{about}</small></summary>"
            f'<pre id="{name}">{escape(g.code)}</pre></details>'
        )
    return "\n".join([*parts, "</div>"])


# -- boxes ---------------------------------------------------------------------------------------


def _boxes(found: Explanation, links: list[str]) -> list[_Box]:
    """Boxes for the inputs that some group reads, then for all groups, but not for constants."""
    values = found.values
    read = {p for g in found.groups for p in g.reads}
    boxes = [
        _Box("input", [_DiagramRow(f"{v.text}  {size_text(v.nbytes)}", "note")], (p,), (), v.op)
        for p, v in enumerate(values)
        if p in read and v.is_input and not v.is_constant
    ]
    for k, (g, link) in enumerate(zip(found.groups, links, strict=True)):
        rows = [_DiagramRow(f"[{k}] {g.kernel or g.kind}", "name", link=link)]
        rows += [_DiagramRow(f"{values[p].op}  {values[p].text}", op=p) for p in g.members]
        rows.append(_DiagramRow(g.moved, "note"))
        rows.append(_DiagramRow(f"ends because {g.reason}", "note"))
        reads = tuple(p for p in g.reads if not values[p].is_constant)
        boxes.append(_Box(g.kind, rows, g.outputs, reads, f"ends because {g.reason}"))
    return boxes


def _place(boxes: list[_Box]) -> None:
    """Arrange boxes in layers from top to bottom, each near the middle of the boxes it reads."""
    maker = {p: b for b in boxes for p in b.makes}
    for box in boxes:  # in the order of execution
        above = [maker[p].level for p in box.reads if p in maker and maker[p] is not box]
        box.level = 1 + max(above, default=0) if box.kind != "input" else 0
    for box in boxes:  # inputs go just above their first reader
        if box.kind == "input":
            readers = [b.level for b in boxes if set(box.makes) & set(b.reads)]
            box.level = min(readers, default=1) - 1
    layers: dict[int, list[_Box]] = {}
    for box in boxes:
        layers.setdefault(box.level, []).append(box)
    y = float(PAD_PX)
    for level in sorted(layers):
        layer = layers[level]
        layer.sort(key=lambda b: _wanted(b, maker))
        left = float(PAD_PX)
        for box in layer:
            box.x, box.y = max(left, _wanted(box, maker) - box.width / 2), y
            left = box.x + box.width + GAP_X
        y += max(b.height for b in layer) + GAP_Y


def _wanted(box: _Box, maker: dict[int, _Box]) -> float:
    above = [maker[p].middle for p in box.reads if p in maker]
    return sum(above) / len(above) if above else 0.0


# -- shapes --------------------------------------------------------------------------------------


def _edges(found: Explanation, boxes: list[_Box]) -> Iterable[str]:
    """A curve for every value that goes from one box to another, labelled with its bytes."""
    maker = {p: b for b in boxes for p in b.makes}
    for box in boxes:
        reads = [p for p in box.reads if p in maker and maker[p] is not box]
        reads.sort(key=lambda p: maker[p].middle)  # avoids crossing curves
        for k, p in enumerate(reads):
            source = maker[p]
            at = source.makes.index(p) + 1
            x0 = source.x + source.width * at / (len(source.makes) + 1)
            x1 = box.x + box.width * (k + 1) / (len(reads) + 1)
            y0, y1 = source.y + source.height, box.y
            bend = (y1 - y0) / 2
            yield (
                f'<path class="edge" marker-end="url(#ndd-tip)" '
                f'd="M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} '
                f'{x1:.1f} {y1:.1f}"/>'
            )
            if source.kind != "input":  # the box of an input shows the bytes
                label = size_text(found.values[p].made_bytes)
                yield _text((x0 + x1) / 2 + 5, (y0 + y1) / 2 + 4, label, "note")


def _drawn(found: Explanation, box: _Box) -> Iterable[str]:
    yield f'<g class="box"><title>{escape(box.title)}</title>'
    yield _rect(box.x, box.y, box.width, box.height, box.kind, 6)
    ops: dict[int, tuple[float, float]] = {}  # right end and top of each row
    for k, row in enumerate(box.rows):
        top = box.y + PAD_PX / 2 + k * ROW_PX
        if row.op is not None:
            inner = len(row.text) * CHAR_PX + PAD_PX
            ops[row.op] = (box.x + PAD_PX / 2 + inner, top)
            yield _rect(box.x + PAD_PX / 2, top + 2, inner, ROW_PX - 4, "op", 4)
        text = _text(box.x + PAD_PX, top + 15, row.text, row.style)
        yield f'<a href="{escape(row.link)}">{text}</a>' if row.link else text
    yield from _arcs(found, box, ops)
    yield "</g>"


def _arcs(found: Explanation, box: _Box, ops: dict[int, tuple[float, float]]) -> Iterable[str]:
    """Lines between ops of a group: short to the next row, arcs to rows further below."""
    for p, (end, top) in ops.items():
        for source in dict.fromkeys(found.values[p].inputs):
            if source not in ops:
                continue
            begin, above = ops[source]
            if top - above == ROW_PX:
                x = box.x + PAD_PX * 1.5
                yield f'<path class="edge" d="M{x:.1f} {top - 2:.1f}v4"/>'
            else:
                bend = max(begin, end) + ARC_PX
                y0, y1 = above + ROW_PX / 2, top + ROW_PX / 2
                yield (
                    f'<path class="edge" marker-end="url(#ndd-tip)" d="M{begin:.1f} {y0:.1f}'
                    f'C{bend:.1f} {y0:.1f} {bend:.1f} {y1:.1f} {end:.1f} {y1:.1f}"/>'
                )


def _rect(x: float, y: float, width: float, height: float, kind: str, radius: int) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{radius}"/>'
    )


def _text(x: float, y: float, text: str, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}>{escape(text)}</text>' if text else ""
