"""Decoders: from the bytes of files to images and arrays.

>>> import ndd
>>> ndd.decoders.get_max_pixels() == 2**28
True
"""

from __future__ import annotations

from .codecs.image.limits import get_max_pixels, set_max_pixels
from .ops.audio.audio_decoder import audio
from .ops.images.image_decoders import (
    errors,
    image,
    image_crop,
    image_random_crop,
    image_slice,
    numpy,
)
from .ops.images.inflate import inflate
from .ops.video.video_decoder import video

__all__ = [
    "audio",
    "errors",
    "get_max_pixels",
    "image",
    "image_crop",
    "image_random_crop",
    "image_slice",
    "inflate",
    "numpy",
    "set_max_pixels",
    "video",
]
