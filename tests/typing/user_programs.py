"""Programs as users write them, for mypy and pyright (`make lint`); nothing here is run.

`assert_type` pins what a checker infers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np

import ndd
from ndd.typing import DeviceLike, DTypeLike, TensorLike


def classification(root: Path, epochs: int) -> None:
    reader = ndd.readers.File(file_root=root, random_shuffle=True, shard_id=0, num_shards=2)
    for _ in range(epochs):
        for jpegs, labels in reader.next_epoch(batch_size=64, progress=True):
            assert_type(jpegs, ndd.Batch)
            x = ndd.decoders.image(jpegs, device="gpu")
            x = ndd.resize(x, size=[224, 224])
            x = ndd.crop_mirror_normalize(x, mean=[124.0, 116.0, 104.0], std=[58.0, 57.0, 57.0])
            assert_type(x, ndd.Batch)
            print(x.torch(), labels.torch(copy=True))


def single_samples(root: str) -> None:
    for jpeg, label in ndd.readers.File(file_root=root).next_epoch():
        assert_type(jpeg, ndd.Tensor)
        image = ndd.decoders.image(jpeg, output_type="RGB", dtype="uint8")
        assert_type(image, ndd.Tensor)
        print(image.shape[0], label.item(), np.asarray(image).mean())


def random_augmentation(x: ndd.Batch) -> ndd.Batch:
    ndd.random.set_seed(42)
    geometry, colour = ndd.random.RNG(seed=1), ndd.random.RNG(seed=2)
    angle = ndd.random.uniform(batch_size=8, range=(-10, 10), rng=geometry)
    assert_type(angle, ndd.Batch)
    x = ndd.rotate(x, angle=angle, fill_value=0, interp_type=ndd.types.INTERP_LINEAR)
    x = ndd.color_twist(x, hue=ndd.random.normal(batch_size=8, stddev=10.0, rng=colour))
    x = ndd.flip(x, horizontal=ndd.random.coin_flip(batch_size=8))
    return ndd.random_resized_crop(x, size=[224, 224], rng=geometry)


def tensors_and_batches(image: np.ndarray[Any, Any]) -> None:
    t = ndd.tensor(image, layout="HWC", dtype=ndd.float32)
    one = ndd.random.uniform(range=[0.0, 1.0])
    assert_type(one, ndd.Tensor)
    assert_type(ndd.flip(t), ndd.Tensor)
    ndd.flip(image, horizontal=1).evaluate()
    assert_type(ndd.rotate(t, angle=30), ndd.Tensor)
    assert_type(ndd.rotate(t, angle=one), ndd.Tensor)
    assert_type(ndd.rotate(t, angle=ndd.batch([1.0, 2.0])), ndd.Batch)
    assert_type(ndd.flip(t, batch_size=4), ndd.Batch)
    assert_type(ndd.zeros(shape=[2, 3]), ndd.Tensor)
    assert_type(ndd.zeros(shape=[2, 3], batch_size=4), ndd.Batch)
    b = ndd.as_batch([t, t])
    assert_type(b.tensors[0].cpu(), ndd.Tensor)
    assert_type(b.tensors[1:], ndd.Batch)
    assert_type(b.select([0, 1]), ndd.Batch)
    assert_type(ndd.cast(b, dtype=np.float32), ndd.Batch)
    assert_type(ndd.cast(b, dtype="bfloat16"), ndd.Batch)
    assert_type(ndd.cast(b, dtype=float), ndd.Batch)
    assert_type(ndd.stack(t, t, axis=0), ndd.Tensor)
    assert_type(ndd.cat(b, b), ndd.Batch)
    assert_type(b.slice[0, 1:].evaluate(), ndd.Batch)
    for sample in b:
        assert_type(sample, ndd.Tensor)


def arithmetic(t: ndd.Tensor, b: ndd.Batch) -> None:
    assert_type((t * 2 + 1) / 255.0, ndd.Tensor)
    assert_type(1 - t, ndd.Tensor)
    assert_type(-b // 2 % 3, ndd.Batch)
    assert_type(t + b, ndd.Batch)
    assert_type(b + t, ndd.Batch)
    assert_type(b > 3, ndd.Batch)
    assert_type(b == b, ndd.Batch)
    assert_type(abs(t) ** 2, ndd.Tensor)
    assert_type(t[1:3, ..., 0], ndd.Tensor)
    assert_type(ndd.math.clamp(t, 0, 1), ndd.Tensor)
    assert_type(ndd.math.max(t, b), ndd.Batch)
    mean: float = float(t[0]) + t.item()
    print(mean, int(t), bool(t))


def several_results(x: ndd.Batch, boxes: ndd.Batch, labels: ndd.Batch) -> None:
    resized, extents = ndd.resize(x, size=[10, 10], save_attrs=True)
    assert_type(extents, ndd.Batch)
    assert_type(ndd.resize(x, resize_shorter=256, mode="not_smaller"), ndd.Batch)
    anchor, shape = ndd.random_crop_generator(ndd.tensor([480, 640]))
    assert_type(anchor, ndd.Tensor)
    assert_type(
        ndd.slice(resized, anchor, shape, axes=[0, 1], out_of_bounds_policy="pad"), ndd.Batch
    )
    turned, kept = ndd.bbox_rotate(boxes, labels, angle=10.0, input_shape=[10, 10])
    assert_type(turned, ndd.Batch)
    assert_type(ndd.bbox_rotate(boxes, angle=10.0, input_shape=[10, 10], mode="fixed"), ndd.Batch)
    print(kept)


def geometry(x: ndd.Tensor) -> None:
    matrix = ndd.transforms.rotation(angle=30.0, center=[4.0, 4.0])
    matrix = ndd.transforms.translation(matrix, offset=[1.0, 2.0])
    assert_type(matrix, ndd.Tensor)
    assert_type(ndd.warp_affine(x, matrix=matrix, size=[64, 64]), ndd.Tensor)
    warped = ndd.experimental.warp_perspective(x, matrix=[[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    assert_type(warped, ndd.Tensor)
    assert_type(ndd.crop(x, crop=[4, 4], rounding="truncate", dtype=ndd.uint8), ndd.Tensor)


def contexts(device: DeviceLike, kind: DTypeLike, x: TensorLike) -> None:
    ndd.set_num_threads(4)
    with ndd.EvalMode.deferred, ndd.EvalContext(num_threads=2), ndd.Device("cpu"):
        y = ndd.cast(x, dtype=kind, device=device)
        print(ndd.explain(y).kernels, y.dtype.name, y.layout)
        ndd.show(y, "out.png", columns=4)
    if ndd.EvalMode.deferred < ndd.EvalMode.eager:
        y.evaluate()


def checkpoints(root: Path) -> None:
    reader = ndd.readers.File(file_root=root, enable_checkpointing=True)
    ckpt = ndd.checkpoint.Checkpoint()
    ckpt.load("run_{seq:04d}.json")
    ckpt.register(reader, "train")
    ckpt.register(ndd.random.RNG(seed=3), "geometry")
    ckpt.collect()
    print(ckpt.save("run_{seq:04d}.json"))


def files(paths: list[str]) -> None:
    assert_type(ndd.imread(paths[0]), ndd.Tensor)
    assert_type(ndd.imread(paths), ndd.Batch)
    assert_type(ndd.io.file.read(paths), ndd.Batch)
    source = ndd.ExternalSource(lambda: np.zeros(3, np.uint8))
    print(source(batch_size=3))
