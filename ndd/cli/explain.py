"""`python -m ndd explain script.py`: runs a script and prints the plans of its programs."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..fusion.plan.program import Program, Report
from ..fusion.run import executor
from ..runtime.context import EvalContext
from ..tools.explain import Explanation, counted, describe
from ..tools.outputs import write_output


class Ran:
    """A plan that ran: its explanation for the sizes of the first run, and the number of runs."""

    def __init__(self, first: Explanation) -> None:
        self.first = first
        self.count = 0


@contextmanager
def recorded() -> Iterator[list[Ran]]:
    """A list of all plans that run inside ``with``."""
    found: list[Ran] = []
    known: dict[int, tuple[Report, Ran]] = {}  # by id of the plan, which the report keeps alive

    def observe(program: Program, report: Report) -> None:
        if id(report.plan) not in known:
            ran = Ran(describe(report, program))
            known[id(report.plan)] = (report, ran)
            found.append(ran)
        known[id(report.plan)][1].count += 1

    executor.observers.append(observe)
    try:
        yield found
    finally:
        executor.observers.remove(observe)


def explain(script: str, arguments: list[str], source: bool, page: str | None) -> int:
    """Run the script, print what ran even if it fails, and return the script's exit code."""
    code = 0
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    with recorded() as found:
        try:
            runpy.run_path(script, run_name="__main__")
            EvalContext.current().evaluate_all()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.argv, sys.path[0] = before
            _tell(script, found, source)
    if page is not None:
        write_output(page, _page(script, found))
        print(f"\nwrote {page}")
    return code


def _tell(script: str, found: list[Ran], source: bool) -> None:
    print(f"\n{script}: {counted(len(found), 'program')} ran")
    for number, ran in enumerate(found):
        times = "once" if ran.count == 1 else f"{ran.count} times"
        print(f"\nprogram {number}, {times}: {ran.first}")
        for group in ran.first.groups:
            if source and group.code:
                print(f"\n{group.code}")


def _page(script: str, found: list[Ran]) -> str:
    from html import escape

    head = f'<!doctype html><meta charset="utf-8"><title>{escape(script)}</title>'
    parts = [f"<h2>Program {n}, ran {r.count} ×</h2>{r.first._repr_html_()}"
             for n, r in enumerate(found)]  # fmt: skip
    return "\n".join([head, *parts])
