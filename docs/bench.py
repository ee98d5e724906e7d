"""`python -m docs.bench`: write tables of bench/results.csv into the README and performance.md."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS, README = ROOT / "bench" / "results.csv", ROOT / "README.md"
OPS_PAGE = ROOT / "docs" / "performance.md"  # has the table of single ops
TRANSFORMS_PAGE = ROOT / "docs" / "transforms.md"  # has the table of the public RGB benchmark
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
ORACLES = ("oracle dynamic", "oracle")
# A user would not compare with these: a lower bound, a part of the work, other modes of ndd.
NOT_PEERS = ("copy", "decode only", "ndd")
TITLES = {"one op call": "one op call on 8 images of 4×4×3"}
NOT_SHOWN = ("batch ", "images ", "threads", "time ", "stall", "peak memory", "transform ")
FIRST = "ResNet-50"
# Workloads of single ops, which would fill the README: by the first word of their names.
OPS = frozenset(
    "gaussian_blur filter dilate erode median_blur equalize clahe debayer sum mean mean_square rms "
    "min max variance std_dev normalize x random_bbox_crop box_encoder bb_flip bbox_paste "
    "bbox_rotate coord_flip coord_transform random_crop_generator roi_random_crop "
    "segmentation.random_object_bbox segmentation.random_mask_pixel segmentation.select_masks JPEG "
    "sequence_rearrange crop spectrogram audio_resample decoders.audio".split()
)

Rows = dict[str, dict[str, str]]  # name of a contestant → its line of the file


def newest(path: Path = RESULTS) -> dict[str, Rows]:
    """Each workload with its rows of the last run: those that share the newest date and commit."""
    found: dict[str, Rows] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            rows = found.setdefault(row["workload"], {})
            if any((r["date"], r["commit"]) != (row["date"], row["commit"]) for r in rows.values()):
                rows.clear()
            rows[row["name"]] = row
    return {w: found[w] for w in sorted(found, key=lambda w: not w.startswith(FIRST))}


def table(workloads: dict[str, Rows]) -> str:
    """A Markdown table with a line for each workload in which a peer was measured, too."""
    lines = [
        "| workload | ndd | DALI dynamic | | best of the others | | run |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for workload, rows in workloads.items():
        ours = rows.get("ndd")
        if ours is None or ours["unit"] != "s" or workload.startswith(NOT_SHOWN):
            continue
        oracle = next((rows[n] for n in ORACLES if n in rows), None)
        peers = [r for n, r in rows.items() if r is not oracle and not n.startswith(NOT_PEERS)]
        best = min(peers, key=seconds, default=None)
        if oracle is None and best is None:
            continue
        label = f" ({best['name']})" if best else ""
        run = f"{ours['date']}, {ours['commit']}"
        lines.append(
            f"| {titled(workload)} | {shown(ours)} | {shown(oracle)} | {factor(ours, oracle)} "
            f"| {shown(best)}{label} | {factor(ours, best)} | {run} |"
        )
    return "\n".join(lines)


def titled(workload: str) -> str:
    for prefix, title in TITLES.items():
        workload = re.sub(f"^{prefix}", title, workload)
    return workload


def seconds(row: dict[str, str]) -> float:
    return float(row["value"])


def shown(row: dict[str, str] | None) -> str:
    """A time in a suitable unit, with a * if the machine was busy."""
    if row is None:
        return "–"
    value = seconds(row)
    unit, scale = ("ms", 1e3) if value >= 1e-4 else ("µs", 1e6)
    return f"{value * scale:.3g} {unit}{' *' if row['busy'] not in ('0', 'False', '') else ''}"


def factor(ours: dict[str, str], other: dict[str, str] | None) -> str:
    return "" if other is None else f"{seconds(other) / seconds(ours):.2g}×"


def is_op(workload: str) -> bool:
    """Whether a workload measures a single op."""
    return re.split(r"[ ,]", workload)[0] in OPS


def block(of_ops: bool = False) -> str:
    """The table of programs, or that of single ops, and the notes below it."""
    workloads = {w: rows for w, rows in newest().items() if is_op(w) == of_ops}
    if of_ops:
        return table(workloads)
    machines = sorted({r["machine"] for rows in workloads.values() for r in rows.values()})
    return (
        f"{table(workloads)}\n\n"
        f"Medians of interleaved rounds on {' and '.join(machines)}, from "
        f"[bench/results.csv](bench/results.csv), where the spreads are; × is how many times as "
        f"long\nthe other takes, * that other processes disturbed the run. The machine is a noisy "
        f"virtual one: trust ratios, not times.\nRerun: `make bench` "
        f"([how it is measured](bench/README.md)). **Nothing here was timed on a GPU.**"
    )


def transform_block() -> str:
    """The table of single transforms: ours, the fastest peer of each, all others, what differs."""
    from bench.transform_list import TRANSFORMS

    measured = newest()
    lines = [
        "| transform | ndd | fastest peer | | the others | |",
        "|---|--:|--:|--:|---|---|",
    ]
    leads = []
    for t in TRANSFORMS:
        rows = dict(measured.get(f"transform {t.name}", {}))
        ours = rows.pop("ndd", None)
        if ours is None or not rows:
            lines.append(f"| {t.name} | – | – | | | {t.note or 'not measured'} |")
            continue
        first, *others = sorted(rows.values(), key=seconds)
        leads.append(seconds(first) / seconds(ours))
        rest = ", ".join(f"{r['name']} {shown(r)}" for r in others)
        ratio = f"**{leads[-1]:.2f}**" if leads[-1] >= 1 else f"{leads[-1]:.2f}"
        lines.append(
            f"| {t.name} | {shown(ours)} | {shown(first)} ({first['name']}) | {ratio} | {rest} "
            f"| {t.note} |"
        )
    if not leads:
        return "\n".join(lines)
    mean = math.exp(sum(map(math.log, leads)) / len(leads))
    ahead = sum(lead >= 1 for lead in leads)
    runs = sorted({f"{r['date']}, {r['commit']}, {r['machine']}" for w, rows in measured.items()
                   if w.startswith("transform ") for r in rows.values()})  # fmt: skip
    return (
        f"First in {ahead} of {len(leads)} transforms; geometric mean of the ratios {mean:.2f}.\n\n"
        + "\n".join(lines)
        + f"\n\nRuns: {'; '.join(runs)}."
    )


def rendered_transforms(text: str) -> str:
    """The text of the page of transforms with an updated table."""
    return _replaced(text, transform_block())


def rendered(text: str) -> str:
    """The text of the README with an updated table."""
    return _replaced(text, block())


def rendered_ops(text: str) -> str:
    """The text of the page about performance with an updated table."""
    return _replaced(text, block(of_ops=True))


def _replaced(text: str, content: str) -> str:
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{content}\n{END}", text, flags=re.DOTALL)


def renew() -> None:
    """Write the tables of the newest measurements into the README and the page of performance."""
    README.write_text(rendered(README.read_text()))
    OPS_PAGE.write_text(rendered_ops(OPS_PAGE.read_text()))
    TRANSFORMS_PAGE.write_text(rendered_transforms(TRANSFORMS_PAGE.read_text()))


if __name__ == "__main__":
    renew()
