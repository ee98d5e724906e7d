"""Ops that upstream has under the name `experimental`.

>>> import ndd
>>> image = ndd.zeros(shape=[4, 6, 3], layout="HWC")
>>> ndd.experimental.warp_perspective(image, matrix=[1, 0, 0, 0, 1, 0, 0, 0, 1]).shape
(4, 6, 3)
"""

from __future__ import annotations

import sys

from . import decoders
from .core.schema import OPS
from .ops.filters import (
    median,  # noqa: F401  (its ops are collected below)
    morphology,  # noqa: F401  (its ops are collected below)
)
from .ops.images.image_decoders import peek_image_shape  # noqa: F401
from .ops.resample import (
    perspective,  # noqa: F401  (its ops are collected below)
    resize,  # noqa: F401  (its ops are collected below)
)
from .readers import experimental_names as readers

_PREFIX = "experimental."
# `import ndd.experimental.decoders` works as upstream; the module is the same. So for readers.
__path__: list[str] = []
sys.modules[f"{__name__}.decoders"] = decoders
sys.modules[f"{__name__}.readers"] = readers

for _name, _op in OPS.items():
    if _name.startswith(_PREFIX):
        globals()[_name.removeprefix(_PREFIX)] = _op.public

__all__ = sorted(
    ["decoders", "peek_image_shape"]  # no longer experimental; the old names are kept
    + ["readers"]
    + [n.removeprefix(_PREFIX) for n in OPS if n.startswith(_PREFIX)]
)
