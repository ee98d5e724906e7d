"""Label maps, masks and polygons.

>>> import ndd
>>> labels = ndd.tensor([[0, 1, 1], [0, 0, 1]], dtype=ndd.uint8)
>>> start, shape = ndd.segmentation.random_object_bbox(labels)
>>> [int(v) for v in start], [int(v) for v in shape]
([0, 1], [2, 2])
"""

from __future__ import annotations

from .ops.segmentation.mask_pixel import random_mask_pixel
from .ops.segmentation.object_box import random_object_bbox
from .ops.segmentation.polygons import select_masks

__all__ = ["random_mask_pixel", "random_object_bbox", "select_masks"]
