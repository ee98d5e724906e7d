"""The state of a reader: text or a dictionary enters, a checked object leaves, and back."""

from __future__ import annotations

import json
from typing import Any

STATE_VERSION = 1


class ReaderState:
    """The position of a reader. `set_state` also takes its text, `str(state)`."""

    __slots__ = ("values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @staticmethod
    def parse(state: Any, where: str) -> ReaderState:
        """Make a state from a state, its text (or bytes), or its dictionary."""
        if isinstance(state, ReaderState):
            return state
        if isinstance(state, (str, bytes)):
            try:
                state = json.loads(state)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: not the state of a reader: {error}") from None
        elif not isinstance(state, dict):
            raise TypeError(
                f"{where}: a state must be a ReaderState or its text, got {type(state).__name__}"
            )
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            found = state.get("version") if isinstance(state, dict) else None
            raise ValueError(
                f"{where}: not the state of a reader, or one of another version of ndd: "
                f"wanted version {STATE_VERSION}, got {found!r}"
            )
        return ReaderState(state)

    def __str__(self) -> str:
        return json.dumps(self.values)

    def __repr__(self) -> str:
        return f"ReaderState({self.values})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReaderState) and self.values == other.values

    __hash__ = None  # type: ignore[assignment]
