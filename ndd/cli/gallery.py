"""`python -m ndd gallery`: writes a picture for every image op, and a page with all of them."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import ndd

from ..core.schema import OPS, REQUIRED, OpDef
from ..tools.explain import counted
from ..tools.outputs import write_output
from ..tools.photos import drawing
from ..tools.progress import progress
from ..tools.showing import Picture, show

HEIGHT, WIDTH, PHOTOS = 120, 160, 3
RNG = "rng=ndd.random.RNG(seed=1)"

# Arguments with a visible effect. Image ops that are not listed are called with their defaults.
_FRAMES = "ndd.stack(x, ndd.flip(x), ndd.hue(x, hue=120), axis_name='F')"
# What takes the place of the photos.
INPUTS = {"debayer": "x.slice[:, :, :1]", "element_extract": _FRAMES, "sequence_rearrange": _FRAMES}
ARGUMENTS = {
    "auto_augment.auto_augment": f"'image_net', {RNG}",
    "auto_augment.rand_augment": f"n=2, m=15, {RNG}",
    "auto_augment.trivial_augment": RNG,
    "brightness": "brightness=1.6",
    "brightness_contrast": "brightness=1.2, contrast=1.8",
    "cat": "ndd.flip(x), axis=1",
    "clahe": "tiles_x=4, tiles_y=4, clip_limit=4.0",
    "color_space_conversion": "image_type='RGB', output_type='BGR'",
    "color_twist": "hue=120, saturation=1.5, contrast=1.3",
    "contrast": "contrast=2.0",
    "crop": "crop=[80, 80], crop_pos_x=0.2",
    "crop_mirror_normalize": "mean=[124, 116, 104], std=[58, 57, 57], mirror=1",
    "debayer": "blue_position=[0, 0]",
    "decoders.image": "output_type='GRAY'",
    "decoders.image_crop": "crop=[80, 80], crop_pos_x=0.2",
    "decoders.image_random_crop": f"random_area=[0.2, 0.6], {RNG}",
    "decoders.image_slice": "rel_start=[0.1, 0.3], rel_end=[0.9, 0.8], axis_names='HW'",
    "element_extract": "element_map=[1]",
    "erase": "anchor=[30, 40, 70, 90], shape=[40, 30, 20, 50], fill_value=255.0",
    "experimental.remap": "*maps",
    "experimental.resize": "size=[60, 60]",
    "experimental.warp_perspective": "matrix=[[1.2, 0.3, -20], [0.1, 1.1, -5], [0.001, 0.002, 1]]",
    "filter": "np.float32([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])",
    "gaussian_blur": "sigma=3.0",
    "grid_mask": "tile=24, ratio=0.5, angle=0.3",
    "hsv": "hue=200, saturation=1.2, value=0.9",
    "hue": "hue=90",
    "jitter": f"nDegree=6, {RNG}",
    "jpeg_compression_distortion": "quality=3",
    "laplacian": "window_size=5, scale=0.1, dtype=ndd.float32",
    "lookup_table": "keys=range(256), values=range(255, -1, -1), dtype=ndd.uint8",
    "multi_paste": "in_ids=[0, 1], out_anchors=[[0, 0], [50, 70]], shapes=[[60, 80], [60, 80]]",
    "noise.gaussian": f"stddev=40, {RNG}",
    "noise.salt_and_pepper": f"prob=0.1, {RNG}",
    "noise.shot": f"factor=30, {RNG}",
    "normalize": "axis_names='HW'",
    "pad": "fill_value=128, axes=[0, 1], shape=[140, 200]",
    "paste": "fill_value=(200, 80, 40), ratio=1.4",
    "permute_batch": "indices=[2, 0, 1]",
    "random_resized_crop": f"size=[80, 80], random_area=[0.2, 0.6], {RNG}",
    "resize": "size=[60, 120]",
    "resize_crop_mirror": "resize_shorter=90, crop=[80, 80], mirror=1",
    "rotate": "angle=30, fill_value=0",
    "saturation": "saturation=0.2",
    "sequence_rearrange": "new_order=[2, 0, 1, 0]",
    "slice": "rel_start=[-0.3, 0.2], rel_end=[1.1, 1.4], axis_names='HW', "
    "out_of_bounds_policy='reflect'",
    "stack": "ndd.flip(x), axis_name='F'",
    "tensor_resize": "sizes=[60, 60], axes=[0, 1]",
    "transpose": "perm=[1, 0, 2], transpose_layout=False",
    "warp_affine": "matrix=[[1, 0.4, -30], [0, 1, 0]], fill_value=0",
}


def is_image_op(op: OpDef) -> bool:
    """Whether an op gets a picture: it takes an image, or its arguments are listed above."""
    return op.name in ARGUMENTS or "HWC" in op.layouts


def needs_arguments(op: OpDef) -> bool:
    """Whether an op cannot be called with an image alone."""
    return len(op.data) != 1 or any(p.default is REQUIRED for p in op.others)


def call_text(name: str) -> str:
    """The source of the call that the page shows."""
    arguments = ARGUMENTS.get(name, "")
    x = "files" if name.startswith("decoders.") else INPUTS.get(name, "x")
    return f"ndd.{name}({x}, {arguments})" if arguments else f"ndd.{name}({x})"


def photos() -> Any:
    """The photos that the ops are applied to."""
    return ndd.batch([drawing(HEIGHT, WIDTH, i) for i in range(PHOTOS)], layout="HWC")


def apply(name: str, x: Any) -> Any:
    """Run the call that the page shows."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    wave = 6 * np.sin(rows / 9)
    maps = [ndd.Batch.broadcast(ndd.tensor(m, layout="HW"), PHOTOS) for m in (columns + wave, rows)]
    # `eval` runs only calls from our own table, and the page shows exactly what ran.
    return eval(call_text(name), {"ndd": ndd, "np": np, "x": x, "maps": maps, "files": _files(x)})


def _files(x: Any) -> Any:
    """The photos as encoded files."""
    files = [Picture(np.asarray(photo)).png() for photo in x.tensors]
    return ndd.batch([np.frombuffer(f, np.uint8) for f in files])


def picture(x: Any, result: Any) -> Picture:
    """Photos in the first row, results in the second."""
    before, after = show(x, columns=PHOTOS).array, show(result, columns=PHOTOS).array
    width = max(before.shape[1], after.shape[1])
    rows = [np.pad(r, ((0, 8), (0, width - r.shape[1]), (0, 0)), constant_values=255)
            for r in (before, after)]  # fmt: skip
    return Picture(np.concatenate(rows)[:-8])


def gallery(folder: str | Path, names: Iterable[str] = ()) -> int:
    """Write a picture for each named op, or for all, and `index.html`."""
    known = {op.name: op for op in OPS.values() if is_image_op(op)}
    chosen = sorted(names) or sorted(known)
    for name in chosen:
        if name not in known:
            raise SystemExit(f"gallery: {name!r} has no picture; known: {', '.join(sorted(known))}")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    x = photos()
    parts = [_HEAD]
    for name in progress(chosen, len(chosen), "gallery"):
        result = apply(name, x).evaluate()
        picture(x, result).save(target / f"{name}.png")
        parts.append(_entry(known[name], result))
    write_output(target / "index.html", "\n".join(parts))
    print(f"{counted(len(chosen), 'picture')}: {(target / 'index.html').resolve()}")
    return 0


_HEAD = """<!doctype html><meta charset="utf-8"><title>ndd: image ops</title>
<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}img{display:block}</style>
<h1>Image ops</h1>"""


def _entry(op: OpDef, result: Any) -> str:
    name, call = html.escape(op.name), html.escape(call_text(op.name))
    summary = html.escape(op.doc.splitlines()[0])
    kernels = html.escape(", ".join(ndd.explain(result).kernels))
    return (
        f'<h2 id="{name}">{name}</h2><p>{summary}</p><p><code>{call}</code></p>'
        f'<img src="{name}.png" alt="{call}"><p><small>{kernels}</small></p>'
    )
