"""The calls of a loop, made in advance on the data of coming iterations.

A loop body makes nearly always the same calls. They are recorded in one iteration and made for the
next ones by background threads (loop/lookahead.py), while the caller still works with the batch
it has. A call of the caller that equals the recorded one (the same function and arguments, results
of the same earlier calls, generators in the same state) gets what was made for it. At the first
that differs, all that was made in advance is dropped. So no value depends on any of this.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.convert import dense_array
from ..core.errors import user_site
from ..core.interop import array_to_torch
from ..fusion.graph.node import Node
from ..fusion.graph.sites import Site
from ..kernels.ir.dtypes import DType
from ..runtime.context import EvalContext, EvalMode, current_context, current_mode, is_current
from ..runtime.device import Device
from ..runtime.rng import RNG, State, get_default_rng, use_default_rng

if TYPE_CHECKING:
    from ..core.handle import Handle

# Arrays up to this size may be arguments of a recorded call: they are copied and compared.
MAX_ARRAY_BYTES = 1 << 16
# A loop whose results are smaller than this and decodes nothing gains nothing from threads.
WORTHWHILE_BYTES = 1 << 20
# After so many iterations of an epoch that went another way, its loop is taken to do so often.
MAX_DIVERGENCES = 2


class _Local(threading.local):
    tape: Tape | None = None
    site: Site | None = None  # of the call that this thread makes in advance


_local = _Local()


def replayable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls make handles from handles and plain values, and do nothing else."""

    @functools.wraps(function)
    def recorded(*arguments: Any) -> Any:
        tape = _local.tape
        return function(*arguments) if tape is None else tape.call(function, arguments)

    return recorded


def site_of_caller() -> Site:
    """Where the caller makes, or will make, the call that this thread makes now."""
    return _local.site or user_site()


# -- arguments -----------------------------------------------------------------------------------


class Ref(NamedTuple):
    """A result of an earlier call of the iteration; of call -1: what the reader gave."""

    call: int
    output: int


class Items(NamedTuple):
    """A list, a tuple or a slice."""

    kind: type
    values: tuple[Any, ...]
    # Of what is simply the same object nearly always: that object. Caches are cold when a loop
    # comes back from its work, and every object that a comparison looks at costs a miss.
    likely: tuple[Any, ...]


class Constant(NamedTuple):
    """Anything that is the same in every iteration."""

    value: Any


class UnrepeatableError(Exception):
    """An argument that cannot be compared in the next iteration."""


_PLAIN = (int, float, str, bytes, type(None), type(Ellipsis), Enum, DType, Device, np.generic, RNG)


def frozen(value: Any, recording: Recording) -> Any:
    """An argument as it is recorded."""
    node = getattr(value, "_node", None)
    if isinstance(node, Node):
        if node.result.origin is not None and node.result.origin[0] is recording:
            return node.result.origin[1]
        if node.storage is None or node.storage.external:
            raise UnrepeatableError
        return Constant(node)
    if type(value) in (list, tuple):
        return _items(type(value), value, recording)
    if type(value) is slice:
        return _items(slice, (value.start, value.stop, value.step), recording)
    if type(value) is np.ndarray:
        if value.nbytes > MAX_ARRAY_BYTES or value.dtype.hasobject:
            raise UnrepeatableError
        return Constant(value.copy())
    if isinstance(value, _PLAIN) or callable(value) or hasattr(value, "body"):
        return Constant(value)
    raise UnrepeatableError


def _items(kind: type, values: Iterable[Any], recording: Recording) -> Items:
    kept = tuple(frozen(v, recording) for v in values)
    likely = tuple(k.value if _is_simple(k) else _NOTHING for k in kept)
    return Items(kind, kept, likely)


def _is_simple(kept: Any) -> bool:
    """Whether an argument is given on as it is: an array may have changed since, and generators
    and values have others in their place."""
    return type(kept) is Constant and not isinstance(kept.value, (np.ndarray, RNG, Node))


_NOTHING = object()  # no argument is this


def is_same(kept: Any, value: Any, nodes: Nodes) -> bool:
    """Whether an argument is the one that was recorded."""
    if type(kept) is Constant and value is kept.value:
        return type(value) is not np.ndarray or value.size == 0  # one may have changed since
    if isinstance(kept, Ref):
        return getattr(value, "_node", value) is nodes.get(kept)
    if isinstance(kept, Items):
        if type(value) is not kept.kind:
            return False
        values: Any = value
        if isinstance(value, slice):
            values = (value.start, value.stop, value.step)
        if len(values) != len(kept.values):
            return False
        for k, likely in enumerate(kept.likely):
            if values[k] is not likely and not is_same(kept.values[k], values[k], nodes):
                return False
        return True
    constant = kept.value
    if isinstance(constant, Node):
        return getattr(value, "_node", None) is constant
    if type(constant) is np.ndarray:
        return (
            type(value) is np.ndarray
            and (value.dtype, value.shape) == (constant.dtype, constant.shape)
            and value.tobytes() == constant.tobytes()
        )
    return type(value) is type(constant) and isinstance(value, _PLAIN) and bool(value == constant)


class Nodes:
    """The values of an iteration that is made in advance: held until the caller has them."""

    def __init__(self) -> None:
        self._held: list[list[Any]] = []

    def add(self, nodes: list[Node]) -> None:
        self._held.append(list(nodes))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, ref: Ref) -> Node | None:
        if ref.call + 1 >= len(self._held):
            return None
        found = self._held[ref.call + 1][ref.output]
        return found() if isinstance(found, weakref.ref) else found

    def of(self, call: int) -> list[Node | None]:
        """The results of a call; None for those that nobody holds any more."""
        return [self.get(Ref(call, k)) for k in range(len(self._held[call + 1]))]

    def release(self, call: int) -> list[Node]:
        """The results of a call, which somebody else holds from now on."""
        nodes = self._held[call + 1]
        self._held[call + 1] = [weakref.ref(n) for n in nodes]
        return nodes


# -- one iteration -------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call of a loop body."""

    function: Callable[..., Any]
    arguments: Items
    site: Site
    outputs: int | None  # None: one handle, else a tuple of so many
    rng: RNG | None  # the generator it draws from


@functools.cache
def _wrap() -> Callable[[Node], Handle]:
    """What cannot be imported yet when this module is; an import takes its time in every call."""
    from ..core.call import wrap

    return wrap


class Recording:
    """The calls of one iteration."""

    def __init__(self, context: EvalContext, mode: EvalMode) -> None:
        self.context, self.mode = context, mode
        self.calls: list[Call] = []
        self.read: set[Ref] = set()  # values that the caller looked at
        self.exported: set[Ref] = set()  # those that became tensors of torch
        self._results: tuple[Any, list[Ref]] = (None, [])  # see `results`
        self.is_repeatable = True
        self.is_worthwhile = False

    def fits_here(self) -> bool:
        """Whether calls made now are made as those recorded."""
        return is_current(self.context, self.mode)

    def mark(self, call: int, nodes: Iterable[Node | None]) -> None:
        """Note on nodes which call made them: the first one, if others return them, too."""
        for k, node in enumerate(nodes):
            if node is not None and (
                node.result.origin is None or node.result.origin[0] is not self
            ):
                node.result.origin = (self, Ref(call, k))

    def add(self, function: Callable[..., Any], arguments: tuple[Any, ...], result: Any) -> None:
        from ..core.handle import Handle

        handles = result if isinstance(result, tuple) else (result,)
        if not self.fits_here() or not all(isinstance(h, Handle) for h in handles):
            raise UnrepeatableError
        kept = frozen(arguments, self)
        outputs = len(result) if isinstance(result, tuple) else None
        self.calls.append(Call(function, kept, user_site(), outputs, rng_of(arguments)))
        nodes = [h._node for h in handles]
        self.mark(len(self.calls) - 1, nodes)
        self.is_worthwhile = self.is_worthwhile or any(map(_is_work, nodes))

    def results(self) -> list[Ref]:
        """Values to be computed in advance: those looked at, and those that no call uses. Found
        anew when something else has been looked at."""
        read = self.read.copy()  # the caller's thread adds to it
        seen = len(self.calls), len(read)
        if self._results[0] != seen:
            used = {ref for call in self.calls for ref in _refs(call.arguments)}
            refs = (
                Ref(k, o) for k, call in enumerate(self.calls) for o in range(call.outputs or 1)
            )
            self._results = seen, [r for r in refs if r not in used or r in read]
        return self._results[1]

    def export(self, nodes: list[Node]) -> None:
        """Make the tensors that the caller will ask for: what torch and NumPy do for that is a
        fifth of all that a small batch costs the caller, whose caches are cold (70 of 400 µs)."""
        for node in nodes:
            is_asked_for = node.result.origin is not None and node.result.origin[1] in self.exported
            if is_asked_for and node.storage is not None and node.shapes.uniform:
                whole = dense_array(node)
                if whole is not None:
                    node.result.export = array_to_torch(whole, node.dtype, False)


def note_export(node: Node) -> None:
    """The caller makes a tensor of torch of a value in host memory."""
    if node.result.origin is not None:
        recording, ref = node.result.origin
        recording.exported.add(ref)


def _is_work(node: Node) -> bool:
    volume = int(node.shapes.volumes.sum()) * node.dtype.bytes
    is_long = node.kind is not None and node.kind.takes_long
    return is_long or volume >= WORTHWHILE_BYTES


def _refs(kept: Any) -> Iterator[Ref]:
    if isinstance(kept, Ref):
        yield kept
    elif isinstance(kept, Items):
        for value in kept.values:
            yield from _refs(value)


def rng_of(arguments: tuple[Any, ...]) -> RNG | None:
    """The generator that a call of an op draws from."""
    from ..core.schema import OpDef

    if isinstance(arguments[0], OpDef):
        for p, value in zip(arguments[0].others, arguments[2], strict=True):
            if p.type == "RNG":
                return get_default_rng() if value is None else value
    return None


# -- coming iterations ---------------------------------------------------------------------------


class Shadows:
    """Generators as they will be: they run ahead of the caller's."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[RNG, RNG]] = {}

    def of(self, rng: RNG) -> RNG:
        found = self._known.get(id(rng))
        if found is None:
            found = self._known[id(rng)] = (rng, rng.clone())
        return found[1]


class Replay:
    """The calls of one coming iteration."""

    def __init__(self, recording: Recording, outputs: tuple[Handle, ...]) -> None:
        self.recording = recording
        self.outputs: tuple[Handle, ...] | None = outputs
        self.cursor = 0  # calls that the caller has made
        self._nodes = Nodes()
        self._draws: list[tuple[State, State] | None] = []
        self._add(-1, [h._node for h in outputs])

    def _add(self, call: int, nodes: list[Node]) -> None:
        self.recording.mark(call, nodes)
        self._nodes.add(nodes)

    def build(self, shadows: Shadows) -> None:
        """Make all calls; up to the first one that fails, which the caller will make again."""
        for k, call in enumerate(self.recording.calls):
            rng = None if call.rng is None else shadows.of(call.rng)
            before = None if rng is None else rng.get_state()
            arguments = self._thawed(call.arguments, shadows)
            _local.site = call.site
            try:
                with use_default_rng(rng):
                    result = call.function(*arguments)
            except Exception:
                return
            nodes = [h._node for h in (result if isinstance(result, tuple) else (result,))]
            for node in nodes:
                node.result.site = call.site
            self._draws.append(None if rng is None or before is None else (before, rng.get_state()))
            self._add(k, nodes)

    def _thawed(self, kept: Any, shadows: Shadows) -> Any:
        wrap = _wrap()
        if isinstance(kept, Ref):
            node = self._nodes.get(kept)
            assert node is not None, "its call was made before"
            return wrap(node)
        if isinstance(kept, Items):
            values = [
                likely if likely is not _NOTHING else self._thawed(v, shadows)
                for likely, v in zip(kept.likely, kept.values, strict=True)
            ]
            return slice(*values) if kept.kind is slice else kept.kind(values)
        value = kept.value
        if isinstance(value, Node):
            return wrap(value)
        return shadows.of(value) if isinstance(value, RNG) else value

    def results(self) -> list[Node]:
        """The values to compute."""
        found = (self._nodes.get(ref) for ref in self.recording.results())
        return list(dict.fromkeys(n for n in found if n is not None))

    def take(self) -> tuple[Handle, ...]:
        """What the reader gives in this iteration."""
        outputs, self.outputs = self.outputs, None
        assert outputs is not None
        self._nodes.release(-1)
        return outputs

    def match(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The result of the caller's next call, if it was foreseen; else None."""
        k = self.cursor
        if k + 1 >= len(self._nodes) or not self.recording.fits_here():
            return None
        call, draw = self.recording.calls[k], self._draws[k]
        if function is not call.function or not is_same(call.arguments, arguments, self._nodes):
            return None
        if call.rng is not None and (draw is None or rng_of(arguments) is not call.rng):
            return None
        if call.rng is not None and draw is not None and not call.rng.jump(*draw):
            return None
        self.cursor += 1
        wrap = _wrap()
        handles = [wrap(node) for node in self._nodes.release(k)]
        return handles[0] if call.outputs is None else tuple(handles)

    def begun(self, recording: Recording) -> None:
        """Let another recording begin with the calls that the caller has made so far."""
        recording.calls = self.recording.calls[: self.cursor]
        recording.read = {ref for ref in self.recording.read if ref.call < self.cursor}
        recording.exported = {ref for ref in self.recording.exported if ref.call < self.cursor}
        recording.is_worthwhile = self.recording.is_worthwhile
        for call in range(-1, self.cursor):
            recording.mark(call, self._nodes.of(call))


class Tape:
    """Follows the calls of one loop: records an iteration, or gives what was made for it."""

    def __init__(self) -> None:
        self.is_closed = False
        self.divergences = 0
        self.recording: Recording | None = None  # of the iteration that is under way
        self.replay: Replay | None = None

    def begin(self, outputs: tuple[Handle, ...], replay: Replay | None) -> None:
        """An iteration begins with what the reader gives."""
        self.replay = replay
        if replay is not None:
            self.recording = replay.recording
        else:
            self.recording = Recording(current_context(), current_mode())
            self.recording.mark(-1, [h._node for h in outputs])
        _local.tape = self

    def end(self) -> Recording | None:
        """The iteration is over: what it was, if the next may be made in advance."""
        if _local.tape is self:
            _local.tape = None
        replay, self.replay = self.replay, None
        recording, self.recording = self.recording, None
        if recording is None or (replay is not None and replay.cursor < len(recording.calls)):
            return None  # it made fewer calls than the one before
        worthwhile = recording.is_repeatable and recording.is_worthwhile
        return recording if worthwhile and self.divergences < MAX_DIVERGENCES else None

    def close(self) -> None:
        """Nothing is recorded any more."""
        self.is_closed = True
        self.replay = self.recording = None
        if _local.tape is self:
            _local.tape = None

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """A call of the caller."""
        if self.is_closed:
            _local.tape = None
            return function(*arguments)
        if self.replay is not None:
            found = self.replay.match(function, arguments)
            if found is not None:
                return found
            self._diverge(self.replay)
        _local.tape = None  # what it calls itself is a part of it
        try:
            result = function(*arguments)
            self._record(function, arguments, result)
        except BaseException:
            if self.recording is not None:
                self.recording.is_repeatable = False
            raise
        finally:
            _local.tape = self
        return result

    def _record(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], result: Any
    ) -> None:
        recording = self.recording
        if recording is not None and recording.is_repeatable:
            try:
                recording.add(function, arguments, result)
            except UnrepeatableError:
                recording.is_repeatable = False

    def _diverge(self, replay: Replay) -> None:
        self.divergences += 1
        self.replay = None
        self.recording = Recording(replay.recording.context, replay.recording.mode)
        replay.begun(self.recording)
