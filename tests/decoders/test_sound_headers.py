"""WAV and FLAC files that are read without libsndfile: the same samples, headers and errors."""

from __future__ import annotations

import io
import struct
import sys

import numpy as np
import pytest
import soundfile

import ndd
from ndd.codecs.sound_files import MAX_RATIO, Sound, check_ratio, read_header
from ndd.codecs.sound_headers import Flac, told_by_header
from tests.helpers import arrays

_rng = np.random.default_rng(6)
SOUND = _rng.uniform(-1, 1, (700, 3))
SOUND[:3] = [[1, -1, 0]] * 3
SUBTYPES = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT")


def written(x=SOUND, subtype="PCM_16", kind="WAV") -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, x, 22050, format=kind, subtype=subtype)
    return np.frombuffer(file.getvalue(), np.uint8)


def changed(data, at, *values) -> np.ndarray:
    data = data.copy()
    data[at : at + len(values)] = values
    return data


@pytest.mark.parametrize("subtype", SUBTYPES)
@pytest.mark.parametrize("dtype", ["float32", "int16", "int32"])
def test_samples_are_those_of_libsndfile(subtype, dtype) -> None:
    data = written(subtype=subtype)
    assert told_by_header(data) is not None
    want = soundfile.read(io.BytesIO(data.tobytes()), dtype=dtype)[0]
    got, rate = ndd.decoders.audio(ndd.tensor(data), dtype=getattr(ndd, dtype))
    assert rate.item() == 22050.0
    np.testing.assert_array_equal(np.asarray(got), want)
    np.testing.assert_array_equal(np.asarray(got[100:300, 1:]), want[100:300, 1:])


@pytest.mark.parametrize("subtype", SUBTYPES)
def test_samples_at_any_address(subtype) -> None:
    data = written(subtype=subtype)
    want = soundfile.read(io.BytesIO(data.tobytes()), dtype="float32")[0]
    for shift in range(4):
        moved = np.concatenate([np.zeros(shift, np.uint8), data])[shift:]
        np.testing.assert_array_equal(np.asarray(ndd.decoders.audio(ndd.tensor(moved))[0]), want)


def test_plain_wav_files_need_no_library(monkeypatch) -> None:
    from ndd.codecs import sound_files

    data = written()
    monkeypatch.setattr(sound_files, "_opened", lambda data: pytest.fail("libsndfile was used"))
    assert ndd.decoders.audio(ndd.tensor(data))[0].shape == (700, 3)
    mixed = np.asarray(ndd.decoders.audio(ndd.tensor(data), downmix=True)[0])
    whole = np.asarray(ndd.decoders.audio(ndd.tensor(data))[0])
    np.testing.assert_allclose(mixed, whole.mean(axis=1), atol=1e-7)


def with_chunk(data, name, content) -> np.ndarray:
    """A chunk before that of the samples."""
    chunk = name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
    return np.frombuffer(data[:36].tobytes() + chunk + data[36:].tobytes(), np.uint8)


def test_other_chunks_are_skipped() -> None:
    data = written()
    for content in (b"", b"odd", b"even", bytes(1001)):
        longer = with_chunk(data, b"LIST", content)
        told = told_by_header(longer)
        assert told is not None and told.pcm is not None
        assert told.pcm.offset == 44 + len(longer) - len(data)
        np.testing.assert_array_equal(
            np.asarray(ndd.decoders.audio(ndd.tensor(longer))[0]),
            np.asarray(ndd.decoders.audio(ndd.tensor(data))[0]),
        )


WAV = written()
UNUSUAL = {
    "cut": WAV[:-1], "only a header": WAV[:44], "half a header": WAV[:30], "nothing": WAV[:0],
    "no WAVE": changed(WAV, 8, 0), "no format": changed(WAV, 12, 0), "12 bits": changed(WAV, 34, 12),
    "no channels": changed(WAV, 22, 0, 0), "odd frames": changed(WAV, 32, 5),
    "A-law": changed(WAV, 20, 6), "extensible": changed(WAV, 20, 0xFE, 0xFF),
    "endless": changed(WAV, 40, 255, 255, 255, 255), "huge chunk": changed(WAV, 16, 255, 255, 255, 255),
    "two formats": with_chunk(WAV, b"fmt ", WAV[20:36].tobytes()),
    "many chunks": np.concatenate([WAV[:36], np.frombuffer(b"LIST\0\0\0\0" * 100, np.uint8), WAV[36:]]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_anything_unusual_is_left_to_libsndfile(name) -> None:
    data = UNUSUAL[name]
    assert told_by_header(data) is None
    try:
        with soundfile.SoundFile(io.BytesIO(data.tobytes())) as file:
            want = Sound(file.frames, file.channels, file.samplerate)
    except Exception:
        with pytest.raises(ValueError, match="are not a sound file"):
            read_header(data)
    else:
        assert read_header(data) == want


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_flac_headers_are_those_of_libsndfile(channels) -> None:
    data = written(SOUND[:, :channels], kind="FLAC")
    with soundfile.SoundFile(io.BytesIO(data.tobytes())) as file:
        told = told_by_header(data)
        assert told is not None
        assert told[:3] == (file.frames, file.channels, file.samplerate) and told.pcm is None
    assert told.flac == Flac(told.flac.offset, 16, 4096, True)
    assert data[told.flac.offset : told.flac.offset + 2].tobytes() == b"\xff\xf8"
    assert told_by_header(changed(data, 22, 0, 0, 0, 0)) == told._replace(frames=0)
    assert told_by_header(changed(data, 4, 1)) is None
    assert told_by_header(data[:41]) is None


def test_a_flac_file_that_is_only_a_header() -> None:
    data = written(kind="FLAC")
    ndd.decoders.errors.clear()
    with pytest.raises(ValueError, match=r"decoders\.audio: sample 0: "):
        np.asarray(ndd.decoders.audio(ndd.tensor(data[:60]))[0])
    filled, _ = ndd.decoders.audio(ndd.batch([data, data[:60]]), on_error="fill")
    assert not arrays(filled)[1].any() and len(ndd.decoders.errors) == 1
    ndd.decoders.errors.clear()


def ten_hours(kind: str) -> np.ndarray:
    """A file of 1 kB whose header tells ten hours at 48 kHz."""
    frames = 10 * 3600 * 48000
    if kind == "WAV":
        data = written(SOUND[:100], kind=kind)
        return changed(data, 40, *struct.pack("<I", frames * 2))[:1000]
    if kind == "FLAC":
        data = written(SOUND[:100, :1], kind=kind)
        high = int(data[21]) & 0xF0 | frames >> 32
        return changed(data, 21, high, *struct.pack(">I", frames & 0xFFFFFFFF))[:1000]
    data = written(SOUND[:, :1], "VORBIS" if kind == "OGG" else None, kind)
    pages = [k for k in range(len(data) - 4) if data[k : k + 4].tobytes() == b"OggS"]
    assert pages
    return changed(data, pages[-1] + 6, *struct.pack("<q", frames))


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG"])
def test_ten_hours_in_a_small_file_allocate_nothing(kind) -> None:
    import tracemalloc

    data = ten_hours(kind)
    tracemalloc.start()
    try:
        samples, _ = ndd.decoders.audio(ndd.tensor(data))
        assert np.asarray(samples).nbytes < 1e6  # what is really there
    except ValueError as error:
        assert "sample 0: " in str(error)
    assert tracemalloc.get_traced_memory()[1] < 4e6
    tracemalloc.stop()


def test_the_missing_extra(monkeypatch) -> None:
    data, plain = written(kind="AIFF"), written(kind="FLAC")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert np.asarray(ndd.decoders.audio(ndd.tensor(plain))[0]).any()
    wanted = r'soundfile is not installed: pip install "ndd-fusion\[audio\]" \(called at [^\n]*\)$'
    with pytest.raises(ImportError, match=wanted):
        np.asarray(ndd.decoders.audio(ndd.tensor(data))[0])


def test_ratios() -> None:
    check_ratio(Sound(5, 1, 100), 100.0 * MAX_RATIO)
    with pytest.raises(ValueError, match="100 Hz, so a sound of 25601 Hz would be more than 256"):
        check_ratio(Sound(5, 1, 100), 25601.0)
