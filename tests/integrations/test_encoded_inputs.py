"""Decoders take `bytes`, lists of `bytes`, PIL pictures and what Hugging Face's data sets give."""

from __future__ import annotations

import io
import os
import wave

import numpy as np
import pytest
from PIL import Image

import ndd
from tests.helpers import assert_same


def picture(k: int = 0, mode: str = "RGB") -> Image.Image:
    values = np.random.default_rng(k).integers(0, 256, (5 + k, 7, 3), np.uint8)
    return Image.fromarray(values).convert(mode)


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


FILES = [png(picture(k)) for k in range(3)]


def wanted(files=FILES, **options) -> ndd.Batch:
    return ndd.decoders.image(ndd.batch([np.frombuffer(f, np.uint8) for f in files]), **options)


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)]
)
def test_bytes_of_all_sorts(kind, mode):
    one = ndd.decoders.image(kind(FILES[0]))
    assert isinstance(one, ndd.Tensor)
    assert_same(one, wanted(FILES[:1]))
    for files in ([kind(f) for f in FILES], tuple(kind(f) for f in FILES)):
        assert_same(ndd.decoders.image(files), wanted())
    same = [kind(FILES[0])] * 2  # equally long files are not a matrix
    assert_same(ndd.decoders.image(same), wanted(FILES[:1] * 2))


def test_a_buffer_that_changes_later():
    data = bytearray(FILES[0])
    with ndd.EvalMode.deferred:
        found = ndd.decoders.image([data])
        data[-30:] = bytes(30)
    assert_same(found, wanted(FILES[:1]))


def test_pictures_of_pil(mode):
    pictures = [picture(k) for k in range(3)]
    assert_same(ndd.decoders.image(pictures), wanted())
    assert_same(ndd.decoders.image(pictures[0]), wanted(FILES[:1]))
    crops = dict(crop=[4, 4])
    assert_same(ndd.decoders.image_crop(pictures, **crops),
                ndd.decoders.image_crop(list(FILES), **crops))  # fmt: skip
    gray = ndd.decoders.image([picture(mode="L")], output_type="GRAY")
    assert np.asarray(gray.tensors[0])[..., 0].tolist() == np.asarray(picture(mode="L")).tolist()
    for other in ("RGBA", "P", "1", "CMYK"):
        assert ndd.decoders.image([picture(mode=other)]).shape == [(5, 7, 3)]
    deep = Image.fromarray(np.array([[0, 300], [65535, 7]], np.uint16))
    values = ndd.decoders.image(deep, output_type="GRAY", dtype="uint16")
    assert np.asarray(values)[..., 0].tolist() == [[0, 300], [65535, 7]]


def test_entries_of_data_sets(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(FILES[1])
    entries = [{"bytes": FILES[0], "path": None}, {"bytes": None, "path": str(path)}]
    assert_same(ndd.decoders.image(entries), wanted(FILES[:2]))
    column = np.empty(2, object)
    column[:] = FILES[:2]
    assert_same(ndd.decoders.image(column), wanted(FILES[:2]))


def test_sounds_and_shapes():
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(np.arange(10, dtype=np.int16).tobytes())
    sound, rate = ndd.decoders.audio(stream.getvalue(), dtype="int16")
    assert np.asarray(sound).ravel().tolist() == list(range(10)) and float(rate) == 8000
    shapes = ndd.peek_image_shape(FILES)
    assert [np.asarray(t).tolist() for t in shapes.tensors] == [[5, 7, 3], [6, 7, 3], [7, 7, 3]]


def test_mistakes_keep_their_messages():
    with pytest.raises(TypeError, match=r"decoders\.image: "):
        ndd.decoders.image("x.jpg")
    with pytest.raises(TypeError, match=r"flip: .*got bytes"):
        ndd.flip(FILES[0])
    with pytest.raises(Exception, match=r"decoders\.image: .*sample 1"):
        ndd.decoders.image([FILES[0], b"no picture"]).evaluate()


def test_set_transform_of_hugging_face(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setitem(os.environ, "HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    for decode in (True, False):
        features = datasets.Features(
            {"image": datasets.Image(decode=decode), "label": datasets.Value("int64")}
        )
        rows = {"image": [{"bytes": f, "path": None} for f in FILES], "label": [0, 1, 2]}
        data = datasets.Dataset.from_dict(rows, features=features)

        def transform(rows):
            x = ndd.resize(ndd.decoders.image(rows["image"]), size=[4, 4])
            return {"image": list(x.torch()), "label": rows["label"]}

        data.set_transform(transform)
        item = data[1:3]
        assert item["label"] == [1, 2]
        reference = ndd.resize(wanted(), size=[4, 4])
        for k, found in enumerate(item["image"], 1):
            assert found.numpy().tolist() == np.asarray(reference.tensors[k]).tolist()
