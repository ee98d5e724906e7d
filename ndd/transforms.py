"""Affine matrices, for warp_affine and coord_transform.

>>> import ndd
>>> turned = ndd.transforms.rotation(angle=30.0, center=[4.0, 4.0])
>>> ndd.transforms.translation(turned, offset=[1.0, 2.0]).shape
(2, 3)
"""

from __future__ import annotations

from .ops.boxes.affine_matrices import combine, crop, rotation, scale, shear, translation

__all__ = ["combine", "crop", "rotation", "scale", "shear", "translation"]
