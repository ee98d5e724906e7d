"""GPU runtimes: a context and a device enter, the runtime that launches on its stream leaves."""

from __future__ import annotations

from typing import Any

from ..kernels.common import forks
from ..kernels.gpu.streams import Stream

# This is not a cache: a runtime owns memory that its stream may still read and write, so runtimes
# are never dropped. There is one for each stream and allocator that were used.
_runtimes: dict[tuple[Stream, Any], Any] = {}
_lock = forks.lock()


def wait_for_users(owners: list[Any], device_id: int | None, context: Any) -> None:
    """Wait until no GPU reads memory that is about to be handed out.

    Memory of a device is handed out in the order of its context's stream, so that only other
    streams matter. Host memory is read by copies to a device, which run later than their calls.
    """
    if not _runtimes:
        return
    own = None if device_id is None else runtime_of(context, device_id)
    for runtime in list(_runtimes.values()):
        if runtime is not own and runtime.is_using(owners):
            runtime.synchronize()


def runtime_of(context: Any, device_id: int) -> Any:
    """The runtime of a device on the stream of `context`, or of the current context if None."""
    from ..kernels.gpu.runtime import GpuRuntime
    from .context import current_context

    context = context or current_context()
    stream = context._stream_on(device_id)
    key = (stream, context._allocator)
    with _lock:
        found = _runtimes.get(key)
        if found is None:
            found = _runtimes[key] = GpuRuntime(device_id, stream, context._allocator)
        return found
