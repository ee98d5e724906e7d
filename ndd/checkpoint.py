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
import re
import string
from pathlib import Path
from typing import Any

from .kernels.common.replacing import (
    NotRegularFileError,
    followed,
    mode_of_new_files,
    replace_file,
)
from .readers.contents import read_file
from .readers.reader import Reader
from .readers.state import ReaderState
from .runtime.context import EvalContext
from .runtime.rng import RNG, State

__all__ = ["Checkpoint", "current"]

FORMAT, VERSION = "ndd-checkpoint", 1
# Numbers that a format of file names must keep apart.
_TRIED = (0, 1, 2, 7, 8, 9, 10, 15, 16, 100, 255, 1000, 65536, 10**6 + 1)
_NUMBERED = "__op_"  # how the names of objects that were registered without a name begin


class Checkpoint:
    """Collects, saves and restores the states of readers and random generators.

    To save, `register` each object once, then `collect` and `save` as often as you like. To resume,
    `load`, then `register` new objects under the same names, which sets their states.
    """

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}
        # Name → (type of the object or "", its state). Text is parsed once the object is known.
        self._states: dict[str, tuple[str, Any]] = {}
        self._unset: set[str] = set()  # names of states that no object has got yet
        self._is_complete = False
        self._is_loaded = False

    # -- objects -----------------------------------------------------------------------------

    def register(self, op: Any, name: str | None = None) -> str:
        """Add a reader or a generator. A state that was loaded or set under its name is set in it.

        Returns the name. If none is given, it is that of an earlier registration of the same
        object, or it is made from the number of registered objects, so register in the same order
        when resuming. A second object under a name replaces the first, which must have the same
        type. After `collect`, no further objects can be added.

        >>> import ndd
        >>> checkpoint, rng = ndd.checkpoint.Checkpoint(), ndd.random.RNG(seed=1)
        >>> checkpoint.register(rng), checkpoint.register(rng)
        ('__op_0', '__op_0')
        """
        kind = _kind_of(op)
        name = self._name_of(op, name)
        before = self._objects.get(name)
        if before is not None and _kind_of(before) != kind:
            raise TypeError(
                f"Checkpoint: {name!r} is a {_kind_of(before)}, it cannot be replaced by a {kind}"
            )
        if before is None and self._is_complete:
            raise RuntimeError(
                f"Checkpoint: no object can be added after collect(), so {name!r} would have no "
                f"state; register it before, or call clear() first"
            )
        if self._is_loaded and name not in self._states:
            raise KeyError(
                f"Checkpoint: the loaded checkpoint has no state for {name!r}; "
                f"it has {_listed(self._states)}"
            )
        if name in self._unset:
            self._apply(name, op)
        self._objects[name] = op
        return name

    def _name_of(self, op: Any, name: str | None) -> str:
        """The name to register an object under."""
        known = next((n for n, o in self._objects.items() if o is op), None)
        if name is None:
            return known or f"{_NUMBERED}{len(self._objects)}"
        if not isinstance(name, str):
            raise TypeError(f"Checkpoint: a name must be a string, got {type(name).__name__}")
        if not name:
            raise ValueError("Checkpoint: the name must not be empty")
        if known is not None and known != name:
            raise RuntimeError(
                f"Checkpoint: the object is registered as {known!r}, it cannot be {name!r} as well"
            )
        if name.startswith(_NUMBERED) and name != known:
            raise ValueError(
                f"Checkpoint: names that begin with {_NUMBERED!r} are made for objects without a "
                f"name, got {name!r}"
            )
        return name

    def _apply(self, name: str, op: Any) -> None:
        kind, state = self._states[name]
        if kind and kind != _kind_of(op):  # before the state is parsed
            raise TypeError(
                f"Checkpoint: the state of {name!r} is that of a {kind}, not of a {_kind_of(op)}"
            )
        op.set_state(state)
        self._states[name] = _kind_of(op), state
        self._unset.discard(name)

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
        self._check_objects()
        self._states = {n: (_kind_of(op), op.get_state()) for n, op in self._objects.items()}
        self._unset.clear()
        self._is_complete, self._is_loaded = True, False

    def restore(self) -> None:
        """Set all states that were loaded or set and that no object has got yet.

        Readers must not have run. `register` does the same for one object.
        """
        self._check_objects()
        missing = [n for n in self._objects if n not in self._states]
        if self._states and missing:
            raise RuntimeError(
                f"Checkpoint: it is incomplete, there is no state for {_listed(missing)}"
            )
        for name in [n for n in self._states if n in self._unset]:
            self._apply(name, self._objects[name])

    def _check_objects(self) -> None:
        missing = [n for n in self._states if n not in self._objects]
        if missing:
            raise RuntimeError(f"Checkpoint: there are states without objects: {_listed(missing)}")

    def get_state(self, name: str) -> Any:
        """The state under a name; None if it was not collected yet."""
        if name in self._states:
            return self._states[name][1]
        if name in self._objects:
            return None
        raise KeyError(f"Checkpoint: nothing is registered under {name!r}")

    def set_state(self, name: str, value: Any, op_type: Any = None) -> None:
        """Set the state for an object that is or will be registered under a name.

        The object gets it from the next `register` or `restore`. `op_type` is its class, or the
        name of the class; the object must then be of that class.
        """
        if self._is_complete and name not in self._objects:
            raise KeyError(f"Checkpoint: nothing is registered under {name!r}")
        kind = _named_kind(op_type, value)
        if name in self._objects:
            registered = _kind_of(self._objects[name])
            if kind and kind != registered:
                raise TypeError(
                    f"Checkpoint: the state of {name!r} is that of a {kind}, not of a {registered}"
                )
            kind, value = registered, _decoded(registered, value, f"the state of {name!r}")
        self._states[name] = kind, value
        self._unset.add(name)

    # -- text and files ----------------------------------------------------------------------

    def serialize(self) -> str:
        """The states as JSON."""
        if not self._states:
            raise RuntimeError("Checkpoint: it is empty; call collect() or set_state() first")
        states = {
            name: {
                "type": kind,
                "state": state.values if isinstance(state, ReaderState) else str(state),
            }
            for name, (kind, state) in self._states.items()
        }
        return json.dumps({"format": FORMAT, "version": VERSION, "states": states}, indent=1)

    def deserialize(self, data: str) -> None:
        """Read the states from JSON that `serialize` made."""
        if not isinstance(data, (str, bytes)):
            raise TypeError(f"Checkpoint: JSON text is needed, got {type(data).__name__}")
        self._set_loaded(_parsed(data, "the text"))

    def _set_loaded(self, states: dict[str, tuple[str, Any]]) -> None:
        self._states, self._unset = states, set(states)
        self._is_complete, self._is_loaded = False, True

    def save(self, filename: str) -> str:
        """Write a file, and return its name.

        ``{seq}`` or ``{seq:04d}`` in it becomes the next free number. Without it, the file must not
        exist, because a checkpoint must not replace the last good one unnoticed. The file is
        written atomically: after a crash it is complete or absent.
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
            data = read_file(target).tobytes()
        except FileNotFoundError:
            raise FileNotFoundError(f"Checkpoint: there is no file {str(target)!r}") from None
        self._set_loaded(_parsed(data, f"file {str(target)!r}"))
        return str(target)


def current() -> Checkpoint:
    """The checkpoint of the current `EvalContext`: one for all parts of a program.

    >>> import ndd
    >>> with ndd.EvalContext() as context:
    ...     name = ndd.checkpoint.current().register(ndd.random.RNG(seed=3), "augmentation")
    >>> context.checkpoint.collect()
    >>> "augmentation" in context.checkpoint.serialize()
    True
    """
    return EvalContext.current().checkpoint  # type: ignore[no-any-return]


def _kind_of(op: Any) -> str:
    if isinstance(op, RNG):
        return "RNG"
    if isinstance(op, Reader):
        return type(op).__name__
    raise TypeError(
        f"Checkpoint: only readers and random generators have a state, got {type(op).__name__}"
    )


def _named_kind(op_type: Any, value: Any) -> str:
    """The type of object that a state is for, as the caller or the state tells; "" if unknown."""
    if op_type is None:
        if isinstance(value, ReaderState):
            return str(value.values.get("reader", ""))
        return "RNG" if isinstance(value, State) else ""
    if not isinstance(op_type, (str, type)):
        raise TypeError(
            f"Checkpoint: `op_type` must be a class or its name, got {type(op_type).__name__}"
        )
    return op_type if isinstance(op_type, str) else op_type.__name__


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
    except (ValueError, RecursionError) as error:
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
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"Checkpoint: {where} has no valid states: {error!r}") from None


class _Pattern:
    """A file name in which ``{seq}`` stands for a number."""

    def __init__(self, filename: Any) -> None:
        path = Path(filename)
        self.folder, self.name = path.parent, path.name
        try:
            fields = list(string.Formatter().parse(self.name))
            others = {field for _, field, _, _ in fields} - {None, "seq"}
            if others:
                raise ValueError(f"unknown field {others.pop()!r}")
            self.has_number = any(field for _, field, _, _ in fields)
            # This matches any text for `{seq:04d}`; `_number` formats the number again to check.
            parts = [re.escape(text) + ("(.+?)" if field else "") for text, field, _, _ in fields]
            self._expression = re.compile("".join(parts), re.DOTALL)
            if self.has_number and any(self._number(self.name.format(seq=n)) != n for n in _TRIED):
                raise ValueError("numbers in this format cannot be read back")
        except (
            AttributeError,
            IndexError,
            KeyError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            raise ValueError(
                f"Checkpoint: {str(filename)!r} is not a pattern: only {{seq}} stands for a "
                f"number, literal braces are doubled ({error!r})"
            ) from None

    def numbered(self, number: int) -> Path:
        return self.folder / self.name.format(seq=number)

    def existing(self) -> dict[int, Path]:
        """Files that match, by number."""
        if not self.has_number or not self.folder.is_dir():
            return {}
        found = {self._number(path.name): path for path in self.folder.iterdir()}
        return {number: path for number, path in found.items() if number is not None}

    def _number(self, name: str) -> int | None:
        """The number from which a name was made, in whatever base; None if there is none."""
        match = self._expression.fullmatch(name)
        digits = "" if match is None else re.sub(r"[\s+_,.]", "", match[1])
        for base in (10, 16, 8, 2):
            try:
                number = int(digits, base)
            except ValueError:
                continue
            if number >= 0 and self.name.format(seq=number) == name:
                return number
        return None


def _write_atomically(target: Path, text: str) -> None:
    try:
        file = followed(target)  # a link stays, and the file that it names is made
        if file.is_file():
            raise FileExistsError(
                f"Checkpoint: {str(target)!r} exists; delete it first, or put {{seq}} into the "
                f"name, which becomes the next free number"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text.encode(), mode_of_new_files(), durable=True)
    except NotRegularFileError as error:
        raise OSError(f"Checkpoint: cannot save: {error}") from None
