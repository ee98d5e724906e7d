"""Preprocessed COCO annotations: a folder of binary files enters, annotations leave, and back.

The files are those of upstream: a 32-bit count, then the entries.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...fusion.graph.shapes import Array
from ...tools.outputs import write_output
from ..names import Names
from .byte_files import read_whole
from .coco_annotations import MAX_EXTENT, MAX_PIXELS, Annotations


def save(
    folder: Path, found: Annotations, boxes: Array, vertices: Array, kinds: Sequence[str]
) -> None:
    """Write annotations; `kinds` tells which outputs are wanted besides boxes."""
    files: dict[str, bytes] = {
        "offsets": _file(found.box_starts[:-1], "<i4"),
        "boxes": _file(boxes.reshape(-1), "<f4"),
        "labels": _file(found.labels, "<i4"),
        "counts": _file(np.diff(found.box_starts), "<i4"),
    }
    if "ids" in kinds:
        files["original_ids"] = _file(found.ids, "<i4")
    if "outlines" in kinds:
        files["polygon_data"] = _file(found.polygons, "<i4")
        files["polygon_offset"] = _file(found.polygon_starts[:-1], "<i8")
        files["polygons_count"] = _file(np.diff(found.polygon_starts), "<i8")
        files["vertices"] = _file(vertices, "<f4")
        files["vertices_offset"] = _file(found.vertex_starts[:-1], "<i8")
        files["vertices_count"] = _file(np.diff(found.vertex_starts), "<i8")
    if "masks" in kinds:
        files |= _mask_files(found)
    # The names are removed first and written last: without them, nothing is read. So a process that
    # is killed leaves no mixture of old and new files.
    (folder / "filenames.dat").unlink(missing_ok=True)
    for name, content in files.items():
        write_output(folder / f"{name}.dat", content)
    names = (found.names[k] for k in range(len(found)))
    write_output(folder / "filenames.dat", b"".join(name + b"\n" for name in names))


def _mask_files(found: Annotations) -> dict[str, bytes]:
    rles = [struct.pack("<I", len(found.run_objects))]
    for index in range(len(found)):
        for _, runs in found.masks(index):
            size = int(found.heights[index]), int(found.widths[index]), len(runs)
            rles.append(struct.pack("<QQQ", *size) + runs.astype("<u4").tobytes())
    return {
        "masks_rles": b"".join(rles),
        "masks_rles_idx": _file(found.run_objects, "<i4"),
        "masks_offset": _file(found.mask_starts[:-1], "<i8"),
        "mask_count": _file(np.diff(found.mask_starts), "<i8"),
        "heights": _file(found.heights, "<i4"),
        "widths": _file(found.widths, "<i4"),
    }


def _file(values: Array, kind: str) -> bytes:
    return struct.pack("<I", len(values)) + values.astype(kind).tobytes()


class _Loader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wrong(self, name: str, what: str) -> ValueError:
        return ValueError(f"{str(self._folder / name)!r}.dat: {what}")

    def read(self, name: str) -> bytes:
        """All bytes of a file, which must be a regular one: a pipe would make us wait."""
        return read_whole(str(self._folder / f"{name}.dat"))

    def column(self, name: str, kind: str, width: int = 1, count: int | None = None) -> Array:
        """All entries of a file, each of `width` numbers."""
        content = self.read(name)
        stated = int.from_bytes(content[:4], "little")
        nbytes = stated * width * np.dtype(kind).itemsize
        if len(content) < 4 or len(content) - 4 != nbytes:
            raise self.wrong(name, f"{stated} entries by its head, but {len(content)} bytes")
        if count is not None and stated != count:
            raise self.wrong(name, f"{stated} entries, wanted {count}")
        found = np.frombuffer(content, kind, offset=4)
        return (found if width == 1 else found.reshape(-1, width)).astype(kind[1:])

    def starts(self, offsets: str, counts: str, kind: str, pictures: int, total: int) -> Array:
        """The first entry of each picture; entries of pictures follow each other."""
        numbers = self.column(counts, kind, count=pictures).astype(np.int64)
        begins = self.column(offsets, kind, count=pictures).astype(np.int64)
        if len(numbers) and (numbers.min() < 0 or numbers.max() > total):
            raise self.wrong(counts, f"a count that is negative or larger than {total}")
        ends = np.concatenate([[0], np.cumsum(numbers)])
        if ends[-1] != total or (ends[:-1] != begins).any():
            raise self.wrong(offsets, f"pictures do not divide the {total} entries")
        return ends


def load(folder: Path, kinds: Sequence[str]) -> Annotations:
    """Read annotations and check that all places lie inside of their columns."""
    loader = _Loader(folder)
    names = Names()
    listed = loader.read("filenames").splitlines()
    names.add(listed)
    names.finish()
    count = len(listed)
    flat = loader.column("boxes", "<f4")
    if len(flat) % 4:
        raise loader.wrong("boxes", f"{len(flat)} numbers, no multiple of 4")
    boxes = flat.reshape(-1, 4)
    columns: dict[str, Any] = {
        "boxes": boxes,
        "box_starts": loader.starts("offsets", "counts", "<i4", count, len(boxes)),
        "labels": loader.column("labels", "<i4", count=len(boxes)),
        "ids": np.arange(count, dtype=np.int32),
    }
    columns |= {"heights": np.zeros(count, np.int32), "widths": np.zeros(count, np.int32)}
    if "ids" in kinds:
        columns["ids"] = loader.column("original_ids", "<i4", count=count)
    columns |= _outlines(loader, count, "outlines" in kinds)
    columns |= _masks(loader, count, "masks" in kinds)
    found = Annotations(names, **columns)
    _check(loader, found)
    return found


def _outlines(loader: _Loader, count: int, wanted: bool) -> dict[str, Any]:
    if not wanted:
        none = np.zeros(count + 1, np.int64)
        return {"polygons": np.zeros((0, 3), np.int32), "polygon_starts": none,
                "vertices": np.zeros((0, 2), np.float32), "vertex_starts": none}  # fmt: skip
    polygons = loader.column("polygon_data", "<i4", 3)
    vertices = loader.column("vertices", "<f4", 2)
    args = ("<i8", count)
    return {
        "polygons": polygons,
        "polygon_starts": loader.starts("polygon_offset", "polygons_count", *args, len(polygons)),
        "vertices": vertices,
        "vertex_starts": loader.starts("vertices_offset", "vertices_count", *args, len(vertices)),
    }


def _masks(loader: _Loader, count: int, wanted: bool) -> dict[str, Any]:
    if not wanted:
        return {
            "runs": np.zeros(0, np.int64),
            "run_starts": np.zeros(1, np.int64),
            "run_objects": np.zeros(0, np.int32),
            "mask_starts": np.zeros(count + 1, np.int64),
        }
    objects = loader.column("masks_rles_idx", "<i4")
    starts = loader.starts("masks_offset", "mask_count", "<i8", count, len(objects))
    heights = loader.column("heights", "<i4", count=count)
    widths = loader.column("widths", "<i4", count=count)
    extents = np.stack([heights, widths]).astype(np.int64)
    if count and (
        extents.min() < 1 or extents.max() > MAX_EXTENT or extents.prod(0).max() > MAX_PIXELS
    ):
        raise loader.wrong("heights", "a picture without pixels, or with too many")
    sizes = np.stack([np.repeat(v, np.diff(starts)) for v in (heights, widths)], 1)
    runs, run_starts = _rles(loader, sizes)
    return {"runs": runs, "run_starts": run_starts, "run_objects": objects, "mask_starts": starts,
            "heights": heights, "widths": widths}  # fmt: skip


def _rles(loader: _Loader, sizes: Array) -> tuple[Array, Array]:
    """Run lengths of all masks, whose sizes must be those of their pictures."""
    content = loader.read("masks_rles")
    if len(content) < 4 or int.from_bytes(content[:4], "little") != len(sizes):
        raise loader.wrong("masks_rles", f"not {len(sizes)} masks")
    parts, ends, at = [np.zeros(0, np.int64)], [0], 4
    for height, width in sizes.tolist():
        if len(content) - at < 24:
            raise loader.wrong("masks_rles", f"the file ends at offset {at}")
        h, w, count = struct.unpack_from("<QQQ", content, at)
        at += 24
        if (h, w) != (height, width) or count > (len(content) - at) // 4:
            raise loader.wrong(
                "masks_rles", f"a mask of {h} × {w} with {count} runs at offset {at - 24}"
            )
        runs = np.frombuffer(content, "<u4", count, at).astype(np.int64)
        if int(runs.sum()) != height * width:
            raise loader.wrong(
                "masks_rles", f"run lengths of {int(runs.sum())} pixels at offset {at}"
            )
        parts.append(runs)
        ends.append(ends[-1] + count)
        at += 4 * count
    return np.concatenate(parts), np.array(ends, np.int64)


def _check(loader: _Loader, found: Annotations) -> None:
    """Check that polygons and masks refer to objects and vertices of their pictures."""
    objects = np.diff(found.box_starts)
    wanted = np.repeat(objects, np.diff(found.mask_starts))
    if ((found.run_objects < 0) | (found.run_objects >= wanted)).any():
        raise loader.wrong("masks_rles_idx", "a mask of an object that does not exist")
    counts = np.diff(found.polygon_starts)
    number, begin, end = found.polygons.T
    most = np.repeat(objects, counts), np.repeat(np.diff(found.vertex_starts), counts)
    if ((number < 0) | (number >= most[0]) | (begin < 0) | (begin > end) | (end > most[1])).any():
        raise loader.wrong("polygon_data", "a polygon of an object or a vertex that does not exist")
