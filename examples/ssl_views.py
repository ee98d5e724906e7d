"""Two augmented views of every picture, as contrastive learning needs them, in one program."""

from __future__ import annotations

import torch
from data import arguments, folder

import ndd


def view(images, size: int, rng: ndd.random.RNG):
    """A random window, mirrored or not, with changed colours or in grey, and a little noise."""
    n = images.batch_size

    def uniform(low: float, high: float):
        return ndd.random.uniform(range=(low, high), batch_size=n, rng=rng)

    x = ndd.random_resized_crop(images, size=[size, size], random_area=[0.2, 1.0], rng=rng)
    is_coloured = ndd.random.coin_flip(probability=0.8, batch_size=n, rng=rng)
    x = ndd.color_twist(
        x,
        hue=uniform(-36, 36),
        saturation=uniform(0.4, 1.6) * is_coloured,  # grey with probability 0.2
        brightness=uniform(0.6, 1.4),
        contrast=uniform(0.6, 1.4),
    )
    x = ndd.flip(x, horizontal=ndd.random.coin_flip(batch_size=n, rng=rng))
    return ndd.noise.gaussian(x, stddev=uniform(0, 8), rng=rng)


def normalised(x):
    return ndd.crop_mirror_normalize(x, mean=[124, 116, 104], std=[58, 57, 57])


def contrast(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """NT-Xent of flattened pixels: a stand-in for the features of a model."""
    z = torch.nn.functional.normalize(torch.cat([a, b]).flatten(1), dim=1)
    similar = (z @ z.T / 0.5).fill_diagonal_(-torch.inf)
    n = len(a)
    return torch.nn.functional.cross_entropy(similar, torch.arange(2 * n).roll(n).to(z.device))


def main() -> None:
    parser = arguments(__doc__, per_class=8)
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--picture", default="", help="write the views of the last batch, as PNG")
    chosen = parser.parse_args()
    rng = ndd.random.RNG(seed=0)
    reader = ndd.readers.File(file_root=folder(chosen), random_shuffle=True)
    for number, (jpegs, _) in enumerate(reader.next_epoch(batch_size=chosen.batch_size)):
        images = ndd.decoders.image(jpegs, device=chosen.device)  # decoded once for both views
        views = [view(images, chosen.resolution, rng) for _ in range(2)]
        first, second = (normalised(v).torch() for v in views)
        print(f"batch {number}: two of {tuple(first.shape)}, loss {contrast(first, second):.3f}")
    with ndd.EvalMode.deferred:
        print(ndd.explain(*(normalised(view(images, chosen.resolution, rng)) for _ in range(2))))
    if chosen.picture:
        ndd.show(ndd.cat(views[0], views[1], axis=1), chosen.picture)


if __name__ == "__main__":
    main()
