"""The builders that ops are written with: each takes nodes and returns a new node.

Every kind defines its own builders; this module only collects them.
"""

from __future__ import annotations

from ..kinds.assemble import assemble
from ..kinds.frames import frames, sequences
from ..kinds.histogram import equalizing_tables, limited_tables
from ..kinds.mapped import mapped
from ..kinds.merge import merge
from ..kinds.mosaic import demosaic
from ..kinds.neighbourhood import neighbourhood
from ..kinds.opaque import alias, choose, decode, host, transfer
from ..kinds.pointwise import broadcast_to, copy, pointwise
from ..kinds.projection import projection
from ..kinds.ranking import ranking
from ..kinds.reduce import pool, reduce
from ..kinds.resample import resample
from ..kinds.sinc import sinc
from ..kinds.spectrum import transform
from ..kinds.take import Listed, take
from ..kinds.view import (
    add_axes,
    drop_axes,
    flip,
    index_axes,
    part,
    permute,
    relabel,
    view,
    window,
)

__all__ = [
    "Listed", "add_axes", "alias", "assemble", "broadcast_to", "choose", "copy", "decode",
    "demosaic", "drop_axes", "equalizing_tables", "flip", "frames", "host", "index_axes",
    "limited_tables", "mapped", "merge", "neighbourhood", "part", "permute", "pointwise", "pool",
    "projection", "ranking", "reduce", "relabel", "resample", "sequences", "sinc", "take",
    "transfer", "transform", "view", "window",
]  # fmt: skip
