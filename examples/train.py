"""Train a small model on generated pictures: ndd reads and augments, torch learns."""

from __future__ import annotations

import time

import torch
from data import CLASSES, arguments, folder

import ndd

MEAN, STD = [124, 116, 104], [58, 57, 57]


def augmented(jpegs, device: str, size: int, rng: ndd.random.RNG):
    """A training batch: random window, mirror, colour, all in the kernel of the resize."""
    n = jpegs.batch_size
    x = ndd.decoders.image(jpegs, device=device)
    x = ndd.random_resized_crop(x, size=[size, size], random_area=[0.4, 1.0], rng=rng)
    x = ndd.color_twist(
        x,
        hue=ndd.random.uniform(range=(-30, 30), batch_size=n, rng=rng),
        saturation=ndd.random.uniform(range=(0.7, 1.3), batch_size=n, rng=rng),
    )
    mirror = ndd.random.coin_flip(batch_size=n, rng=rng)
    return ndd.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD)


def plain(jpegs, device: str, size: int):
    """A test batch."""
    x = ndd.resize(ndd.decoders.image(jpegs, device=device), size=[size, size])
    return ndd.crop_mirror_normalize(x, mean=MEAN, std=STD)


def small_model() -> torch.nn.Module:
    """Two convolutions and a linear layer."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 5, stride=2),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, len(CLASSES)),
    )


def main() -> None:
    parser = arguments(__doc__, per_class=48)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--resolution", type=int, default=64)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    rng = ndd.random.RNG(seed=0)
    root = folder(chosen)
    test_root = folder(chosen, seed=1)  # the same folder if the user gave one
    train = ndd.readers.File(file_root=root, random_shuffle=True, last_batch="drop")
    test = ndd.readers.File(file_root=test_root, last_batch="partial")
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(chosen.epochs):
        start, seen = time.perf_counter(), 0
        model.train()
        for jpegs, labels in train.next_epoch(batch_size=chosen.batch_size):
            images = augmented(jpegs, chosen.device, chosen.resolution, rng).torch()
            targets = labels.torch().flatten().long()
            model.to(images.device)
            loss = torch.nn.functional.cross_entropy(model(images), targets.to(images.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(targets)
        rate = seen / (time.perf_counter() - start)
        model.eval()
        right = total = 0
        with torch.no_grad():
            for jpegs, labels in test.next_epoch(batch_size=chosen.batch_size):
                guess = model(plain(jpegs, chosen.device, chosen.resolution).torch()).argmax(1)
                targets = labels.torch().flatten().to(guess.device)
                right, total = right + int((guess == targets).sum()), total + len(targets)
        print(
            f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / total:.3f} "
            f"of {total} other pictures, {rate:.0f} pictures/s"
        )


if __name__ == "__main__":
    main()
