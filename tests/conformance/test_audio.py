"""Sound ops against the oracle, in all modes and on both devices.

Floats are within 1e-5 of the largest value; lengths and rates are equal.
"""

from __future__ import annotations

import io

import numpy as np
import pytest

import ndd
from ndd.kernels.ir.fourier import factors, fourier_plan
from ndd.kernels.ir.sinc import tap_count
from tests.helpers import arrays, kernels, nothing_compiled

from .modes import error_everywhere, same_everywhere
from .oracle import _differences, _record, ndd_call, oracle_call, per_sample

RTOL = 1e-5
LENGTHS = (1000, 1, 37, 5, 402)
_rng = np.random.default_rng(3)
SIGNALS = [_rng.standard_normal(n).astype(np.float32) for n in LENGTHS]


def check(op, *inputs, off=0, inside=slice(None), **kwargs):
    """Floats are within `RTOL` of the largest value, integers at most `off` away."""
    want, got = oracle_call(op, *inputs, **kwargs), ndd_call(op, *inputs, **kwargs)
    assert len(want) == len(got)
    for ours, theirs in zip(got, want, strict=True):
        for field in ("batch", "shapes", "dtype", "layout"):
            assert getattr(ours, field) == getattr(theirs, field)
        for a, b in zip(ours.arrays, theirs.arrays, strict=True):
            a, b = a[inside] if a.ndim else a, b[inside] if b.ndim else b
            _record(op, ours.dtype, *_differences(a.ravel(), b.ravel()), b.ravel())
            far = np.abs(a.astype(np.float64) - b).max(initial=0)
            most = RTOL * np.abs(b.astype(np.float64)).max(initial=0)
            assert far <= (off if a.dtype.kind in "iu" and a.dtype.itemsize < 4 else most + off)
    return got


def close_on_the_gpu(program, signals, layout=None, rtol=RTOL):
    """Transforms are summed in another order on a GPU; everything else is equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NDD_GPU", "simulate")
        on_cpu = arrays(program(ndd.batch(signals, layout=layout)))
        on_gpu = arrays(program(ndd.batch(signals, layout=layout).gpu()))
    for a, b in zip(on_cpu, on_gpu, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert np.abs(a.astype(np.float64) - b).max(initial=0) <= rtol * np.abs(a).max(initial=0)


# -- spectra -------------------------------------------------------------------------------------

FRAMES = [
    dict(window_length=100, window_step=30),
    dict(window_length=64, window_step=50, nfft=100, arguments={"layout": "tf"}),
    dict(window_length=31, window_step=7, nfft=37, power=1),
    dict(window_length=20, window_step=3, reflect_padding=False),
    dict(window_length=8, window_step=11, nfft=512, power=1, arguments={"layout": "tf"}),
    dict(window_length=5, window_step=2, window_fn=[1.0, 2.0, 0.5, -1.0, 0.25]),
    # NumPy transforms sizes with large primes.
    dict(window_length=257, window_step=100),
    dict(window_length=37, window_step=9, nfft=521, power=1, reflect_padding=False,
         arguments={"layout": "tf"}),
]  # fmt: skip


@pytest.mark.parametrize("kwargs", FRAMES, ids=str)
def test_spectrogram(kwargs) -> None:
    check("spectrogram", SIGNALS, **kwargs)
    check("spectrogram", SIGNALS, batch=False, **kwargs)


def test_spectrogram_of_frames_inside() -> None:
    longer = [x for x in SIGNALS if len(x) >= 37]
    for kwargs in (dict(window_length=37, window_step=5), dict(window_length=16, window_step=40)):
        check("spectrogram", longer, center_windows=False, **kwargs)
    short = [SIGNALS[0][:n] for n in (13, 14, 30, 31, 32, 33)]
    for reflect in (True, False):
        check("spectrogram", short, window_length=32, window_step=20, center_windows=False,
              reflect_padding=reflect)  # fmt: skip


def test_spectrogram_of_one_channel_in_several_axes() -> None:
    column, row = SIGNALS[0].reshape(-1, 1), SIGNALS[0].reshape(1, -1)
    for x in (column, row):
        check("spectrogram", [x, x[:, :1].copy()], window_length=64)


SIZES = [
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    9,
    12,
    25,
    49,
    64,
    77,
    97,
    250,
    251,
    257,
    502,
    1024,
    1009,
    16384,
    16386,
]


@pytest.mark.parametrize("size", SIZES)
def test_transforms_of_any_length(size) -> None:
    """Against NumPy in float64: all radices, primes, odd and even lengths."""
    x = ndd.batch([SIGNALS[0][:size], SIGNALS[0][1 : size + 1]])
    got = arrays(ndd.power_spectrum(x, nfft=size))
    for a, x in zip(got, (SIGNALS[0][:size], SIGNALS[0][1 : size + 1]), strict=True):
        want = np.abs(np.fft.rfft(x.astype(np.float64), size)) ** 2
        assert a.shape == (size // 2 + 1,)
        assert np.abs(a - want[: len(a)]).max() <= 2e-6 * want.max()


def test_a_long_prime_takes_no_time_and_no_memory() -> None:
    """A table of the square of 160001 would have 400 GB."""
    x = _rng.standard_normal(160001).astype(np.float32)
    check("power_spectrum", [x])
    check("spectrogram", [x], window_length=20011, window_step=50000)
    got = arrays(ndd.power_spectrum(ndd.batch([x, x[:5], x[:512]])))  # sizes of both kinds
    for a, n in zip(got, (160001, 5, 512), strict=True):
        want = np.abs(np.fft.rfft(x[:n].astype(np.float64))) ** 2
        assert np.abs(a - want).max() <= 2e-6 * want.max()


def test_plans() -> None:
    for n in range(1, 200):
        assert np.prod(factors(n), dtype=int) == n
        numbers, _ = fourier_plan(n)
        m = int(numbers[1])
        assert sorted(numbers[-m:].tolist()) == list(range(m))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_power_spectrum(axis) -> None:
    x = [_rng.standard_normal(s).astype(np.float32) for s in ((4, 6, 8), (5, 3, 4))]
    check("power_spectrum", x, axis=axis)
    check("power_spectrum", x, axis=axis, nfft=5, power=1)
    check("power_spectrum", x[:1], axis=axis, nfft=16, layout="HWC")


def test_not_a_number_stays_in_its_frame() -> None:
    x = SIGNALS[0].copy()
    x[500] = np.nan
    y = np.asarray(ndd.spectrogram(ndd.tensor(x), window_length=16, window_step=16))
    assert np.flatnonzero(np.isnan(y).any(axis=0)).tolist() == [31]


# -- bands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(nfilter=5, sample_rate=16000.0),
        dict(nfilter=20, sample_rate=16000.0, mel_formula="htk", normalize=False),
        dict(nfilter=4, freq_low=300.0, freq_high=5000.0),
        dict(),
    ],
    ids=str,
)
def test_mel_filter_bank(kwargs) -> None:
    x = [_rng.random(s).astype(np.float32) for s in ((33, 7), (33, 1), (33, 19))]
    check("mel_filter_bank", x, **kwargs)
    check("mel_filter_bank", x, layout="ft", **kwargs)
    check("mel_filter_bank", [a.T for a in x], layout="tf", **kwargs)
    check("mel_filter_bank", [a[:, 0] for a in x], layout="f", **kwargs)
    check("mel_filter_bank", [np.stack([a, a + 1]) for a in x], **kwargs)


def test_the_highest_frequency_has_no_weight() -> None:
    for bins in (2, 3, 17):
        x = [np.eye(bins, dtype=np.float32)]
        (got,) = check("mel_filter_bank", x, nfilter=40, normalize=False)
        assert not got.arrays[0][:, [0, -1]].any()


def test_mel_filter_bank_of_different_spectra() -> None:
    x = [_rng.random(s).astype(np.float32) for s in ((33, 7), (17, 3), (65, 2))]
    got = ndd_call("mel_filter_bank", x, nfilter=6, sample_rate=8000.0)[0].arrays
    for a, one in zip(got, x, strict=True):
        want = oracle_call("mel_filter_bank", [one], nfilter=6, sample_rate=8000.0)[0].arrays[0]
        assert np.abs(a - want).max() <= RTOL * want.max()


@pytest.mark.parametrize("dct_type", [1, 2, 3, 4])
def test_mfcc(dct_type) -> None:
    x = [_rng.standard_normal(s).astype(np.float32) for s in ((33, 7), (12, 3))]
    for axis in (0, 1):
        check("mfcc", x, dct_type=dct_type, axis=axis, n_mfcc=13)
        check("mfcc", x, dct_type=dct_type, axis=axis, lifter=22.0, layout="ft")
        check("mfcc", x, dct_type=dct_type, axis=axis, lifter=-3.0)
        if dct_type > 1:
            check("mfcc", x, dct_type=dct_type, axis=axis, normalize=True)
    check("mfcc", [np.stack([a, a]) for a in x], dct_type=dct_type, axis=1)


# -- levels --------------------------------------------------------------------------------------

LEVELS = [
    np.array(v, np.float32)
    for v in ([1, 10, 100], [0, 0], [-1, -2, 3], [-1, -2], [1, np.nan, 100], [np.inf, 1], [])
]


def test_to_decibels() -> None:
    check("to_decibels", LEVELS)
    check("to_decibels", LEVELS[:3], reference=2.0, multiplier=20.0, cutoff_db=-3.0)
    check("to_decibels", LEVELS[:4], multiplier=1.0)  # a cutoff that float32 cannot hold
    check("to_decibels", [_rng.random((20, 30)).astype(np.float32)], layout="ft", cutoff_db=-40.0)


PREEMPHASIS = [
    *(("clamp", t) for t in ("uint8", "int8", "uint16", "int32", "uint32", "int64", "float64")),
    *((border, t) for border in ("clamp", "zero", "reflect") for t in ("int16", "float32")),
]


@pytest.mark.parametrize(("border", "dtype"), PREEMPHASIS)
def test_preemphasis(border, dtype) -> None:
    high = 100 if np.dtype(dtype).itemsize == 1 else 3000
    # Upstream reads behind a single sample that it mirrors.
    short = 2 if border == "reflect" else 1
    x = [_rng.integers(0, high, s).astype(dtype) for s in ((50,), (short,), (7,))]
    check("preemphasis_filter", x, border=border)
    check("preemphasis_filter", x, border=border, dtype="int16", off=1,
          preemph_coeff=per_sample([0.5, 0.97, 0.0]))  # fmt: skip
    check("preemphasis_filter", [a.reshape(-1, 1) for a in x], border=border, layout="tC")


# -- rates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        dict(scale=0.5), dict(scale=0.3628), dict(scale=1.37, quality=0.0),
        dict(scale=3.0, quality=100.0), dict(in_rate=44100.0, out_rate=16000.0),
        dict(out_length=777), dict(scale=per_sample([0.7, 2.0, 1.5, 1.0, 0.1]), quality=33.0),
    ],
    ids=str,
)  # fmt: skip
def test_audio_resample(kwargs) -> None:
    check("audio_resample", SIGNALS, **kwargs)
    check("audio_resample", [np.stack([x, -x, x * x], axis=1) for x in SIGNALS], **kwargs)


TYPES = {"uint8": 255, "int8": 127, "uint16": 65535, "int16": 32767, "int32": 2**31 - 1}


@pytest.mark.parametrize("source", [*TYPES, "float32"])
@pytest.mark.parametrize("target", [None, *TYPES, "float32"])
def test_audio_resample_types(source, target) -> None:
    x = np.sin(np.arange(300) / 3) * 0.8
    if source != "float32":
        high = TYPES[source]
        x = np.rint(x * high if source[0] == "i" else (x + 1) * high / 2)
    kwargs = {} if target is None else {"dtype": target}
    # Upstream takes silence around a signal for -1 if the result is unsigned; and since weights do
    # not add up to exactly 1, that also changes the last bit of 16 inside of the signal.
    result = target or source
    inside = slice(40, -40) if result[0] == "u" else slice(None)
    off = 3 if result == "uint16" else 1
    check("audio_resample", [x.astype(source)], scale=1.3, off=off, inside=inside, **kwargs)


def test_parts_of_resampled_signals() -> None:
    x = ndd.tensor(SIGNALS[0])
    whole = np.asarray(ndd.audio_resample(x, scale=3.7))
    for part in (slice(700, 1300), slice(3000, 10, -3), slice(256, 512), slice(None, None, 300), 9):
        np.testing.assert_array_equal(
            np.asarray(ndd.audio_resample(x, scale=3.7)[part]), whole[part]
        )
    assert tap_count(16) == 40


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "int64"])
def test_nonsilent_region(dtype) -> None:
    shape = np.exp(-(((np.arange(3000) - 1400) / 300) ** 2)) * np.sin(np.arange(3000))
    x = [np.rint(shape[:n] * 100).astype(dtype) for n in (3000, 1500, 700, 1)]
    for kwargs in (dict(window_length=128, cutoff_db=-20.0), dict(window_length=1),
                   dict(window_length=64, reference_power=50.0, cutoff_db=-10.0),
                   dict(reference_power=1e6, cutoff_db=3.0)):  # fmt: skip
        check("nonsilent_region", x, **kwargs)


def test_regions_of_signals_that_are_not_finite() -> None:
    x = SIGNALS[0].copy()
    x[0] = x[500] = np.nan
    want = [a.item() for a in ndd.nonsilent_region(ndd.tensor(np.nan_to_num(x)), window_length=16)]
    assert [a.item() for a in ndd.nonsilent_region(ndd.tensor(x), window_length=16)] == want
    x[100] = np.inf
    check("nonsilent_region", [np.where(np.isnan(x), 0, x)], window_length=16)


def test_silence_is_one_region() -> None:
    begin, length = ndd.nonsilent_region(ndd.tensor(np.zeros(100, np.float32)))
    assert (begin.item(), length.item()) == (0, 100)


# -- files ---------------------------------------------------------------------------------------


def encoded(x, rate=16000, kind="WAV", subtype=None) -> np.ndarray:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, x, rate, format=kind, subtype=subtype)
    return np.frombuffer(file.getvalue(), np.uint8)


STEREO = _rng.uniform(-0.5, 0.5, (1600, 2))
KINDS = [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("FLAC", None), ("OGG", "VORBIS"),
         ("OGG", "OPUS")]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_decoding(kind) -> None:
    files = [encoded(x, 48000, *kind) for x in (STEREO, STEREO[:300, :1], STEREO[:1])]
    # Vorbis and Opus decoders of different builds differ in the last bits.
    for kwargs, off in (({}, 0), (dict(downmix=True), 0), (dict(dtype="int16"), 1),
                        (dict(dtype="int32"), 2000), (dict(sample_rate=16000.0), 0),
                        (dict(sample_rate=per_sample([8000.0, 48000.0, 50000.0])), 0),
                        (dict(sample_rate=44100.0, dtype="int16", downmix=True), 1),
                        (dict(sample_rate=30000.0, quality=10.0), 0)):  # fmt: skip
        check("decoders.audio", files, off=off, **kwargs)


def test_one_channel_stays_exact_when_it_is_mixed() -> None:
    x = _rng.integers(-32768, 32767, (1000, 2)).astype(np.int16)
    x[:2] = [[32767, 32767], [-32768, -32768]]
    files = [encoded(x[:, :1]), encoded(x)]
    for dtype in ("int16", "int32", "float32"):
        got = ndd_call("decoders.audio", files, downmix=True, dtype=dtype)[0].arrays
        want = oracle_call("decoders.audio", files, downmix=True, dtype=dtype)[0].arrays
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_part_of_a_mixed_sound(monkeypatch) -> None:
    from ndd.codecs import sound_files as sound

    read, into = [], sound._read_into
    monkeypatch.setattr(
        sound, "_read_into", lambda f, out: (read.append(len(out)), into(f, out))[1]
    )
    file = ndd.tensor(encoded(STEREO, kind="AIFF"))
    whole = np.asarray(ndd.decoders.audio(file, downmix=True)[0])
    part = np.asarray(ndd.decoders.audio(file, downmix=True)[0][700:900] * 2)
    np.testing.assert_array_equal(part, whole[700:900] * 2)
    assert read == [1600, 200]


def test_a_low_rate_does_not_make_a_small_file_huge() -> None:
    file = encoded(STEREO).copy()
    file[24:28] = [1, 0, 0, 0]  # 1 Hz
    samples, rate = ndd.decoders.audio(ndd.tensor(file))
    assert samples.shape == (1600, 2) and rate.item() == 1.0
    with pytest.raises(
        ValueError, match="sample 0: its sampling rate is 1 Hz, so a sound of 16000"
    ):
        ndd.decoders.audio(ndd.tensor(file), sample_rate=16000.0)
    samples, _ = ndd.decoders.audio(ndd.tensor(file), sample_rate=16000.0, on_error="fill")
    assert samples.shape == (0, 2) and len(ndd.decoders.errors) == 1
    ndd.decoders.errors.clear()


def test_mp3() -> None:
    """Upstream has no MP3, so only length, rate and the sound itself are compared."""
    tone = np.sin(np.arange(8000) * 0.1) * 0.5
    samples, rate = ndd.decoders.audio(ndd.tensor(encoded(tone, 16000, "MP3")))
    assert samples.shape == (8000, 1) and rate.item() == 16000.0
    assert np.abs(np.asarray(samples)[1000:-1000, 0] - tone[1000:-1000]).max() < 0.05


def test_a_slice_decodes_only_its_part(monkeypatch) -> None:
    from ndd.codecs import sound_files as sound

    read = []
    into = sound._read_into
    monkeypatch.setattr(
        sound, "_read_into", lambda f, out: (read.append(len(out)), into(f, out))[1]
    )
    file = ndd.tensor(encoded(STEREO, kind="AIFF"))
    whole = np.asarray(ndd.decoders.audio(file)[0])
    part = np.asarray(ndd.decoders.audio(file)[0][700:900] * 2)
    np.testing.assert_array_equal(part, whole[700:900] * 2)
    assert read == [1600, 200]


def test_files_that_cannot_be_decoded() -> None:
    good = encoded(STEREO, kind="FLAC")
    for bad, text in ((good[:20], "20 bytes are not a sound file"), (good[:700], "cannot be decoded"),
                      (np.zeros(100, np.uint8), "100 bytes are not a sound file")):  # fmt: skip
        for mode in (ndd.EvalMode.eager, ndd.EvalMode.deferred, ndd.EvalMode.sync_cpu):
            with mode, pytest.raises(ValueError, match=f"decoders.audio: sample 1: .*{text}"):
                np.asarray(ndd.decoders.audio(ndd.batch([good, bad]))[0].tensors[1])
        ndd.decoders.errors.clear()
        samples, _ = ndd.decoders.audio(ndd.batch([good, bad]), on_error="fill")
        a, b = arrays(samples)
        assert len(a) == 1600 and not b.any() and len(ndd.decoders.errors) == 1
    ndd.decoders.errors.clear()


def test_a_header_that_claims_hours_allocates_nothing() -> None:
    import tracemalloc

    file = encoded(STEREO[:50], kind="FLAC").copy()
    file[21] |= 0x0F  # 2**36 samples
    file[22:26] = 255
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"decoders\.audio: sample 0: "):
        ndd.decoders.audio(ndd.tensor(file))
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


# -- together ------------------------------------------------------------------------------------


def features(x, layout="ft"):
    y = ndd.preemphasis_filter(x)
    y = ndd.spectrogram(y, window_length=64, window_step=40, nfft=100, layout=layout)
    y = ndd.mel_filter_bank(y * 0.5, nfilter=10, sample_rate=16000.0)
    return ndd.normalize(ndd.to_decibels(y, cutoff_db=-80.0), axes=[0, 1])


@pytest.mark.parametrize("layout", ["ft", "tf"])
def test_features_are_the_same_everywhere(layout) -> None:
    batch = ndd.batch(SIGNALS)
    same_everywhere(lambda: features(batch, layout))
    same_everywhere(lambda: ndd.mfcc(ndd.audio_resample(batch, scale=0.7).slice[:1] * 2 + [[1.0]]))
    same_everywhere(lambda: ndd.audio_resample(batch * 2, scale=1.7) + 1)
    spectrum = dict(window_length=257, window_step=100, layout=layout)
    same_everywhere(lambda: ndd.spectrogram(batch * 2, **spectrum) + 1)


def test_no_spectrum_is_stored() -> None:
    x = ndd.batch(SIGNALS)
    spectrum = ndd.spectrogram(x, window_length=64)
    assert kernels(ndd.mel_filter_bank(spectrum * 2.0, nfilter=10)) == 1
    chain = ndd.explain(ndd.mel_filter_bank(ndd.spectrogram(x, window_length=64), nfilter=10))
    assert "spectrogram → mel_filter_bank" in str(chain)


def test_new_sizes_compile_nothing() -> None:
    np.asarray(features(ndd.tensor(SIGNALS[0])))
    with nothing_compiled():
        x = ndd.preemphasis_filter(ndd.tensor(SIGNALS[4]))
        y = ndd.spectrogram(x, window_length=50, window_step=9, nfft=77)
        y = ndd.mel_filter_bank(y * 0.5, nfilter=3, sample_rate=100.0)
        np.asarray(ndd.normalize(ndd.to_decibels(y, cutoff_db=-80.0), axes=[0, 1]))


@pytest.mark.gpu
def test_sound_on_the_gpu() -> None:
    signals = [x[:200] for x in SIGNALS]
    close_on_the_gpu(features, signals, rtol=1e-4)  # decibels of small powers
    close_on_the_gpu(
        lambda x: ndd.spectrogram(x, window_length=31, window_step=7, power=1), signals
    )
    close_on_the_gpu(lambda x: ndd.power_spectrum(x, nfft=32), signals)
    close_on_the_gpu(lambda x: ndd.power_spectrum(x, nfft=20000) * 2, signals, rtol=0)
    close_on_the_gpu(lambda x: ndd.spectrogram(x, window_length=257, window_step=100), signals)
    spectra = [np.abs(_rng.standard_normal((33, n))).astype(np.float32) for n in (7, 1)]
    for program in (lambda x: ndd.mel_filter_bank(x, nfilter=5), ndd.mfcc, ndd.to_decibels):
        close_on_the_gpu(program, spectra, "ft", rtol=1e-6)
    close_on_the_gpu(lambda x: ndd.audio_resample(x, scale=1.7), signals, rtol=0)
    close_on_the_gpu(lambda x: ndd.preemphasis_filter(x, border="reflect"), signals, rtol=0)
    close_on_the_gpu(lambda x: ndd.nonsilent_region(x, window_length=16)[0], signals, rtol=0)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("`window_step` must be positive, got 0", lambda x: ndd.spectrogram(x, window_step=0)),
        ("`nfft` must be at least `window_length` (512), got 64", lambda x: ndd.spectrogram(x, nfft=64)),
        ("`power` must be 1 (magnitude) or 2 (power), got 3", lambda x: ndd.spectrogram(x, power=3)),
        ("`window_fn` must have `window_length` (512) values, got 1", lambda x: ndd.spectrogram(x, window_fn=[1.0])),
        ("a signal must have at least 257 samples, sample 0 has 37", lambda x: ndd.spectrogram(x, center_windows=False)),
        ("all extents but one must be 1, sample 0 has shape (37, 2)", lambda x: ndd.spectrogram(ndd.stack(x, x, axis=1))),
        ("`nfilter` must be positive, got 0", lambda x: ndd.mel_filter_bank(x, nfilter=0)),
        ("`mel_formula` must be one of 'slaney', 'htk', got 'x'", lambda x: ndd.mel_filter_bank(x, mel_formula="x")),
        ("`freq_high` must be above `freq_low` (9.0)", lambda x: ndd.mel_filter_bank(x, freq_low=9.0, freq_high=5.0)),
        ("`dct_type` must be 1, 2, 3 or 4, got 5", lambda x: ndd.mfcc(ndd.stack(x, x), dct_type=5)),
        ("`normalize` is not possible with `dct_type` 1", lambda x: ndd.mfcc(ndd.stack(x, x), dct_type=1, normalize=True)),
        ("`axis` must be from 0 to 1, got 2", lambda x: ndd.mfcc(ndd.stack(x, x), axis=2)),
        ("`in_rate` and `out_rate` must be given together", lambda x: ndd.audio_resample(x, in_rate=1.0)),
        ("got none of them", lambda x: ndd.audio_resample(x)),
        ("got `scale` and `out_length`", lambda x: ndd.audio_resample(x, scale=1.0, out_length=3)),
        ("`scale` must be positive, got -1.0 for sample 0", lambda x: ndd.audio_resample(x, scale=-1.0)),
        ("`quality` must be from 0 to 100, got 101.0", lambda x: ndd.audio_resample(x, scale=1.0, quality=101.0)),
        ("`window_length` must be positive, got 0", lambda x: ndd.nonsilent_region(x, window_length=0)),
        ("`axis` must be from -1 to 0, got 1", lambda x: ndd.power_spectrum(x, axis=1)),
    ],
)  # fmt: skip
def test_errors(text, program) -> None:
    x = ndd.tensor(SIGNALS[2])
    error_everywhere(ValueError, text, lambda: program(x))
