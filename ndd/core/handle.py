"""The base class of Tensor and Batch, and the flush policy: when a handle's node is computed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from ..fusion.graph.build import copy, transfer
from ..fusion.graph.node import Node
from ..fusion.graph.sites import Site
from ..fusion.graph.storage import Storage, nothing
from ..fusion.run.executor import Executor
from ..kernels.gpu.env import require_gpu
from ..kernels.ir.dtypes import DType
from ..loop.calls import made, note_read
from ..runtime.context import EvalContext, EvalMode, current_context, current_mode
from ..runtime.device import Device
from ..runtime.device import device as as_device
from ..runtime.gpu_runtimes import wait_for_users
from .errors import user_site
from .operators import Operators
from .waiting import Waiting, readers

_EAGER, _SYNC_FULL = EvalMode.eager, EvalMode.sync_full
_CPU = Device("cpu")
_waiting = Waiting()
Self = TypeVar("Self", bound="Handle")


def executor_of(context: EvalContext) -> Executor:
    """The executor of a context, made on first use."""
    executor = context._executor
    if executor is None:
        from ..runtime.gpu_runtimes import runtime_of

        reference = weakref.ref(context)

        def pool() -> Any:
            found = reference()
            return found.thread_pool if found is not None else _fallback_pool()

        def gpu(device_id: int) -> Any:
            return runtime_of(reference(), device_id)

        executor = context._executor = Executor(pool, gpu)
    return executor  # type: ignore[no-any-return]


def _fallback_pool() -> Any:
    from ..kernels.common.threads import ThreadPool

    return ThreadPool(1)


def finish_call(nodes: Sequence[Node], site: Site) -> None:
    """The flush policy: queue, run or leave the new nodes at the end of an op call.

    `site` is the user's line of the call.
    """
    mode = current_mode()
    context = current_context()
    executor = context._executor or executor_of(context)
    reads_external = is_any_empty = False
    for node in nodes:
        reads_external = _check_inputs(node, context) or reads_external
        result = node.result
        result.context, result.site = context, site
        if node.count == 0:
            is_any_empty = True
    if is_any_empty:
        nodes = _without_empty(nodes)
    if mode is _EAGER and not reads_external:
        for node in nodes:
            if node.result.storage is None:  # some calls compute their values at once
                executor.submit(node)
    elif mode._value_ > _EAGER._value_ or reads_external:
        for node in nodes:
            executor.evaluate(node)
        if mode is _SYNC_FULL or reads_external:
            synchronize(nodes)
    if len(_waiting.handles) > _waiting.limit:
        _waiting.sweep()


def _without_empty(nodes: Sequence[Node]) -> list[Node]:
    """Give batches without samples their value, so that nothing ever runs for them.

    Returns the other nodes.
    """
    for node in nodes:
        if node.count == 0:
            node.result.deliver(nothing())
    return [node for node in nodes if node.count]


def _check_inputs(node: Node, context: EvalContext) -> bool:
    """Evaluate inputs that belong to other contexts, because an executor runs only its own nodes.

    Returns whether the node reads memory that is not ours: it may change when the call returns.
    """
    reads_external = False
    stack = [*node.inputs]
    for n in stack:
        if n.op == "const":
            continue  # is in memory, and nobody can write to it
        result = n.result
        storage, owner = result.storage, result.context
        if storage is not None:
            if storage.external:
                reads_external = True
        elif owner is None:  # made by this call
            stack.extend(n.inputs)
        if owner is not None and owner is not context:
            evaluate_node(n)
            if n.device is not None:
                _wait_for_stream(n, context)
    return reads_external


def _wait_for_stream(node: Node, context: EvalContext) -> None:
    """Wait until the stream of the node's own context has written its value."""
    from ..runtime.gpu_runtimes import runtime_of

    other = runtime_of(node.result.context, node.device)
    if other is not runtime_of(context, node.device):
        other.synchronize()


def evaluate_node(node: Node) -> None:
    """Compute the value of a node that has none yet; raise its error if that failed."""
    result = node.result
    if result.origin is not None:
        note_read(node)
    if result.storage is None:
        if node.count == 0:
            result.deliver(nothing())
            return
        if result.error is not None:
            raise result.error.with_traceback(None)
        executor_of(result.context or current_context()).evaluate(node)


def hand_out(node: Node) -> None:
    """Prepare the memory of a computed value for the user, who may write to it from now on.

    Everything pending that reads the memory is computed first, and later calls that read it run at
    once, like those that read memory of other libraries. So results do not depend on eval modes.
    """
    memory = node.stored
    check_files(node)
    if memory.readonly or memory.external or memory.owner is None:
        return
    # Views must be made before, because those of external memory are copies. Once is not enough: a
    # view that another pending call reads is not made when that call is computed.
    count, before = _settle(memory), 0
    while count and count != before:
        count, before = _settle(memory), count
    memory.owner.handed_out = True
    _settle(memory)  # another thread may have made a call meanwhile
    wait_for_users(memory.owners(), node.device, node.result.context)


def _settle(memory: Storage) -> int:
    """Compute pending calls that read some memory, but not those whose results only they need.

    Returns how many there were.
    """
    by_context: dict[Any, list[Node]] = {}
    for reader in readers(_waiting.pending(), memory):
        by_context.setdefault(reader.result.context, []).append(reader)
    for context, nodes in by_context.items():
        executor_of(context or current_context()).settle(nodes)
    return sum(map(len, by_context.values()))


def evaluate_argument(node: Node) -> None:
    """Like `evaluate_node`, for a node whose values a call reads as numbers."""
    if node.storage is None and node.result.error is None and node.count:
        executor_of(node.result.context or current_context()).evaluate_argument(node)
    evaluate_node(node)


def input_of(handle: Handle) -> Node:
    """The node of a handle that is passed to a call.

    If computing it failed, reading the result of the call raises the error. The call itself does
    not, because in eager mode it may come before or after a background thread has failed, and must
    draw the same random numbers either way.
    """
    node = handle._node
    result = node.result
    storage = result.storage
    if storage is None:
        # A node of another context is evaluated there: an executor runs only its own nodes.
        if result.context is not None and result.context is not current_context():
            evaluate_node(node)
    elif getattr(storage.owner, "mapped", None) is not None:
        from .mapped_inputs import copied_node

        return copied_node(node)
    return node


def check_files(node: Node) -> None:
    """Raise an error if a value lies in mapped files, and they have lost some of it."""
    if getattr(node.stored.owner, "mapped", None) is not None:
        from .mapped_inputs import check_mapped

        check_mapped(node)


def lock_of(node: Node) -> AbstractContextManager[Any]:
    """The lock to hold while inspecting the graph around a node, so that no executor changes it."""
    return executor_of(node.result.context or current_context())._running


def synchronize(nodes: Sequence[Node]) -> None:
    """Wait until the device has finished writing these values."""
    for node in nodes:
        if node.device is not None:
            from ..runtime.gpu_runtimes import runtime_of

            runtime_of(node.result.context, node.device).synchronize()


class Handle(Operators):
    """The user's handle on a node, whose value may not be computed yet."""

    __slots__ = ("__weakref__", "_node")
    _node: Node

    @classmethod
    def _of(cls: type[Self], node: Node) -> Self:
        handle = object.__new__(cls)
        handle._node = node
        result = node.result
        reference = result.handle = weakref.ref(handle)
        if result.storage is None:
            _waiting.handles.append(reference)
        return handle

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._node.dtype

    @property
    def layout(self) -> str | None:
        """Axis letters, or None."""
        return self._node.layout

    @property
    def device(self) -> Device:
        """Where the data is, or will be."""
        ordinal = self._node.device
        return _CPU if ordinal is None else Device("gpu", ordinal)

    @property
    def ndim(self) -> int:
        """Number of axes (of a sample)."""
        return self._node.rank

    def evaluate(self: Self) -> Self:
        """Compute the value now, if that has not happened yet."""
        evaluate_node(self._node)
        return self

    def to_device(self: Self, device: Any, force_copy: bool = False) -> Self:
        """The value on another device; the handle itself if it is there, unless `force_copy`."""
        if device is _CPU and self._node.device is None and not force_copy:
            return self
        return made("to_device", (self,), (device, force_copy), _moved)  # type: ignore[no-any-return]

    def cpu(self: Self) -> Self:
        """The value in host memory."""
        return self.to_device(_CPU)

    def gpu(self: Self, index: int | None = None) -> Self:
        """The value on a GPU."""
        return self.to_device(Device("gpu", index))

    def _repr_html_(self) -> str | None:
        """HTML that shows images in notebooks."""
        from ..tools.showing import html_of

        return html_of(self)

    if not TYPE_CHECKING:  # type checkers would then accept every attribute

        def __getattr__(self, name: str) -> Any:
            from .suggestions import no_attribute

            known = getattr(type(self), name, None)
            if isinstance(known, property):  # the getter raised an AttributeError: raise it again
                return known.fget(self)
            raise no_attribute(self, name)

    def __copy__(self: Self) -> Self:
        return self

    def __deepcopy__(self: Self, memo: Any) -> Self:
        # The copy holds a value, not the graph that computes it.
        return self.evaluate().to_device(self.device, force_copy=True).evaluate()

    def __reduce__(self) -> Any:
        from .pickling import reduced

        return reduced(self)

    __hash__ = object.__hash__

    # NumPy must not take over `array OP handle`.
    __array_priority__ = 1000

    if not TYPE_CHECKING:  # type checkers would then accept a Batch for an array

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
            from .ufuncs import array_ufunc

            return array_ufunc(ufunc, method, *inputs, **options)

        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            from .ufuncs import array_function

            return array_function(func, args, kwargs)


def _moved(_op: str, inputs: Sequence[Any], choices: Sequence[Any]) -> Any:
    from .call import wrap

    (handle,), (device, force_copy) = inputs, choices
    target = as_device(device)
    if target is None:
        raise ValueError("to_device: a device is needed, got None")
    ordinal = None if target.device_type == "cpu" else target.device_id
    node = handle._node
    if node.device == ordinal and not force_copy:
        return handle
    if ordinal is not None:
        require_gpu("to_device")
    node = input_of(handle)
    moved = transfer(node, ordinal) if node.device != ordinal else copy("copy", node)
    finish_call((moved,), user_site())
    return wrap(moved)
