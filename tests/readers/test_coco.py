"""readers.COCO: boxes, labels, polygons and masks as the oracle gives them, saved annotations, errors."""

from __future__ import annotations

import json
import warnings

import numpy as np
import nvidia.dali.experimental.dynamic as dali
import pytest
from pycocotools import mask as coco_mask

import ndd
from ndd.readers.stores import outlines as masks
from tests.readers.helpers import info


def content():
    mask = np.zeros((8, 8), np.uint8, order="F")
    mask[2:5, 3:6] = 1
    compressed = coco_mask.encode(mask)["counts"].decode()
    return {
        "images": [
            {"id": 7, "width": 20, "height": 10, "file_name": "a.png"},
            {"file_name": "b.png", "id": 3, "width": 8, "height": 8},
            {"id": 5, "width": 5, "height": 6, "file_name": "c.png"},
            {"id": 9, "width": 40, "height": 30, "file_name": "sub/d.png"},
            {"id": 8, "width": 4, "height": 4, "file_name": "e.png"},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 1, "name": "person"}, {"id": 90, "name": "x"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 18, "bbox": [1.5, 2, 6.25, 4], "iscrowd": 0,
             "segmentation": [[1, 1, 6, 1, 6, 5, 1, 5], [8, 2, 12, 2, 10, 6]]},
            {"id": 2, "image_id": 3, "category_id": 1, "bbox": [0, 0, 8, 8], "iscrowd": 1,
             "segmentation": {"size": [8, 8], "counts": [10, 5, 20, 8, 21]}},
            {"id": 3, "image_id": 7, "category_id": 90, "bbox": [0, 0, 0.05, 5], "iscrowd": 0,
             "segmentation": [[0, 0, 0.05, 0, 0.05, 5]]},
            {"id": 4, "image_id": 7, "category_id": 1, "bbox": [3, 3, 5, 5], "iscrowd": 0,
             "segmentation": [[3, 3, 8, 3, 8, 8, 3, 8]]},
            {"id": 5, "image_id": 3, "category_id": 18, "bbox": [1, 1, 2, 2], "iscrowd": 0,
             "segmentation": {"size": [8, 8], "counts": compressed}},
            {"id": 6, "image_id": 9, "category_id": 90, "bbox": [1.3, 1.7, 20.11, 20.7],
             "segmentation": [[1.37, 1.2, 31.3, 5.55, 13.91, 28.03], [20, 20, 45, -3, 38.5, 33]]},
            # Alone in its picture: an object without outline makes upstream draw no mask at all.
            {"id": 7, "image_id": 5, "category_id": 1, "bbox": [1, 1, 2, 2], "segmentation": []},
            {"id": 8, "image_id": 77, "category_id": 1, "bbox": [1, 1, 2, 2]},
        ],
    }  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coco")
    (folder / "sub").mkdir()
    for picture in content()["images"]:
        (folder / picture["file_name"]).write_bytes(picture["file_name"].encode())
    (folder / "all.json").write_text(json.dumps(content()))
    return folder


def samples(library, root, **options):
    options = {"file_root": str(root), "annotations_file": str(root / "all.json"), **options}
    options = {k: v for k, v in options.items() if v is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = library.readers.COCO(**options)
        items = list(reader.next_epoch(batch_size=1))
    return [
        [(str(b.dtype), b.shape, b.layout or None, np.asarray(b.tensors[0]).tolist(), info(library, b)) for b in item]
        for item in items
    ]  # fmt: skip


OPTIONS = [
    dict(),
    dict(image_ids=True, ltrb=True, ratio=True),
    dict(ratio=True, avoid_class_remapping=True),
    dict(ltrb=True),
    dict(skip_empty=True, size_threshold=3.0, include_iscrowd=False),
    dict(skip_empty=True),
    dict(size_threshold=0.0),
    dict(polygon_masks=True),
    dict(polygon_masks=True, ratio=True, image_ids=True, ltrb=True),
    dict(masks=True),
    dict(pixelwise_masks=True),
    dict(pixelwise_masks=True, ratio=True, image_ids=True),
    dict(pixelwise_masks=True, avoid_class_remapping=True, include_iscrowd=False),
    dict(images=["c.png", "a.png", "c.png"]),
    dict(images=["a.png", "b.png"], skip_empty=True, pixelwise_masks=True),
    dict(save_img_ids=True),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_samples_equal_the_oracles(root, options):
    wanted = samples(dali, root, **options)
    assert samples(ndd, root, **options) == wanted and len(wanted) > 0


# pycocotools was made for NumPy 1.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")
def test_masks_equal_pycocotools():
    rng = np.random.default_rng(1)
    for trial in range(300):
        height, width = rng.integers(1, 40, 2).tolist()
        points = rng.uniform(-5, 45, (rng.integers(3, 9), 2))
        if trial % 3 == 0:
            points = np.round(2 * points) / 2
        (rle,) = coco_mask.frPyObjects([points.ravel().tolist()], height, width)
        wanted = coco_mask.decode(rle).astype(bool)
        got = masks.polygon_mask(points, height, width)
        np.testing.assert_array_equal(got.reshape(width, height).T, wanted)
        runs = masks.run_lengths(rle["counts"].decode())
        again = masks.run_length_mask(runs, height, width)
        np.testing.assert_array_equal(again.reshape(width, height).T, wanted)


KINDS = [dict(), dict(polygon_masks=True, image_ids=True), dict(pixelwise_masks=True)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("more", [dict(), dict(ltrb=True, ratio=True)], ids=str)
def test_saved_annotations_are_exchanged_with_the_oracle(root, tmp_path, kind, more):
    wanted = samples(dali, root, **kind, **more)
    for writer, readers in ((ndd, (ndd, dali)), (dali, (ndd,))):
        folder = tmp_path / writer.__name__
        folder.mkdir()
        saving = dict(
            save_preprocessed_annotations=True, save_preprocessed_annotations_dir=str(folder)
        )
        assert samples(writer, root, **saving, **kind, **more) == wanted
        if "pixelwise_masks" in kind and more:
            continue  # upstream saves vertices that are relative, and cannot use them
        for library in readers:
            got = samples(
                library, root, annotations_file=None, preprocessed_annotations=str(folder), **kind
            )
            assert got == wanted, (writer, library)
    for file in (tmp_path / "ndd").iterdir():
        if "pixelwise_masks" not in kind or not more:
            other = tmp_path / dali.__name__ / file.name
            assert file.read_bytes() == other.read_bytes(), file.name


def broken(change):
    made = content()
    change(made)
    return json.dumps(made)


def put(kind, k, **values):
    return broken(lambda made: made[kind][k].update(values))


def test_wrong_annotations(root, tmp_path):
    bad = tmp_path / "bad.json"
    for text, message in (
        ("{", "is not a JSON file: Expecting property name .*char 1"),
        ("[" * 100_000, "is not a JSON file"),
        ("[]", "must be a dictionary with lists of images and annotations"),
        ('{"images": {}}', "must be a dictionary with lists"),
        ("{}", "has no images"),
        (put("images", 1, id="x"), r"images\[1\]: `id` must be a 32-bit integer, got 'x'"),
        (put("images", 1, id=2**40), r"images\[1\]: `id` must be a 32-bit integer"),
        (put("images", 1, id=7), r"images\[1\]: id 7 is used twice"),
        (put("images", 0, file_name=3), r"images\[0\]: `file_name` must be a text, got 3"),
        (put("images", 0, height=0), r"images\[0\]: a picture of 0 × 20 pixels"),
        (put("images", 0, height=2**20, width=2**20), r"images\[0\]: a picture of"),
        (
            put("annotations", 3, bbox=[1, 2, 3]),
            r"annotations\[3\]: `bbox` must be four numbers, got \[1, 2, 3\]",
        ),
        (
            put("annotations", 3, bbox="x"),
            r"annotations\[3\]: `bbox` must be a list of numbers, got 'x'",
        ),
        (
            put("annotations", 3, bbox=[1, 2, 3, float("nan")]),
            r"annotations\[3\]: `bbox` must be a list of numbers",
        ),
        (
            put("annotations", 3, category_id=77),
            r"annotations\[3\]: category 77 is not among the categories",
        ),
        (
            put("annotations", 3, image_id=None),
            r"annotations\[3\]: `image_id` must be a 32-bit integer, got None",
        ),
        (
            put("annotations", 0, segmentation=[["x"]]),
            r"annotations\[0\]: `segmentation` must be a list of numbers",
        ),
        (
            put("annotations", 0, segmentation=[3]),
            r"annotations\[0\]: `segmentation` must be a list of numbers, got 3",
        ),
        (
            put("annotations", 1, segmentation={"size": [8, 9], "counts": [72]}),
            r"annotations\[1\]: `segmentation`: run lengths for \[8, 9\]",
        ),
        (
            put("annotations", 1, segmentation={"size": [8, 8], "counts": [60]}),
            "run lengths of 60 pixels, wanted 64",
        ),
        (
            put("annotations", 1, segmentation={"size": [8, 8], "counts": [-4, 68]}),
            "must be a text or a list of integers of 0 or more",
        ),
        (
            put("annotations", 1, segmentation={"size": [8, 8], "counts": "\x01"}),
            "an invalid character",
        ),
        (
            put("annotations", 1, segmentation={"size": [8, 8], "counts": "P"}),
            "end inside of a number",
        ),
        (put("annotations", 1, segmentation="x"), "run lengths for None"),
        (
            broken(lambda made: made["annotations"].__setitem__(0, 3)),
            r"annotations\[0\]: `image_id` must be",
        ),
    ):
        bad.write_text(text)
        with pytest.raises(ValueError, match=f"readers.COCO: .*bad.json.*{message}"):
            ndd.readers.COCO(file_root=root, annotations_file=bad, pixelwise_masks=True)


def test_arguments(root, tmp_path):
    good = dict(file_root=root, annotations_file=root / "all.json")
    for options, message in (
        (dict(good, file_root=None), "`file_root` is needed"),
        (
            dict(good, annotations_file=""),
            "`annotations_file` or `preprocessed_annotations` is needed",
        ),
        (
            dict(good, preprocessed_annotations="x"),
            "`annotations_file` or `preprocessed_annotations`",
        ),
        (
            dict(good, polygon_masks=True, pixelwise_masks=True),
            "`pixelwise_masks` and `polygon_masks` exclude",
        ),
        (dict(good, save_preprocessed_annotations=True), "belong together"),
        (dict(good, images=["nope.png"]), "`images` has 'nope.png', which is not in"),
        (dict(good, skip_empty=True, size_threshold=1000.0), "no pictures found in"),
        (
            dict(file_root=root, preprocessed_annotations="x", ratio=True),
            "and `ratio` exclude each other",
        ),
    ):
        with pytest.raises(ValueError, match=f"readers.COCO: .*{message}"):
            ndd.readers.COCO(**options)
    with pytest.raises(FileNotFoundError, match=r"readers.COCO: cannot read .*gone"):
        ndd.readers.COCO(file_root=root, annotations_file="gone")
    with pytest.raises(FileNotFoundError, match=r"readers.COCO: cannot read .*filenames.dat"):
        ndd.readers.COCO(file_root=root, preprocessed_annotations=tmp_path)
    saving = dict(
        save_preprocessed_annotations=True, save_preprocessed_annotations_dir=tmp_path / "gone"
    )
    with pytest.raises(FileNotFoundError, match=r"readers.COCO: cannot write to .*gone"):
        ndd.readers.COCO(**good, **saving)


def test_on_error_keeps_the_annotations(root, tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    options = dict(
        file_root=tmp_path, annotations_file=root / "all.json", images=["a.png", "b.png"]
    )
    reader = ndd.readers.COCO(on_error="fill", **options)
    ((pictures, boxes, _),) = reader.next_epoch(2)
    assert pictures.shape == [(1,), (0,)] and boxes.shape == [(2, 4), (2, 4)]
    assert [e.file for e in reader.errors] == ["b.png"]
    with pytest.raises(FileNotFoundError, match=r"cannot read 'b.png' \(sample 1\)"):
        list(ndd.readers.COCO(**options).next_epoch(2))


def test_a_polygon_that_cannot_be_drawn(root, tmp_path):
    (tmp_path / "x.json").write_text(put("annotations", 0, segmentation=[[0, 0, 1e9, 1, 5, 5]]))
    options = dict(
        file_root=root, annotations_file=tmp_path / "x.json", images=["a.png"], pixelwise_masks=True
    )
    with pytest.raises(ValueError, match="a vertex of a polygon is far outside of the picture"):
        list(ndd.readers.COCO(**options).next_epoch(1))
    ((_, _, _, mask),) = ndd.readers.COCO(**options, on_error="fill").next_epoch(1)
    assert mask.shape == [(1, 1, 1)]
