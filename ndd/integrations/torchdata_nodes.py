"""torchdata's nodes around our readers: samples enter, dicts of Batch and then torch tensors leave.

All nodes have states, so that `torchdata.nodes.Loader.state_dict` resumes in mid-epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ..core.batch import Batch
from ..core.interop import need_torch
from ..core.tensor import Tensor
from ..readers.reader import Reader
from .extras import need

if TYPE_CHECKING:

    class BaseNode(Iterator[Any]):
        """torchdata's class, as much of it as type checkers need."""

        def reset(self, initial_state: dict[str, Any] | None = None) -> None: ...
        def state_dict(self) -> dict[str, Any]: ...

else:
    BaseNode = need("torchdata.nodes", "ndd.pytorch.nodes", "torchdata").BaseNode

Item = dict[str, Any]


class ReaderNode(BaseNode):
    """Wraps a reader as a node that yields dictionaries.

    Parameters
    ----------
    reader_type : reader subclass
        The class of the reader to make.
    batch_size : int, optional
        The batch size of `next_epoch`; with None, items hold Tensors.
    output_names : iterable of str, optional
        Keys of the dictionaries; ``("data", "label")`` if the reader has two outputs.
    **kwargs
        Arguments of the reader.
    """

    def __init__(
        self,
        reader_type: type[Reader],
        *,
        batch_size: int | None,
        output_names: Iterable[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if not isinstance(reader_type, type):
            raise TypeError(
                f"nodes.Reader: `reader_type` must be a class such as ndd.readers.File, got "
                f"{type(reader_type).__name__}; give the reader's arguments to the node"
            )
        self._make: Callable[[], Reader] = lambda: reader_type(**kwargs)
        self._reader = self._make()
        self._batch_size = batch_size
        self._names = self._checked_names(output_names)
        self._items: Iterator[Any] = iter(())

    def _checked_names(self, names: Iterable[str] | None) -> tuple[str, ...]:
        kind, count = type(self._reader).__name__, len(self._reader.outputs)
        if names is None:
            if count == 2:
                return ("data", "label")
            if count:
                raise ValueError(
                    f"nodes.Reader: readers.{kind} has {count} outputs: give them names with "
                    f"`output_names`"
                )
            return ()  # its items are dicts
        given = tuple(names)
        if count and len(given) != count:
            raise ValueError(
                f"nodes.Reader: `output_names` has {len(given)} names, readers.{kind} has "
                f"{count} outputs"
            )
        return given

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin the next epoch, or continue from a state."""
        super().reset(initial_state)
        if initial_state is not None:
            self._reader = self._make()
            self._reader.set_state(initial_state["reader"])
        self._items = iter(self._reader.next_epoch(batch_size=self._batch_size))

    def next(self) -> Item:
        """The next batch as a dictionary."""
        item = next(self._items)
        if isinstance(item, dict):
            return dict(zip(self._names or item, item.values(), strict=True))
        return dict(zip(self._names, item, strict=True))

    def get_state(self) -> dict[str, Any]:
        """The position after the last item."""
        return {"reader": str(self._reader.get_state())}

    def get_metadata(self) -> dict[str, int]:
        """Sizes of the data set and of its shards."""
        return self._reader.get_metadata()


class _Following(BaseNode):
    """A node that changes the items of another one and has no state of its own."""

    def __init__(self, source: BaseNode) -> None:
        super().__init__()
        self.source = source

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Reset the source, or set its state."""
        super().reset(initial_state)
        self.source.reset(None if initial_state is None else initial_state["source"])

    def get_state(self) -> dict[str, Any]:
        """The state of the source."""
        return {"source": self.source.state_dict()}


class DictMapper(_Following):
    """Applies a function to one entry of the dictionaries of a source node.

    Parameters
    ----------
    source : torchdata.nodes.BaseNode
        A node that yields dictionaries of Tensor or Batch.
    map_fn : callable
        The function; it returns a Tensor or a Batch.
    key : str
        The entry to apply it to.
    """

    def __init__(
        self, source: BaseNode, map_fn: Callable[[Any], Tensor | Batch], key: str = "data"
    ) -> None:
        super().__init__(source)
        self.map_fn, self.key = map_fn, key

    def next(self) -> Item:
        """The next dictionary, with the entry replaced."""
        item: Item = next(self.source)
        if self.key not in item:
            raise KeyError(f"DictMapper: no entry {self.key!r}; the source has {', '.join(item)}")
        return item | {self.key: self.map_fn(item[self.key])}


class ToTorch(_Following):
    """Converts dictionaries of Tensor or Batch to tuples of torch tensors.

    Parameters
    ----------
    source : torchdata.nodes.BaseNode
        A node that yields dictionaries of Tensor or Batch.
    output_stream : stream, optional
        The CUDA stream on which the tensors will be used; it waits for pending work on them. By
        default, the current stream when the node is made.
    """

    def __init__(self, source: BaseNode, output_stream: Any = None) -> None:
        super().__init__(source)
        torch = need_torch()
        if output_stream is None and torch.cuda.is_available():
            output_stream = torch.cuda.current_stream()
        self._stream = output_stream

    def _on_stream(self) -> AbstractContextManager[Any]:
        if self._stream is None:
            return nullcontext()
        return need_torch().cuda.stream(self._stream)  # type: ignore[no-any-return]

    def next(self) -> tuple[Any, ...]:
        """The entries of the next dictionary as torch tensors."""
        item: Item = next(self.source)
        with self._on_stream():
            return tuple(_as_torch(name, value) for name, value in item.items())


def _as_torch(name: str, value: Any) -> Any:
    if not isinstance(value, (Tensor, Batch)):
        return value
    try:
        return value.torch()
    except ValueError as error:
        raise ValueError(f"ToTorch: entry {name!r}: {error}") from error
