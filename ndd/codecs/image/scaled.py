"""Decodes JPEGs at 1/2, 1/4 or 1/8 of their size, by smaller inverse transforms.

nvimgcodec does not offer that, so it takes the package simplejpeg, which is another binding of
libjpeg-turbo.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...fusion.graph.shapes import Array
from ...kernels.ir import dtypes as dt
from .decode import Images
from .headers import Header

FACTORS = (8, 4, 2)
_COLOURS = {"RGB": "RGB", "BGR": "BGR", "GRAY": "GRAY"}


def simplejpeg() -> Any:
    """The library, imported on first use."""
    try:
        import simplejpeg as library
    except ImportError:
        raise ImportError(
            '`scaled_decode` needs the package simplejpeg: pip install "ndd-fusion[scaled]"'
        ) from None
    return library


def is_scalable(header: Header | None, colour: str) -> bool:
    """Whether an image can be decoded smaller: an upright JPEG of bytes, in RGB or grey."""
    return (
        header is not None
        and header.codec == "jpeg"
        and header.orientation == 1
        and header.dtype is dt.uint8
        and not header.is_cmyk
        and colour in _COLOURS
    )


def factors(images: Images, ratios: Array) -> Array:
    """By how much to shrink each image: the largest factor of the decoder up to its ratio, or 1."""
    found = np.ones(len(ratios), np.int64)
    for factor in reversed(FACTORS):
        found[ratios >= factor] = factor
    able = [is_scalable(header, images.colour) for header in images.headers]
    return np.where(able, found, 1)


class ScaledImages(NamedTuple):
    """Images, and by how much each of them is shrunk."""

    images: Images
    factors: Array


def decode_scaled(scaled: ScaledImages, sample: int, out: Array) -> None:
    """The function of a Decode node: decode one sample into `out`."""
    images, factor = scaled.images, int(scaled.factors[sample])
    header = images.headers[sample]
    if factor == 1 or header is None or out.size == 0:
        images.decode(sample, out)
        return
    try:
        _decode(header, images, factor, out)
    except ValueError as error:
        images._fail(sample, header, ValueError(f"its pixels cannot be decoded: {error}"))
        out[...] = 0


def _decode(header: Header, images: Images, factor: int, out: Array) -> None:
    pixels = simplejpeg().decode_jpeg(
        header.data, _COLOURS[images.colour], fastdct=images.fast_idct, min_height=out.shape[0],
        min_width=out.shape[1], min_factor=factor, buffer=out,
    )  # fmt: skip
    if pixels.shape != out.shape:
        raise ValueError(f"1/{factor} of it is {pixels.shape}, not {out.shape}")
