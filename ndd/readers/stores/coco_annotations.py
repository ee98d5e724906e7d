"""COCO annotations in columns: a JSON file enters, pictures with boxes, labels, outlines leave."""

from __future__ import annotations

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array
from ..names import Names
from .outlines import run_lengths

# Larger pictures do not exist, and their masks would not fit into memory.
MAX_EXTENT, MAX_PIXELS = 1 << 20, 1 << 30


@dataclass
class Annotations:
    """Pictures in the order of their ids. `…_starts` are the first entries of each picture."""

    names: Names
    ids: Array
    heights: Array
    widths: Array
    boxes: Array  # float32 rows of x, y, width, height
    labels: Array
    box_starts: Array
    polygons: Array  # rows of object, first vertex, vertex after the last
    polygon_starts: Array
    vertices: Array
    vertex_starts: Array
    runs: Array  # run lengths of all masks that are not polygons
    run_starts: Array  # by mask
    run_objects: Array  # the object of each mask
    mask_starts: Array

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, column: str, starts: str, index: int) -> Array:
        """The entries of a picture."""
        begin, end = getattr(self, starts)[index : index + 2]
        return getattr(self, column)[begin:end]  # type: ignore[no-any-return]

    def masks(self, index: int) -> list[tuple[int, Array]]:
        """Object and run lengths of each mask of a picture that is not a polygon."""
        begin, end = self.mask_starts[index : index + 2].tolist()
        starts = self.run_starts
        return [(int(self.run_objects[k]), self.runs[starts[k] : starts[k + 1]])
                for k in range(begin, end)]  # fmt: skip

    def fingerprint(self) -> str:
        """A checksum of the names and ids, as text."""
        return f"{zlib.crc32(np.ascontiguousarray(self.ids).data, self.names.checksum):08x}"


class Collected:
    """Entries of one kind, picture by picture."""

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._dtype, self._width = dtype, width
        self._parts: list[Array] = []
        self._ends = [0]

    def add(self, rows: Sequence[Any]) -> None:
        """The entries of the next picture."""
        shape = (-1,) if self._width is None else (-1, self._width)
        array = np.array(rows, self._dtype).reshape(shape)
        self._parts.append(array)
        self._ends.append(self._ends[-1] + len(array))

    def finish(self) -> tuple[Array, Array]:
        """All entries, and the first one of each picture."""
        empty = np.empty((0,) if self._width is None else (0, self._width), self._dtype)
        return np.concatenate([empty, *self._parts]), np.array(self._ends, np.int64)


@dataclass
class Choice:
    """Which annotations to use."""

    images: Sequence[str] | None
    skip_empty: bool
    size_threshold: float
    include_iscrowd: bool
    remap: bool
    outlines: bool  # polygons and masks are wanted


def parse(text: bytes, path: str, choice: Choice) -> Annotations:
    """The annotations of a JSON file."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path!r} is not a JSON file: {error}") from None
    if not isinstance(content, dict) or not all(
        isinstance(content.get(k, []), list) for k in ("images", "annotations", "categories")
    ):
        raise ValueError(f"{path!r} must be a dictionary with lists of images and annotations")
    return _Parser(path, content, choice).run()


def _is_encodable(name: str) -> bool:
    """Whether a name can be that of a file; JSON can hold halves of characters."""
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


class _Parser:
    def __init__(self, path: str, content: dict[str, Any], choice: Choice) -> None:
        self._path, self._content, self._choice = path, content, choice
        self._labels: dict[int, int] = {}

    def _wrong(self, kind: str, k: int, what: str) -> ValueError:
        return ValueError(f"{self._path!r}: {kind}[{k}]: {what}")

    def _integer(self, kind: str, k: int, entry: Any, name: str) -> int:
        value = entry.get(name) if isinstance(entry, dict) else None
        if type(value) is not int or not -(2**31) <= value < 2**31:
            raise self._wrong(kind, k, f"`{name}` must be a 32-bit integer, got {value!r:.80}")
        return value

    def run(self) -> Annotations:
        if self._choice.remap:
            for k, entry in enumerate(self._content.get("categories", [])):
                self._labels.setdefault(self._integer("categories", k, entry, "id"), k + 1)
        pictures = self._pictures()
        by_picture = self._by_picture(pictures)
        chosen = self._chosen(pictures)
        names, kept = Names(), []
        columns = {
            "boxes": Collected(np.float32, 4),
            "labels": Collected(np.int32),
            "polygons": Collected(np.int32, 3),
            "vertices": Collected(np.float32, 2),
        }
        runs, run_objects = Collected(np.int64), Collected(np.int32)
        for number in chosen:
            objects = by_picture.get(number, [])
            if not objects and self._choice.skip_empty:
                continue
            kept.append((number, *pictures[number][1:]))
            names.add([pictures[number][0].encode("utf-8", "surrogateescape")])
            self._add(objects, columns, runs, run_objects)
        names.finish()
        return _assembled(names, kept, columns, runs, run_objects)

    def _pictures(self) -> dict[int, tuple[str, int, int]]:
        """Name, height and width of all pictures, by id."""
        found = {}
        for k, entry in enumerate(self._content.get("images", [])):
            number = self._integer("images", k, entry, "id")
            height = self._integer("images", k, entry, "height")
            width = self._integer("images", k, entry, "width")
            name = entry.get("file_name")
            if not isinstance(name, str) or not name or "\0" in name or not _is_encodable(name):
                raise self._wrong("images", k, f"`file_name` must be a text, got {name!r:.80}")
            if not 0 < min(height, width) or max(height, width) > MAX_EXTENT \
                    or height * width > MAX_PIXELS:  # fmt: skip
                raise self._wrong("images", k, f"a picture of {height} × {width} pixels")
            if number in found:
                raise self._wrong("images", k, f"id {number} is used twice")
            found[number] = name, height, width
        if not found:
            raise ValueError(f"{self._path!r} has no images")
        return found

    def _chosen(self, pictures: dict[int, tuple[str, int, int]]) -> list[int]:
        if self._choice.images is None:
            return sorted(pictures)
        by_name = {name: number for number, (name, _, _) in pictures.items()}
        for name in self._choice.images:
            if name not in by_name:
                raise ValueError(f"`images` has {name!r}, which is not in {self._path!r}")
        return [by_name[name] for name in self._choice.images]

    def _by_picture(self, pictures: dict[int, Any]) -> dict[int, list[tuple[Any, ...]]]:
        """Box, label, polygons and run lengths of the wanted objects of each picture."""
        found = defaultdict(list)
        for k, entry in enumerate(self._content.get("annotations", [])):
            number = self._integer("annotations", k, entry, "image_id")
            if number not in pictures:
                continue
            if not self._choice.include_iscrowd and entry.get("iscrowd"):
                continue
            box = self._floats(k, "bbox", entry.get("bbox"))
            if len(box) != 4:
                raise self._wrong("annotations", k, f"`bbox` must be four numbers, got {box!r:.80}")
            if np.float32(min(box[2:])) < np.float32(self._choice.size_threshold):
                continue
            outline = (
                self._outline(k, entry, *pictures[number][1:]) if self._choice.outlines else ()
            )
            found[number].append((box, self._label(k, entry), outline))
        return found

    def _label(self, k: int, entry: Any) -> int:
        category = self._integer("annotations", k, entry, "category_id")
        if not self._choice.remap:
            return category
        if category not in self._labels:
            raise self._wrong("annotations", k, f"category {category} is not among the categories")
        return self._labels[category]

    def _floats(self, k: int, name: str, value: Any) -> list[float]:
        good = isinstance(value, list) and all(
            type(v) in (int, float) and math.isfinite(v) and abs(v) < 1e30 for v in value
        )
        if not good:
            raise self._wrong(
                "annotations", k, f"`{name}` must be a list of numbers, got {value!r:.80}"
            )
        return value  # type: ignore[no-any-return]

    def _outline(self, k: int, entry: Any, height: int, width: int) -> Any:
        """A list of polygons, or an array of run lengths."""
        segmentation = entry.get("segmentation") or []
        if isinstance(segmentation, list):
            return [self._floats(k, "segmentation", polygon) for polygon in segmentation]
        try:
            return self._runs(segmentation, height, width)
        except ValueError as error:
            raise self._wrong("annotations", k, f"`segmentation`: {error}") from None

    def _runs(self, segmentation: Any, height: int, width: int) -> Array:
        size = segmentation.get("size") if isinstance(segmentation, dict) else None
        if size != [height, width]:
            raise ValueError(f"run lengths for {size}, but the picture has {[height, width]}")
        counts = segmentation.get("counts")
        counts = run_lengths(counts) if isinstance(counts, str) else counts
        if not isinstance(counts, list) or not all(
            type(n) is int and 0 <= n <= MAX_PIXELS for n in counts
        ):
            raise ValueError("`counts` must be a text or a list of integers of 0 or more")
        if sum(counts) != height * width:
            raise ValueError(f"run lengths of {sum(counts)} pixels, wanted {height * width}")
        return np.array(counts, np.int64)

    def _add(
        self, objects: list[Any], columns: dict[str, Collected], runs: Collected, owners: Collected
    ) -> None:
        """Append the objects of a picture to all columns."""
        polygons, masks = [], []
        vertices: list[float] = []
        for number, (_, _, outline) in enumerate(objects):
            if isinstance(outline, np.ndarray):
                masks.append(number)
                runs.add(outline)  # type: ignore[arg-type]
                continue
            for polygon in outline:
                count = len(polygon) // 2
                begin = len(vertices) // 2
                polygons.append((number, begin, begin + count))
                vertices += polygon[: 2 * count]
        columns["boxes"].add([box for box, _, _ in objects])
        columns["labels"].add([label for _, label, _ in objects])
        columns["polygons"].add(polygons)
        columns["vertices"].add(vertices)
        owners.add(masks)


def _assembled(
    names: Names, kept: list[Any], columns: dict[str, Collected], runs: Collected, owners: Collected
) -> Annotations:
    ids, heights, widths = np.array(kept, np.int32).reshape(-1, 3).T
    boxes, box_starts = columns["boxes"].finish()
    labels, _ = columns["labels"].finish()
    polygons, polygon_starts = columns["polygons"].finish()
    vertices, vertex_starts = columns["vertices"].finish()
    all_runs, run_starts = runs.finish()
    run_objects, mask_starts = owners.finish()
    return Annotations(
        names, ids, heights, widths, boxes, labels, box_starts, polygons, polygon_starts, vertices,
        vertex_starts, all_runs, run_starts, run_objects, mask_starts,
    )  # fmt: skip
