"""ExternalSource: values from a Python function or iterable enter, tensors and batches leave."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..core.batch import Batch, TensorList, as_batch
from ..core.tensor import Tensor, as_tensor
from ..runtime.device import device as as_device

_CYCLES = {None: "no", "no": "no", False: "no", "quiet": "quiet", True: "quiet", "raise": "raise"}


class ExternalSource:
    """Pulls tensors or batches from a function without arguments, or from an iterable.

    >>> import ndd
    >>> source = ndd.ExternalSource([[1, 2], [3, 4, 5]])
    >>> source().shape, source(batch_size=2).shape
    ((2,), [(3,), (3,)])

    A Batch (or TensorList) from the source stays a batch. Anything else becomes one tensor, which
    `batch_size` repeats. At the end of the source the call raises `StopIteration`.

    Parameters
    ----------
    source : callable or iterable
        A function without arguments (called for every item), a generator function (called for
        every cycle), or an iterable.
    num_outputs : int
        With more than one, items are sequences of this length, and results are tuples.
    cycle : "no" | "quiet" | "raise" or bool, optional
        What to do at the end: "quiet" (True) continues with the first item, "raise" does so after
        a `StopIteration`. For iterables and generator functions, not for generators.
    device : device
        The device of the results.
    layout, dtype : optional
        Layout and element type of the results, or a sequence with one for each output.
    """

    def __init__(
        self,
        source: Any,
        num_outputs: int = 1,
        *,
        cycle: str | bool | None = None,
        device: Any = "cpu",
        layout: str | Sequence[str] | None = None,
        dtype: Any = None,
    ) -> None:
        if isinstance(num_outputs, bool) or not isinstance(num_outputs, int) or num_outputs < 1:
            raise ValueError(
                f"ExternalSource: `num_outputs` must be a positive integer, got {num_outputs!r}"
            )
        if not isinstance(cycle, (str, bool, type(None))) or cycle not in _CYCLES:
            raise ValueError(
                f'ExternalSource: `cycle` must be "no" (or False), "quiet" (or True) or "raise", '
                f"got {cycle!r}"
            )
        self._num_outputs = num_outputs
        self._cycle = _CYCLES[cycle]
        self._device = as_device(device)
        self._layouts = self._per_output(layout, "layout", str)
        self._dtypes = self._per_output(dtype, "dtype", None)
        self._source = source
        self._iterator: Iterator[Any] | None = None
        self._check_source(cycle)

    def __getstate__(self) -> dict[str, Any]:
        if self._iterator is not None:
            raise TypeError(
                "ExternalSource: a source in mid-iteration cannot be pickled or copied: do that "
                "before its first item"
            )
        return vars(self)

    def _check_source(self, cycle: str | bool | None) -> None:
        source = self._source
        self._is_function = callable(source) and not isinstance(source, Iterable)
        if not self._is_function and not isinstance(source, Iterable):
            raise TypeError(
                f"ExternalSource: the source must be a function without arguments or an "
                f"iterable, got {type(source).__name__}"
            )
        if self._is_function:
            if _needs_arguments(source):
                raise ValueError("ExternalSource: the function must not need arguments")
            if inspect.isgeneratorfunction(source):
                self._is_function = False
            elif cycle is not None:
                raise ValueError(
                    "ExternalSource: `cycle` is for iterables and generator functions, "
                    "a function says itself when to go on"
                )
        if self._cycle != "no" and isinstance(source, Iterator):
            raise TypeError(
                f"ExternalSource: a {type(source).__name__} cannot be started again; give an "
                f"iterable such as a list, or the generator function itself"
            )

    def _per_output(self, value: Any, name: str, single: Any) -> list[Any]:
        is_one = value is None or not isinstance(value, (list, tuple))
        if is_one or (single is not None and isinstance(value, single)):
            return [value] * self._num_outputs
        if len(value) != self._num_outputs:
            raise ValueError(
                f"ExternalSource: `{name}` has {len(value)} entries for {self._num_outputs} outputs"
            )
        return list(value)

    def _next(self) -> Any:
        if self._is_function:
            return self._source()
        if self._iterator is None:
            self._iterator = self._start()
        try:
            return next(self._iterator)
        except StopIteration:
            if self._cycle == "no":
                raise  # the next call raises again, because the iterator stays at its end
            self._iterator = self._start()
            if self._cycle == "raise":
                raise
        return next(self._iterator)

    def _start(self) -> Iterator[Any]:
        source = self._source
        return iter(source() if callable(source) and not isinstance(source, Iterable) else source)

    def __call__(self, *, batch_size: int | None = None) -> Any:
        """The next item: a Tensor or Batch, or a tuple of them with several outputs."""
        item = self._next()
        if self._num_outputs == 1:
            return self._value(item, 0, batch_size)
        if isinstance(item, (Batch, Tensor)) or not isinstance(item, (list, tuple)):
            raise ValueError(
                f"ExternalSource: the source must give {self._num_outputs} outputs in a tuple, "
                f"got {type(item).__name__}"
            )
        if len(item) != self._num_outputs:
            raise ValueError(
                f"ExternalSource: the source must give {self._num_outputs} outputs, got {len(item)}"
            )
        return tuple(self._value(v, k, batch_size) for k, v in enumerate(item))

    def _value(self, item: Any, output: int, batch_size: int | None) -> Any:
        layout, dtype = self._layouts[output], self._dtypes[output]
        try:
            if isinstance(item, (Batch, TensorList)):
                result = as_batch(item, dtype=dtype, device=self._device, layout=layout)
                if batch_size is not None and result.batch_size != batch_size:
                    raise ValueError(
                        f"a batch of {batch_size} was wanted, the source gave one of "
                        f"{result.batch_size}"
                    )
                return result
            tensor = as_tensor(item, dtype=dtype, device=self._device, layout=layout)
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"ExternalSource: output {output}: {error}") from error
        return tensor if batch_size is None else Batch.broadcast(tensor, batch_size)

    def captured(self, batch_size: int, ctx: Any = None) -> Iterator[Any]:
        """All items up to the end of the source. `ctx` has no effect: calls are fused anyway."""
        while True:
            try:
                item = self(batch_size=batch_size)
            except StopIteration:
                return
            yield item


def _needs_arguments(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # a C function without a signature
        return False
    return False
