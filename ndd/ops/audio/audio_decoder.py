"""decoders.audio: sound files → samples and sampling rates."""

from __future__ import annotations

import numpy as np

from ...codecs import sound_files as codec
from ...codecs.on_error import check_decoder_policy
from ...codecs.sound_files import Sound, Sounds
from ...core import convert
from ...core.errors import user_site
from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.doubts import doubted
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType
from ...loop.calls import this_thread
from ..images.image_decoders import encoded, errors, sources_of
from .resampling import QUALITY_DOC, resampled, result_counts

_TYPES = (dt.int16, dt.int32, dt.float32)
_WAV = """import io, soundfile
file = io.BytesIO()
soundfile.write(file, [0.5, -0.5], 8000, format='WAV')
"""


@op.graph(
    name="decoders.audio", outputs=2,
    sample=_WAV + "samples, rate = ndd.decoders.audio(ndd.tensor(list(file.getvalue()), "
    "dtype=ndd.uint8))\nsamples.torch().tolist(), rate.item()\n=([[0.5], [-0.5]], 8000.0)",
)  # fmt: skip
def audio(
    input=data("Encoded sounds: the bytes of files.", files=True),
    downmix=static(bool, False, "Whether to average all channels; then results have one axis."),
    dtype=static(DType, dt.float32, "Element type of the samples: float32, int16 or int32."),
    on_error=static(
        "Policy", "raise",
        "What to do with a sound that cannot be decoded: 'raise' an error, or 'fill' it with an "
        "empty or silent one. `batch.valid` tells which samples are bad, and `ndd.decoders.errors` "
        "records failures.",
    ),
    quality=static(float, 50.0, QUALITY_DOC),
    sample_rate=geometry(float, 0.0, "Sampling rate of the results, in Hz; the file's own if 0."),
):  # fmt: skip
    """Decode sounds: WAV, FLAC, OGG (Vorbis and Opus), MP3 or AIFF.

    Results are the samples, with the axes time and channel, and the sampling rate. Lengths are
    known from the headers, and a slice that follows decodes only its part of each sound.
    """
    name = "decoders.audio"
    if dtype not in _TYPES:
        raise TypeError(f"`dtype` must be one of {', '.join(map(str, _TYPES))}, got {dtype}")
    if on_error not in ("raise", "fill"):
        check_decoder_policy(on_error, name)
        raise ValueError(f"{name}: `on_error` must be 'raise' or 'fill', got {on_error!r}")
    decoding = _Decoding(name, input, on_error == "raise")
    rates = np.array([h.rate for h in decoding.headers], np.float64)
    wanted = np.broadcast_to(sample_rate, len(rates)).astype(np.float64)
    bad = np.flatnonzero(~((wanted >= 0) & np.isfinite(wanted)))
    if len(bad):
        s = int(bad[0])
        raise ValueError(f"`sample_rate` must be positive, got {float(wanted[s])} for sample {s}")
    wanted = np.where(wanted > 0, wanted, rates)
    for s, rate in enumerate(wanted.tolist()):
        decoding.check_ratio(s, rate)
    sounds = Sounds(decoding.data, decoding.headers, decoding.failed, mixes=downmix)
    frames = np.array([h.frames for h in decoding.headers], np.int64)
    y = decoded(name, input, sounds, frames, wanted, dtype, quality)
    own = [np.asarray(r, np.float32) for r in wanted]
    rate = convert.copy_arrays(own, dt.float32, None, input.batch)
    y = y.like(source_info=input.source_info)
    if on_error == "fill":
        doubts = doubted(decoding.failures, input.count)
        y, rate = y.like(doubts=(*y.doubts, *doubts)), rate.like(doubts=doubts)
    return y, rate


def decoded(
    name: str, x: Node, sounds: Sounds, frames: Array, wanted: Array, dtype: DType, quality: float
) -> Node:
    """So many frames of every sound of `x`, at the wanted sampling rates."""
    rates = np.array([h.rate for h in sounds.headers], np.float64)
    is_resampled = bool((wanted != rates).any())
    channels = np.array([1 if sounds.mixes else h.channels for h in sounds.headers], np.int64)
    y = build.decode(
        name, codec.decode_sample, x, Shapes(np.stack([frames, channels], axis=1)),
        dt.float32 if is_resampled else dtype, None, sounds, has_regions=True,
    )  # fmt: skip
    y.result.site = user_site()
    if sounds.mixes:
        y = build.drop_axes(name, y, [1], None)
    if not is_resampled:
        return y
    ratios = wanted / rates
    return resampled(name, y, ratios, result_counts(frames, ratios), quality, dtype)


class _Decoding:
    """One call of the decoder: reads headers when constructed, samples when evaluated."""

    def __init__(self, name: str, x: Node, is_strict: bool) -> None:
        self.name = name
        self.x = x
        self.is_strict = is_strict
        self.sources = sources_of(x)
        self.failures: set[int] = set()
        self.ahead = this_thread.failures  # set if the call is made in advance
        self.data: list[Array] = convert.arrays_of(encoded(x))
        self.headers = [self._header(s) for s in range(x.count)]

    def _header(self, s: int) -> Sound:
        try:
            return codec.read_header(self.data[s])
        except ValueError as error:
            self.failed(s, error)
            return Sound(0, 1, 1)

    def check_ratio(self, s: int, wanted: float) -> None:
        """Treat a sound whose rate is far too low as damaged."""
        try:
            if self.headers[s].frames:
                codec.check_ratio(self.headers[s], wanted)
        except ValueError as error:
            self.failed(s, error)
            self.headers[s] = Sound(0, self.headers[s].channels, self.headers[s].rate)

    def failed(self, s: int, error: ValueError) -> None:
        source = f" ({self.sources[s]})" if self.sources[s] else ""
        problem = ValueError(f"sample {s}{source}: {error}")
        if self.is_strict:
            raise problem from None
        self.failures.add(s)
        place = self.sources[s], s
        if self.ahead is None:
            errors.add(*place, problem)
        else:
            self.ahead.add(errors, *place, problem)
