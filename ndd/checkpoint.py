"""Checkpoints: the states of readers and random generators enter, JSON leaves, and back.

>>> import ndd
>>> rng = ndd.random.RNG(seed=1)
>>> checkpoint = ndd.checkpoint.Checkpoint()
>>> checkpoint.register(rng, "augmentation")
'augmentation'
>>> checkpoint.collect()
>>> text = checkpoint.serialize()
>>> resumed = ndd.random.RNG(seed=2)
>>> later = ndd.checkpoint.Checkpoint()
>>> later.deserialize(text)
>>> name = later.register(resumed, "augmentation")
>>> resumed() == rng()
True
"""

from __future__ import annotations

import json
import os
import re
import string
import tempfile
from pathlib import Path
from typing import Any

from .readers.reader import Reader
from .readers.state import ReaderState
from .runtime.context import EvalContext
from .runtime.rng import RNG, State

__all__ = ["Checkpoint", "current"]

FORMAT, VERSION = "ndd-checkpoint", 1


class Checkpoint:
    """Collects, saves and restores the states of readers and random generators.

    To save, `register` each object once, then `collect` and `save` as often as you like. To resume,
    `load`, then `register` new objects under the same names, which sets their states.
    """

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}
        self._states: dict[str, tuple[str, Any]] = {}  # name → (type of the object, its state)
        self._is_complete = False
        self._is_loaded = False

    # -- objects -----------------------------------------------------------------------------

    def register(self, op: Any, name: str | None = None) -> str:
        """Add a reader or a generator. After loading, its state is set from the checkpoint.

        Returns the name. If none is given, it is made from the number of registered objects, so
        register in the same order when resuming. A second object under a name replaces the first,
        which must have the same type.
        """
        kind = _kind_of(op)
        if name is None:
            name = f"__op_{len(self._objects)}"
        if not isinstance(name, str):
            raise TypeError(f"Checkpoint: a name must be a string, got {type(name).__name__}")
        if not name:
            raise ValueError("Checkpoint: the name must not be empty")
        before = self._objects.get(name)
        if before is not None and _kind_of(before) != kind:
            raise TypeError(
                f"Checkpoint: {name!r} is a {_kind_of(before)}, it cannot be replaced by a {kind}"
            )
        if self._is_loaded:
            if name not in self._states:
                raise KeyError(
                    f"Checkpoint: the loaded checkpoint has no state for {name!r}; "
                    f"it has {_listed(self._states)}"
                )
            self._apply(name, op)
        elif before is None:
            self._is_complete = False
        self._objects[name] = op
        return name

    def _apply(self, name: str, op: Any) -> None:
        kind, state = self._states[name]
        if kind != _kind_of(op):
            raise TypeError(
                f"Checkpoint: the state of {name!r} is that of a {kind}, not of a {_kind_of(op)}"
            )
        op.set_state(state)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the registered objects."""
        return tuple(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, name: object) -> bool:
        return name in self._objects

    @property
    def is_complete(self) -> bool:
        """Whether the states were collected from all objects and have not changed since."""
        return self._is_complete

    @property
    def is_loaded(self) -> bool:
        """Whether the states were loaded and not collected since."""
        return self._is_loaded

    def clear(self) -> None:
        """Forget all objects and states."""
        self.__init__()  # type: ignore[misc]

    # -- states ------------------------------------------------------------------------------

    def collect(self) -> None:
        """Read the states of all registered objects."""
        self._states = {n: (_kind_of(op), op.get_state()) for n, op in self._objects.items()}
        self._is_complete, self._is_loaded = bool(self._objects), False

    def restore(self) -> None:
        """Set the states in the registered objects. Readers must not have run yet."""
        missing = [n for n in self._states if n not in self._objects]
        if missing:
            raise RuntimeError(f"Checkpoint: there are states without objects: {_listed(missing)}")
        for name in self._states:
            self._apply(name, self._objects[name])

    def get_state(self, name: str) -> Any:
        """The state under a name; None if it was not collected yet."""
        if name in self._states:
            return self._states[name][1]
        if name in self._objects:
            return None
        raise KeyError(f"Checkpoint: nothing is registered under {name!r}")

    def set_state(self, name: str, value: Any, op_type: Any = None) -> None:
        """Set the state under a name; `op_type` is needed if nothing is registered there."""
        if op_type is None and name in self._objects:
            kind = _kind_of(self._objects[name])
        elif op_type is None:
            kind = "RNG" if isinstance(value, State) else ""
            if isinstance(value, ReaderState):
                kind = str(value.values.get("reader", ""))
            if not kind:
                raise ValueError(
                    f"Checkpoint: nothing is registered under {name!r}; `op_type` is needed"
                )
        else:
            kind = op_type if isinstance(op_type, str) else op_type.__name__
        self._states[name] = kind, _decoded(kind, value, f"the state of {name!r}")
        self._is_complete = False

    # -- text and files ----------------------------------------------------------------------

    def serialize(self) -> str:
        """The states as JSON."""
        if not self._states:
            raise RuntimeError("Checkpoint: it is empty; call collect() or set_state() first")
        states = {
            name: {"type": kind, "state": str(state) if kind == "RNG" else state.values}
            for name, (kind, state) in self._states.items()
        }
        return json.dumps({"format": FORMAT, "version": VERSION, "states": states}, indent=1)

    def deserialize(self, data: str) -> None:
        """Read the states from JSON that `serialize` made."""
        if not isinstance(data, (str, bytes)):
            raise TypeError(f"Checkpoint: JSON text is needed, got {type(data).__name__}")
        self._states = _parsed(data, "the text")
        self._is_complete, self._is_loaded = False, True

    def save(self, filename: str) -> str:
        """Write a file, and return its name.

        ``{seq}`` or ``{seq:04d}`` in it becomes the next free number. The file is written
        atomically: after a crash it is complete or absent.
        """
        text = self.serialize()
        pattern = _Pattern(filename)
        target = pattern.numbered(max(pattern.existing(), default=-1) + 1)
        _write_atomically(target, text)
        return str(target)

    def load(self, filename: str) -> str:
        """Read a file and return its name. ``{seq}`` stands for the highest existing number."""
        pattern = _Pattern(filename)
        existing = pattern.existing()
        if pattern.has_number and not existing:
            raise FileNotFoundError(f"Checkpoint: no file matches {filename!r}")
        target = existing[max(existing)] if existing else pattern.numbered(0)
        try:
            data = target.read_bytes()
        except FileNotFoundError:
            raise FileNotFoundError(f"Checkpoint: there is no file {str(target)!r}") from None
        self._states = _parsed(data, f"file {str(target)!r}")
        self._is_complete, self._is_loaded = False, True
        return str(target)


def current() -> Checkpoint:
    """The checkpoint of the current `EvalContext`."""
    return EvalContext.current().checkpoint  # type: ignore[no-any-return]


def _kind_of(op: Any) -> str:
    if isinstance(op, RNG):
        return "RNG"
    if isinstance(op, Reader):
        return type(op).__name__
    raise TypeError(
        f"Checkpoint: only readers and random generators have a state, got {type(op).__name__}"
    )


def _listed(names: Any) -> str:
    return ", ".join(repr(n) for n in names) or "none"


def _decoded(kind: str, value: Any, where: str) -> Any:
    """A state as an object, parsed if it is text or JSON."""
    if kind != "RNG":
        return ReaderState.parse(value, where)
    return value if isinstance(value, State) else State.parse(str(value))


def _parsed(data: str | bytes, where: str) -> dict[str, tuple[str, Any]]:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise ValueError(
            f"Checkpoint: {where} is not a checkpoint, or it is cut off: {error}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"Checkpoint: {where} is JSON, but not a checkpoint of ndd")
    if content.get("version") != VERSION:
        raise ValueError(
            f"Checkpoint: {where} has version {content.get('version')!r}; this release reads "
            f"version {VERSION}"
        )
    try:
        return {
            str(name): (str(entry["type"]), _decoded(entry["type"], entry["state"], f"{name!r}"))
            for name, entry in content["states"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"Checkpoint: {where} has no valid states: {error!r}") from None


class _Pattern:
    """A file name in which ``{seq}`` stands for a number."""

    def __init__(self, filename: Any) -> None:
        path = Path(filename)
        self.folder, self.name = path.parent, path.name
        try:
            fields = list(string.Formatter().parse(self.name))
            numbers = {field for _, field, _, _ in fields if field is not None}
            self.name.format(seq=0)
        except (ValueError, KeyError, IndexError) as error:
            raise ValueError(
                f"Checkpoint: {str(filename)!r} is not a pattern: only {{seq}} stands for a "
                f"number, literal braces are doubled ({error!r})"
            ) from None
        self.has_number = "seq" in numbers
        # This matches any text for `{seq:04d}`; `existing` formats the number again to check.
        parts = [re.escape(text) + ("(.+?)" if field else "") for text, field, _, _ in fields]
        self._expression = re.compile("".join(parts), re.DOTALL)

    def numbered(self, number: int) -> Path:
        return self.folder / self.name.format(seq=number)

    def existing(self) -> dict[int, Path]:
        """Files that match, by number."""
        if not self.has_number or not self.folder.is_dir():
            return {}
        found = {}
        for path in self.folder.iterdir():
            match = self._expression.fullmatch(path.name)
            digits = match and re.sub(r"[^0-9]", "", match[1])
            if digits and self.name.format(seq=int(digits)) == path.name:
                found[int(digits)] = path
        return found


def _write_atomically(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            # Otherwise, after a power failure, the name may exist without its content.
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    """The user's umask, for the checkpoint: mkstemp makes files that only the user can read."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
