"""A pointwise op from outside the package: this file is complete."""

from __future__ import annotations

from ndd.core.schema import arg, data, op, static
from ndd.kernels.ir import dtypes as dt
from ndd.kernels.ir import expr as ex
from ndd.kernels.ir.dtypes import DType


@op.pointwise(layouts="HWC CHW", rejects="bool")
def toy_solarize(
    input=data("Images."),
    threshold=arg(float, 128.0, "Values from here on are inverted."),
    dtype=static(DType, None, "Output type; the input's if omitted."),
):
    """Invert values above a threshold."""
    x = ex.cast(input, dt.float32)
    return ex.select(x < threshold, x, 255.0 - x)
