"""Train a detector on a COCO data set: pictures and boxes from `readers.COCO`, to torch.

The pictures are generated: discs and stripes on grey, and a JSON file with their boxes. The
detector says for each cell of a grid whether the centre of an object lies there, and of which kind.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from data import CLASSES, draw, jpeg_encoder

import ndd

GRID = 8
MEAN, STD = [124, 116, 104], [58, 57, 57]


def write_data_set(root: Path, count: int, seed: int = 0) -> Path:
    """Write pictures with one to three objects, and their annotations; returns the JSON file."""
    rng, encode = np.random.default_rng(seed), jpeg_encoder()
    images, annotations = [], []
    for k in range(count):
        height, width = (int(n) for n in rng.integers(96, 160, 2))
        picture = rng.normal(120, 6, (height, width, 3)).clip(0, 255).astype(np.uint8)
        for quarter in rng.permutation(4)[: rng.integers(1, 4)]:
            y = int(quarter // 2 * height // 2 + rng.integers(2, height // 16))
            x = int(quarter % 2 * width // 2 + rng.integers(2, width // 16))
            h, w = int(height * rng.uniform(0.25, 0.4)), int(width * rng.uniform(0.25, 0.4))
            kind = int(rng.integers(len(CLASSES)))
            picture[y : y + h, x : x + w] = draw(CLASSES[kind], h, w, rng)
            annotations.append({"id": len(annotations), "image_id": k, "category_id": 10 + kind,
                                "bbox": [x, y, w, h], "iscrowd": 0})  # fmt: skip
        (root / f"{k:05d}.jpg").write_bytes(encode(picture))
        images.append({"id": k, "file_name": f"{k:05d}.jpg", "height": height, "width": width})
    categories = [{"id": 10 + k, "name": name} for k, name in enumerate(CLASSES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    path = root / "instances.json"
    path.write_text(json.dumps(content))
    return path


def augmented(jpegs, boxes, labels, size: int, device: str, rng: ndd.random.RNG):
    """Crop and mirror pictures with their boxes; returns what torchvision's models take."""
    n = jpegs.batch_size
    start, shape, boxes, labels = ndd.random_bbox_crop(
        boxes, labels, thresholds=[0.0, 0.5, 0.9], scaling=[0.6, 1.0], aspect_ratio=[0.7, 1.4],
        total_num_attempts=50, quiet=True, rng=rng,
    )  # fmt: skip
    mirror = ndd.random.coin_flip(batch_size=n, rng=rng)
    boxes = ndd.bb_flip(boxes, horizontal=mirror, ltrb=True)
    x = ndd.slice(ndd.decoders.image(jpegs, device=device), start, shape, axis_names="WH")
    x = ndd.resize(x, size=[size, size])
    images = ndd.crop_mirror_normalize(x, mirror=mirror, mean=MEAN, std=STD).torch()
    targets = [
        {"boxes": torch.tensor(np.array(b)), "labels": torch.tensor(np.array(c)).long()}
        for b, c in zip(boxes.tensors, labels.tensors, strict=True)
    ]
    return images, targets


def plain(jpegs, boxes, labels, size: int, device: str):
    x = ndd.resize(ndd.decoders.image(jpegs, device=device), size=[size, size])
    images = ndd.crop_mirror_normalize(x, mean=MEAN, std=STD).torch()
    pairs = zip(boxes.tensors, labels.tensors, strict=True)
    return images, [{"boxes": torch.tensor(np.array(b)), "labels": torch.tensor(np.array(c)).long()}
                    for b, c in pairs]  # fmt: skip


def cells(targets: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """The label of the object whose centre lies in each cell; 0 where there is none."""
    found = torch.zeros(len(targets), GRID, GRID, dtype=torch.long)
    for k, target in enumerate(targets):
        centres = (target["boxes"][:, :2] + target["boxes"][:, 2:]) / 2
        columns, rows = (centres * GRID).long().clamp(0, GRID - 1).T
        found[k, rows, columns] = target["labels"]
    return found


def detector() -> torch.nn.Module:
    """Convolutions down to the grid, with views wide enough for an object."""
    layers: list[torch.nn.Module] = []
    for before, after, kernel in ((3, 16, 5), (16, 32, 5), (32, 32, 5)):
        layers.append(torch.nn.Conv2d(before, after, kernel, 2, kernel // 2))
        layers += [torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    layers += [torch.nn.Conv2d(32, 32, 5, 1, 2), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Conv2d(32, 1 + len(CLASSES), 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--pictures", type=int, default=192)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    rng, size = ndd.random.RNG(seed=0), 8 * GRID
    with tempfile.TemporaryDirectory() as train_root, tempfile.TemporaryDirectory() as test_root:
        roots = Path(train_root), Path(test_root)
        files = [write_data_set(r, chosen.pictures // (k + 1), k) for k, r in enumerate(roots)]
        # Boxes are left, top, right, bottom, relative to the picture; categories become 1, 2, 3.
        train, test = (
            ndd.readers.COCO(
                file_root=root, annotations_file=file, ltrb=True, ratio=True, skip_empty=True,
                random_shuffle=last == "drop", last_batch=last,
            )
            for root, file, last in zip(roots, files, ("drop", "partial"), strict=True)
        )  # fmt: skip
        model = detector()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        weight = torch.tensor([0.1] + [1.0] * len(CLASSES))  # most cells are empty
        for epoch in range(chosen.epochs):
            model.train()
            for item in train.next_epoch(batch_size=chosen.batch_size):
                images, targets = augmented(*item, size, chosen.device, rng)
                loss = torch.nn.functional.cross_entropy(model(images), cells(targets), weight)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            right = total = 0
            with torch.no_grad():
                for item in test.next_epoch(batch_size=chosen.batch_size):
                    images, targets = plain(*item, size, chosen.device)
                    wanted = cells(targets)
                    is_object = wanted > 0
                    guess = model(images)[:, 1:].argmax(1) + 1
                    right += int((guess == wanted)[is_object].sum())
                    total += int(is_object.sum())
            print(f"epoch {epoch}: loss {loss.item():.3f}, {right} of {total} objects recognised")


if __name__ == "__main__":
    main()
