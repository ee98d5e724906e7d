"""`ndd.warmup`: a function and samples enter, and its kernels get compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core.handle import Handle
from ..fusion.run.tiers import TIERS
from ..kernels.cpu import runtime as cpu_runtime
from ..runtime.rng import get_default_rng, use_default_rng


def warmup(function: Callable[..., Any], *samples: Any) -> int:
    """Compile all kernels that `function(*samples)` needs; return how many were not in the cache.

    Kernels do not depend on sizes and values, so a small sample is enough. Random ops do not
    advance the default generator.
    >>> import ndd
    >>> image = ndd.zeros(shape=[8, 8, 3], dtype=ndd.uint8, layout="HWC")
    >>> _ = ndd.warmup(lambda x: ndd.flip(x) * 2.0, image)
    >>> ndd.warmup(lambda x: ndd.flip(x) * 2.0, image)
    0
    """
    for handle in _handles(samples):
        handle.evaluate()  # as in a loop, where the reader's outputs are in memory
    before = cpu_runtime.compile_count
    with use_default_rng(get_default_rng().clone()), TIERS.always_fused():
        for _ in range(2):  # only the second run knows which values are read
            for handle in _handles(function(*samples)):
                handle.evaluate()
    return cpu_runtime.compile_count - before


def _handles(result: Any) -> Iterable[Handle]:
    if isinstance(result, Handle):
        yield result
    elif isinstance(result, dict):
        yield from _handles(list(result.values()))
    elif isinstance(result, (list, tuple)):
        for item in result:
            yield from _handles(item)
