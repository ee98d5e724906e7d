"""Resume a training run that was cut off mid-epoch: it ends with exactly the same weights."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from data import arguments, folder
from train import augmented, small_model

import ndd


class Run:
    """Everything that has state: the model, its optimizer, the reader and the generator."""

    def __init__(self, root: Path, device: str) -> None:
        torch.manual_seed(0)
        self.device, self.steps = device, 0
        self.model = small_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.reader = ndd.readers.File(file_root=root, random_shuffle=True)
        self.rng = ndd.random.RNG(seed=0)
        self.data = ndd.checkpoint.Checkpoint()

    def save(self, saved: Path) -> None:
        self.data.register(self.reader, "reader")
        self.data.register(self.rng, "augmentation")
        self.data.collect()
        self.data.save(str(saved / "data_{seq:03d}.json"))
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state | {"steps": self.steps}, saved / "model.pt")

    def load(self, saved: Path) -> None:
        self.data.load(str(saved / "data_{seq:03d}.json"))
        self.data.register(self.reader, "reader")  # this restores its state
        self.data.register(self.rng, "augmentation")
        state = torch.load(saved / "model.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = state["steps"]

    def train(self, steps: int) -> None:
        """Train epoch after epoch until there were `steps` steps in total."""
        while self.steps < steps:
            for jpegs, labels in self.reader.next_epoch(batch_size=6):
                images = augmented(jpegs, self.device, 32, self.rng).torch().to("cpu")
                targets = labels.torch().flatten().long()
                loss = torch.nn.functional.cross_entropy(self.model(images), targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.steps += 1
                if self.steps == steps:
                    break

    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def main() -> None:
    parser = arguments(__doc__, per_class=8, size=48)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--cut-at", type=int, default=6)
    chosen = parser.parse_args()
    root, saved = folder(chosen), Path(tempfile.mkdtemp())
    whole = Run(root, chosen.device)
    whole.train(chosen.steps)

    cut = Run(root, chosen.device)
    cut.train(chosen.cut_at)
    cut.save(saved)

    resumed = Run(root, chosen.device)
    resumed.load(saved)
    assert not torch.equal(whole.weights(), resumed.weights())
    resumed.train(chosen.steps)
    assert torch.equal(whole.weights(), resumed.weights())
    print(f"cut off after {chosen.cut_at} of {chosen.steps} steps, resumed: the same weights")


if __name__ == "__main__":
    main()
