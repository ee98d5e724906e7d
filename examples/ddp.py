"""Two processes train one model: torchrun --standalone --nproc-per-node 2 examples/ddp.py

Each rank reads its own shard with its own random generator; gloo averages gradients on the CPU.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from data import arguments, folder
from train import augmented, small_model

import ndd


def main() -> None:
    parser = arguments(__doc__, per_class=8, size=48)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    chosen = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    roots = [folder(chosen) if rank == 0 else None]
    dist.broadcast_object_list(roots)

    torch.manual_seed(0)
    ndd.set_num_threads(1)  # the ranks share this machine
    rng = ndd.random.RNG(seed=100 + rank)
    reader = ndd.readers.File(
        file_root=roots[0],
        random_shuffle=True,
        shard_id=rank,
        num_shards=world,
        stick_to_shard=True,
        pad_last_batch=True,
    )
    model = torch.nn.parallel.DistributedDataParallel(small_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(chosen.epochs):
        files = set()
        for jpegs, labels in reader.next_epoch(batch_size=chosen.batch_size):
            images = augmented(jpegs, chosen.device, 32, rng).torch().to("cpu")
            loss = torch.nn.functional.cross_entropy(model(images), labels.torch().flatten().long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            names = ndd.get_property(jpegs, key="source_info")
            files.update(bytes(np.asarray(n)) for n in names.tensors)
        parts = [None] * world
        dist.all_gather_object(parts, files)
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        first = weights.clone()
        dist.broadcast(first, src=0)
        assert torch.equal(first, weights), "ranks must have the same weights"
        if rank == 0:
            sizes = [len(p) for p in parts]
            print(f"epoch {epoch}: {sizes} files, {len(set.union(*parts))} in all, same weights")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
