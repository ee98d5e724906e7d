"""Train from TFRecord files, as ImageNet is often stored: write them, index them, read and augment.

The files are written here without TensorFlow: a record is a message with an encoded picture and its
label. The indexes are those of `python -m ndd index tfrecord FILES…`; without them, the reader goes
through the files once.
"""

from __future__ import annotations

import struct
from pathlib import Path

import torch
from data import CLASSES, arguments, folder
from train import augmented, plain, small_model

import ndd
from ndd.cli.index import index

FEATURES = {
    "image/encoded": ndd.tfrecord.FixedLenFeature((), ndd.tfrecord.string, ""),
    "image/class/label": ndd.tfrecord.FixedLenFeature([1], ndd.tfrecord.int64, -1),
}
_POLYNOMIAL = 0x82F63B78


def checksum(data: bytes) -> bytes:
    """The masked CRC-32C that follows lengths and data."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    value ^= 0xFFFFFFFF
    masked = ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<I", masked)


def varint(number: int) -> bytes:
    """A number in groups of seven bits."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(jpeg: bytes, label: int) -> bytes:
    """An Example message: a map from names to lists of strings (1) or integers (3)."""
    values = {
        "image/encoded": field(1, field(1, jpeg)),
        "image/class/label": field(3, field(1, varint(label))),
    }
    entries = (field(1, name.encode()) + field(2, value) for name, value in values.items())
    return field(1, b"".join(field(1, entry) for entry in entries))


def write_records(root: Path, target: Path, files: int) -> list[str]:
    """Write a folder of folders of pictures into a few TFRecord files, mixed, and index them."""
    pictures = [(p, k) for k, name in enumerate(CLASSES) for p in sorted((root / name).iterdir())]
    paths = [target / f"{root.name}-{k:05d}-of-{files:05d}" for k in range(files)]
    for k, path in enumerate(paths):
        with path.open("wb") as file:
            for picture, label in pictures[k::files]:
                data = example(picture.read_bytes(), label)
                length = struct.pack("<Q", len(data))
                file.write(length + checksum(length) + data + checksum(data))
    index("tfrecord", [str(p) for p in paths], None)
    return [str(p) for p in paths]


def reader(paths: list[str], **options) -> ndd.readers.TFRecord:
    indexes = [f"{path}.idx" for path in paths]
    return ndd.readers.TFRecord(path=paths, index_path=indexes, features=FEATURES, **options)


def main() -> None:
    parser = arguments(__doc__, per_class=32, size=48)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--resolution", type=int, default=40)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    rng = ndd.random.RNG(seed=0)
    root, test_root = folder(chosen), folder(chosen, seed=1)
    train = reader(write_records(root, root, 4), random_shuffle=True, last_batch="drop")
    test = reader(write_records(test_root, test_root, 2), last_batch="partial", verify_crc=True)
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(chosen.epochs):
        model.train()
        for item in train.next_epoch(batch_size=chosen.batch_size):
            jpegs, labels = item["image/encoded"], item["image/class/label"]
            images = augmented(jpegs, chosen.device, chosen.resolution, rng).torch()
            loss = torch.nn.functional.cross_entropy(model(images), labels.torch().flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        right = total = 0
        with torch.no_grad():
            for item in test.next_epoch(batch_size=chosen.batch_size):
                images = plain(item["image/encoded"], chosen.device, chosen.resolution).torch()
                targets = item["image/class/label"].torch().flatten()
                right += int((model(images).argmax(1) == targets).sum())
                total += len(targets)
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / total:.3f} of {total}")


if __name__ == "__main__":
    main()
