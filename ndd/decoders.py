"""Decoders: from the bytes of files to images and arrays.

>>> import ndd
>>> ndd.decoders.get_max_pixels() == 2**28
True
"""

from __future__ import annotations

from .codecs.image.limits import get_max_pixels, set_max_pixels
from .ops.images.image_decoders import (
    errors,
    image,
    image_crop,
    image_random_crop,
    image_slice,
    numpy,
)

__all__ = [
    "errors",
    "get_max_pixels",
    "image",
    "image_crop",
    "image_random_crop",
    "image_slice",
    "numpy",
    "set_max_pixels",
]
