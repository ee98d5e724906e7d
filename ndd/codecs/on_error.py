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
    """The samples that could not be used, each once, in the order in which they were met.

    A file that is bad in every epoch must not make it grow. To a reader, an index is a sample of
    the data set; to a decoder it is a place in a batch, and the same file comes at another one.
    """

    def __init__(self, of_batches: bool = False) -> None:
        super().__init__()
        self._of_batches = of_batches
        self._known: set[tuple[str, int | str]] = set()

    def add(self, file: str, index: int, cause: BaseException) -> SampleError:
        # without its traceback, whose frames would keep the buffers of a batch alive
        entry = SampleError(file, index, cause.with_traceback(None))
        same: int | str = index
        if self._of_batches:
            same = "" if file else str(cause)  # data without a name: by what is wrong with it
        if (file, same) not in self._known:
            self._known.add((file, same))
            self.append(entry)
        return entry

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._known.clear()
