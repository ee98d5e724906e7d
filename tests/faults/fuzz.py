"""Runs all generators of faults in turns until the time is used up: `make fuzz MINUTES=3`.

    python -m tests.faults.fuzz --minutes 3                          all of them, with fresh seeds
    python -m tests.faults.fuzz --minutes 60 --only pictures,forks   some of them (module or module.what)
    python -m tests.faults.fuzz --again tests/faults/past/NAME.json  a failure again
    python -m tests.faults.fuzz --table FILE                         the table of all results in a file

Past failures run first. Each job is a child process with limits of time and memory. A crash, a hang, a wrong
value, a leak and an unexpected error are failures; each is shrunk, kept as a file in tests/faults/past
(`--past` names another folder), and printed with the command that repeats it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.faults import pictures
from tests.faults.generators import GENERATORS, Generator, named
from tests.faults.jobs import Case, Job, Outcome
from tests.faults.shrinking import shrunk
from tests.helpers import ROOT

PAST = Path(__file__).with_name("past")
START_SECONDS = 3.0  # of a child, on a machine with other work to do; part of its turn


class Totals:
    """What was tried, by generator; each job is also appended to a file if one is given."""

    def __init__(self, results: Path | None = None) -> None:
        self.rows: dict[str, list[float]] = {}  # name → tried, failed, seconds
        self._results, self._tree = results, _tree()

    def add(self, case: Case, outcome: Outcome) -> None:
        name, failed = case.generator.name, int(bool(outcome.kind))
        self.count(name, outcome.tried, failed, outcome.seconds)
        if self._results is not None:
            line = {
                "generator": name, "seed": case.seed, "first": case.first, "tried": outcome.tried,
                "failed": failed, "kind": outcome.kind, "seconds": round(outcome.seconds, 1),
                "tree": self._tree, "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M}",
            }  # fmt: skip
            with self._results.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def count(self, name: str, tried: int, failed: int, seconds: float) -> None:
        row = self.rows.setdefault(name, [0, 0, 0.0])
        for k, value in enumerate((tried, failed, seconds)):
            row[k] += value

    @property
    def failed(self) -> int:
        return int(sum(row[1] for row in self.rows.values()))

    def table(self) -> str:
        """A Markdown table."""
        lines = ["| generator | tried | failed | per second |", "|---|--:|--:|--:|"]
        for name, (tried, failed, seconds) in sorted(self.rows.items()):
            rate = tried / seconds if seconds else 0.0
            lines.append(f"| {name} | {int(tried):,} | {int(failed):,} | {rate:,.1f} |")
        return "\n".join(lines)


def _tree() -> str:
    """The commit, with a mark if files differ from it."""
    asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


# -- failures ------------------------------------------------------------------------------------


def keep(case: Case, outcome: Outcome, folder: Path) -> Path:
    """Keep a failure as a file that `--again` repeats."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case.generator.name}-{case.seed}-{case.first}.json"
    record = {
        "generator": case.generator.name, "seed": case.seed, "first": case.first, "count": case.count,
        "size": case.size, "kind": outcome.kind, "detail": outcome.detail,
    }  # fmt: skip
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def kept(path: Path) -> Case:
    """The case in a file that `keep` wrote."""
    record = json.loads(path.read_text())
    generator = named(record["generator"])
    return Case(generator, record["seed"], record["first"], record["count"], record["size"])


def report(case: Case, outcome: Outcome, folder: Path, shrink_seconds: float) -> None:
    """Shrink and keep a failure, and print how to repeat it."""
    print(f"\nFAILED {case}: {outcome.kind}\n{outcome.detail}", flush=True)
    case, outcome = shrunk(case, outcome, shrink_seconds)
    path = keep(case, outcome, folder)
    print(f"shrunk to {case}\nagain: python -m tests.faults.fuzz --again {path}\n", flush=True)


# -- runs ----------------------------------------------------------------------------------------


def run_past(folder: Path, totals: Totals) -> None:
    """All failures of the past, and the picture files among them."""
    files = sorted(folder.glob("*.bin"))
    if files:
        begin = time.monotonic()
        found = pictures.run_files([path.read_bytes() for path in files])
        for trouble in found.troubles:
            print(f"FAILED again: {files[trouble.number]}: {trouble.kind} {trouble.detail}")
        seconds = time.monotonic() - begin
        totals.count("past pictures", len(files), len(found.troubles), seconds)
    for path in sorted(folder.glob("*.json")):
        outcome = Job(kept(path)).finished()
        totals.count("past failures", 1, int(bool(outcome.kind)), outcome.seconds)
        if outcome.kind:
            print(f"FAILED again: {path}: {outcome.kind}\n{outcome.detail}")


def run(
    generators: Sequence[Generator], minutes: float, seed: int, jobs: int, slices: float,
    totals: Totals, failed: Callable[[Case, Outcome], None],
) -> None:  # fmt: skip
    """Run generators in turns, `jobs` at a time: always the one that had the least time for its weight.

    Turns are shorter if otherwise not all of them would have one.
    """
    end = time.monotonic() + 60 * minutes
    time_of_cases = 0.9 * 60 * minutes * jobs - START_SECONDS * len(generators)
    slices = min(slices, max(0.05, time_of_cases / sum(g.seconds for g in generators)))
    order = random.Random(seed).sample(generators, len(generators))
    used = dict.fromkeys(order, 0.0)
    running: list[Job] = []
    seeds = iter(range(seed, seed + 2**31))
    try:
        while True:
            left = end - time.monotonic()
            while left > 0 and len(running) < jobs:
                turn = min(used, key=lambda g: used[g] / g.weight)
                seconds = min(slices * turn.seconds + START_SECONDS, left)
                used[turn] += seconds  # at once, so that the next one is another
                case = Case(turn, next(seeds), 0, turn.count)
                running.append(Job(case, seconds).start())
            if not running:
                return
            time.sleep(0.05)
            for job in list(running):
                outcome = job.poll()
                if outcome is None:
                    continue
                running.remove(job)
                used[job.case.generator] += outcome.seconds - job.seconds
                totals.add(job.case, outcome)
                if outcome.kind:
                    failed(job.case, outcome)
    finally:
        for job in running:
            job.kill()


def chosen(only: str) -> Iterator[Generator]:
    """Generators by modules or names, separated by commas; all if there is none."""
    wanted = [w for w in only.split(",") if w]
    for name in wanted:
        if name not in {g.module for g in GENERATORS}:
            named(name)
    for generator in GENERATORS:
        if not wanted or generator.module in wanted or generator.name in wanted:
            yield generator


def table_of(file: Path) -> str:
    """The table of all results in a file."""
    totals, trees = Totals(), set()
    for text in file.read_text().splitlines():
        line: dict[str, Any] = json.loads(text)
        totals.count(line["generator"], line["tried"], line["failed"], line["seconds"])
        trees.add(f"{line['tree']} {line['date'][:10]}")
    return f"{totals.table()}\n\nTrees: {', '.join(sorted(trees))}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--only", default="", help="modules or generators, separated by commas")
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first job; random if omitted"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="children at a time")
    parser.add_argument("--slices", type=float, default=1.0, help="longer turns, for long runs")
    parser.add_argument("--past", type=Path, default=PAST, help="where failures are kept")
    parser.add_argument("--results", type=Path, help="a file that a line is appended to per job")
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds to shrink a failure in")
    parser.add_argument("--again", type=Path, help="run the failure of a file again")
    parser.add_argument("--table", type=Path, help="print the table of a file of results")
    given = parser.parse_args(arguments)
    if given.table:
        print(table_of(given.table))
        return 0
    if given.again:
        outcome = Job(kept(given.again)).finished()
        print(json.dumps(asdict(outcome), indent=1).replace("\\n", "\n"))
        return int(bool(outcome.kind))
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    os.environ["NDD_FUZZ_PAST"] = str(given.past)
    print(f"seed {seed}, tree {_tree()}", flush=True)
    totals, begin = Totals(given.results), time.monotonic()
    run_past(given.past, totals)
    left = given.minutes - (time.monotonic() - begin) / 60
    run(
        [*chosen(given.only)], left, seed, given.jobs, given.slices, totals,
        lambda case, outcome: report(case, outcome, given.past, given.shrink),
    )  # fmt: skip
    print(f"\n{totals.table()}\n\nfailed: {totals.failed}")
    return int(totals.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
