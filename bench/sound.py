"""Sound: features of speech, resampling and decoding, beside the oracle and the field's libraries.

Features: 10 s at 16 kHz, frames of 25 ms every 10 ms, 80 mel bands, decibels; two threads. Torch
computes the same with `torch.stft` and a matrix product, one clip in each of two threads.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import ndd

from .harness import ROUNDS, Row, compare, optional, show

COUNT = 16
RATE, SECONDS = 16000, 10
FRAMES = dict(window_length=400, window_step=160, nfft=512)
MELS = dict(nfilter=80, sample_rate=float(RATE))
Runs = dict[str, Callable[[], object]]


def signals(count: int, rate: int = RATE) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(rate * SECONDS).astype(np.float32) * 0.2 for _ in range(count)]


def _libraries(threads: int) -> dict[str, tuple[Any, Any]]:
    found = {"ndd": (ndd, ndd.EvalContext(num_threads=threads))}
    dali = optional("nvidia.dali.experimental.dynamic")
    if dali is not None:
        found["oracle"] = (dali, dali.EvalContext(num_threads=threads))
    return found


def _both(data: list[np.ndarray], threads: int, program: Callable[[Any, Any], Any]) -> Runs:
    def run(lib: Any, context: Any) -> Callable[[], object]:
        batch = lib.batch(data)

        def once() -> object:
            with context:
                return program(lib, batch).evaluate()

        return once

    return {name: run(*library) for name, library in _libraries(threads).items()}


def features(rounds: int) -> list[Row]:
    clips = signals(COUNT)

    def program(lib: Any, x: Any) -> Any:
        return lib.to_decibels(lib.mel_filter_bank(lib.spectrogram(x, **FRAMES), **MELS))

    runs = _both(clips, 2, program)
    torch = optional("torch")
    if torch is not None:
        runs["torch.stft + threads"] = _torch_features(torch, clips)
        torchaudio = optional("torchaudio")
        if torchaudio is not None:
            runs["torchaudio + threads"] = _torchaudio_features(torch, torchaudio, clips)
    librosa = optional("librosa")
    if librosa is not None:
        runs["librosa"] = lambda: [
            librosa.power_to_db(
                librosa.feature.melspectrogram(
                    y=x, sr=RATE, n_fft=512, win_length=400, hop_length=160, n_mels=80
                ),
                ref=np.max,
            )
            for x in clips
        ]
    return compare(f"spectrogram, mel, decibels, {COUNT} × 10 s, 2 threads", runs, rounds)


def _torch_features(torch: Any, clips: list[np.ndarray]) -> Callable[[], object]:
    torch.set_num_threads(1)
    bank = ndd.mel_filter_bank(np.eye(257, dtype=np.float32), **MELS).torch()
    window, given = torch.hann_window(400), [torch.from_numpy(x) for x in clips]

    def one(x: Any) -> Any:
        spectrum = torch.stft(x, 512, 160, 400, window, return_complex=True).abs().square()
        mels = bank @ spectrum
        return 10 * torch.log10(torch.clamp(mels / mels.max(), min=1e-20))

    pool = ThreadPoolExecutor(2)
    return lambda: list(pool.map(one, given))


def _torchaudio_features(
    torch: Any, torchaudio: Any, clips: list[np.ndarray]
) -> Callable[[], object]:
    mel = torchaudio.transforms.MelSpectrogram(
        RATE,
        n_fft=512,
        win_length=400,
        hop_length=160,
        n_mels=80,
        norm="slaney",
        mel_scale="slaney",
    )
    decibels, given = torchaudio.transforms.AmplitudeToDB(), [torch.from_numpy(x) for x in clips]
    pool = ThreadPoolExecutor(2)
    return lambda: list(pool.map(lambda x: decibels(mel(x)), given))


def rates(rounds: int) -> list[Row]:
    clips = signals(4, 44100)
    runs = _both(clips, 1, lambda lib, x: lib.audio_resample(x, in_rate=44100.0, out_rate=16000.0))
    soxr = optional("soxr")
    if soxr is not None:
        for quality in ("HQ", "MQ"):
            runs[f"soxr {quality}"] = lambda quality=quality: [  # type: ignore[misc]
                soxr.resample(x, 44100, 16000, quality=quality) for x in clips
            ]
    return compare("audio_resample 44.1 → 16 kHz, 4 × 10 s, 1 thread", runs, rounds)


def files(kind: str, rounds: int) -> list[Row]:
    soundfile = optional("soundfile")
    if soundfile is None:
        return []
    encoded = []
    for x in signals(8):
        file = io.BytesIO()
        soundfile.write(file, x, RATE, format=kind)
        encoded.append(np.frombuffer(file.getvalue(), np.uint8))
    runs = _both(encoded, 1, lambda lib, x: lib.decoders.audio(x)[0])
    runs["soundfile in a loop"] = lambda: [
        soundfile.read(io.BytesIO(data.tobytes()), dtype="float32") for data in encoded
    ]
    return compare(f"decoders.audio of {kind}, 8 × 10 s at 16 kHz, 1 thread", runs, rounds)


def main(rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    for part in (features(rounds), rates(rounds), files("WAV", rounds), files("FLAC", rounds)):
        show(part, "oracle", 1e3, "ms")
        rows += part
    return rows
