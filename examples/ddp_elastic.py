"""A DDP job that goes on with another number of processes: every file is still read once.

torchrun --standalone --nproc-per-node 2 examples/ddp_elastic.py --stop-after 2
torchrun --standalone --nproc-per-node 3 examples/ddp_elastic.py

After each step, rank 0 writes weights, optimizer and the state of its reader. A later run divides
the files that all old ranks had left among its own ranks.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from data import arguments, folder
from train import augmented, small_model

import ndd


def names_of(batch: ndd.Batch) -> list[str]:
    """The names of the files of a batch."""
    names = ndd.get_property(batch, key="source_info")
    return ["/".join(Path(bytes(n.torch().numpy()).decode()).parts[-2:]) for n in names.tensors]


def save(path: Path, **state: object) -> None:
    """Replace the checkpoint at once, so that a run that is killed here leaves the old one."""
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def main() -> None:
    parser = arguments(__doc__, per_class=8, size=48)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, default=Path("ddp_elastic.pt"))
    parser.add_argument("--stop-after", type=int, help="steps, as if the job were preempted then")
    chosen = parser.parse_args()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    ndd.set_num_threads(1)  # the ranks share this machine
    reader = ndd.readers.File(
        file_root=folder(chosen), random_shuffle=True, seed=7, last_batch="partial",
        shard_id=rank, num_shards=world, stick_to_shard=True,
    )  # fmt: skip
    rng = ndd.random.RNG(seed=100 + rank)
    torch.manual_seed(0)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen: list[str] = []
    if chosen.checkpoint.exists():
        state = torch.load(chosen.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        reader.set_state(state["reader"])  # divides what is left, if `world` has changed
        seen = state["seen"]
    parallel = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    for step, (jpegs, labels) in enumerate(reader.next_epoch(batch_size=chosen.batch_size), 1):
        images = augmented(jpegs, chosen.device, 32, rng).torch()
        loss = torch.nn.functional.cross_entropy(parallel(images), labels.torch().flatten().long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        parts = [names_of(jpegs)]
        if world > 1:
            parts = [[] for _ in range(world)]
            dist.all_gather_object(parts, names_of(jpegs))
        seen += [name for part in parts for name in part]
        if rank == 0:
            save(chosen.checkpoint, model=model.state_dict(), optimizer=optimizer.state_dict(),
                 reader=str(reader.get_state()), seen=seen)  # fmt: skip
        if step == chosen.stop_after:
            break
    if rank == 0:
        print(f"{world} ranks: {len(seen)} files so far, {len(set(seen))} different ones")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
