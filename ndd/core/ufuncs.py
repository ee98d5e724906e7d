"""NumPy's functions of tensors (`np.sqrt(t)`): they read CPU tensors as arrays, and give arrays.

NumPy asks the same question for `array * tensor` and for `np.multiply(array, tensor)`. Both give a
Tensor, as `tensor * array` does: an expression must not leave the graph because of the order of its
operands. Every other call gives what it would give for an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.ir.dtypes import bfloat16
from .batch import Batch
from .convert import bfloat16_values
from .enumerations import refuse_export
from .handle import Handle
from .tensor import Tensor

# The functions that operators call: what `handle OP other` and `other OP handle` mean.
OPERATORS: dict[Any, tuple[str, str]] = {
    **{
        getattr(np, function): (f"__{name}__", f"__r{name}__")
        for function, name in (
            ("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("true_divide", "truediv"),
            ("floor_divide", "floordiv"), ("remainder", "mod"), ("power", "pow"),
            ("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor"),
            ("left_shift", "lshift"), ("right_shift", "rshift"),
        )
    },
    np.equal: ("__eq__", "__eq__"), np.not_equal: ("__ne__", "__ne__"),
    np.less: ("__lt__", "__gt__"), np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"), np.greater_equal: ("__ge__", "__le__"),
}  # fmt: skip
_ABOUT_SHAPES = (np.shape, np.ndim, np.size)  # need no values


def array_ufunc(ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """`__array_ufunc__` of Tensor and Batch."""
    if method == "__call__" and not options and len(inputs) == 2 and ufunc in OPERATORS:
        left, right = inputs
        forward, reflected = OPERATORS[ufunc]
        if isinstance(left, Batch):
            return getattr(left, forward)(right)
        if isinstance(right, Batch) or isinstance(left, (np.ndarray, np.generic)):
            return getattr(right, reflected)(left)
    name = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
    for given in options.get("out", ()):
        if isinstance(given, Handle):
            raise TypeError(f"{name}: `out` must be an array, got a {type(given).__name__}")
    if isinstance(options.get("where"), Handle):
        options["where"] = _array(options["where"], name)
    return getattr(ufunc, method)(*[_array(v, name) for v in inputs], **options)


def array_function(function: Any, arguments: Any, options: Any) -> Any:
    """`__array_function__` of Tensor and Batch: NumPy's other functions, such as np.stack.

    They would work without this, but those that catch errors would call tensors in GPU memory
    different from everything.
    """
    name = f"np.{function.__name__}"
    if function in _ABOUT_SHAPES and isinstance(arguments[0], Tensor):
        shape = np.broadcast_to(np.zeros((), bool), arguments[0].shape)
        return function(shape, *arguments[1:], **options)
    return function(*_arrays(arguments, name), **_arrays(options, name))


def _arrays(value: Any, name: str) -> Any:
    """The value with arrays instead of the tensors in it."""
    if isinstance(value, (list, tuple)):
        items = [_arrays(v, name) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        return {k: _arrays(v, name) for k, v in value.items()}
    return _array(value, name)


def _array(value: Any, name: str) -> Any:
    if isinstance(value, Batch):
        raise TypeError(
            f"{name} takes no Batch: use ndd.math and the operators, or {name} of its samples "
            f"(batch.tensors[i]) or of ndd.as_tensor(batch)"
        )
    if not isinstance(value, Tensor):
        return value
    if value.device.device_type != "cpu":
        raise TypeError(f"{name} cannot read a GPU tensor; copy it to the host first: tensor.cpu()")
    refuse_export(value.dtype, "NumPy")
    # NumPy only reads this array, so it is not handed out.
    array = value._host_array()
    return bfloat16_values(array) if value.dtype is bfloat16 else array
