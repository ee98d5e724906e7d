"""Moving pictures, from files to a small model: decode, resize, augment whole clips, normalise.

Every clip shows a bright square that moves to the left, to the right, or not at all, before noise.
One frame does not tell which: the model needs the clip. Each clip is written as H.264 in MP4.
Augmentation is consistent over a clip: every sample has one crop and one brightness for all frames.
With --picture, a contact sheet of a batch is drawn.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import av
import numpy as np
import torch

import ndd
from ndd.tools.picture import png

MOVES = ("left", "right", "still")
HEIGHT, WIDTH, LENGTH = 72, 96, 24


def make_files(root: Path, count: int) -> None:
    """Write `count` clips of each kind into a folder for each."""
    rng = np.random.default_rng(0)
    for label, move in enumerate(MOVES):
        folder = root / f"{label}-{move}"
        folder.mkdir(parents=True)
        for k in range(count):
            write_clip(folder / f"{k:03}.mp4", move, rng)


def write_clip(path: Path, move: str, rng: np.random.Generator) -> None:
    step = {"left": -1.0, "right": 1.0, "still": 0.0}[move] * rng.uniform(1.5, 2.5)
    x, y = WIDTH / 2 - step * LENGTH / 2, int(rng.integers(10, HEIGHT - 26))
    colour = rng.integers(150, 256, 3)
    with av.open(path, "w") as file:
        stream = file.add_stream("libx264", rate=25, options={"x264-params": "log-level=none"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for _ in range(LENGTH):
            pixels = rng.integers(0, 60, (HEIGHT, WIDTH, 3)).astype(np.uint8)
            at = int(np.clip(x, 0, WIDTH - 16))
            pixels[y : y + 16, at : at + 16] = colour
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, "rgb24")))
            x += step
        file.mux(stream.encode())


def augmented(videos: ndd.Batch) -> ndd.Batch:
    """One crop and one brightness for each clip, the same for all its frames."""
    n = videos.batch_size
    brightness = ndd.random.uniform(range=[0.7, 1.3], batch_size=n)
    x = ndd.random.uniform(range=[0.0, 1.0], batch_size=n)
    videos = ndd.resize(videos, size=[40, 54])
    videos = ndd.brightness_contrast(videos, brightness=brightness)
    return ndd.crop_mirror_normalize(
        videos, crop=[36, 48], crop_pos_x=x, mean=[64.0] * 3, std=[64.0] * 3, output_layout="FCHW"
    )


def train(root: Path, epochs: int, batch_size: int) -> float:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv3d(3, 8, 5, stride=2, padding=2), torch.nn.ReLU(),
        torch.nn.Conv3d(8, 16, 5, stride=2, padding=2), torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool3d(1), torch.nn.Flatten(), torch.nn.Linear(16, len(MOVES)),
    )  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    reader = ndd.experimental.readers.Video(
        file_root=root, sequence_length=8, stride=2, step=4, random_shuffle=True, seed=1
    )
    accuracy = 0.0
    for epoch in range(epochs):
        right = total = 0
        for videos, labels in reader.next_epoch(batch_size=batch_size):
            x, y = augmented(videos).torch(), labels.torch()[:, 0].long()
            scores = model(x.movedim(1, 2))  # frames are the third axis of a convolution
            loss = torch.nn.functional.cross_entropy(scores, y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            right += int((scores.argmax(1) == y).sum())
            total += len(y)
        accuracy = right / total
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy:.2f}")
    return accuracy


def draw(root: Path, picture: Path) -> None:
    """A contact sheet: a clip in each row, every third frame of it."""
    files = [next(iter(sorted(f.iterdir()))) for f in sorted(root.iterdir())]
    data = ndd.batch([np.frombuffer(f.read_bytes(), np.uint8) for f in files])
    clips = ndd.decoders.video(data, stride=3)  # 8 of the 24 frames are decoded
    rows = [np.concatenate(list(np.pad(np.asarray(c), ((0, 0), (1, 1), (1, 1), (0, 0)))), axis=1)
            for c in clips.tensors]  # fmt: skip
    picture.write_bytes(png(np.concatenate(rows, axis=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-move", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--picture", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        make_files(root, chosen.per_move)
        if chosen.picture:
            draw(root, chosen.picture)
        train(root, chosen.epochs, chosen.batch_size)


if __name__ == "__main__":
    main()
