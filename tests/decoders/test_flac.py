"""FLAC files by our own decoder: the samples that were written, and those of libsndfile."""

from __future__ import annotations

import ctypes
import io
from collections import deque

import numpy as np
import pytest
import soundfile

import ndd
from ndd.codecs import flac_samples, sound_files
from ndd.codecs.flac_samples import FlacSamples
from ndd.codecs.sound_headers import LIBRARY_BITS, told_by_header
from tests.decoders.flac_writer import Writer, coded_number, crc, with_checksum
from tests.faults.guarded import Region
from tests.faults.sounds import mutated, original, with_frame_checksum
from tests.helpers import arrays

_rng = np.random.default_rng(3)
TONE = np.sin(np.arange(9000)[:, None] * [0.05, 0.31, 0.7]) * 0.4 + _rng.normal(0, 0.01, (9000, 3))


def encoded(x=TONE[:, :1], subtype="PCM_16", level=0.625) -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, x, 16000, format="FLAC", subtype=subtype, compression_level=level)
    return np.frombuffer(file.getvalue(), np.uint8)


def by_libsndfile(data, dtype="int32"):
    return soundfile.read(io.BytesIO(data.tobytes()), dtype=dtype, always_2d=True)[0]


def by_us(data, dtype="int32"):
    """The samples that our decoder finds before it gives up; None if it does not begin."""
    told = told_by_header(data)
    if told is None or told.flac is None:
        return None
    out = np.zeros((min(told.frames, 20000), told.channels), dtype)
    return out[: FlacSamples(data, told.flac, told.frames, told.channels).read(out)]


@pytest.fixture
def no_library(monkeypatch) -> None:
    monkeypatch.setattr(sound_files, "_opened", lambda data: pytest.fail("libsndfile was used"))


@pytest.mark.parametrize("seed", range(60))
def test_everything_that_the_format_allows(seed) -> None:
    writer = Writer(np.random.default_rng([9, seed]))
    data = np.frombuffer(writer.file(int(writer.rng.integers(1, 5))), np.uint8)
    got = by_us(data)
    np.testing.assert_array_equal(got, writer.samples << (32 - writer.bits))


def as_from_a_pipe(data) -> np.ndarray:
    """A file that does not tell how many samples it has."""
    data = data.copy()
    data[21] &= 0xF0
    data[22:26] = 0
    return data


def after_a_tag(data) -> np.ndarray:
    tag = b"ID3\4\0\0\0\0\1\2" + bytes(130)
    return np.frombuffer(tag + data.tobytes(), np.uint8)


@pytest.mark.parametrize("bits", range(4, 25))
def test_any_width_and_files_that_libsndfile_does_not_read(no_library, bits) -> None:
    """The whole sound and parts of it, whose begin is looked for."""
    writer = Writer(np.random.default_rng([4, bits]), bits)
    data = np.frombuffer(writer.file(6), np.uint8)
    want = writer.samples << (32 - bits)
    tagged = np.concatenate([as_from_a_pipe(data), np.frombuffer(b"TAG" + bytes(125), np.uint8)])
    for file in (
        data,
        as_from_a_pipe(data),
        after_a_tag(data),
        after_a_tag(as_from_a_pipe(data)),
        tagged,
    ):
        whole, rate = ndd.decoders.audio(ndd.tensor(file), dtype=ndd.int32)
        assert whole.shape == want.shape and rate.item() == writer.rate
        np.testing.assert_array_equal(np.asarray(whole), want)
        for begin in {1, len(want) // 3, len(want) // 2, len(want) - 2}:
            part = ndd.decoders.audio(ndd.tensor(file), dtype=ndd.int32)[0][begin : begin + 70]
            np.testing.assert_array_equal(np.asarray(part), want[begin : begin + 70])


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("dtype", ["float32", "int16", "int32"])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_samples_are_those_of_libsndfile(no_library, subtype, dtype, channels) -> None:
    for level in (0.0, 0.5, 1.0):
        data = encoded(TONE[:, :channels], subtype, level)
        got = np.asarray(ndd.decoders.audio(ndd.tensor(data), dtype=getattr(ndd, dtype))[0])
        np.testing.assert_array_equal(got, by_libsndfile(data, dtype))


def test_parts(no_library) -> None:
    """The first part is decoded without the rest; blocks of any length are joined."""
    data = encoded(TONE)
    want = by_libsndfile(data, "float32")
    for n in (1, 4096, 5000):
        cut = np.asarray(ndd.decoders.audio(ndd.tensor(data))[0][:n])
        np.testing.assert_array_equal(cut, want[:n])
    mixed = np.asarray(ndd.decoders.audio(ndd.tensor(data), downmix=True)[0])
    np.testing.assert_allclose(mixed, want.mean(axis=1), atol=1e-7)
    told = told_by_header(data)
    assert told is not None and told.flac is not None
    samples, out = FlacSamples(data, told.flac, told.frames, 3), np.zeros_like(want)
    for begin in range(0, 9000, 900):
        assert samples.read(out[begin : begin + 900]) == 900
    np.testing.assert_array_equal(out, want)


def test_parts_that_begin_later(no_library) -> None:
    data = encoded(TONE)
    want = by_libsndfile(data, "float32")
    for begin, end in ((1, 50), (4000, 4200), (8000, 9000)):
        cut = np.asarray(ndd.decoders.audio(ndd.tensor(data))[0][begin:end, 1:])
        np.testing.assert_array_equal(cut, want[begin:end, 1:])


LONG = encoded(np.tile(TONE, (30, 1)), "PCM_24")  # 66 frames


def test_a_part_does_not_decode_what_is_before(no_library) -> None:
    """Frames far from it may be damaged."""
    want, told = by_libsndfile(LONG), told_by_header(LONG)
    assert told is not None and told.flac is not None
    for begin in (0, 1, 4095, 4096, 100000, 269990):
        at = FlacSamples(LONG, told.flac, told.frames, 3, begin)
        assert at._job[flac_samples._LEFT_OUT] < 4096
        out = np.zeros((10, 3), np.int32)
        assert at.read(out) == 10
        np.testing.assert_array_equal(out, want[begin : begin + 10])
    damaged = LONG.copy()
    damaged[len(LONG) // 3 : len(LONG) // 3 + 100] = 0
    part = ndd.decoders.audio(ndd.tensor(damaged), dtype=ndd.int32)[0][200000:200100]
    np.testing.assert_array_equal(np.asarray(part), want[200000:200100])


def test_what_only_looks_like_a_header(no_library) -> None:
    """There the search goes wrong; then the sound is decoded from its beginning."""
    header = bytes([255, 0xF8, 0x35, 0, 0])  # frame 0 of 1152 samples
    header += bytes([crc(header, 8, 7)])
    noise = np.random.default_rng(1).integers(-32768, 32767, 4000).astype(">i2").tobytes()
    places = range(0, len(noise), 100)
    sound = np.frombuffer(b"".join(header + noise[k : k + 94] for k in places), ">i2")
    data = encoded(sound[:, None].astype(np.int16), level=0.0)
    assert data.tobytes().count(header[:4]) > 50  # noise is stored as it is
    told, want = told_by_header(data), by_libsndfile(data)
    assert told is not None and told.flac is not None
    for begin in (3000, 3990):
        at = FlacSamples(data, told.flac, told.frames, 1, begin)
        assert at._job[flac_samples._LEFT_OUT] == begin
        out = np.zeros((10, 1), np.int32)
        assert at.read(out) == 10
        np.testing.assert_array_equal(out, want[begin : begin + 10])


@pytest.mark.parametrize("bits", [16, 20])
def test_a_damaged_file_that_does_not_tell_its_length(bits) -> None:
    data = as_from_a_pipe(np.frombuffer(Writer(np.random.default_rng(2), bits).file(4), np.uint8))
    data[len(data) // 2] ^= 255
    text = (
        "does not tell how long the sound is, and it is damaged"
        if bits == 16
        else "not a sound file"
    )
    with pytest.raises(ValueError, match=rf"decoders\.audio: sample 0: .*{text}"):
        ndd.decoders.audio(ndd.tensor(data))


def test_a_damaged_file_of_unusual_width() -> None:
    writer = Writer(np.random.default_rng(7), 20)
    data = np.frombuffer(writer.file(4), np.uint8).copy()
    data[len(data) // 2] ^= 255
    with pytest.raises(ValueError, match=r"the sound cannot be decoded behind sample [0-9]+"):
        np.asarray(ndd.decoders.audio(ndd.tensor(data))[0])


def frame_of(data):
    """The place of the first frame, and a copy to change it."""
    told = told_by_header(data)
    assert told is not None and told.flac is not None
    return told.flac.offset, data.copy()


@pytest.mark.parametrize("bit", [0, 7])
def test_every_bit_of_a_frame_counts(bit) -> None:
    """A frame with a wrong bit is not decoded."""
    data = encoded(TONE[:300])
    at, changed = frame_of(data)
    for k in range(at, len(data)):
        changed[k] ^= 1 << bit
        assert not len(by_us(changed)), k - at
        changed[k] ^= 1 << bit
    assert len(by_us(changed)) == 300


@pytest.mark.parametrize("kind", ["all", "frames"])
def test_what_we_decode_libsndfile_decodes_alike(kind) -> None:
    """Damaged files, also with the checksums that they should have, so that the damage gets far."""
    counts = {"same": 0, "left": 0}
    for seed in range(600):
        rng = np.random.default_rng([5, seed])
        channels, subtype = int(rng.integers(1, 4)), str(rng.choice(["PCM_S8", "PCM_16", "PCM_24"]))
        data = encoded(TONE[: rng.integers(20, 400), :channels], subtype, float(rng.random()))
        at, _ = frame_of(data)
        if kind == "all":
            bad = np.frombuffer(mutated(data.tobytes(), rng), np.uint8)
        else:
            frame = data[at + 6 :].copy()
            place = int(rng.integers(0, min(len(frame) - 2, 60)))
            frame[place] = rng.integers(0, 256)
            head = data[at : at + 6].tobytes()
            bad = np.frombuffer(
                data[:at].tobytes() + with_checksum(head + frame.tobytes()), np.uint8
            )
        told = told_by_header(bad)
        if told is None or told.flac is None or told.flac.bits not in LIBRARY_BITS:
            counts["left"] += 1
            continue
        got = by_us(bad)
        if not told.frames or len(got) < told.frames:
            counts["left"] += 1
            continue
        try:
            want = by_libsndfile(bad)
        except (
            soundfile.LibsndfileError
        ):  # it refuses files for their comments, which we do not read
            assert bad[at:].tobytes() == data[at:].tobytes()
            want = by_libsndfile(data)
        np.testing.assert_array_equal(got, want)
        counts["same"] += 1
    assert min(counts.values()) > 20, counts


def test_a_damaged_file_is_left_to_libsndfile() -> None:
    data = encoded(TONE).copy()
    data[len(data) // 2] ^= 255
    ndd.decoders.errors.clear()
    with pytest.raises(ValueError, match=r"decoders\.audio: sample 0: the sound "):
        np.asarray(ndd.decoders.audio(ndd.tensor(data))[0])
    good = encoded(TONE)
    filled, _ = ndd.decoders.audio(ndd.batch([good, data]), on_error="fill")
    found = arrays(filled)
    np.testing.assert_array_equal(found[0], by_libsndfile(good, "float32"))
    assert not found[1].any() and len(ndd.decoders.errors) == 1
    ndd.decoders.errors.clear()


def test_any_end_of_a_file() -> None:
    """Nothing behind the end is read, and nothing of a frame that is cut is decoded."""
    data = encoded(TONE[:64])
    at, _ = frame_of(data)
    for size in range(at + 1, len(data)):
        assert not len(by_us(data[:size].copy()))


def guarded(values: np.ndarray, at_end: bool = True) -> np.ndarray:
    """A copy that ends (or begins) at a page that nobody may touch; it lives as long as its region."""
    region = Region(values.nbytes)
    _regions.append(region)
    memory = (ctypes.c_char * region.size).from_address(region.begin)
    whole = np.frombuffer(memory, np.uint8)
    part = whole[region.size - values.nbytes :] if at_end else whole[: values.nbytes]
    copy = part.view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


_regions: deque[Region] = deque(maxlen=8)


def test_damaged_files_touch_no_other_memory() -> None:
    """Of the file, of the rows where samples are predicted from those before, and of the result."""
    for seed in range(400):
        rng = np.random.default_rng([3, seed])
        which = int(rng.integers(100))
        found = mutated(original("flac", which), rng)
        found = with_frame_checksum(found) if which % 2 == 0 else found
        data = guarded(np.frombuffer(found, np.uint8))
        told = told_by_header(data)
        if told is None or told.flac is None or told.frames > 64 * len(found):
            continue
        samples = FlacSamples(data, told.flac, told.frames, told.channels)
        samples._rows = guarded(samples._rows, seed % 2 == 0)
        samples._job[9] = samples._rows.ctypes.data + 4 * flac_samples._PAST
        samples.read(guarded(np.zeros((told.frames, told.channels), "float32")))


def test_numbers() -> None:
    assert coded_number(0x7F) == b"\x7f" and coded_number(0x80) == "\x80".encode()
    assert coded_number(0xFFFF) == "\uffff".encode() and len(coded_number((1 << 36) - 1)) == 7
    assert crc(b"123456789", 8, 0x07) == 0xF4 and crc(b"123456789", 16, 0x8005) == 0xFEE8
