"""Descriptions of the features of TFRecord files, for `ndd.readers.TFRecord`.

>>> import ndd
>>> features = {
...     "image/encoded": ndd.tfrecord.FixedLenFeature((), ndd.tfrecord.string, ""),
...     "image/class/label": ndd.tfrecord.FixedLenFeature([1], ndd.tfrecord.int64, -1),
...     "image/object/bbox": ndd.tfrecord.VarLenFeature([4], ndd.tfrecord.float32, 0.0),
... }
>>> features["image/object/bbox"]
VarLenFeature([4], float32, 0.0)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, overload

__all__ = ["Feature", "FixedLenFeature", "VarLenFeature", "float32", "int64", "string"]

int64: Final = 0
string: Final = 1
float32: Final = 2
_NAMES = ("int64", "string", "float32")


class Feature:
    """A feature; make it with `FixedLenFeature` or `VarLenFeature`."""

    __slots__ = ("default", "dtype", "partial", "shape")

    def __init__(
        self, shape: Sequence[int] | None, partial: Sequence[int], dtype: int, default: Any
    ) -> None:
        if dtype not in (int64, string, float32):
            raise ValueError(
                f"tfrecord: the type of a feature is int64, string or float32 of ndd.tfrecord, "
                f"got {dtype!r}"
            )
        self.shape = None if shape is None else _shape(shape)
        self.partial = _shape(partial)
        self.dtype, self.default = dtype, default
        if dtype == string and (self.shape is None or self.shape not in ((), (1,))):
            raise ValueError(
                "tfrecord: a feature of strings is one string per record: "
                'FixedLenFeature((), string, ""); tensors of strings are not supported'
            )

    def __repr__(self) -> str:
        name = _NAMES[self.dtype]
        if self.shape is not None:
            return f"FixedLenFeature({list(self.shape)}, {name}, {self.default!r})"
        return f"VarLenFeature({list(self.partial)}, {name}, {self.default!r})"


def _shape(given: Sequence[int]) -> tuple[int, ...]:
    try:
        shape = tuple(operator.index(n) for n in given)
    except TypeError:
        raise TypeError(
            f"tfrecord: the shape of a feature is a sequence of integers, got {given!r}"
        ) from None
    if any(n < 0 for n in shape):
        raise ValueError(f"tfrecord: the shape of a feature must not be negative, got {shape}")
    return shape


def FixedLenFeature(shape: Sequence[int], dtype: int, default_value: Any) -> Feature:
    """A feature that has the same shape in all records.

    >>> import ndd
    >>> ndd.tfrecord.FixedLenFeature([2], ndd.tfrecord.float32, 0.5)
    FixedLenFeature([2], float32, 0.5)

    Records that have no such feature, or fewer values, are filled with `default_value`.
    """
    return Feature(shape, (), dtype, default_value)


@overload
def VarLenFeature(dtype: int, default_value: Any, /) -> Feature: ...
@overload
def VarLenFeature(partial_shape: Sequence[int], dtype: int, default_value: Any, /) -> Feature: ...
def VarLenFeature(*arguments: Any) -> Feature:
    """A feature with any number of values, called with a type and a default.

    >>> import ndd
    >>> ndd.tfrecord.VarLenFeature(ndd.tfrecord.int64, 0)
    VarLenFeature([], int64, 0)

    With a partial shape as first argument, the values have that shape behind a first dimension
    that follows from their number. Records without such a feature have an empty tensor.
    """
    if len(arguments) == 2:
        return Feature(None, (), *arguments)
    if len(arguments) == 3:
        return Feature(None, *arguments)
    raise TypeError(
        f"tfrecord: VarLenFeature takes (dtype, default_value) or (partial_shape, dtype, "
        f"default_value), got {len(arguments)} arguments"
    )
