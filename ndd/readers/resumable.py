"""The state of a reader: a position enters, a small text leaves, and back."""

from __future__ import annotations

import warnings
from typing import Any

from ..kernels.common import forks
from .epoch import Samples
from .order import Order, Position
from .rest import Division, divide, parse_divisions
from .state import STATE_VERSION, ReaderState


class Resumable:
    """What a reader's checkpoints need of it, and `get_state` and `set_state`."""

    _where: str
    _shard_id: int
    _num_shards: int
    _stick: bool
    _last: str
    _shuffle: str
    _seed: int
    _position: Position
    _divisions: list[Division]
    _has_run: bool
    _giving: forks.Lock

    def _data(self) -> tuple[Samples, Order]:
        raise NotImplementedError

    def _config(self) -> dict[str, Any]:
        """The options that must be equal for a state to mean the same samples."""
        return {
            "reader": type(self).__name__,
            "samples": self._data()[1].count,
            "shard_id": self._shard_id,
            "num_shards": self._num_shards,
            "stick_to_shard": self._stick,
            "last_batch": self._last,
            "shuffle": self._shuffle,
            "seed": self._seed,
        }

    def get_state(self, *, cuda_stream: Any = None) -> ReaderState:
        """The state of the reader after the last batch that it returned.

        `cuda_stream` has no effect.
        """
        at = self._position
        return ReaderState(
            {
                "version": STATE_VERSION,
                **self._config(),
                "list": self._data()[0].fingerprint(),
                "epoch": at.epoch,
                "pass": at.pass_,
                "offset": at.offset,
                "taken": at.taken,
            }
            | self._divided(at)
        )

    def _divided(self, at: Position) -> dict[str, Any]:
        """The divisions of this epoch among other numbers of ranks, as a part of the state."""
        if not self._divisions or self._divisions[0].at.epoch != at.epoch:
            return {}
        return {"rest": [division.as_list() for division in self._divisions]}

    def set_state(self, state: Any) -> None:
        """Continue from a state or its text: the next epoch yields the remaining batches.

        This works only before the first batch. If the state is that of a reader with another number
        of shards, the samples that all its ranks had left are divided among the new ranks.
        """
        if self._has_run:
            raise RuntimeError(
                f"{self._where}: a state cannot be set after the first batch was read: set it "
                f"on a new reader, before next_epoch"
            )
        values = ReaderState.parse(state, self._where).values
        is_new = values.get("num_shards") != self._num_shards
        for key, wanted in self._config().items():
            if values.get(key) != wanted and not (is_new and key in ("num_shards", "shard_id")):
                raise ValueError(
                    f"{self._where}: the state is that of another reader: {key} is "
                    f"{values.get(key)!r} there and {wanted!r} here"
                )
        numbers: list[Any] = [values.get(key) for key in ("epoch", "pass", "offset", "taken")]
        divisions = values.get("rest", [])
        if not self._is_position(numbers, is_divided=is_new or bool(divisions)):
            found = str(numbers)[:200]
            raise ValueError(f"{self._where}: the state has no valid position: {found}")
        if values.get("list") != self._data()[0].fingerprint():
            warnings.warn(
                f"{self._where}: the samples have other names than when the state was saved; "
                f"the batches that were left may hold other samples",
                stacklevel=2,
            )
        self._position = Position(*numbers)
        if is_new:
            divisions = [*divisions, [values.get("num_shards"), values.get("shard_id"), *numbers]]
        if divisions:
            self._divide(parse_divisions(divisions, self._where, self._data()[1].count), is_new)

    def _is_position(self, numbers: list[Any], is_divided: bool) -> bool:
        """Whether the reader can be at a position; that of another division is checked later."""
        if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
            return False
        at, order = Position(*numbers), self._data()[1]
        return order.is_possible(at) if is_divided else order.has(at, self._last == "wrap")

    def _divide(self, divisions: list[Division], is_new: bool) -> None:
        """Read what other numbers of ranks had left, from its begin if it `is_new`."""
        order = self._data()[1]
        order.rest, pass_ = divide(order, divisions, self._last == "wrap")
        epoch = divisions[0].at.epoch
        self._divisions = divisions if order.rest is not None else []
        if order.rest is None:
            self._position = Position(epoch + 1, pass_ + 1)
        elif is_new:
            self._position = Position(epoch, pass_)

    # -- pickling ----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """The arguments, and the state that was set: a copy lists the samples again."""
        if self._has_run:
            raise TypeError(
                f"{self._where}: a reader that has begun an epoch cannot be pickled or copied: do "
                f"that before next_epoch, or pass on its get_state()"
            )
        is_set = self._position != Position() or self._divisions
        unset: dict[str, Any] = {
            "_made": None,
            "_giving": None,
            "_position": Position(),
            "_divisions": [],
        }
        return vars(self) | unset | {"_state_to_set": str(self.get_state()) if is_set else None}

    def __setstate__(self, values: dict[str, Any]) -> None:
        state = values.pop("_state_to_set")
        vars(self).update(values)
        self._giving = forks.lock()
        if state is not None:
            self.set_state(state)
