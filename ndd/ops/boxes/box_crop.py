"""Random windows of images that keep boxes: random_bbox_crop."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np

from ...core import convert
from ...core.schema import arg, data, geometry, op, static
from ...fusion.graph.node import Node, source
from ...fusion.graph.shapes import Array, Shapes
from ...fusion.graph.storage import Storage, address_of, array_at
from ...kernels.common.buffers import POOL
from ...kernels.common.memo import memoized
from ...kernels.cpu.annotations import window_slots as at
from ...kernels.cpu.helpers import function
from ...kernels.ir import dtypes as dt
from ...runtime.rng import Draw, draw_of
from ..geometry.window import on_device
from ..random.crop import RNG_DOC
from .annotated import kept_rows, packed_on_host

# Upstream never stops if no window satisfies the arguments. This many attempts take about 15 ms.
_ENDLESS = 1 << 16
_ENDS = {2: "xyXY", 3: "xyzXYZ"}
_SIZES = {2: "xyWH", 3: "xyzWHD"}
_EXTENTS = {2: "WH", 3: "WHD"}


@op.graph(
    sample="""rng = ndd.random.RNG(seed=1234)
boxes = ndd.tensor([[0.1, 0.2, 0.5, 0.7], [0.6, 0.6, 0.9, 0.8]])
start, shape, kept = ndd.random_bbox_crop(boxes, scaling=[0.5, 1.0], thresholds=[0.1], rng=rng)
start.shape, shape.shape, kept.shape[1]
=((2,), (2,), 4)""",
    outputs=None,
)
def random_bbox_crop(
    boxes=data("Boxes [n, 4], or [n, 6] of volumes: relative coordinates, float32."),
    labels=arg(int, None, "Labels [n, …] of the boxes, removed with their boxes.", any_shape=True,
               positional=True),
    all_boxes_above_threshold=static(bool, True, "Whether all boxes must reach the threshold, or "
                                     "only one of them."),
    allow_no_crop=static(bool, True, "Whether the whole image is one of the choices, beside the "
                         "thresholds; no effect with `crop_shape`."),
    aspect_ratio=static("floats", (1.0, 1.0), "Range of width / height; in volumes one range for "
                        "x/y, x/z and y/z, or three. In pixels if `input_shape` is given, else "
                        "relative to the image's own ratio."),
    bbox_layout=static(str, None, "Meaning of the coordinates: a permutation of xyXY or xyWH, in "
                       "volumes of xyzXYZ or xyzWHD. xyXY or xyzXYZ if omitted."),
    bbox_prune_threshold=static(float, None, "Keep boxes with at least this share of their area in "
                                "the window; those with their centre in it if omitted."),
    crop_shape=geometry(int, None, "Shape of the window in pixels.", vector=True),
    input_shape=geometry(int, None, "Shape of the image in pixels.", vector=True),
    ltrb=static(bool, None, "Old form of `bbox_layout`: xyXY if True, xyWH if False."),
    num_attempts=static(int, 1, "Windows to try before another threshold is chosen."),
    output_bbox_indices=static(bool, False, "Whether to return also the indices of the boxes that "
                               "remain."),
    quiet=static(bool, False, "Do not warn if no window was good enough."),
    scaling=static("floats", (1.0, 1.0), "Range of the window's extents, relative to the image's."),
    shape_layout=static(str, None, "Layout of `crop_shape` and `input_shape`; WH or WHD if "
                        "omitted."),
    threshold_type=static(("iou", "overlap"), "iou", "What thresholds mean: iou (intersection over "
                          "union of box and window) or overlap (the share of the box that lies in "
                          "the window)."),
    thresholds=static("floats", (0.0,), "Least overlap of boxes and window; each sample chooses "
                      "one of them at random."),
    total_num_attempts=static(int, -1, "Windows to try in all before the best of them is taken; "
                              "65536 if omitted."),
    rng=static("RNG", None, RNG_DOC),
):  # fmt: skip
    """Draw a random window of an image that keeps its boxes, as SSD does.

    Returns the start and the shape of the window, in the order x, y, z, for `slice`; then the boxes
    that remain, relative to the window and clipped to it, their labels if given, and their indices
    if asked for. A window that keeps none of the boxes is not good enough. Start and shape are
    relative, or in pixels if `crop_shape` is given. How many boxes remain depends on their values,
    so the call reads them at once.
    """
    x = boxes
    dims = _dimensions(x)
    columns, has_sizes = _columns(bbox_layout, ltrb, dims)
    _check_ranges(scaling, aspect_ratio, thresholds, num_attempts, total_num_attempts)
    if bbox_prune_threshold is not None and not 0 <= bbox_prune_threshold <= 1:
        raise ValueError(f"`bbox_prune_threshold` must lie in [0, 1], got {bbox_prune_threshold:g}")
    if labels is not None:
        _check_labels(labels, x)
    shapes = _shapes(crop_shape, input_shape, shape_layout, dims)
    if crop_shape is not None and (scaling != (1.0, 1.0) or set(aspect_ratio) != {1.0}):
        raise ValueError("`crop_shape` excludes `scaling` and `aspect_ratio`")
    total = _ENDLESS if total_num_attempts < 0 else total_num_attempts
    job = _job(
        dims, len(thresholds) + (allow_no_crop and crop_shape is None), len(thresholds),
        num_attempts, total, threshold_type == "overlap", all_boxes_above_threshold,
        bbox_prune_threshold is not None, crop_shape is not None, has_sizes, columns,
    ).copy()  # fmt: skip
    numbers = _numbers(scaling, aspect_ratio, bbox_prune_threshold, thresholds)
    work = _CropWork(x, labels, shapes, dims)
    work.run(job, numbers, draw_of(rng))
    if not quiet:
        _warn(work.rows)
    return work.results(x.device, output_bbox_indices)


# -- arguments -----------------------------------------------------------------------------------


def _dimensions(x: Node) -> int:
    if x.dtype is not dt.float32:
        raise TypeError(f"boxes must be float32, got {x.dtype}")
    widths = set(x.shapes.rows[:, 1].tolist()) if x.rank == 2 else set()
    if widths not in ({4}, {6}):
        raise ValueError(f"boxes must have the shape (n, 4) or (n, 6), got {x.shapes.tuples[0]}")
    return int(widths.pop()) // 2


@memoized(64)
def _columns(layout: str | None, ltrb: bool | None, dims: int) -> tuple[tuple[int, ...], bool]:
    """The columns of x, y, z and of the ends or sizes, and whether these are sizes."""
    if layout is not None and ltrb is not None:
        raise ValueError("`ltrb` and `bbox_layout` exclude each other")
    ends, sizes = _ENDS[dims], _SIZES[dims]
    if layout is None:
        layout = sizes if ltrb is False else ends
    for names in (ends, sizes):
        if sorted(layout) == sorted(names):
            found = [layout.index(c) for c in names]
            lows, highs = found[:dims], found[dims:]
            pad = [0] * (3 - dims)
            return (*lows, *pad, *highs, *pad), names is sizes
    raise ValueError(f"`bbox_layout` must be a permutation of {ends} or {sizes}, got {layout!r}")


@memoized(64)
def _check_ranges(
    scaling: tuple[float, ...], aspect: tuple[float, ...], thresholds: tuple[float, ...],
    attempts: int, total: int,
) -> None:  # fmt: skip
    if len(scaling) != 2:
        raise ValueError(f"`scaling` must have 2 values (least, largest), got {len(scaling)}")
    if len(aspect) not in (2, 6):
        raise ValueError(f"`aspect_ratio` must have 2 or 6 values, got {len(aspect)}")
    pairs = [("scaling", scaling[0], scaling[1])]
    pairs += [("aspect_ratio", aspect[k], aspect[k + 1]) for k in range(0, len(aspect), 2)]
    for name, low, high in pairs:
        if not (np.isfinite([low, high]).all() and 0 <= low <= high):
            raise ValueError(f"`{name}` must be a range of positive numbers, got {[low, high]}")
    if scaling[1] == 0:
        raise ValueError("`scaling` must be positive, got [0.0, 0.0]")
    if not thresholds:
        raise ValueError("`thresholds` is empty")
    bad = [t for t in thresholds if not 0 <= t <= 1]
    if bad:
        raise ValueError(f"`thresholds` must lie in [0, 1], got {bad[0]:g}")
    if attempts < 1:
        raise ValueError(f"`num_attempts` must be positive, got {attempts}")
    if total != -1 and total < 1:
        raise ValueError(f"`total_num_attempts` must be positive, got {total}")


def _check_labels(labels: Node, boxes: Node) -> None:
    if labels.rank == 0:
        raise ValueError("labels must have the shape (n, …), got a number")
    given, wanted = labels.shapes.rows[:, 0].tolist(), boxes.shapes.rows[:, 0].tolist()
    if len(given) == 1:
        given *= len(wanted)
    if given != wanted:
        s = next(k for k, (n, want) in enumerate(zip(given, wanted, strict=True)) if n != want)
        raise ValueError(f"there are {given[s]} labels and {wanted[s]} boxes in sample {s}")
    if labels.rank > 1 and any(labels.shapes.extent(d) is None for d in range(1, labels.rank)):
        raise ValueError("all samples must have labels of the same shape")


def _shapes(
    crop: Array | None, image: Array | None, layout: str | None, dims: int
) -> tuple[Array | None, Array | None]:
    """Shapes [count, 3] of image and window in pixels, in the order x, y, z; None if not given."""
    names = _EXTENTS[dims]
    if layout is not None and sorted(layout) != sorted(names):
        raise ValueError(f"`shape_layout` must be a permutation of {names}, got {layout!r}")
    if crop is not None and image is None:
        raise ValueError("`crop_shape` needs `input_shape`")
    order = [(layout or names).index(c) for c in names]
    return _shape_rows("input_shape", image, order), _shape_rows("crop_shape", crop, order)


def _shape_rows(name: str, values: Array | None, order: list[int]) -> Array | None:
    if values is None:
        return None
    dims = len(order)
    if values.shape[1] != dims:
        raise ValueError(f"`{name}` must have {dims} values, got {values.shape[1]}")
    wrong = np.flatnonzero(((values < 1) | (values >= 2**31)).any(axis=1))
    if len(wrong):
        s = int(wrong[0])
        raise ValueError(
            f"`{name}` must be positive, got {tuple(values[s].tolist())} in sample {s}"
        )
    rows = np.ones((len(values), 3), np.int64)
    rows[:, :dims] = values[:, order]
    return rows


@memoized(64)
def _job(*choices: Any) -> Array:
    """The table of a call, with what does not depend on its data: up to KEY, and the columns."""
    job = np.zeros(at.JOB_SIZE, np.int64)
    job[: at.KEY], job[at.COLUMNS :] = choices[:-1], choices[-1]
    return job


@memoized(64)
def _numbers(
    scaling: tuple[float, ...], aspect: tuple[float, ...], prune: float | None,
    thresholds: tuple[float, ...],
) -> Array:  # fmt: skip
    ranges = aspect if len(aspect) == 6 else aspect * 3
    return np.array([*scaling, *ranges, prune or 0.0, *thresholds], np.float64)


# -- the search ----------------------------------------------------------------------------------


class _CropWork:
    """Tables and memory of one call: `run` fills the memory, `results` makes nodes of it.

    The memory is two blocks of the pool, one for what is found and one for what only the search
    needs: seven arrays of NumPy take several times as long.
    """

    def __init__(
        self, boxes: Node, labels: Node | None, shapes: tuple[Array | None, Array | None], dims: int
    ) -> None:
        self.boxes, self.labels, self.dims = boxes, labels, dims
        counts = boxes.shapes.rows[:, 0]
        samples = len(counts)
        self.first = counts.cumsum()
        total = int(self.first[-1])
        self.first -= counts  # where each sample's boxes begin
        self.sources = [packed_on_host(boxes)]
        self.label_bytes = 0
        if labels is not None:
            self.sources.append(packed_on_host(labels))
            self.label_bytes = math.prod(labels.shapes.tuples[0][1:]) * labels.dtype.bytes
        window, box = 4 * dims, 8 * dims
        # Labels come first: their elements may need the alignment of the block.
        sizes = (total * self.label_bytes, samples * window, samples * window, total * box)
        places = [0, *itertools.accumulate(-(-n // 8) * 8 for n in sizes)]
        self.memory = POOL.take(places[-1] + 4 * total + 8)  # and one for no boxes at all
        own = self.memory.address
        self.labels_at, self.starts_at, self.shapes_at, self.boxes_at, self.indices_at = (
            own + p for p in places
        )
        table = 8 * samples * at.ROW_SIZE
        self.scratch = POOL.take(table + 24 * total)
        self.corners_at = self.scratch.address + table
        rows = array_at(self.scratch.address, (samples, at.ROW_SIZE), np.dtype(np.int64))
        rows[:, at.BOXES], rows[:, at.COUNT] = self.sources[0].stored.addresses, counts
        rows[:, at.LABELS] = self.sources[-1].stored.addresses  # not read without labels
        rows[:, at.FIRST] = self.first
        for slot, given in zip((at.INPUT_SHAPE, at.CROP_SHAPE), shapes, strict=True):
            rows[:, slot : slot + 3] = 1 if given is None else given
        self.rows = rows

    def run(self, job: Array, numbers: Array, draw: Draw) -> None:
        job[at.KEY : at.COLUMNS] = (
            *draw.key, *draw.lane, address_of(numbers), self.scratch.address, self.label_bytes,
            self.labels_at, self.starts_at, self.shapes_at, self.boxes_at, self.indices_at,
            self.corners_at,
        )  # fmt: skip
        function("find_windows")(address_of(job), 0, len(self.rows))
        outside = self.rows[:, at.OUTCOME] == at.OUTSIDE
        if outside.any():
            s = int(outside.argmax())
            k = int(self.rows[s, at.KEPT])
            box = convert.arrays_of(self.sources[0])[s][k]
            raise ValueError(
                f"boxes must lie between 0 and 1, got {box.tolist()} (box {k} of sample {s})"
            )

    def results(self, device: int | None, with_indices: bool) -> list[Node]:
        samples, dims = len(self.rows), self.dims
        window = Shapes(np.full((samples, 1), dims, np.int64))
        steps = np.arange(0, 4 * dims * samples, 4 * dims)
        found = [
            self._node(base + steps, window, dt.float32, True)
            for base in (self.starts_at, self.shapes_at)
        ]
        found.append(self._ragged(self.boxes_at, (2 * dims,), dt.float32))
        if self.labels is not None:
            inner = self.labels.shapes.tuples[0][1:]
            found.append(self._ragged(self.labels_at, inner, self.labels.dtype))
        if with_indices:
            found.append(self._ragged(self.indices_at, (), dt.int32))
        return [on_device(node, device) for node in found]

    def _ragged(self, base: int, inner: tuple[int, ...], dtype: dt.DType) -> Node:
        """What remains in each sample, over the memory for all boxes."""
        kept = self.rows[:, at.KEPT]
        return kept_rows(self.memory, base, self.first, kept, inner, dtype, self.boxes.batch)

    def _node(self, addresses: Array, shapes: Shapes, dtype: dt.DType, dense: bool) -> Node:
        storage = Storage(addresses, self.memory, None, dense)
        return source(storage, shapes, dtype, None, self.boxes.batch)


def _warn(rows: Array) -> None:
    """Warn of samples without a good window."""
    poor = np.flatnonzero(rows[:, at.OUTCOME] != at.FOUND)
    if len(poor):
        s = int(poor[0])
        what = "the best one is" if rows[s, at.OUTCOME] == at.BEST else "the whole image is"
        from ...core.errors import user_site

        site = user_site()
        warnings.warn_explicit(
            f"random_bbox_crop: no window of sample {s} was good enough, {what} used; give more "
            "`total_num_attempts` or `quiet=True`",
            UserWarning, site.file, site.line,
        )  # fmt: skip
