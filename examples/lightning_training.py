"""Train with Lightning: the loaders of its DataModule are our readers, with no worker processes."""

from __future__ import annotations

import logging

import lightning as L
import torch
from data import arguments, folder
from train import augmented, plain, small_model

import ndd


class Loader:
    """What Lightning iterates over: each `iter` is the next epoch of a reader."""

    def __init__(self, reader: ndd.readers.Reader, batch_size: int, prepare) -> None:
        self.reader, self.batch_size, self.prepare = reader, batch_size, prepare

    def __len__(self) -> int:
        return len(self.reader.next_epoch(batch_size=self.batch_size))

    def __iter__(self):
        for jpegs, labels in self.reader.next_epoch(batch_size=self.batch_size):
            yield self.prepare(jpegs).torch(), labels.torch().flatten().long()


class Pictures(L.LightningDataModule):
    """Folders of pictures."""

    def __init__(self, root: str, test_root: str, batch_size: int, resolution: int) -> None:
        super().__init__()
        self.roots, self.batch_size, self.resolution = (root, test_root), batch_size, resolution

    def setup(self, stage: str) -> None:
        trainer = self.trainer
        shard = dict(shard_id=trainer.global_rank, num_shards=trainer.world_size)
        self.rng = ndd.random.RNG(seed=trainer.global_rank)
        self.train = ndd.readers.File(
            file_root=self.roots[0], random_shuffle=True, last_batch="drop",
            stick_to_shard=True, **shard,
        )  # fmt: skip
        self.test = ndd.readers.File(file_root=self.roots[1], last_batch="partial", **shard)

    def train_dataloader(self) -> Loader:
        return Loader(
            self.train, self.batch_size, lambda x: augmented(x, "cpu", self.resolution, self.rng)
        )

    def val_dataloader(self) -> Loader:
        return Loader(self.test, self.batch_size, lambda x: plain(x, "cpu", self.resolution))

    def state_dict(self) -> dict[str, str]:
        """Lightning keeps it in its checkpoints."""
        return {"reader": str(self.train.get_state()), "rng": str(self.rng.get_state())}

    def load_state_dict(self, state: dict[str, str]) -> None:
        self.train.set_state(state["reader"])
        self.rng.set_state(state["rng"])


class Model(L.LightningModule):
    """The small model of the other examples."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_model()

    def training_step(self, batch, _) -> torch.Tensor:
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch, _) -> None:
        images, labels = batch
        hits = (self.net(images).argmax(1) == labels).float()
        self.log("accuracy", hits.mean(), batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    parser = arguments(__doc__, per_class=48)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--resolution", type=int, default=64)
    chosen = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    data = Pictures(folder(chosen), folder(chosen, seed=1), chosen.batch_size, chosen.resolution)
    trainer = L.Trainer(
        max_epochs=chosen.epochs, accelerator="cpu", logger=False, num_sanity_val_steps=0,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model(), data)
    print(
        f"after {chosen.epochs} epochs: accuracy {float(trainer.callback_metrics['accuracy']):.2f}"
    )


if __name__ == "__main__":
    main()
