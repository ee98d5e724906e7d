"""Recognises the format of a file and checks it, before any byte of it reaches a decoder."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from . import bmp, jpeg, jpeg2000, png, pnm, tiff, webp
from .sound import Extents, UnsoundError


class Format(NamedTuple):
    """A format: nvimgcodec's name of it, its name in messages, and its check.

    `still` gives the file of the first frame of an animation, and None for other files.
    """

    codec: str
    title: str
    check: Callable[[memoryview], Extents]
    still: Callable[[memoryview], bytes | None] = lambda _: None


_JPEG = Format("jpeg", "JPEG", jpeg.check)
_PNG = Format("png", "PNG", png.check, png.still)
_BMP = Format("bmp", "BMP", bmp.check)
_TIFF = Format("tiff", "TIFF", tiff.check)
_WEBP = Format("webp", "WebP", webp.check)
_JPEG2000 = Format("jpeg2k", "JPEG 2000", jpeg2000.check)
_PNM = Format("pnm", "PNM", pnm.check)
_STARTS = {
    b"\xff\xd8\xff": _JPEG,
    png.SIGNATURE: _PNG,
    b"BM": _BMP,
    b"II*\0": _TIFF, b"MM\0*": _TIFF, b"II+\0": _TIFF, b"MM\0+": _TIFF,
    b"\0\0\0\x0cjP  \r\n\x87\n": _JPEG2000, jpeg2000.RAW: _JPEG2000,
    **dict.fromkeys((b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"), _PNM),
}  # fmt: skip


def format_of(data: memoryview) -> Format | None:
    """The format of a file, by its first bytes."""
    start = bytes(data[:12])
    if start[:4] == b"RIFF" and start[8:] == b"WEBP":
        return _WEBP
    return next((found for mark, found in _STARTS.items() if start.startswith(mark)), None)


def checked(data: memoryview, kind: Format) -> Extents:
    """The size that a sound header gives; a ValueError says what is wrong with others."""
    try:
        return kind.check(data)
    except (struct.error, IndexError, OverflowError):
        problem = "it ends early"
    except UnsoundError as error:
        problem = str(error)
    raise ValueError(f"the {kind.title} header is damaged or of an unknown kind: {problem}")
