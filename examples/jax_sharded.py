"""Feed JAX: batches become arrays that are sharded over devices, here four made from the CPU.

ndd and JAX share memory through DLPack, in both directions, where the memory is on one device.
"""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
from data import arguments, folder
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ndd


def main() -> None:
    parser = arguments(__doc__, per_class=8, size=48)
    parser.add_argument("--batch-size", type=int, default=16)
    chosen = parser.parse_args()
    devices = np.array(jax.devices())
    by_sample = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))

    @jax.jit
    def step(images: jax.Array) -> jax.Array:
        return jnp.mean(images**2)

    reader = ndd.readers.File(file_root=folder(chosen), random_shuffle=True, last_batch="drop")
    for jpegs, _ in reader.next_epoch(batch_size=chosen.batch_size):
        x = ndd.resize(ndd.decoders.image(jpegs), size=[32, 32])
        x = ndd.crop_mirror_normalize(x, mean=[124, 116, 104], std=[58, 57, 57])
        whole = jax.dlpack.from_dlpack(ndd.as_tensor(x))  # no copy
        sharded = jax.device_put(whole, by_sample)  # each device gets its part
        loss = step(sharded)
        back = ndd.as_tensor(whole)  # and back, no copy
        assert np.isclose(float(loss), float((np.asarray(back) ** 2).mean()), rtol=1e-5)
        rows = {shard.data.shape[0] for shard in sharded.addressable_shards}
    print(f"{len(devices)} devices, each holds {rows.pop()} of {chosen.batch_size} pictures")


if __name__ == "__main__":
    main()
