"""where: choose between two values, element by element."""

from __future__ import annotations

from typing import Any, overload

from ...core.batch import Batch
from ...core.tensor import Tensor
from ...typing import ArrayLike, TensorLike
from .arithmetic import WHERE, apply


@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Tensor: ...  # type: ignore[overload-overlap]
@overload
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Batch: ...
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Any:
    """`x` where the condition is true (not 0), `y` elsewhere.

    Shapes broadcast and the types of `x` and `y` promote as with operators.

    >>> import ndd
    >>> t = ndd.tensor([3, -1, 2])
    >>> ndd.where(t > 0, t, 0.5).torch().tolist()
    [3.0, 0.5, 2.0]

    Parameters
    ----------
    condition : Tensor or Batch
        What to choose by.
    x, y : Tensor, Batch or number
        The two values.
    """
    return apply(WHERE, condition, x, y)


__all__ = ["where"]
