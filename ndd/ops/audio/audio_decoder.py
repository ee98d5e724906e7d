"""decoders.audio: sound files → samples and sampling rates."""

from __future__ import annotations

import numpy as np

from ...codecs import sound_files as codec
from ...codecs.on_error import check_policy
from ...codecs.sound_files import Sound, Sounds
from ...core import convert
from ...core.errors import user_site
from ...core.schema import data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DType
from ...loop.calls import this_thread
from ..images.image_decoders import encoded, errors, sources_of
from ..reduce.moments import as_type, pixelwise, value_counts
from .resampling import QUALITY_DOC, resampled, result_counts, to_full_range

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
    input=data("Encoded sounds: the bytes of files."),
    downmix=static(bool, False, "Whether to average all channels; then results have one axis."),
    dtype=static(DType, dt.float32, "Element type of the samples: float32, int16 or int32."),
    on_error=static(
        "Policy", "raise",
        "What to do with a sound that cannot be decoded: 'raise' an error, or 'fill' it with an "
        "empty or silent one. `ndd.decoders.errors` records failures.",
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
        check_policy(on_error, name)
        raise ValueError(f"{name}: `on_error` must be 'raise' or 'fill', got {on_error!r}")
    decoding = _Decoding(name, input, on_error == "raise")
    rates = np.array([h.rate for h in decoding.headers], np.float64)
    wanted = np.broadcast_to(sample_rate, len(rates)).astype(np.float64)
    bad = np.flatnonzero(~((wanted >= 0) & np.isfinite(wanted)))
    if len(bad):
        s = int(bad[0])
        raise ValueError(f"`sample_rate` must be positive, got {float(wanted[s])} for sample {s}")
    wanted = np.where(wanted > 0, wanted, rates)
    is_plain = not downmix and bool((wanted == rates).all())
    y = decoding.samples(dtype if is_plain else dt.float32)
    if downmix:
        y = _mean(name, y)
    if (wanted != rates).any():
        ratios = wanted / rates
        counts = result_counts(y.shapes.rows[:, 0], ratios)
        y = resampled(name, y, ratios, counts, quality, dtype)
    elif y.dtype is not dtype:
        y = pixelwise(name, to_full_range, y, key=(dtype,))
    own = [np.asarray(r, np.float32) for r in wanted]
    rate = convert.copy_arrays(own, dt.float32, None, input.batch)
    return y.like(source_info=input.source_info), rate


def _mean(op: str, x: Node) -> Node:
    """The mean of all channels."""
    sums = build.reduce(op, x, [1], "add", dt.float64, None, value_counts(x, [1]))
    return pixelwise(op, as_type, sums, key=(dt.float32,))


class _Decoding:
    """One call of the decoder: reads headers when constructed, samples when evaluated."""

    def __init__(self, name: str, x: Node, is_strict: bool) -> None:
        self.name = name
        self.x = x
        self.is_strict = is_strict
        self.sources = sources_of(x)
        self.ahead = this_thread.failures  # set if the call is made in advance
        self.data: list[Array] = convert.arrays_of(encoded(x))
        self.headers = [self._header(s) for s in range(x.count)]

    def _header(self, s: int) -> Sound:
        try:
            return codec.read_header(self.data[s])
        except ValueError as error:
            self._failed(s, error)
            return Sound(0, 1, 1)

    def _failed(self, s: int, error: ValueError) -> None:
        source = f" ({self.sources[s]})" if self.sources[s] else ""
        problem = ValueError(f"sample {s}{source}: {error}")
        if self.is_strict:
            raise problem from None
        place = self.sources[s], s
        if self.ahead is None:
            errors.add(*place, problem)
        else:
            self.ahead.add(errors, *place, problem)

    def samples(self, dtype: DType) -> Node:
        """The decoded sounds [time, channel]."""
        shapes = Shapes(np.array([[h.frames, h.channels] for h in self.headers], np.int64))
        sounds = Sounds(self.data, self.headers, self._failed)
        node = build.decode(
            self.name, codec.decode_sample, self.x, shapes, dtype, None, sounds, has_regions=True
        )
        node.result.site = user_site()
        return node
