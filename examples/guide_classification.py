"""Image classification as in the guide of DALI's dynamic mode: only the import line differs."""

from __future__ import annotations

import torch
from data import CLASSES, arguments, folder

import ndd


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--resolution", type=int, default=64)
    chosen = parser.parse_args()

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 7, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, len(CLASSES)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(images: torch.Tensor, labels: torch.Tensor) -> float:
        model.to(images.device)
        loss = torch.nn.functional.cross_entropy(model(images), labels.flatten().long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    size = [chosen.resolution, chosen.resolution]
    reader = ndd.readers.File(file_root=str(folder(chosen)), random_shuffle=True)
    for epoch in range(chosen.epochs):
        count = 0
        for jpegs, labels in reader.next_epoch(batch_size=chosen.batch_size):
            x = ndd.decoders.image(jpegs, device=chosen.device)
            x = ndd.resize(x, size=size)
            x = ndd.crop_mirror_normalize(x, mean=[124, 116, 104], std=[58, 57, 57])
            loss = step(x.torch(), labels.torch())
            count += 1
        print(f"epoch {epoch}: {count} batches of {tuple(x.torch().shape)}, last loss {loss:.3f}")


if __name__ == "__main__":
    main()
