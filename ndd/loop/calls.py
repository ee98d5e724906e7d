"""Records calls: an op, its inputs, its choices and the generator that it draws from.

The library makes every call through `made`, which records it while a `Loop` follows the thread
(loop.py). A call of a later iteration that has the same four parts has the same result.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import EllipsisType, NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..codecs.on_error import FailuresAhead
from ..core.errors import user_site
from ..fusion.graph.node import Node
from ..fusion.graph.sites import Site
from ..kernels.ir.dtypes import DType
from ..runtime import context as contexts
from ..runtime.context import EvalContext, EvalMode, is_current
from ..runtime.device import Device
from ..runtime.rng import RNG, get_default_rng

if TYPE_CHECKING:
    from .loop import Loop

# Larger arrays cannot be arguments of a recorded call, because they are copied and compared.
MAX_ARRAY_BYTES = 1 << 16
# A loop gains nothing from threads if it decodes nothing and its results are smaller than this.
WORTHWHILE_BYTES = 1 << 20


class _ThisThread(threading.local):
    loop: Loop | None = None  # the loop that follows the calls of this thread
    site: Site | None = None  # the caller's line for the call that this thread makes in advance
    failures: FailuresAhead | None = None  # of the iteration that this thread makes in advance


this_thread = _ThisThread()
Make = Callable[[Any, Sequence[Any], Sequence[Any]], Any]


def made(op: Any, inputs: tuple[Any, ...], choices: tuple[Any, ...], make: Make) -> Any:
    """Return the result of `make(op, inputs, choices)`, which may have been made in advance.

    `make` turns handles and plain values into handles and has no side effects. Choices may also be
    handles, if an op takes one number per sample.
    """
    loop = this_thread.loop
    if loop is None:
        return make(op, inputs, choices)
    return loop.follow(Call(op, (*inputs, *choices), len(inputs), make))


def site_of_caller() -> Site:
    """The user's line of the current call, also if this thread makes the call in advance."""
    return this_thread.site or user_site()


class Call(NamedTuple):
    """One call with its actual arguments."""

    op: Any
    arguments: tuple[Any, ...]  # inputs, then choices
    inputs: int  # the number of inputs
    make: Make

    def result(self) -> Any:
        return self.make(self.op, self.arguments[: self.inputs], self.arguments[self.inputs :])

    def rng(self) -> RNG | None:
        """The generator that the call draws from."""
        at = getattr(self.op, "rng_at", None)
        if at is None:
            return None
        given: RNG | None = self.arguments[self.inputs + at]
        return get_default_rng() if given is None else given


# -- keys ----------------------------------------------------------------------------------------


class Ref(NamedTuple):
    """A result of an earlier call in the same iteration; call -1 stands for the reader."""

    call: int
    output: int


class UnrepeatableError(Exception):
    """An argument cannot be compared with that of the next iteration."""


# Types whose equal values are interchangeable. Floats are not: 0.0 equals -0.0.
PLAIN = {int, bool, str, bytes, NoneType, EllipsisType, DType, Device}
_float_bits = struct.Struct("d").pack


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to a value, or to each item of a (nested) list, tuple or slice."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([each(function, v) for v in value])
    if kind is slice:
        return slice(*[each(function, v) for v in (value.start, value.stop, value.step)])
    return function(value)


class Iteration:
    """One pass through the body of a loop. Values refer to their iteration, not the reverse."""

    __slots__ = ("recording",)

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def claim(self, call: int, nodes: Iterable[Node], arguments: Iterable[Any] = ()) -> None:
        """Mark the results of a call as made by it, except those that existed before: arguments
        that the call returns unchanged, and results of other calls."""
        known = [getattr(v, "_node", None) for v in arguments]
        for output, node in enumerate(nodes):
            if node.result.origin is None and node not in known:
                node.result.origin = self, Ref(call, output)

    def is_same(self, kept: Any, value: Any) -> bool:
        """Whether an argument of the caller equals the recorded one."""
        # Fast path: compare by identity first. CPU caches are cold when the loop body comes back
        # from its work, so every object that a comparison touches is a cache miss.
        if value is kept:
            return True
        kind = type(kept)
        if kind is list or kind is tuple:
            if type(value) is not kind or len(value) != len(kept):
                return False
            return all(a is b or self.is_same(a, b) for a, b in zip(kept, value, strict=True))
        return bool(each(self.key, kept) == each(self.key, value))

    def key(self, value: Any) -> Any:
        """The comparison key of an argument.

        Equal keys mean the same result of this iteration, the same value from outside of it,
        numbers of the same type and bits, or arrays with the same content.
        """
        kind = type(value)
        if kind is Ref:
            return value
        if kind in PLAIN or isinstance(value, Enum):
            return kind, value
        if kind is float:
            return kind, _float_bits(value)
        node = getattr(value, "_node", None)
        if isinstance(node, Node):
            storage, origin = node.storage, node.result.origin
            if storage is not None and storage.external:
                raise UnrepeatableError  # the user may have written to it
            if origin is not None and origin[0] is self:
                return origin[1]
            if storage is not None:
                return Node, id(node)
        elif kind is np.ndarray or isinstance(value, np.generic):
            if value.nbytes <= MAX_ARRAY_BYTES and not value.dtype.hasobject:
                return kind, value.dtype, value.shape, value.tobytes()
        elif callable(value):  # includes an RNG, whose state is compared when the call is replayed
            return kind, id(value)
        raise UnrepeatableError


# -- one iteration -------------------------------------------------------------------------------


class Recorded(NamedTuple):
    """A call of a loop body, which coming iterations are expected to make."""

    call: Call  # results of the iteration are replaced by `Ref`s, and arrays are copied
    rng: RNG | None
    uses: list[Ref]
    outside: list[Node]  # arguments that were not made in the iteration
    gives_tuple: bool  # the result is a tuple of handles, not a single one
    site: Site

    @staticmethod
    def of(call: Call, result: Any, iteration: Iteration) -> Recorded:
        uses: list[Ref] = []
        outside: list[Node] = []

        def kept(value: Any) -> Any:
            key = iteration.key(value)
            if isinstance(key, Ref):
                uses.append(key)
                return key
            if key[0] is Node:
                outside.append(value._node)
            return value.copy() if type(value) is np.ndarray else value

        again = call._replace(arguments=each(kept, call.arguments))
        is_tuple = isinstance(result, tuple)
        return Recorded(again, call.rng(), uses, outside, is_tuple, user_site())

    def is_made_by(self, call: Call, iteration: Iteration) -> bool:
        """Whether the caller's call equals this one."""
        try:
            return (
                call.op is self.call.op
                and not any(node.stored.external for node in self.outside)
                and iteration.is_same(self.call.arguments, call.arguments)
                and (self.rng is None or call.rng() is self.rng)
            )
        except UnrepeatableError:
            return False


@dataclass(eq=False)
class Recording:
    """The calls of one iteration."""

    context: EvalContext
    mode: EvalMode
    calls: list[Recorded] = field(default_factory=list)
    read: set[Ref] = field(default_factory=set)  # values that the caller read
    exported: set[Ref] = field(default_factory=set)  # values read as torch tensors
    is_repeatable: bool = True
    is_worthwhile: bool = False
    settings: int = field(default_factory=lambda: contexts.settings)

    def fits_here(self) -> bool:
        """Whether the current context and eval mode are those of the recording."""
        return is_current(self.context, self.mode) and self.settings == contexts.settings

    def add(self, call: Call, result: Any, iteration: Iteration) -> None:
        """Record a call that has been made, unless it cannot be repeated."""
        self.is_repeatable = self.is_repeatable and self.fits_here()
        if not self.is_repeatable:
            return
        try:
            recorded = Recorded.of(call, result, iteration)
        except UnrepeatableError:
            self.is_repeatable = False
            return
        nodes = nodes_of(result)
        iteration.claim(len(self.calls), nodes, call.arguments)
        self.calls.append(recorded)
        self.is_worthwhile = self.is_worthwhile or any(map(_is_work, nodes))

    def first(self, count: int) -> Recording:
        """A new recording that begins with the first `count` calls of this one."""
        # Copy the sets, because the threads that work ahead add to them, too.
        read = {ref for ref in self.read.copy() if ref.call < count}
        exported = {ref for ref in self.exported.copy() if ref.call < count}
        return replace(self, calls=self.calls[:count], read=read, exported=exported)


def nodes_of(result: Any) -> list[Node]:
    """The nodes of a call's result, which is a handle or a tuple of handles."""
    return [h._node for h in (result if isinstance(result, tuple) else (result,))]


def _is_work(node: Node) -> bool:
    volume = int(node.shapes.volumes.sum()) * node.dtype.bytes
    kind = node.kind  # read once: another thread may compute the node and drop it meanwhile
    is_long = kind is not None and kind.takes_long
    return is_long or volume >= WORTHWHILE_BYTES


def note_read(node: Node, as_tensor: bool = False) -> None:
    """Note that the caller reads a value; `as_tensor`: as a torch tensor in host memory."""
    if node.result.origin is not None:
        iteration, ref = node.result.origin
        iteration.recording.read.add(ref)
        if as_tensor:
            iteration.recording.exported.add(ref)
