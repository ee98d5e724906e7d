"""The policy `on_error` for samples that cannot be read or decoded, and the ledger of failures.

`"raise"` stops at the batch, `"skip"` replaces the sample by another, `"fill"` by an empty one. A
function gets the `SampleError` and returns the data to use, or None to skip the sample. All
policies but `"raise"` keep the length of the batch.

Only readers skip: they replace a sample together with its labels. A decoder has no labels, and
would put the picture of one sample beside the label of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..kernels.common import forks

POLICIES = ("raise", "skip", "fill")


@dataclass(frozen=True, slots=True)
class SampleError:
    """One sample that could not be used."""

    file: str
    index: int
    cause: BaseException


Policy = Literal["raise", "skip", "fill"] | Callable[[SampleError], Any]


def check_policy(value: Any, where: str) -> Policy:
    """Check the argument `on_error` of the reader or op `where`."""
    if callable(value) or value in POLICIES:
        return value  # type: ignore[no-any-return]
    raise ValueError(
        f'{where}: `on_error` must be "raise", "skip", "fill" or a function, got {value!r}'
    )


def check_decoder_policy(value: Any, where: str) -> Policy:
    """Check the argument `on_error` of a decoder."""
    if isinstance(value, str) and value == "skip":
        raise ValueError(
            f'{where}: on_error="skip" would put other samples beside the labels of bad ones; use '
            f'on_error="fill", and images.valid tells which samples are good: '
            f"images.tensors[images.valid], labels.tensors[images.valid]"
        )
    if callable(value) or value in ("raise", "fill"):
        return value  # type: ignore[no-any-return]
    raise ValueError(f'{where}: `on_error` must be "raise", "fill" or a function, got {value!r}')


class Ledger(list[SampleError]):
    """The samples that could not be used, each once, in the order of their failures.

    A file that fails in every epoch must not make the ledger grow. For a reader, the index is a
    sample of the data set. For a decoder (`of_batches`) it is a position in a batch, which
    differs from epoch to epoch, so there the file alone identifies the sample.
    """

    def __init__(self, of_batches: bool = False) -> None:
        super().__init__()
        self._of_batches = of_batches
        self._known: set[tuple[str, int | str]] = set()

    def add(self, file: str, index: int, cause: BaseException) -> SampleError:
        # Drop the traceback: its frames would keep the buffers of a batch alive.
        entry = SampleError(file, index, cause.with_traceback(None))
        same: int | str = index
        if self._of_batches:
            same = "" if file else str(cause)  # without a file, the message identifies it
        if (file, same) not in self._known:
            self._known.add((file, same))
            self.append(entry)
        return entry

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._known.clear()


class FailuresAhead:
    """Failures of an iteration that is made in advance.

    They enter their ledgers when the caller gets to the iteration, or never, if it does not.
    """

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._waiting: list[tuple[Ledger, SampleError]] = []
        self.is_taken = False  # the caller has got there

    def add(self, ledger: Ledger, file: str, index: int, cause: BaseException) -> SampleError:
        with self._lock:
            if self.is_taken:
                return ledger.add(file, index, cause)
            entry = SampleError(file, index, cause.with_traceback(None))
            self._waiting.append((ledger, entry))
            return entry

    def take(self) -> None:
        with self._lock:
            while self._waiting:
                ledger, entry = self._waiting[0]
                ledger.add(entry.file, entry.index, entry.cause)
                del self._waiting[0]
            self.is_taken = True
