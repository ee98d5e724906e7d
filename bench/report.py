"""Writes the report of a run: report.md with all tables, rows.csv and plots (PNG and SVG)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from .goals import goals
from .harness import Row, commit, machine, ratio, record, versions

BASES = ("oracle dynamic", "oracle")


def write(rows: Sequence[Row], folder: Path) -> None:
    """Write everything into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "rows.csv"
    table.unlink(missing_ok=True)
    record(rows, table)
    plots = draw(rows, folder)
    (folder / "report.md").write_text(markdown(rows, plots))


def markdown(rows: Sequence[Row], plots: Iterable[str] = ()) -> str:
    """The whole report as text."""
    parts = [
        "# Benchmarks",
        f"{time.strftime('%Y-%m-%d')}, commit {commit()} (+: changed since), on {machine()}, Linux "
        f"{os.uname().release}. Contestants take turns, every loop in a process of its own, with "
        f"two threads or worker processes in all. Medians over rounds; ± is (max − min) / median, "
        f"× is how many times faster than the oracle, round by round. "
        f"Rows with * were taken while other processes used the machine.",
        "Versions: " + ", ".join(f"{n} {v}" for n, v in versions().items()) + ".",
        "## Claims",
        goal_table(rows),
        "Ratios are claims for this machine and this run; absolute times are only reported.",
    ]
    for workload, part in grouped(rows).items():
        parts += [f"## {workload}", row_table(part)]
    parts += [f"![{p}]({p})" for p in plots]
    return "\n\n".join(parts) + "\n"


def goal_table(rows: Sequence[Row]) -> str:
    """The table of claims; those that were measured come first."""
    found = sorted(goals(rows), key=lambda g: g.met is None)
    lines = ["| goal | measured | |", "|---|---|---|"]
    lines += [f"| {g.claim} | {g.measured} | {g.verdict} |" for g in found]
    return "\n".join(lines)


def row_table(rows: Sequence[Row]) -> str:
    """A workload's rows, the best first."""
    base = next((r for r in rows if r.name in BASES), None)
    lines = ["| | median | ± | × |", "|---|--:|--:|--:|"]
    for r in sorted(rows, key=lambda r: r.value):
        against = f"{ratio(r, base):.2f}" if base and r.unit == "s" else ""
        star = " *" if r.busy else ""
        lines.append(f"| {r.name} | {quantity(r)}{star} | {r.spread:.0%} | {against} |")
    return "\n".join(lines)


def quantity(row: Row) -> str:
    """A value with a unit that suits it."""
    if row.unit != "s":
        return f"{row.value:.3g} {row.unit}" if row.value < 100 else f"{row.value:.0f} {row.unit}"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if row.value * factor >= 0.1:
            return f"{row.value * factor:.3g} {unit}"
    return f"{row.value * 1e9:.3g} ns"


def grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by workload, in order."""
    found: dict[str, list[Row]] = {}
    for r in rows:
        found.setdefault(r.workload, []).append(r)
    return found


def draw(rows: Sequence[Row], folder: Path) -> list[str]:
    """Plot bars for every loop and lines for scaled workloads; returns the PNG file names."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ndd"  # equal plots give equal files
    import matplotlib.pyplot as plt

    names: list[str] = []

    def save(figure: object, name: str) -> None:
        figure.tight_layout()
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=110, metadata={})
        plt.close(figure)
        names.append(f"{name}.png")

    for workload, part in grouped(rows).items():
        if len(part[0].samples) > 0 and not _scale(workload):
            save(_bars(plt, workload, part), _file_name(workload))
    for kind in ("batch", "images"):
        if lines := _lines(rows, kind):
            save(_scaling(plt, kind, lines), f"scaling-{kind}")
    return names


def _bars(plt: object, workload: str, rows: Sequence[Row]) -> object:
    """Medians with their range, the best on top."""
    rows = sorted(rows, key=lambda r: r.value, reverse=True)
    factor, unit = (1e3, "ms") if rows[0].unit == "s" else (1.0, rows[0].unit)
    figure, axes = plt.subplots(figsize=(7.5, 1 + 0.28 * len(rows)))
    values = [r.value * factor for r in rows]
    low = [(r.value - min(r.samples)) * factor for r in rows]
    high = [(max(r.samples) - r.value) * factor for r in rows]
    colours = ["tab:orange" if r.name.startswith("ndd") else "tab:blue" for r in rows]
    axes.barh([r.name for r in rows], values, xerr=[low, high], color=colours, capsize=2)
    axes.set_xlabel(unit)
    axes.set_title(workload, fontsize=10)
    return figure


def _scale(workload: str) -> re.Match[str] | None:
    """Match a scaled workload: `batch 64, …` or `images 512×512, …`."""
    return re.match(r"(batch|images) (\d+)", workload)


def _lines(rows: Iterable[Row], kind: str) -> dict[str, list[tuple[int, float]]]:
    """Name → (size, ms per image)."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for r in rows:
        found = _scale(r.workload)
        if found and found[1] == kind:
            lines.setdefault(r.name, []).append((int(found[2]), r.value * 1e3))
    return lines


def _scaling(plt: object, kind: str, lines: dict[str, list[tuple[int, float]]]) -> object:
    figure, axes = plt.subplots(figsize=(7.5, 4))
    for name, points in lines.items():
        axes.loglog(*zip(*points), "o-", label=name)
    axes.set_xlabel({"batch": "batch size", "images": "pixels a side"}[kind])
    axes.set_ylabel("ms per image")
    axes.set_title("ResNet-50 eval, 2 threads", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _file_name(workload: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", workload.lower()).strip("-")
