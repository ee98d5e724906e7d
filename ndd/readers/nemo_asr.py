"""`readers.NemoAsr`: manifests of speech enter, batches of decoded sounds and transcripts leave."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..codecs.sound_files import Sound, Sounds, check_ratio, read_header, soundfile_module
from ..core import convert
from ..core.handle import executor_of
from ..fusion.graph.shapes import Array
from ..kernels.ir import dtypes as dt
from ..kernels.ir.dtypes import DType
from ..runtime.context import current_context
from .epoch import Bad, Sample, Samples
from .reader import Reader
from .record_samples import filled, listed, paths_of
from .stores.byte_files import read_anywhere
from .stores.nemo_manifest import DurationLimits, Utterances, read_manifests
from .stores.remote import RemoteOptions

_TYPES = (dt.int16, dt.int32, dt.float32)


class SoundChoice(NamedTuple):
    """What becomes of a sound."""

    dtype: DType
    downmix: bool
    sample_rate: float  # the file's own if not positive
    quality: float
    extras: tuple[str, ...]  # outputs beside the sound: "rate", "text", "number"


class _Read(NamedTuple):
    """A file that was read, and the part of it that is wanted."""

    sample: int
    data: Array
    header: Sound
    first: int
    frames: int


class NemoSamples:
    """Utterances, as samples of a reader."""

    def __init__(self, found: Utterances, choice: SoundChoice, remote: RemoteOptions) -> None:
        self._found, self._choice, self._remote = found, choice, remote
        self.fingerprint = found.fingerprint

    def __len__(self) -> int:
        return len(self._found)

    def name(self, index: int) -> str:
        return os.fsdecode(self._found.path(index))

    def output_name(self, index: int, output: int) -> str:
        """Outputs have no names, as upstream."""
        return ""

    def read(self, index: int) -> Sample:
        (found,) = self.read_many([index])
        if isinstance(found, Bad):
            raise found.cause
        return found

    def read_many(self, indices: Sequence[int]) -> Sequence[Sample | Bad]:
        """Read all files of a batch, and decode them on all threads."""
        paths = [self._found.path(i) for i in indices]
        contents = read_anywhere(paths, False, self._remote)
        opened = [self._opened(i, c) for i, c in zip(indices, contents, strict=True)]
        readable = [o for o in opened if isinstance(o, _Read)]
        sounds = dict(zip([r.sample for r in readable], self._decoded(readable), strict=True))
        return [o if isinstance(o, Bad) else sounds[o.sample] for o in opened]

    def _opened(self, index: int, content: Array | Exception) -> _Read | Bad:
        if isinstance(content, Exception):
            return Bad(index, content)
        try:
            header = read_header(content)
            check_ratio(header, self._choice.sample_rate)
            return _Read(
                index, content, header, *self._found.span(index, header.frames, header.rate)
            )
        except ValueError as error:
            return Bad(index, error)

    def _decoded(self, files: Sequence[_Read]) -> list[Sample | Bad]:
        from ..ops.audio.audio_decoder import decoded

        if not files:
            return []
        choice, failures = self._choice, dict[int, ValueError]()
        data = [f.data for f in files]
        sounds = Sounds(
            data, [f.header for f in files], failures.__setitem__, [f.first for f in files],
            choice.downmix,
        )  # fmt: skip
        rates = np.array([f.header.rate for f in files], np.float64)
        node = decoded(
            "readers.NemoAsr", convert.wrap_arrays(data, dt.uint8, None, True, external=False),
            sounds, np.array([f.frames for f in files], np.int64),
            np.full_like(rates, choice.sample_rate) if choice.sample_rate > 0 else rates,
            choice.dtype, choice.quality,
        )  # fmt: skip
        # A thread that reads ahead has its own context, so it does not wait for the user's work.
        executor_of(current_context()).evaluate(node)
        return [
            Bad(f.sample, failures[k])
            if k in failures
            else (sound, *self._known(f.sample, f.header.rate))
            for k, (f, sound) in enumerate(zip(files, convert.arrays_of(node), strict=True))
        ]

    def _known(self, index: int, rate: int) -> Sample:
        """All outputs but the sound."""
        made: dict[str, Array] = {
            "rate": np.array(rate, np.float32),
            "text": self._found.text(index),
            "number": self._found.numbers[index : index + 1],
        }
        return tuple(made[kind] for kind in self._choice.extras)

    def fill(self, index: int, data: Any = None) -> Sample:
        """No sound; the text and the number are known."""
        shape = 0 if self._choice.downmix else (0, 1)
        empty = np.zeros(shape, self._choice.dtype.np)
        return filled("readers.NemoAsr", (empty, *self._known(index, 0)), data)


class NemoAsr(Reader):
    """Reads speech with transcripts from manifests of NVIDIA NeMo, and decodes it.

    >>> import json, ndd, pathlib, soundfile, tempfile
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> soundfile.write(root / "hello.wav", [0.0, 0.5, -0.5, 0.0], 8000)
    >>> entry = {"audio_filepath": str(root / "hello.wav"), "text": "hello"}
    >>> _ = (root / "all.json").write_text(json.dumps(entry))
    >>> reader = ndd.readers.NemoAsr(manifest_filepaths=root / "all.json")
    >>> for sounds, rates, texts in reader.next_epoch(batch_size=1):
    ...     print(sounds.shape, rates.torch().tolist(), bytes(texts.tensors[0].torch().tolist()))
    [(4,)] [8000.0] b'hello'

    A manifest has one JSON object per line. ``audio_filepath`` is the sound file, relative to the
    current folder, or a URL. ``offset`` and ``duration`` are the part of it to read, in seconds;
    only that part is decoded. ``text`` is the transcript. Only the file is needed. Lines that
    cannot be used are left out, with a warning.

    Outputs are the sound [time] or [time, channel], and if they are wanted, in this order: the
    sampling rate of the file, the transcript (UTF-8, uint8), and the number of the utterance [1].

    Parameters
    ----------
    manifest_filepaths : path or list of path
        The manifests.
    downmix : bool
        Average all channels; then sounds have one axis.
    dtype : DType
        Element type of the sounds: float32 (the default), int16 or int32.
    sample_rate : float
        Sampling rate to resample all sounds to, in Hz; they keep their own if it is not positive.
        The sampling rates that the reader yields are always those of the files.
    quality : float
        Quality of resampling, from 0 (3 lobes of the sinc) over 50 (16) to 100 (64).
    min_duration, max_duration : float
        Utterances with a shorter or longer ``duration`` are left out, unless this is 0. An unknown
        duration is shorter than any `min_duration`.
    read_sample_rate, read_text, read_idxs : bool
        Whether to yield the sampling rate, the transcript, and the number of the utterance in its
        manifest, counted without those that are left out.
    normalize_text, read_ahead, dont_use_mmap, skip_cached_images, tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        manifest_filepaths: Any = None,
        downmix: bool | None = True,
        dtype: Any = None,
        sample_rate: float | None = -1.0,
        quality: float | None = 50.0,
        min_duration: float | None = 0.0,
        max_duration: float | None = 0.0,
        read_sample_rate: bool | None = True,
        read_text: bool | None = True,
        read_idxs: bool | None = False,
        normalize_text: bool | None = None,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = "readers.NemoAsr"
        if manifest_filepaths is None:
            raise TypeError(f"{where}: `manifest_filepaths` is needed")
        self._manifests = paths_of(where, "manifest_filepaths", manifest_filepaths)
        if not self._manifests:
            raise ValueError(f"{where}: `manifest_filepaths` is empty")
        # DurationLimits are rounded to float32 before they are compared, as upstream.
        self._limits = DurationLimits(
            *(float(np.float32(_number(where, n, v, 0.0)))
              for n, v in (("min_duration", min_duration), ("max_duration", max_duration)))
        )  # fmt: skip
        self._choice = SoundChoice(
            _sample_type(where, dtype), downmix is None or bool(downmix),
            _number(where, "sample_rate", sample_rate, -1.0), _quality(where, quality),
            tuple(kind for kind, is_wanted in (
                ("rate", read_sample_rate is None or read_sample_rate),
                ("text", read_text is None or read_text), ("number", read_idxs)) if is_wanted),
        )  # fmt: skip
        extras = {"rate": (dt.float32, True), "text": (dt.uint8, True), "number": (dt.int64, True)}
        self.outputs = [(self._choice.dtype, False), *(extras[k] for k in self._choice.extras)]
        super().__init__(max_batch_size, name, device, **options)

    def _list(self) -> Samples:
        listed(self._where, soundfile_module)  # fails now, not in a thread, if it is missing
        found: Utterances = listed(
            self._where, lambda: read_manifests(self._manifests, self._limits, self._remote)
        )
        if len(found) == 0:
            what = ", ".join(map(repr, self._manifests[:3]))
            raise ValueError(f"{self._where}: no utterances found in {what}")
        return NemoSamples(found, self._choice, self._remote)


def _number(where: str, name: str, value: Any, default: float) -> float:
    if value is None:
        return default
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{where}: `{name}` must be a number, got {type(value).__name__}") from None
    if not np.isfinite(number):
        raise ValueError(f"{where}: `{name}` must be finite, got {number}")
    return number


def _quality(where: str, value: Any) -> float:
    found = _number(where, "quality", value, 50.0)
    if not 0 <= found <= 100:
        raise ValueError(f"{where}: `quality` must be from 0 to 100, got {found}")
    return found


def _sample_type(where: str, given: Any) -> DType:
    found = dt.float32 if given is None else dt.dtype(given)
    if found not in _TYPES:
        raise TypeError(
            f"{where}: `dtype` must be one of {', '.join(map(str, _TYPES))}, got {found}"
        )
    return found
