"""Features of speech, from a manifest to a small model: decode, resample, spectrogram, mel, dB.

Every "word" is a rising, falling or steady tone, written as FLAC at different sampling rates. A
manifest lists the files with their words. The model hears only the features. With --picture, the
spectrogram of each word is drawn.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import soundfile
import torch

import ndd
from ndd.tools.picture import png

WORDS = ("rising", "falling", "steady")
RATE = 16000


def make_files(folder: Path, count: int) -> Path:
    """Write `count` tones of each kind, and a manifest of all of them."""
    rng = np.random.default_rng(0)
    lines = []
    for word in WORDS:
        for k in range(count):
            rate = int(rng.choice([16000, 22050, 44100]))
            t = np.arange(int(rate * rng.uniform(0.4, 0.6))) / rate
            slope = {"rising": 1.0, "falling": -1.0, "steady": 0.0}[word] * rng.uniform(1500, 3000)
            start = rng.uniform(1800, 2500)
            tone = np.sin(2 * np.pi * (start * t + slope * t * t / 2))
            noise = rng.normal(0, 0.3, len(t))
            file = folder / f"{word}-{k:03}.flac"
            soundfile.write(file, 0.5 * tone + 0.1 * noise, rate)
            entry = {"audio_filepath": str(file), "duration": len(t) / rate, "text": word}
            lines.append(json.dumps(entry))
    manifest = folder / "train.json"
    manifest.write_text("\n".join(lines))
    return manifest


def features(x: ndd.Batch) -> ndd.Batch:
    """Mel bands in decibels, normalised; the spectrogram itself is never stored."""
    x = ndd.preemphasis_filter(x)
    x = ndd.spectrogram(x, window_length=400, window_step=160, nfft=512)
    x = ndd.mel_filter_bank(x, nfilter=40, sample_rate=RATE)
    x = ndd.to_decibels(x, cutoff_db=-60.0)
    return ndd.normalize(x, axes=[0, 1])


def labels_of(texts: ndd.Batch) -> torch.Tensor:
    """The number of each word."""
    words = [bytes(np.asarray(t)).decode() for t in texts.tensors]
    return torch.tensor([WORDS.index(word) for word in words])


def train(manifest: Path, epochs: int, batch_size: int) -> float:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv1d(40, 16, 5, stride=2), torch.nn.ReLU(), torch.nn.Conv1d(16, 16, 5, stride=2),
        torch.nn.ReLU(), torch.nn.AdaptiveAvgPool1d(2), torch.nn.Flatten(), torch.nn.Linear(32, 3),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    reader = ndd.readers.NemoAsr(
        manifest_filepaths=manifest, sample_rate=RATE, max_duration=10.0, random_shuffle=True,
        read_sample_rate=False, seed=1,
    )  # fmt: skip
    accuracy = 0.0
    for epoch in range(epochs):
        right = total = 0
        for sounds, texts in reader.next_epoch(batch_size=batch_size):
            x, y = features(sounds).torch(pad=True), labels_of(texts)
            scores = model(x)
            loss = torch.nn.functional.cross_entropy(scores, y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            right += int((scores.argmax(1) == y).sum())
            total += len(y)
        accuracy = right / total
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy:.2f}")
    return accuracy


def draw(folder: Path, picture: Path) -> None:
    """The spectrogram of each word, low frequencies below."""
    files = [np.frombuffer((folder / f"{w}-000.flac").read_bytes(), np.uint8) for w in WORDS]
    sounds, _ = ndd.decoders.audio(ndd.batch(files), sample_rate=RATE, downmix=True)
    spectra = [np.asarray(t)[::-1] for t in features(sounds).tensors]
    width = min(s.shape[1] for s in spectra)
    image = np.concatenate([s[:, :width] for s in spectra], axis=1)
    image = np.clip(image * 60 + 100, 0, 255).astype(np.uint8).repeat(4, 0).repeat(4, 1)
    picture.write_bytes(png(np.stack([image // 3, image, 255 - image // 2], axis=2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-word", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        manifest = make_files(folder, chosen.per_word)
        if chosen.picture:
            draw(folder, chosen.picture)
        train(manifest, chosen.epochs, chosen.batch_size)


if __name__ == "__main__":
    main()
