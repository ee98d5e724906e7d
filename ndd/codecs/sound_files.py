"""Sound files in memory → headers, and samples of the parts that are needed.

Plain WAV files need no decoder, FLAC has one of our own, and all others go through libsndfile.

Nothing is allocated by what a header claims: a file whose header tells of far more samples than its
size makes likely is decoded once, block by block, to count them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..fusion.graph.shapes import MAX_EXTENT, Array
from .flac_samples import FlacSamples, counted_frames
from .ogg_headers import check_vorbis_headers
from .pcm_samples import can_convert, read_pcm
from .sound_headers import LIBRARY_BITS, Flac, Pcm, told_by_header

# Sounds that are compressed more than this are counted before their header is believed. FLAC and
# Opus compress silence to less than a bit per sample, music to about two.
PLAUSIBLE_SAMPLES_PER_BYTE = 64
MAX_CHANNELS = 1024  # libsndfile's own limit
_UNTOLD = (1 << 63) - 1  # how many frames libsndfile supposes if a header does not tell
_BLOCK = 1 << 16  # samples that are decoded at a time to count or to mix them
# From 1 kHz to 192 kHz is a factor of 192. A header with a rate of 1 Hz would make a small file a
# large result.
MAX_RATIO = 256


class Sound(NamedTuple):
    """The header of a sound file."""

    frames: int  # samples of each channel
    channels: int
    rate: int
    pcm: Pcm | None = None  # where the samples are, if they need no decoder
    flac: Flac | None = None  # where the frames of a FLAC file are


def soundfile_module() -> Any:
    """The binding of libsndfile, which is an optional dependency."""
    try:
        import soundfile
    except ImportError:
        raise ImportError('soundfile is not installed: pip install "ndd-fusion[audio]"') from None
    return soundfile


class _SeekableBytes(io.BytesIO):
    """A file in memory that never raises: an error in a callback would be printed, not raised."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        try:
            return super().seek(offset, whence)
        except ValueError:  # damaged headers ask for places before the beginning
            return self.tell()


def _opened(data: Array) -> Any:
    """An open file."""
    soundfile = soundfile_module()
    try:
        check_vorbis_headers(data)
        return soundfile.SoundFile(_SeekableBytes(data.tobytes()))
    except (soundfile.LibsndfileError, RuntimeError, TypeError, ValueError) as error:
        reason = str(getattr(error, "error_string", error)).strip()
        raise ValueError(f"{data.size} bytes are not a sound file: {reason}") from None


def read_header(data: Array) -> Sound:
    """The header of a file, with a number of frames that the file really has."""
    told = told_by_header(data)
    if told is not None:
        frames, channels, rate = told[:3]
        if _is_possible(frames, channels, rate):
            if (frames or told.pcm is not None) and _is_plausible(frames * channels, data):
                return Sound(*told)
            if told.flac is not None:
                found = counted_frames(data, told.flac, channels, frames)
                if found is not None:
                    return Sound(found, *told[1:])
    with _opened(data) as file:
        frames, channels, rate = file.frames, file.channels, file.samplerate
        if frames == _UNTOLD:
            raise ValueError("the header does not tell how long the sound is, and it is damaged")
        if not _is_possible(frames, channels, rate):
            raise ValueError(
                f"the header tells {frames} samples of {channels} channels at {rate} Hz"
            )
        if not _is_plausible(frames * channels, data):
            found = _counted(file, frames)
            if found != frames:
                raise ValueError(f"the header tells {frames} samples, the file has {found}")
    return Sound(frames, channels, rate)


def _is_possible(frames: int, channels: int, rate: int) -> bool:
    return 0 < channels <= MAX_CHANNELS and 0 < rate < 1 << 31 and 0 <= frames <= MAX_EXTENT


def _is_plausible(count: int, data: Array) -> bool:
    return count <= PLAUSIBLE_SAMPLES_PER_BYTE * data.size


def check_ratio(header: Sound, wanted: float) -> None:
    """Refuse a sampling rate that is so low that the resampled sound would be huge."""
    if wanted > MAX_RATIO * header.rate:
        raise ValueError(
            f"its sampling rate is {header.rate} Hz, so a sound of {wanted:g} Hz would be more "
            f"than {MAX_RATIO} times as long"
        )


def _block(most: int, channels: int) -> Array:
    """Memory for some frames, at most `most`; a header may tell of 1024 channels."""
    return np.empty((max(min(most, _BLOCK // channels), 1), channels), np.float32)


def _counted(file: Any, most: int) -> int:
    """How many frames can be decoded, at most `most`."""
    block = _block(most, file.channels)
    count = 0
    while count < most:
        got = len(_read_into(file, block))
        count += got
        if got < len(block):
            break
    return count


class Sounds:
    """The sounds of a batch; decodes parts of them, each in any thread."""

    def __init__(
        self,
        data: Sequence[Array],
        headers: Sequence[Sound],
        failed: Callable[[int, ValueError], None],
        first: Sequence[int] | None = None,
        mixes: bool = False,
        window: tuple[Array, Array] | None = None,
    ) -> None:
        self.data = data
        self.headers = headers
        self.failed = failed  # takes a sample that cannot be decoded, and why
        self.first = first  # the frame of every sound that is frame 0 of the result
        self.mixes = mixes  # whether the result is the mean of all channels
        self.window = window  # (first frame and channel, how many of each) of every result

    def windowed(self, start: Array, size: Array) -> Sounds:
        """The same sounds, restricted to a part of each."""
        return Sounds(self.data, self.headers, self.failed, self.first, self.mixes, (start, size))

    def held(self, sample: int, shape: tuple[int, ...], dtype: Any) -> None:
        """Decoded samples never stay in memory of the decoder."""

    def native(self, *_: Any) -> None:
        """There is no native loop for sounds."""

    def decode(self, sample: int, out: Array) -> None:
        """Write the samples of a sound, or of the wanted part of it."""
        try:
            self._decode(sample, out)
        except ValueError as error:
            out[...] = 0
            self.failed(sample, error)

    def _decode(self, sample: int, out: Array) -> None:
        if not out.size:
            return
        first, channel = 0, 0
        if self.window is not None:
            first, channel = self.window[0][sample].tolist()
        if self.first is not None:
            first += self.first[sample]
        header, data = self.headers[sample], self.data[sample]
        if header.pcm is not None and can_convert(header.pcm, out):
            self._copy(_Pcm(data, header, first), channel, out)
            return
        if header.flac is not None:
            flac = FlacSamples(data, header.flac, header.frames, header.channels, first)
            got = self._copy(flac, channel, out)
            if got == len(out):
                return  # libsndfile decides what damage is an error
            if header.flac.bits not in LIBRARY_BITS:
                raise ValueError(f"the sound cannot be decoded behind sample {first + got}")
        with _opened(data) as file:
            if first:
                _seek(file, first)
            got = self._copy(_File(file), channel, out)
        if got < len(out):
            raise ValueError(f"the sound ends after {first + got} of {header.frames} samples")

    def _copy(self, source: _Source, channel: int, out: Array) -> int:
        """Write what a source gives, and return how many frames there were."""
        channels = source.channels
        if self.mixes and channels > 1:
            return _read_mean(source, out[:, 0])
        if out.shape[1] == channels:
            return source.read(out)
        whole = np.empty((out.shape[0], channels), out.dtype)
        got = source.read(whole)
        out[:got] = whole[:got, channel : channel + out.shape[1]]
        return got


class _File:
    """An open file that libsndfile decodes."""

    def __init__(self, file: Any) -> None:
        self._file, self.channels = file, file.channels

    def read(self, out: Array) -> int:
        """Write the next frames [frames, channels], and return how many there were."""
        return len(_read_into(self._file, out))


class _Pcm:
    """Samples that are in memory, from a frame on."""

    def __init__(self, data: Array, header: Sound, first: int) -> None:
        assert header.pcm is not None
        self._data, self._pcm, self._next = data, header.pcm, first
        self.channels = header.channels

    def read(self, out: Array) -> int:
        """Write the next frames [frames, channels]; the header has promised them."""
        read_pcm(self._data, self._pcm, self.channels, self._next, out)
        self._next += len(out)
        return len(out)


_Source = _Pcm | _File | FlacSamples


def _seek(file: Any, frame: int) -> None:
    soundfile = soundfile_module()
    try:
        file.seek(frame)
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise ValueError(f"the sound has no sample {frame}: {error}") from None


def _read_mean(source: _Source, out: Array) -> int:
    """Read the mean of all channels, and return how many frames there were."""
    block = _block(len(out), source.channels)
    done = 0
    while done < len(out):
        wanted = block[: len(out) - done]
        rows = wanted[: source.read(wanted)]
        part = out[done : done + len(rows)]
        if out.dtype.kind == "f":
            _mean(rows, part)
        else:
            _to_full_range(_mean(rows, np.empty(len(rows), np.float32)), part)
        done += len(rows)
        if len(rows) < len(wanted):
            break
    return done


def _to_full_range(values: Array, out: Array) -> None:
    """Floats from -1 to 1 as integers, rounded half away from zero; some sounds exceed 1."""
    high = np.iinfo(out.dtype).max
    scaled = (values * np.float32(high)).astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    np.clip(rounded, -high - 1, high, out=rounded)
    out[...] = np.nan_to_num(rounded)


def _mean(rows: Array, out: Array) -> Array:
    # Adding columns takes a tenth of the time of `rows.mean(axis=1)` (65536 x 2: 0.2 ms, 2.4 ms).
    out[...] = rows[:, 0]
    for channel in range(1, rows.shape[1]):
        out += rows[:, channel]
    out *= np.float32(1 / rows.shape[1])
    return out


def _read_into(file: Any, out: Array) -> Array:
    soundfile = soundfile_module()
    try:
        return file.read(out=out)  # type: ignore[no-any-return]
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise ValueError(f"the sound cannot be decoded: {error}") from None


def decode_sample(sounds: Sounds, sample: int, out: Array) -> None:
    """Decode one sound of a batch into memory (see `Decode`)."""
    sounds.decode(sample, out)
