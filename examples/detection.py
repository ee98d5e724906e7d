"""Augment pictures and their boxes together, as SSD does, and encode the boxes for its anchors.

Every step that moves pixels has a partner that moves boxes. The program checks that by drawing: it
paints the boxes before the augmentation, sends the painted pictures the same way, and compares the
rectangles that arrive with those that the boxes describe.
"""

from __future__ import annotations

import argparse

import numpy as np

import ndd

NEAREST = ndd.types.INTERP_NN


def scene(height: int, width: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """A picture with up to four coloured rectangles, one in each quarter; boxes and labels."""
    image = rng.integers(90, 130, (height, width, 3)).astype(np.uint8)
    boxes = []
    for quarter in rng.permutation(4)[: rng.integers(1, 5)]:
        low, high = np.sort(rng.uniform(0.02, 0.48, (2, 2)), axis=0) + 0.5 * np.array(
            [quarter % 2, quarter // 2]
        )
        high = np.maximum(high, low + 0.15)
        left, top, right, bottom = (
            int(v) for v in np.rint([*low, *high] * np.tile([width, height], 2))
        )
        image[top:bottom, left:right] = rng.integers(0, 256, 3)
        boxes.append([left / width, top / height, min(right / width, 1), min(bottom / height, 1)])
    return image, np.float32(boxes), np.arange(1, len(boxes) + 1, dtype=np.int32)


def painted(image: np.ndarray, boxes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """A map of the picture's size with every box filled with its label."""
    height, width = image.shape[:2]
    canvas = np.zeros((height, width, 1), np.uint8)
    for box, label in zip(boxes, labels, strict=True):
        left, top, right, bottom = np.rint(box * np.tile([width, height], 2)).astype(int)
        canvas[top:bottom, left:right] = label
    return canvas


def augment(pictures, boxes, labels, size: int, rng: ndd.random.RNG):
    """Move several pictures of each scene, with its boxes: zoom out, crop, mirror, turn, resize.

    `pictures` is a list of (batch, interpolation, fill value).
    """
    n = boxes.batch_size
    place = {
        "ratio": ndd.random.uniform(range=[1.0, 1.6], batch_size=n, rng=rng),
        "paste_x": ndd.random.uniform(range=[0.0, 1.0], batch_size=n, rng=rng),
        "paste_y": ndd.random.uniform(range=[0.0, 1.0], batch_size=n, rng=rng),
    }
    boxes = ndd.bbox_paste(boxes, ltrb=True, **place)
    start, shape, boxes, labels = ndd.random_bbox_crop(
        boxes, labels, thresholds=[0.0, 0.1, 0.3], scaling=[0.5, 1.0], aspect_ratio=[0.5, 2.0],
        total_num_attempts=50, quiet=True, rng=rng,
    )  # fmt: skip
    mirror = ndd.random.coin_flip(batch_size=n, rng=rng)
    boxes = ndd.bb_flip(boxes, horizontal=mirror, ltrb=True)
    angle = ndd.random.uniform(values=[0.0, 90.0, 180.0, 270.0], batch_size=n, rng=rng)
    moved = []
    for batch, interpolation, fill in pictures:
        x = ndd.paste(batch, fill_value=fill, **place)
        x = ndd.slice(x, start, shape, axis_names="WH")
        x = ndd.flip(x, horizontal=mirror)
        extents = ndd.batch([np.int32(s[:2]) for s in x.shape])
        x = ndd.rotate(x, angle=angle, interp_type=interpolation)
        moved.append(ndd.resize(x, size=[size, size], interp_type=interpolation, antialias=False))
    boxes, labels = ndd.bbox_rotate(boxes, labels, angle=angle, input_shape=extents)
    return moved, boxes, labels, extents


def anchors(cells: int = 8) -> list[float]:
    """Squares of two sizes around the centres of a grid."""
    centres = (np.arange(cells) + 0.5) / cells
    y, x = np.meshgrid(centres, centres, indexing="ij")
    found = [np.stack([x - r, y - r, x + r, y + r], axis=-1).reshape(-1, 4) for r in (0.1, 0.25)]
    return np.concatenate(found).clip(0, 1).reshape(-1).tolist()


def check(maps, boxes, labels, extents, size: int) -> int:
    """Compare what was painted before with the boxes after; returns the number of boxes."""
    seen = 0
    for canvas, b, names, extent in zip(maps, boxes, labels, extents, strict=True):
        # A box may lie beside its pixels by one pixel of the cropped picture, which was enlarged.
        allowed = 1.5 * size / min(extent) + 1
        for box, name in zip(b, names, strict=True):
            rows, columns = np.nonzero(canvas[..., 0] == name)
            if len(rows) == 0:  # thinner than a pixel
                assert ((box[2:] - box[:2]) * size <= allowed).any()
                continue
            drawn = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            assert np.abs(drawn - box * size).max() <= allowed, (drawn, box * size, allowed)
            inside = canvas[drawn[1] : drawn[3], drawn[0] : drawn[2], 0]
            assert (inside == name).all(), "the box holds something else"
            seen += 1
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--resolution", type=int, default=128)
    chosen = parser.parse_args()
    rng, draws = ndd.random.RNG(seed=1), np.random.default_rng(1)
    seen = matched = 0
    for _ in range(chosen.batches):
        scenes = [scene(*draws.integers(80, 160, 2), draws) for _ in range(chosen.batch_size)]
        maps = [painted(*s) for s in scenes]
        image, boxes, labels = zip(*scenes, strict=True)
        pictures = [
            (ndd.batch(list(image), layout="HWC", device=chosen.device),
             ndd.types.INTERP_LINEAR, [114, 114, 114]),
            (ndd.batch(maps, layout="HWC", device=chosen.device), NEAREST, [0]),
        ]  # fmt: skip
        (images, canvases), boxes, labels, extents = augment(
            pictures, ndd.batch(list(boxes)), ndd.batch(list(labels)), chosen.resolution, rng
        )
        _, classes = ndd.box_encoder(boxes, labels, anchors=anchors())
        batch = ndd.cast(images, dtype=ndd.float32) / 255.0
        numbers = [
            [np.array(t) for t in x.cpu().tensors] for x in (canvases, boxes, labels, extents)
        ]
        seen += check(*numbers, chosen.resolution)
        matched += sum(int((np.array(c) > 0).sum()) for c in classes.tensors)
    print(f"{seen} boxes lie where their rectangles were painted")
    print(f"batches of {len(batch.shape)} × {tuple(batch.shape[0])}, {matched} anchors with a box")


if __name__ == "__main__":
    main()
