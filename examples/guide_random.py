"""Both styles of random numbers in the guide of DALI's dynamic mode.

They come from the thread's default generator, or from your own generators.
"""

from __future__ import annotations

import numpy as np
from data import arguments, folder

import ndd


def augmented(x, angles, brightness):
    """The first picture after the augmentation, as an array."""
    x = ndd.brightness(ndd.rotate(x, angle=angles, fill_value=0), brightness=brightness)
    return np.asarray(x.tensors[0].cpu())


def main() -> None:
    chosen = arguments(__doc__, per_class=3, size=32).parse_args()
    reader = ndd.readers.File(file_root=str(folder(chosen)))
    jpegs, _ = next(iter(reader.next_epoch(batch_size=8)))
    x = ndd.decoders.image(jpegs, device=chosen.device)

    def default_generator():
        ndd.random.set_seed(42)
        angles = ndd.random.uniform(batch_size=8, range=(-10, 10))
        return augmented(x, angles, ndd.random.uniform(batch_size=8, range=(0.8, 1.2)))

    def own_generators(geometry_first: bool):
        geometry, colour = ndd.random.RNG(seed=1), ndd.random.RNG(seed=2)

        def angles():
            return ndd.random.uniform(batch_size=8, range=(-10, 10), rng=geometry)

        def brightness():
            return ndd.random.uniform(batch_size=8, range=(0.8, 1.2), rng=colour)

        if geometry_first:
            drawn = angles()
            return augmented(x, drawn, brightness())
        drawn = brightness()
        return augmented(x, angles(), drawn)

    assert np.array_equal(default_generator(), default_generator())
    print("default generator: the same seed gives the same pictures")
    assert np.array_equal(own_generators(True), own_generators(False))
    print("own generators: the order of draws does not matter")
    ranks = [ndd.random.uniform(batch_size=4, rng=ndd.random.RNG(seed=7 + r)) for r in range(2)]
    assert not np.array_equal(*(np.asarray(r.torch()) for r in ranks))
    print("one generator per rank: each draws its own numbers")


if __name__ == "__main__":
    main()
