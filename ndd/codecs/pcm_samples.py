"""Samples that lie in a file as they are → samples of the wanted type, as libsndfile converts."""

from __future__ import annotations

import numpy as np

from ..fusion.graph.shapes import Array
from ..fusion.graph.storage import address_of
from ..kernels.cpu.helpers import function
from .sound_headers import Pcm

_BYTES = {"u1": 1, "i2": 2, "i3": 3, "i4": 4, "f4": 4}
KINDS = {"float32": 0, "int16": 1, "int32": 2}  # of samples, as our helpers number them


def can_convert(pcm: Pcm, out: Array) -> bool:
    """Whether samples can be converted here; libsndfile rounds floats to integers."""
    return pcm.kind != "f4" or out.dtype.kind == "f"


def read_pcm(data: Array, pcm: Pcm, channels: int, first: int, out: Array) -> None:
    """Write frames `first` … of all channels to `out` [frames, channels]."""
    frame = _BYTES[pcm.kind] * channels
    begin = pcm.offset + first * frame
    raw = data[begin : begin + len(out) * frame]
    if pcm.kind == "f4":
        out[...] = raw.view("<f4").reshape(out.shape)
        return
    job = np.array([address_of(raw), _BYTES[pcm.kind], KINDS[out.dtype.name]], np.int64)
    function("integer_samples")(address_of(job), address_of(out), out.size)
