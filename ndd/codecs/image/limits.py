"""How large a picture may be."""

from __future__ import annotations

import os

import numpy as np

# A damaged header may claim more pixels than any memory holds. 2**28 is 16384×16384.
_max_pixels = int(os.environ.get("NDD_MAX_PIXELS", 1 << 28))

# More channels than any picture has; decoders allocate for each of them.
MAX_CHANNELS = 32


def get_max_pixels() -> int:
    """The largest number of pixels (height × width) that an image may have."""
    return _max_pixels


def set_max_pixels(pixels: int) -> None:
    """Reject images with more pixels than this; the default is 2**28, or NDD_MAX_PIXELS."""
    global _max_pixels
    if not isinstance(pixels, (int, np.integer)) or isinstance(pixels, bool) or pixels < 1:
        raise ValueError(f"set_max_pixels: a positive integer is needed, got {pixels!r}")
    _max_pixels = int(pixels)


def check_pixels(codec: str, height: int, width: int) -> None:
    """Refuse a picture that has more pixels than the limit."""
    if height * width > _max_pixels:
        raise ValueError(
            f"the {codec} header gives {height}x{width} pixels, more than the limit of "
            f"{_max_pixels}; ndd.decoders.set_max_pixels can raise it"
        )
