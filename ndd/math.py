"""Mathematical functions of tensors, batches and numbers; types promote as with operators.

>>> import ndd
>>> ndd.math.sqrt(ndd.tensor([1.0, 4.0])).shape
(2,)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .ops.pointwise.arithmetic import MATH, Elementwise, apply

_PARAMETERS = {
    "atan2": ("x", "y"), "clamp": ("value", "lo", "hi"), "fpow": ("base", "exponent"),
    "pow": ("base", "exponent"), "min": ("left", "right"), "max": ("left", "right"),
}  # fmt: skip


def _public(f: Elementwise) -> Callable[..., Any]:
    short = f.label
    names = _PARAMETERS.get(short, ("input",))
    signature = ", ".join(names)
    namespace: dict[str, Any] = {"_apply": apply, "_f": f}
    source = f"def {short}({signature}):\n    return _apply(_f, {signature})\n"
    exec(compile(source, "<ndd.math>", "exec"), namespace)  # user_site() skips this file name
    function: Callable[..., Any] = namespace[short]
    sample = {"clamp": "ndd.math.clamp(ndd.tensor([1, 5]), 2, 3)"}.get(
        short, f"ndd.math.{short}({', '.join(['ndd.tensor([0.5, 1.0])'] * len(names))})"
    )
    function.__doc__ = f"{f.doc}\n\n>>> import ndd\n>>> {sample}.shape\n(2,)\n"
    function.__module__ = "ndd.math"
    function.__qualname__ = short
    return function


for _f in MATH:
    globals()[_f.label] = _public(_f)

__all__ = [f.label for f in MATH]
