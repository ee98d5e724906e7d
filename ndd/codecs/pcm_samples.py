"""Samples that lie in a file as they are → samples of the wanted type, as libsndfile converts."""

from __future__ import annotations

import numpy as np

from ..fusion.graph.shapes import Array
from .sound_headers import Pcm

_BYTES = {"u1": 1, "i2": 2, "i3": 3, "i4": 4, "f4": 4}
_BITS = {"u1": 8, "i2": 16, "i3": 32, "i4": 32}  # after `_integers`


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
    values, bits = _integers(raw, pcm.kind).reshape(out.shape), _BITS[pcm.kind]
    if out.dtype.kind == "f":
        np.multiply(
            values, np.float32(2.0 ** (1 - bits)), out=out, dtype=np.float32, casting="unsafe"
        )
        return
    shift = out.dtype.itemsize * 8 - bits
    if shift < 0:
        np.right_shift(values, -shift, out=out, casting="unsafe")
    else:
        np.left_shift(values, shift, out=out, dtype=out.dtype, casting="unsafe")


def _integers(raw: Array, kind: str) -> Array:
    """Signed integers; those of 24 bits are the upper bits of 32."""
    if kind == "u1":
        return (raw ^ 0x80).view(np.int8)
    if kind != "i3":
        return raw.view(f"<{kind}")
    wide = np.zeros((raw.size // 3, 4), np.uint8)
    wide[:, 1:] = raw.reshape(-1, 3)
    return wide.view("<i4")
