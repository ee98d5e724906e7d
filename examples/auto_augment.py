"""RandAugment, TrivialAugment and AutoAugment in a training loop."""

from __future__ import annotations

from data import arguments, folder

import ndd

POLICIES = {
    "RandAugment": lambda x, rng: ndd.auto_augment.rand_augment(x, n=2, m=9, rng=rng),
    "TrivialAugment": lambda x, rng: ndd.auto_augment.trivial_augment(x, rng=rng),
    "AutoAugment": lambda x, rng: ndd.auto_augment.auto_augment(x, "image_net", rng=rng),
}


def main() -> None:
    parser = arguments(__doc__, per_class=8)
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--picture", default="", help="write the last batch, as PNG")
    chosen = parser.parse_args()
    reader = ndd.readers.File(file_root=folder(chosen), random_shuffle=True)
    for name, policy in POLICIES.items():
        rng = ndd.random.RNG(seed=0)  # the same windows for every policy
        shapes = []
        for jpegs, _ in reader.next_epoch(batch_size=chosen.batch_size):
            x = ndd.decoders.image(jpegs, device=chosen.device)
            x = ndd.random_resized_crop(x, size=[chosen.resolution] * 2, rng=rng)
            x = augmented = policy(x, rng)
            x = ndd.crop_mirror_normalize(x, mean=[124, 116, 104], std=[58, 57, 57])
            shapes.append(tuple(x.torch().shape))
        print(f"{name}: {len(shapes)} batches, the last of {shapes[-1]}")
    if chosen.picture:
        ndd.show(augmented, chosen.picture)


if __name__ == "__main__":
    main()
