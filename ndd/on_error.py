"""What happens to a sample that cannot be read or decoded: the policy `on_error` and its ledger.

`"raise"` stops at the batch, `"skip"` puts another sample in its place, `"fill"` an empty one; a
function is called with the `SampleError` and gives the data to use, or None to skip. All but the
first keep the length of the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

POLICIES = ("raise", "skip", "fill")


@dataclass(frozen=True, slots=True)
class SampleError:
    """One sample that could not be used."""

    file: str
    index: int
    cause: BaseException


Policy = Literal["raise", "skip", "fill"] | Callable[[SampleError], Any]


def check_policy(value: Any, where: str) -> Policy:
    """The argument `on_error` of the reader or op `where`."""
    if callable(value) or value in POLICIES:
        return value  # type: ignore[no-any-return]
    raise ValueError(
        f'{where}: `on_error` must be "raise", "skip", "fill" or a function, got {value!r}'
    )


class Ledger(list[SampleError]):
    """The samples that could not be used, each once, in the order in which they were met."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[tuple[str, int]] = set()

    def add(self, file: str, index: int, cause: BaseException) -> SampleError:
        # without its traceback, whose frames would keep the buffers of a batch alive
        entry = SampleError(file, index, cause.with_traceback(None))
        # once per sample: a file that is bad in every epoch must not make the ledger grow
        if (file, index) not in self._known:
            self._known.add((file, index))
            self.append(entry)
        return entry
