"""What a call is: an op, its inputs, its choices and the generator that it draws from.

All calls of the library are made by `made`. While a loop over a reader is followed (loop.py), each
is recorded. A call of a later iteration that is made of the same four has the same result.
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

from ..core.errors import user_site
from ..fusion.graph.node import Node
from ..fusion.graph.sites import Site
from ..kernels.ir.dtypes import DType
from ..runtime.context import EvalContext, EvalMode, is_current
from ..runtime.device import Device
from ..runtime.rng import RNG, get_default_rng

if TYPE_CHECKING:
    from .loop import Loop

# Arrays up to this size may be arguments of a recorded call: they are copied and compared.
MAX_ARRAY_BYTES = 1 << 16
# A loop whose results are smaller than this and decodes nothing gains nothing from threads.
WORTHWHILE_BYTES = 1 << 20


class _ThisThread(threading.local):
    loop: Loop | None = None  # follows the calls of this thread
    site: Site | None = None  # of the call that this thread makes in advance


this_thread = _ThisThread()
Make = Callable[[Any, Sequence[Any], Sequence[Any]], Any]


def made(op: Any, inputs: tuple[Any, ...], choices: tuple[Any, ...], make: Make) -> Any:
    """The result of a call: that of `make(op, inputs, choices)`, which may have been made before.

    `make` makes handles of handles and plain values, and does nothing else. Choices may be handles,
    too, where an op takes one number per sample.
    """
    loop = this_thread.loop
    if loop is None:
        return make(op, inputs, choices)
    return loop.follow(Call(op, (*inputs, *choices), len(inputs), make))


def site_of_caller() -> Site:
    """Where the caller makes, or will make, the call that this thread makes now."""
    return this_thread.site or user_site()


class Call(NamedTuple):
    """One call, as it is made."""

    op: Any
    arguments: tuple[Any, ...]  # inputs, then choices
    inputs: int  # the number of inputs
    make: Make

    def result(self) -> Any:
        return self.make(self.op, self.arguments[: self.inputs], self.arguments[self.inputs :])

    def rng(self) -> RNG | None:
        """The generator that it draws from."""
        at = getattr(self.op, "rng_at", None)
        if at is None:
            return None
        given: RNG | None = self.arguments[self.inputs + at]
        return get_default_rng() if given is None else given


# -- keys ----------------------------------------------------------------------------------------


class Ref(NamedTuple):
    """A result of an earlier call of the iteration; of call -1: what the reader gave."""

    call: int
    output: int


class UnrepeatableError(Exception):
    """An argument that cannot be compared in the next iteration."""


# Types of which equal values mean the same. (Not float: 0.0 equals -0.0.)
PLAIN = {int, bool, str, bytes, NoneType, EllipsisType, DType, Device}
_float_bits = struct.Struct("d").pack


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """What a function gives for a value; for a list, tuple or slice: another one, item by item."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([each(function, v) for v in value])
    if kind is slice:
        return slice(*[each(function, v) for v in (value.start, value.stop, value.step)])
    return function(value)


class Iteration:
    """One pass through the body of a loop. Its values know it, and it holds none of them."""

    __slots__ = ("recording",)

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def claim(self, call: int, nodes: Iterable[Node], arguments: Iterable[Any] = ()) -> None:
        """Note on the results of a call that it made them. What was one of its arguments, or is a
        result of another call, was made before."""
        known = [getattr(v, "_node", None) for v in arguments]
        for output, node in enumerate(nodes):
            if node.result.origin is None and node not in known:
                node.result.origin = self, Ref(call, output)

    def is_same(self, kept: Any, value: Any) -> bool:
        """Whether an argument of the caller is the recorded one."""
        # Caches are cold when a loop comes back from its work, and every object that a comparison
        # looks at costs a miss. Nearly always it is the same object, which is all that it takes.
        if value is kept:
            return True
        kind = type(kept)
        if kind is list or kind is tuple:
            if type(value) is not kind or len(value) != len(kept):
                return False
            return all(a is b or self.is_same(a, b) for a, b in zip(kept, value, strict=True))
        return bool(each(self.key, kept) == each(self.key, value))

    def key(self, value: Any) -> Any:
        """What an argument is. Equal keys: the same results of this iteration, the same values from
        outside of it, numbers of the same type and bits, arrays with the same content."""
        kind = type(value)
        if kind is Ref:
            return value
        if kind in PLAIN or isinstance(value, Enum):
            return kind, value
        if kind is float:
            return kind, _float_bits(value)
        node = getattr(value, "_node", None)
        if isinstance(node, Node):
            origin = node.result.origin
            if origin is not None and origin[0] is self:
                return origin[1]
            if node.storage is not None and not node.storage.external:
                return Node, id(node)
        elif kind is np.ndarray or isinstance(value, np.generic):
            if value.nbytes <= MAX_ARRAY_BYTES and not value.dtype.hasobject:
                return kind, value.dtype, value.shape, value.tobytes()
        elif callable(value):  # also a generator, whose state is compared when it is used
            return kind, id(value)
        raise UnrepeatableError


# -- one iteration -------------------------------------------------------------------------------


class Recorded(NamedTuple):
    """A call of a loop body, which coming iterations are expected to make."""

    call: Call  # with a `Ref` for each result of the iteration, and copies of what may change
    rng: RNG | None
    uses: list[Ref]
    gives_tuple: bool  # of handles; else one
    site: Site

    @staticmethod
    def of(call: Call, result: Any, iteration: Iteration) -> Recorded:
        uses: list[Ref] = []

        def kept(value: Any) -> Any:
            key = iteration.key(value)
            if isinstance(key, Ref):
                uses.append(key)
                return key
            return value.copy() if type(value) is np.ndarray else value

        again = call._replace(arguments=each(kept, call.arguments))
        return Recorded(again, call.rng(), uses, isinstance(result, tuple), user_site())

    def is_made_by(self, call: Call, iteration: Iteration) -> bool:
        """Whether a call of the caller is this one."""
        try:
            return (
                call.op is self.call.op
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
    read: set[Ref] = field(default_factory=set)  # values that the caller looked at
    exported: set[Ref] = field(default_factory=set)  # those that became tensors of torch
    is_repeatable: bool = True
    is_worthwhile: bool = False

    def fits_here(self) -> bool:
        """Whether calls made now are made as those recorded."""
        return is_current(self.context, self.mode)

    def add(self, call: Call, result: Any, iteration: Iteration) -> None:
        """Note a call that has been made, unless it cannot be repeated."""
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
        """Another recording, which begins with the first calls of this one."""
        # copies: the threads that work ahead look at values, too
        read = {ref for ref in self.read.copy() if ref.call < count}
        exported = {ref for ref in self.exported.copy() if ref.call < count}
        return replace(self, calls=self.calls[:count], read=read, exported=exported)


def nodes_of(result: Any) -> list[Node]:
    """The nodes of what a call gives: a handle, or a tuple of them."""
    return [h._node for h in (result if isinstance(result, tuple) else (result,))]


def _is_work(node: Node) -> bool:
    volume = int(node.shapes.volumes.sum()) * node.dtype.bytes
    is_long = node.kind is not None and node.kind.takes_long
    return is_long or volume >= WORTHWHILE_BYTES


def note_read(node: Node, as_tensor: bool = False) -> None:
    """The caller looks at a value; `as_tensor`: in host memory, as a tensor of torch."""
    if node.result.origin is not None:
        iteration, ref = node.result.origin
        iteration.recording.read.add(ref)
        if as_tensor:
            iteration.recording.exported.add(ref)
