"""`readers.COCO`: pictures with annotations enter, batches with boxes, labels and masks leave."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..codecs.image.limits import get_max_pixels
from ..fusion.graph.shapes import Array
from ..kernels.ir import dtypes as dt
from .contents import Contents
from .epoch import Bad, Sample, Samples
from .reader import Reader
from .record_samples import filled, listed
from .stores import coco_saved
from .stores.byte_files import read_anywhere, read_whole
from .stores.coco_annotations import Annotations, Choice, parse
from .stores.outlines import polygon_mask, run_length_mask
from .stores.remote import RemoteOptions


class CocoSamples:
    """Annotated pictures, as samples of a reader."""

    def __init__(
        self, root: bytes, found: Annotations, boxes: Array, vertices: Array, kinds: Sequence[str],
        legacy: bool, remote: RemoteOptions,
    ) -> None:  # fmt: skip
        self._root, self._found, self._kinds = root, found, kinds
        self._boxes, self._vertices, self._legacy = boxes, vertices, legacy
        self._remote = remote
        self.fingerprint = found.fingerprint

    def __len__(self) -> int:
        return len(self._found)

    def name(self, index: int) -> str:
        return os.fsdecode(self._found.names[index])

    def output_name(self, index: int, output: int) -> str:
        """Only the picture has a name, as upstream."""
        return self.name(index) if output == 0 else ""

    def _path(self, index: int) -> bytes:
        return os.path.join(self._root, self._found.names[index])  # noqa: PTH118  (bytes)

    def read(self, index: int) -> Sample:
        (found,) = self.read_many([index])
        if isinstance(found, Bad):
            raise found.cause
        return found

    def read_many(self, indices: Sequence[int]) -> Sequence[Sample | Bad]:
        contents: Contents = read_anywhere([self._path(i) for i in indices], False, self._remote)
        return [self._sample(i, c) for i, c in zip(indices, contents, strict=True)]

    def _sample(self, index: int, content: Array | Exception) -> Sample | Bad:
        if isinstance(content, Exception):
            return Bad(index, content)
        try:
            return (content, *self._annotations(index))
        except Exception as error:
            return Bad(index, error)

    def _annotations(self, index: int) -> tuple[Array, ...]:
        """All outputs but the picture."""
        found = self._found
        begin, end = found.box_starts[index : index + 2]
        outputs: list[Array] = [self._boxes[begin:end], found.labels[begin:end]]
        if "polygons" in self._kinds:
            polygons = found.part("polygons", "polygon_starts", index)
            if self._legacy:
                polygons = polygons * np.array([1, 2, 2], np.int32)
            first, last = found.vertex_starts[index : index + 2]
            outputs += [polygons, self._vertices[first:last]]
        if "masks" in self._kinds:
            outputs.append(self._mask(index))
        if "ids" in self._kinds:
            outputs.append(found.ids[index : index + 1])
        return tuple(outputs)

    def _mask(self, index: int) -> Array:
        """The label of the object at each pixel; larger labels lie above smaller ones."""
        found = self._found
        height, width = int(found.heights[index]), int(found.widths[index])
        begin, end = found.box_starts[index : index + 2]
        labels = found.labels[begin:end]
        vertices = found.part("vertices", "vertex_starts", index)
        if height * width > get_max_pixels():
            raise ValueError(
                f"a mask of {height} × {width} pixels is larger than the limit of "
                f"{get_max_pixels()}; ndd.decoders.set_max_pixels can raise it"
            )
        outlines: list[tuple[int, int, Callable[[], Array]]] = []
        for number, first, last in found.part("polygons", "polygon_starts", index).tolist():
            if last - first >= 3:
                points = vertices[first:last]
                draw = partial(polygon_mask, points, height, width)
                outlines.append((labels[number], number, draw))
        for number, runs in found.masks(index):
            draw = partial(run_length_mask, runs, height, width)
            outlines.append((labels[number], number, draw))
        mask = np.zeros(height * width, np.int32)
        for label, number, pixels in sorted(outlines, key=lambda entry: entry[0]):
            try:
                mask[pixels()] = label  # one after the other: each takes a byte per pixel
            except ValueError as error:
                raise ValueError(f"object {number} of its annotations: {error}") from None
        return np.ascontiguousarray(mask.reshape(width, height).T)[:, :, None]

    def fill(self, index: int, data: Any = None) -> Sample:
        """The annotations are known; only the picture is missing."""
        try:
            known = self._annotations(index)
        except ValueError:  # a polygon that cannot be drawn
            begin, end = self._found.box_starts[index : index + 2]
            known = (
                self._boxes[begin:end],
                self._found.labels[begin:end],
                np.zeros((1, 1, 1), np.int32),
            )
            known += (self._found.ids[index : index + 1],) * ("ids" in self._kinds)
        return filled("readers.COCO", (np.zeros(0, np.uint8), *known), data)


class COCO(Reader):
    """Reads pictures with the annotations of a COCO data set.

    >>> import json, ndd, pathlib, tempfile
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / "cat.jpg").write_bytes(b"a picture")
    >>> content = {
    ...     "images": [{"id": 1, "file_name": "cat.jpg", "height": 100, "width": 200}],
    ...     "categories": [{"id": 17, "name": "cat"}],
    ...     "annotations": [{"image_id": 1, "category_id": 17, "bbox": [20, 10, 80, 50]}],
    ... }
    >>> _ = (root / "all.json").write_text(json.dumps(content))
    >>> reader = ndd.readers.COCO(
    ...     file_root=root, annotations_file=root / "all.json", ltrb=True, ratio=True
    ... )
    >>> for jpegs, boxes, labels in reader.next_epoch(batch_size=1):
    ...     print(jpegs.shape, boxes.torch().tolist(), labels.torch().tolist())
    [(9,)] [[[0.10..., 0.10..., 0.5, 0.60...]]] [[1]]

    Outputs are pictures, boxes [objects, 4], labels [objects], then, if wanted, polygons [polygons,
    3] and vertices [vertices, 2], or masks [height, width, 1], and ids [1]. Pictures are in the
    order of their ids.

    Parameters
    ----------
    file_root : path
        The folder that file names are relative to.
    annotations_file : path
        The JSON file.
    preprocessed_annotations : path, optional
        A folder that was written with `save_preprocessed_annotations`, instead of a JSON file.
    images : list of str, optional
        The file names of the pictures to read, in this order.
    ltrb : bool
        Boxes are left, top, right, bottom, not x, y, width, height.
    ratio : bool
        Coordinates are relative to the size of the picture.
    size_threshold : float
        Objects whose width or height in pixels is smaller are left out.
    skip_empty : bool
        Leave out pictures without objects.
    include_iscrowd : bool
        Include objects that are groups (``iscrowd=1``).
    avoid_class_remapping : bool
        Labels are the categories' ids. Otherwise they are 1, 2, 3 … in the order of the categories.
    image_ids : bool
        Yield the ids of pictures.
    polygon_masks : bool
        Yield polygons (object, first vertex, vertex after the last) and vertices (x, y).
    pixelwise_masks : bool
        Yield the label of the object at each pixel, 0 where there is none.
    save_preprocessed_annotations, save_preprocessed_annotations_dir : bool, path
        Write the annotations to a folder, as binary files that are faster to read.
    masks : bool
        Deprecated: as `polygon_masks`, but polygons refer to coordinates, not to vertices.
    save_img_ids, dump_meta_files, dump_meta_files_path, meta_files_path
        Deprecated names of `image_ids`, `save_preprocessed_annotations`,
        `save_preprocessed_annotations_dir` and `preprocessed_annotations`.
    read_ahead, dont_use_mmap, skip_cached_images, tensor_init_bytes, num_inputs
        Accepted for compatibility; they have no effect.
    **options
        Arguments of all readers, see `ndd.readers.Reader`.
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        num_inputs: int | None = None,
        *,
        file_root: Any = None,
        annotations_file: Any = "",
        preprocessed_annotations: Any = "",
        images: str | Sequence[str] | None = None,
        ltrb: bool | None = False,
        ratio: bool | None = False,
        size_threshold: float | None = 0.1,
        skip_empty: bool | None = False,
        include_iscrowd: bool | None = True,
        avoid_class_remapping: bool | None = False,
        image_ids: bool | None = False,
        polygon_masks: bool | None = False,
        pixelwise_masks: bool | None = False,
        save_preprocessed_annotations: bool | None = False,
        save_preprocessed_annotations_dir: Any = "",
        masks: bool | None = False,
        save_img_ids: bool | None = None,
        dump_meta_files: bool | None = None,
        dump_meta_files_path: Any = None,
        meta_files_path: Any = None,
        read_ahead: bool | None = False,
        dont_use_mmap: bool | None = False,
        skip_cached_images: bool | None = False,
        tensor_init_bytes: int | None = 1048576,
        **options: Any,
    ) -> None:
        where = "readers.COCO"
        self._file = _path(annotations_file)
        self._saved = _path(preprocessed_annotations or meta_files_path)
        self._target = _path(save_preprocessed_annotations_dir or dump_meta_files_path)
        is_saving = bool(save_preprocessed_annotations or dump_meta_files)
        if file_root is None:
            raise ValueError(f"{where}: `file_root` is needed")
        if bool(self._file) == bool(self._saved):
            raise ValueError(f"{where}: `annotations_file` or `preprocessed_annotations` is needed")
        if is_saving != bool(self._target):
            raise ValueError(
                f"{where}: `save_preprocessed_annotations` and `save_preprocessed_annotations_dir` "
                f"belong together"
            )
        if pixelwise_masks and (polygon_masks or masks):
            raise ValueError(f"{where}: `pixelwise_masks` and `polygon_masks` exclude each other")
        self._legacy = bool(masks) and not polygon_masks
        self._kinds = (
            ["outlines"] * bool(polygon_masks or masks or pixelwise_masks)
            + ["polygons"] * bool(polygon_masks or masks)
            + ["masks"] * bool(pixelwise_masks)
            + ["ids"] * bool(image_ids or save_img_ids)
        )
        self._root, self._ltrb, self._ratio = os.fsencode(file_root), bool(ltrb), bool(ratio)
        given = [images] if isinstance(images, str) else images
        self._choice = Choice(
            None if given is None else list(given), bool(skip_empty),
            0.1 if size_threshold is None else float(size_threshold),
            include_iscrowd is None or bool(include_iscrowd), not avoid_class_remapping,
            "outlines" in self._kinds,
        )  # fmt: skip
        self._check_saved(where)
        self.outputs = [(dt.uint8, False), (dt.float32, True), (dt.int32, True)]
        if "polygons" in self._kinds:
            self.outputs += [(dt.int32, True), (dt.float32, True)]
        if "masks" in self._kinds:
            self.outputs += [(dt.int32, False, "HWC")]
        if "ids" in self._kinds:
            self.outputs += [(dt.int32, True)]
        super().__init__(max_batch_size, name, device, **options)

    def _check_saved(self, where: str) -> None:
        """Preprocessed annotations are used as they are."""
        choice = self._choice
        unsupported = {
            "skip_empty": choice.skip_empty, "ratio": self._ratio, "ltrb": self._ltrb,
            "size_threshold": choice.size_threshold != 0.1, "images": choice.images is not None,
            "include_iscrowd": not choice.include_iscrowd,
            "avoid_class_remapping": not choice.remap,
            "save_preprocessed_annotations": bool(self._target),
        }  # fmt: skip
        for name, is_given in unsupported.items():
            if self._saved and is_given:
                raise ValueError(
                    f"{where}: `preprocessed_annotations` and `{name}` exclude each other"
                )

    def _list(self) -> Samples:
        found: Annotations = listed(self._where, self._annotations)
        if len(found) == 0:
            raise ValueError(f"{self._where}: no pictures found in {self._file or self._saved!r}")
        boxes, vertices = found.boxes, found.vertices
        if not self._saved:
            boxes, vertices = self._coordinates(found)
        if self._target:
            try:
                coco_saved.save(Path(self._target), found, boxes, vertices, self._kinds)
            except OSError as error:
                raise type(error)(
                    f"{self._where}: cannot write to {self._target!r}: {error.strerror}"
                ) from error
        return CocoSamples(
            self._root, found, boxes, vertices, self._kinds, self._legacy, self._remote
        )

    def _annotations(self) -> Annotations:
        if self._saved:
            return coco_saved.load(Path(self._saved), self._kinds)
        return parse(read_whole(self._file, self._remote), self._file, self._choice)

    def _coordinates(self, found: Annotations) -> tuple[Array, Array]:
        """Boxes and vertices as they are wanted."""
        boxes, vertices = found.boxes, found.vertices
        if self._ltrb:
            boxes = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        if self._ratio:
            sizes = np.stack([found.widths, found.heights], 1).astype(np.float32)
            boxes = boxes / np.tile(np.repeat(sizes, np.diff(found.box_starts), 0), 2)
            if "masks" not in self._kinds:
                vertices = vertices / np.repeat(sizes, np.diff(found.vertex_starts), 0)
        return boxes, vertices


def _path(given: Any) -> str:
    return os.fsdecode(given) if given else ""
