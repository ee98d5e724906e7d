"""`python -m tests.gpu.report`: compile all kernels of tests/gpu/programs.py, update docs/gpu.md.

`python -m tests.gpu.report debayer clahe` compiles only kernels with one of these words in their
names, and keeps the other rows.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np

import ndd
from ndd.kernels.cpu.runtime import kernel_name
from ndd.kernels.gpu.cubin import ARCHS, CubinReport, compile_all
from tests.gpu.programs import all_kernels

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
BEGIN, END = "<!-- kernels: begin -->", "<!-- kernels: end -->"
BYTES_BEGIN, BYTES_END = "<!-- bytes: begin -->", "<!-- bytes: end -->"
COUNT, HEIGHT, WIDTH = 64, 375, 500


def row_name(kernel: str) -> str:
    """How the table calls a kernel: without the digest of its source."""
    return re.sub(r"__[0-9a-f]+$", "", kernel)


def table(reports: list[CubinReport]) -> str:
    """A Markdown table with the registers and modelled occupancy of each kernel per architecture."""
    kernels: dict[str, dict[int, CubinReport]] = {}
    for report in reports:
        kernels.setdefault(report.name, {})[report.arch] = report
    registers = " | ".join(f"sm_{a} registers / occupancy" for a in ARCHS)
    lines = [f"| kernel | {registers} | spills | SASS |", "|---" * (len(ARCHS) + 3) + "|"]
    for name, by_arch in sorted(kernels.items()):
        cells = " | ".join(f"{by_arch[a].registers} / {by_arch[a].occupancy:.2f}" for a in ARCHS)
        spills = max(r.local_bytes for r in by_arch.values())
        lines.append(
            f"| `{row_name(name)}` | {cells} | {spills} | {by_arch[ARCHS[0]].instructions} |"
        )
    return "\n".join(lines)


def byte_programs() -> dict[str, object]:
    """Typical augmentations, for the table of bytes."""

    def normalised(x: object) -> object:
        return ndd.crop_mirror_normalize(x, mean=[120.0], std=[60.0], dtype=ndd.float16)

    return {
        "resize 224² → normalise to f16": lambda x: normalised(ndd.resize(x, size=[224, 224])),
        "resize 256 → crop 224² → flip → brightness_contrast → normalise": lambda x: normalised(
            ndd.brightness_contrast(
                ndd.flip(ndd.crop(ndd.resize(x, size=[256, 256]), crop=[224, 224])), contrast=1.2
            )
        ),
        "rotate → crop 224² → normalise": lambda x: normalised(
            ndd.crop(ndd.rotate(x, angle=15.0), crop=[224, 224])
        ),
        "warp_affine → color_twist": lambda x: ndd.color_twist(
            ndd.warp_affine(x, matrix=[1, 0.1, 0, 0, 1, 0]), hue=20.0
        ),
    }


def byte_table() -> str:
    """A Markdown table of the bytes that fused and unfused plans move; nothing is run."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    lines = ["| program | kernels | MB fused | MB node by node |", "|---|--:|--:|--:|"]
    with ndd.EvalMode.deferred:
        batch = ndd.batch([image] * COUNT, layout="HWC", device="gpu").evaluate()
        for name, program in byte_programs().items():
            plan = ndd.explain(program(batch))  # type: ignore[operator]
            fused, unfused = (f"{b / 1e6:.0f}" for b in (plan.fused_bytes, plan.unfused_bytes))
            lines.append(f"| {name} | {len(plan.kernels)} | {fused} | {unfused} |")
    return "\n".join(lines)


def replaced(text: str, begin: str, end: str, content: str) -> str:
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def merged(page: str, rows: str) -> str:
    """A table with these rows, and with those of a page's table that belong to other kernels."""
    head, rule, *own = rows.splitlines()
    names = {line.split(" | ")[0] for line in own}
    old = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    others = [s for s in old if s.startswith("| `") and s.split(" | ")[0] not in names]
    return "\n".join([head, rule, *sorted([*own, *others], key=lambda s: s.split("`")[1])])


def main(words: list[str]) -> None:
    os.environ["NDD_GPU"] = "simulate"
    page, chosen = PAGE.read_text(), all_kernels()
    if words:
        chosen = [s for s in chosen if any(w in kernel_name(s, "") for w in words)]
    rows = table(compile_all(chosen))
    text = replaced(page, BEGIN, END, merged(page, rows) if words else rows)
    PAGE.write_text(replaced(text, BYTES_BEGIN, BYTES_END, byte_table()))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
