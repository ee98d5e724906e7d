"""Makes a failure smaller: fewer cases, then fewer mutations, calls or arguments in the last one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tests.faults.jobs import Case, Job, Outcome

Run = Callable[[Case], Outcome]


def shrunk(
    case: Case, outcome: Outcome, seconds: float, run: Run | None = None
) -> tuple[Case, Outcome]:
    """The smallest case found within this time that still fails, and how it fails.

    A hang is not repeated: every try would take as long as it takes to call it a hang.
    """
    if outcome.kind == "hang":
        return (
            case if outcome.number is None else replace(case, first=outcome.number, count=1)
        ), outcome
    try_ = _Search(case, outcome, seconds, run)
    number = outcome.number
    is_alone = number is not None and try_.fails(replace(case, first=number, count=1))
    if not is_alone:
        # The last case needs others before it, or timing decides: fewer cases from the first on.
        count = case.count if number is None else number - case.first + 1
        try_.smallest(lambda n: replace(try_.case, first=case.first, count=n), 1, count)
    most = try_.case.size or case.generator.size
    if most > 1:
        try_.smallest(lambda n: replace(try_.case, size=n), 0, most)
    return try_.case, try_.outcome


class _Search:
    """The smallest failure so far, and the time that is left."""

    def __init__(self, case: Case, outcome: Outcome, seconds: float, run: Run | None) -> None:
        self.case, self.outcome, self._run = case, outcome, run
        self._end = time.monotonic() + seconds

    def fails(self, case: Case) -> bool:
        """Run a case, and keep it if it fails."""
        left = self._end - time.monotonic()
        if left <= 0:
            return False
        outcome = self._run(case) if self._run else Job(case, left).finished()
        if outcome.kind:
            self.case, self.outcome = case, outcome
        return bool(outcome.kind)

    def smallest(self, made: Callable[[int], Case], low: int, high: int) -> None:
        """Search the smallest number from `low` to `high`, which is known to fail, by halving."""
        while low < high:
            middle = (low + high) // 2
            if self.fails(made(middle)):
                high = middle
            else:
                low = middle + 1
