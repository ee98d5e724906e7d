"""Reports stages as NVTX ranges, for Nsight Systems and Nsight Compute."""

from __future__ import annotations

from typing import Any

from . import trace

DOMAIN = "ndd"
CATEGORIES = tuple(c for c in trace.CATEGORIES if c != "stall")  # Nsight itself shows waiting


class NvtxRanges:
    """A watcher that pushes and pops an NVTX range for every stage, on the stage's thread."""

    def __init__(self) -> None:
        self._domain = _import_nvtx().get_domain(DOMAIN)
        self._categories = {name: self._domain.get_category_id(name) for name in CATEGORIES}
        self._attributes: dict[tuple[str, str, int], Any] = {}

    def begin(self, stage: trace.Stage) -> None:
        if stage.category in self._categories:
            self._domain.push_range(self._attributes_of(stage))

    def end(self, stage: trace.Stage) -> None:
        if stage.category in self._categories:
            self._domain.pop_range()

    def _attributes_of(self, stage: trace.Stage) -> Any:
        """Attributes of a stage's range; kept, because making them costs more than a range."""
        message = stage.name
        if stage.category == "call" and stage.about:
            message = f"{message} at {stage.about['line']}"
        key = (stage.category, message, stage.group)
        found = self._attributes.get(key)
        if found is None:
            found = self._attributes[key] = self._domain.get_event_attributes(
                message=message, category=self._categories[stage.category], payload=stage.group
            )
        return found


def _import_nvtx() -> Any:
    try:
        import nvtx
    except ImportError:
        raise RuntimeError(
            'NVTX ranges need the package nvtx: pip install "ndd-fusion[gpu]"'
        ) from None
    return nvtx


_ranges: NvtxRanges | None = None


def switch(on: bool) -> None:
    """Start or stop reporting stages to NVTX."""
    global _ranges
    if on and _ranges is None:
        _ranges = NvtxRanges()
        trace.watch(_ranges)
    elif not on and _ranges is not None:
        trace.unwatch(_ranges)
        _ranges = None
