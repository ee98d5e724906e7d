"""Write a new augmentation as plain arithmetic, without a kernel, and see what it costs.

The program prints the kernels, the bytes that they move instead of those that single ops would
move, and (with --source) the generated code.
"""

from __future__ import annotations

from data import arguments, folder

import ndd


def vignette(images, size: int, strength):
    """Darken the corners, with one map for the whole batch and one factor per sample."""
    ramp = ndd.tensor([(2 * (i + 0.5) / size - 1) ** 2 for i in range(size)], dtype=ndd.float32)
    rows, columns = ndd.expand_dims(ramp, axes=[1, 2]), ndd.expand_dims(ramp, axes=[0, 2])
    return images * (1 - strength * (rows + columns) / 2)


def fade(images, amount):
    """Fade towards mid-grey, then apply a soft curve."""
    x = images * (1 / 255)
    x = x + (0.5 - x) * amount
    return x * x * (3 - 2 * x)


def program(images, size: int, rng: ndd.random.RNG):
    """Resize, mirror, vignette, fade, noise, channels first, half precision."""
    n = images.batch_size
    x = ndd.resize(images, size=[size, size])
    x = ndd.flip(x, horizontal=ndd.random.coin_flip(batch_size=n, rng=rng))
    x = vignette(x, size, ndd.random.uniform(range=(0, 0.8), batch_size=n, rng=rng))
    x = fade(x, ndd.random.uniform(range=(0, 0.5), batch_size=n, rng=rng))
    x = ndd.noise.gaussian(x, stddev=0.02, rng=rng)
    x = ndd.transpose(x, perm=[2, 0, 1])
    return ndd.cast(x, dtype=ndd.float16)


def main() -> None:
    parser = arguments(__doc__, per_class=4)
    parser.add_argument("--resolution", type=int, default=96)
    parser.add_argument("--source", action="store_true", help="print the generated kernels")
    chosen = parser.parse_args()
    reader = ndd.readers.File(file_root=folder(chosen))
    (jpegs, _) = next(iter(reader.next_epoch(batch_size=8)))
    images = ndd.decoders.image(jpegs, device=chosen.device).evaluate()
    with ndd.EvalMode.deferred:
        result = program(images, chosen.resolution, ndd.random.RNG(seed=0))
        plan = ndd.explain(result)
    print(plan)
    if chosen.source:
        for group in plan.groups:
            print(f"\n{group.code}")
    print(f"{len(plan.kernels)} kernels, {plan.fused_bytes:,} bytes instead of", end=" ")
    print(f"{plan.unfused_bytes:,}; result {tuple(result.torch().shape)} of {result.dtype}")


if __name__ == "__main__":
    main()
