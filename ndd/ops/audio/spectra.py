"""spectrogram and power_spectrum: the power of the frequencies of frames, or of whole signals."""

from __future__ import annotations

import numpy as np

from ...core import convert
from ...core.schema import data, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.kinds.spectrum import Framing
from ...kernels.common.memo import memoized
from ...kernels.ir import dtypes as dt
from ...kernels.ir.fourier import fourier_plan
from ...kernels.ir.spectrum import WINDOW_GROUP
from ..geometry.window import beside
from .library_transforms import suits_library, transformed

NOT_F32 = "bool u8 i8 u16 i16 u32 i32 u64 i64 f16 bfloat16 f64"
POWER_DOC = "Exponent of the magnitude: 1 or 2."
# A longer transform needs scratch memory of gigabytes.
MAX_TRANSFORM = 1 << 24
_MAX_KEPT = 1 << 16  # values of a window that is kept for the next call

_TONE = "tone = ndd.math.sin(ndd.tensor([0.5 * k for k in range(1600)]))\n"


@op.graph(
    rejects=NOT_F32,
    sample=_TONE + "ndd.spectrogram(tone, window_length=400, window_step=160).shape\n=(201, 11)",
)
def spectrogram(
    input=data("Signals of one channel, float32."),
    center_windows=static(
        bool, True, "Whether frame t has its middle at sample t * `window_step`; if not, the first "
        "frame begins at the first sample, and all frames lie inside of the signal.",
    ),
    layout=static(("ft", "tf"), "ft", "Order of the axes frequency and time."),
    nfft=static(int, None, "Length of the transform; `window_length` if omitted."),
    power=static(int, 2, POWER_DOC),
    reflect_padding=static(
        bool, True, "Whether the signal is mirrored outside of its bounds; if not, it is 0 there.",
    ),
    window_fn=static("floats", None, "The window, `window_length` numbers; Hann's if omitted."),
    window_length=static(int, 512, "Samples in a frame."),
    window_step=static(int, 256, "Samples from the begin of a frame to that of the next."),
):  # fmt: skip
    """Transform short, overlapping frames of a signal into spectra.

    The result has `nfft // 2 + 1` frequencies. Frames of any length are transformed. Those of
    up to 16384 samples whose length has small prime factors are the fastest.
    """
    size = window_length if nfft is None else nfft
    _check_frames(window_length, window_step, size, power)
    window = _window(window_length, window_fn)
    x = one_channel(input)
    pad = window_length // 2 if center_windows else 0
    frames = Framing(*(np.full(x.count, v) for v in (window_step, pad, window_length, size)))
    counts = _frame_counts(x, window_length, window_step, center_windows)
    bins = np.full_like(counts, size // 2 + 1)
    shapes = Shapes(np.stack([bins, counts] if layout == "ft" else [counts, bins], axis=1))
    is_mirrored = reflect_padding and center_windows
    if suits_library(frames.size[:1], x.device is not None):
        values = convert.arrays_of(window)[0]
        return transformed(
            "spectrogram", x, shapes, layout, frames, values, is_mirrored, power == 1
        )
    tables = [beside(t, x) for t in _tables(size, x.device is not None)]
    return build.transform(
        "spectrogram", x, shapes, layout, frames, beside(window, x), tables, is_mirrored,
        power == 1,
    )  # fmt: skip


def _check_frames(length: int, step: int, size: int, power: int) -> None:
    for name, value in (("window_length", length), ("window_step", step)):
        if value <= 0:
            raise ValueError(f"`{name}` must be positive, got {value}")
    if size < length:
        raise ValueError(f"`nfft` must be at least `window_length` ({length}), got {size}")
    if size > MAX_TRANSFORM:
        raise ValueError(f"`nfft` must be at most {MAX_TRANSFORM}, got {size}")
    check_power(power)


def check_power(power: int) -> None:
    if power not in (1, 2):
        raise ValueError(f"`power` must be 1 (magnitude) or 2 (power), got {power}")


def one_channel(x: Node) -> Node:
    """Signals as vectors; all axes but one must have extent 1."""
    if x.rank == 1:
        return x
    rows = x.shapes.rows
    bad = np.flatnonzero((rows != 1).sum(axis=1) > 1)
    if len(bad) or not x.rank:
        s = int(bad[0]) if len(bad) else 0
        raise ValueError(
            f"a signal has one channel: all extents but one must be 1, sample {s} has shape "
            f"{x.shapes.tuples[s]}"
        )
    return build.alias("spectrogram", x, Shapes(x.shapes.volumes[:, None]), x.dtype, None)


def _frame_counts(x: Node, length: int, step: int, is_centered: bool) -> Array:
    """How many frames there are in each sample.

    A signal that is shorter than a window by less than a step is one frame, padded with zeros, as
    upstream.
    """
    samples = x.shapes.rows[:, 0]
    last = samples - (0 if is_centered else length)
    bad = np.flatnonzero((samples == 0) | (last <= -step))
    if len(bad):
        s = int(bad[0])
        least = 1 if is_centered else max(length - step + 1, 1)
        raise ValueError(
            f"a signal must have at least {least} samples, sample {s} has {int(samples[s])}"
        )
    counts: Array = np.maximum(last, 0) // step + 1
    return counts


def _window(length: int, given: tuple[float, ...] | None) -> Node:
    if given is not None and len(given) != length:
        raise ValueError(
            f"`window_fn` must have `window_length` ({length}) values, got {len(given)}"
        )
    make = _window_node if length <= _MAX_KEPT else _new_window
    return make(length, None if given is None else tuple(given))


@memoized(64)
def _window_node(length: int, given: tuple[float, ...] | None) -> Node:
    return _new_window(length, given)


def _new_window(length: int, given: tuple[float, ...] | None) -> Node:
    if given is None:
        # Hann's window at the middles of the samples, so that it is symmetric and never 0.
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(length) + 0.5) / length)
        return convert.const_array(padded_window(length, hann), dt.float32)
    return convert.const_array(padded_window(length, np.array(given)), dt.float32)


def padded_window(length: int, values: Array) -> Array:
    """A window, with zeros up to a multiple of what the transform reads at once."""
    padded = np.zeros(-(-length // WINDOW_GROUP) * WINDOW_GROUP, np.float32)
    padded[:length] = values
    return padded


@memoized(64)
def _tables(size: int, on_gpu: bool) -> tuple[Node, ...]:
    """The tables of a transform, see `Spectrum`."""
    kinds = (dt.float32,) if on_gpu else (dt.int64, dt.float32)
    return tuple(map(convert.const_array, _table_arrays(size, on_gpu), kinds))


def _table_arrays(size: int, on_gpu: bool) -> tuple[Array, ...]:
    if not on_gpu:
        return fourier_plan(size)
    angles = -2 * np.pi * np.arange(size) / size
    roots = np.stack([np.cos(angles), np.sin(angles)], axis=1).reshape(-1)
    return (roots.astype(np.float32),)


# -- whole signals -------------------------------------------------------------------------------


@op.graph(
    rejects=NOT_F32,
    sample="ndd.power_spectrum(ndd.tensor([1.0, 2.0, 3.0, 4.0])).torch().round().tolist()\n"
    "=[100.0, 8.0, 4.0]",
)
def power_spectrum(
    input=data("Signals, float32, of any number of dimensions."),
    axis=static(int, -1, "The axis to transform."),
    nfft=static(int, None, "Length of the transform; the extent of the axis if omitted."),
    power=static(int, 2, POWER_DOC),
):
    """Transform signals along an axis into spectra of `nfft // 2 + 1` frequencies.

    Longer signals are cut, shorter ones are padded with zeros.
    """
    x, name = input, "power_spectrum"
    check_power(power)
    if not -x.rank <= axis < x.rank:
        raise ValueError(f"`axis` must be from {-x.rank} to {x.rank - 1}, got {axis}")
    axis %= x.rank
    samples = x.shapes.rows[:, axis]
    sizes = samples if nfft is None else np.full_like(samples, nfft)
    _check_sizes(sizes, samples)
    last = [a for a in range(x.rank) if a != axis]
    moved = build.permute(name, x, [*last, axis], None)
    if axis != x.rank - 1:
        moved = build.copy(name, moved)
    # The signals of a sample lie one after the other: they are frames without a window.
    flat = build.alias(name, moved, Shapes(x.shapes.volumes[:, None]), x.dtype, None)
    frames = Framing(samples, np.zeros_like(samples), np.minimum(samples, sizes), sizes)
    counts = x.shapes.rows[:, last].prod(axis=1)
    shapes = Shapes(np.stack([counts, sizes // 2 + 1], axis=1))
    if suits_library(sizes, x.device is not None):
        y = transformed(name, flat, shapes, "tf", frames, None, False, power == 1)
    else:
        window, *tables = _whole_tables(frames, x)
        y = build.transform(name, flat, shapes, "tf", frames, window, tables, False, power == 1)
    rows = np.concatenate([x.shapes.rows[:, last], shapes.rows[:, 1:]], axis=1)
    y = build.alias(name, y, Shapes(rows), y.dtype, None)
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return build.permute(name, y, order, x.layout)


def _check_sizes(sizes: Array, samples: Array) -> None:
    for name, values in (("the transformed axis", samples), ("`nfft`", sizes)):
        bad = np.flatnonzero((values <= 0) | (values > MAX_TRANSFORM))
        if len(bad):
            s = int(bad[0])
            raise ValueError(
                f"{name} must have from 1 to {MAX_TRANSFORM} samples, got {int(values[s])} for "
                f"sample {s}"
            )


def _whole_tables(frames: Framing, x: Node) -> list[Node]:
    """A window of ones and the tables of the transform, for all samples or for each."""
    on_gpu = x.device is not None
    pairs = list(zip(frames.length.tolist(), frames.size.tolist(), strict=True))
    if len(set(pairs)) == 1:
        length, size = pairs[0]
        nodes = [_window_node(length, (1.0,) * length), *_tables(size, on_gpu)]
    else:
        own = [(padded_window(n, np.ones(n)), *_table_arrays(m, on_gpu)) for n, m in pairs]
        kinds = [dt.float32, dt.float32] if on_gpu else [dt.float32, dt.int64, dt.float32]
        nodes = [
            convert.copy_arrays([o[k] for o in own], kind, None, batch=True)
            for k, kind in enumerate(kinds)
        ]
    return [beside(node, x) for node in nodes]
