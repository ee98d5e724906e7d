"""Enumerations with the names of ``nvidia.dali.types``, whose values compare equal to these.

>>> import ndd
>>> ndd.types.RGB
<DALIImageType.RGB: 0>
"""

from __future__ import annotations

from .kernels.ir.dtypes import DALIDataType, DALIImageType, DALIInterpType

for _enum in (DALIDataType, DALIImageType, DALIInterpType):
    globals().update(_enum.__members__)

__all__ = [
    "DALIDataType",
    "DALIImageType",
    "DALIInterpType",
    *DALIDataType.__members__,
    *DALIImageType.__members__,
    *DALIInterpType.__members__,
]
