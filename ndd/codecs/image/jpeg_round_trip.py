"""Pixels → JPEG files, through nvimgcodec, and what is left of pixels in such files."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array
from ...fusion.graph.storage import address_of
from ...kernels.common import forks
from ...kernels.common.buffers import POOL
from ...kernels.cpu.helpers import function
from ...kernels.cpu.jpeg_loss import job_slots as at
from ...kernels.cpu.jpeg_loss.step_tables import step_tables
from .nvimgcodec import new_encoder, nvimgcodec

MAX_EXTENT = 65500  # the limit of libjpeg


class _LocalEncoder(threading.local):
    """Encoder and parameters of one thread; threads that share an encoder wait for each other."""

    def __init__(self) -> None:
        self.encoder: Any = None
        self.params: dict[int, Any] = {}

    def encode(self, pixels: Array, quality: int) -> Any:
        library = nvimgcodec()
        if self.encoder is None:
            self.encoder = new_encoder(library)
        params = self.params.get(quality)
        if params is None:
            params = self.params[quality] = library.EncodeParams(
                quality_type=library.QualityType.QUALITY,
                quality_value=quality,
                chroma_subsampling=library.ChromaSubsampling.CSS_420,
            )
        return self.encoder.encode(library.as_image(pixels), "jpeg", params=params)


_own = _LocalEncoder()

# The helper threads of an encoder do not survive a fork.
forks.in_child(lambda: _own.__init__())  # type: ignore[misc]


def encoded(pixels: Array, quality: int) -> bytes:
    """RGB `pixels` [H, W, 3] as the bytes of a JPEG file of this quality (1 to 100)."""
    stream = _own.encode(np.ascontiguousarray(pixels), quality)
    if stream is None:
        raise ValueError(f"an image of shape {pixels.shape} cannot be encoded as JPEG")
    return bytes(memoryview(stream))


def round_trip(pixels: Array, quality: int, out: Array) -> None:
    """Write what JPEG of this quality (1 to 100) leaves of RGB `pixels` [H, W, 3] into `out`.

    Entropy coding loses nothing, so it is left out; `out` is contiguous.
    """
    if not pixels.size:
        return
    pixels = np.ascontiguousarray(pixels)
    height, width, _ = pixels.shape
    tables, scratch = step_tables(quality), POOL.take(at.scratch_nbytes(width))
    job = np.empty(at.ROW_SIZE, np.int64)
    job[at.SOURCE], job[at.TARGET] = address_of(pixels), address_of(out)
    job[at.HEIGHT], job[at.WIDTH] = height, width
    job[at.TABLES], job[at.SCRATCH] = address_of(tables), scratch.address
    function("lose_jpeg")(address_of(job), 0, 1)
