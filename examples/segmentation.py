"""Augment pictures and their masks together: the same random geometry for both.

A random object of the label map decides where to crop. Pictures are interpolated, masks take the
nearest label, and only pictures change their colours. The program checks that by drawing: masks
painted as pictures before the augmentation equal those painted after it, pixel by pixel.
"""

from __future__ import annotations

import argparse

import numpy as np

import ndd

COLOURS = np.array([[40, 40, 40], [230, 30, 30], [30, 200, 60], [40, 60, 240]], np.uint8)


def scene(height: int, width: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A noisy picture of discs in three colours, and its label map."""
    y, x = np.mgrid[0:height, 0:width]
    mask = np.zeros((height, width, 1), np.uint8)
    for _ in range(rng.integers(2, 7)):
        centre, radius = (
            rng.uniform(0, [height, width]),
            rng.uniform(0.08, 0.25) * min(height, width),
        )
        mask[(y - centre[0]) ** 2 + (x - centre[1]) ** 2 < radius**2] = rng.integers(
            1, len(COLOURS)
        )
    noisy = COLOURS[mask[..., 0]] + rng.normal(0, 10, (height, width, 3))
    return noisy.clip(0, 255).astype(np.uint8), mask


def painted(mask: np.ndarray) -> np.ndarray:
    """A label map as a picture."""
    return COLOURS[mask[..., 0]]


def geometry(masks, crop: int, rng: ndd.random.RNG):
    """Draw a geometry for every sample; returns a function that applies it to a batch."""
    n = masks.batch_size
    extents = ndd.batch([np.int32(s[:2]) for s in masks.shape])
    labels = ndd.squeeze(masks, axes=[2])
    start, shape = ndd.segmentation.random_object_bbox(
        labels, threshold=[4, 4], k_largest=3, foreground_prob=0.8, rng=rng
    )
    corner = ndd.roi_random_crop(
        crop_shape=[crop, crop], in_shape=extents, roi_start=start, roi_shape=shape, rng=rng
    )
    mirror = ndd.random.coin_flip(batch_size=n, rng=rng)
    angle = ndd.random.uniform(range=[-30.0, 30.0], batch_size=n, rng=rng)

    def move(x, size: int, interpolation):
        x = ndd.slice(x, start=corner, shape=[crop, crop], axes=[0, 1])
        x = ndd.flip(x, horizontal=mirror)
        x = ndd.rotate(x, angle=angle, keep_size=True, interp_type=interpolation, fill_value=40)
        return ndd.resize(x, size=[size, size], interp_type=interpolation, antialias=False)

    return move


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--resolution", type=int, default=96)
    chosen = parser.parse_args()
    rng, draws = ndd.random.RNG(seed=2), np.random.default_rng(2)
    pixels = objects = 0
    for _ in range(chosen.batches):
        scenes = [scene(*draws.integers(90, 150, 2), draws) for _ in range(chosen.batch_size)]
        image, mask = (list(part) for part in zip(*scenes, strict=True))
        place = {"layout": "HWC", "device": chosen.device}
        masks = ndd.batch(mask, **place)
        move = geometry(masks, 64, rng)
        images = move(ndd.batch(image, **place), chosen.resolution, ndd.types.INTERP_LINEAR)
        images = ndd.color_twist(
            images,
            brightness=ndd.random.uniform(range=[0.8, 1.2], batch_size=len(mask), rng=rng),
            hue=ndd.random.uniform(range=[-10.0, 10.0], batch_size=len(mask), rng=rng),
        )
        nearest = ndd.types.INTERP_NN
        after = move(masks, chosen.resolution, nearest)
        before = move(ndd.batch([painted(m) for m in mask], **place), chosen.resolution, nearest)
        for labels, picture in zip(after.cpu().tensors, before.cpu().tensors, strict=True):
            labels, picture = np.array(labels), np.array(picture)
            known = labels[..., 0] < len(COLOURS)  # 40 marks what lies outside of the crop
            assert (picture[~known] == 40).all()
            assert (painted(np.where(known[..., None], labels, 0)) == picture).all()
            pixels += int(known.sum())
            objects += len(np.unique(labels[known])) - 1
        batch = ndd.transpose(ndd.cast(images, dtype=ndd.float32) / 255.0, perm=[2, 0, 1])
    print(f"{pixels} pixels have the colours of their labels, {objects} classes in view")
    print(f"batches of {len(batch.shape)} × {tuple(batch.shape[0])} with masks of the same size")


if __name__ == "__main__":
    main()
