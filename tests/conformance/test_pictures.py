"""jpeg_compression_distortion, dump_image and optical_flow."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import nvidia.dali.experimental.dynamic as upstream
import pytest

import ndd
from ndd.codecs import flow_engine
from tests.helpers import arrays, samples

from .modes import MODES, error_everywhere, same_everywhere, same_on_the_gpu
from .oracle import check, per_sample

SIZES = [(1, 1), (5, 7), (16, 16), (17, 31), (40, 64), (3, 200)]
# Few columns are not interpolated; a group of blocks is 128 pixels wide.
ODD_SIZES = [(2, 2), (31, 4), (9, 3), (8, 5), (33, 129), (26, 134)]


def photos(sizes=SIZES, seed=0):
    """Waves of all lengths with some noise: JPEG leaves something of them."""
    rng = np.random.default_rng(seed)
    found = []
    for h, w in sizes:
        y, x = np.mgrid[:h, :w]
        waves = [np.sin(x / 7 + y / 3), np.cos(y / 5 - x / 11), np.sin(x * y / 90)]
        image = 128 + 90 * np.stack(waves, axis=-1) + rng.normal(0, 20, (h, w, 3))
        found.append(np.clip(image, 0, 255).astype(np.uint8))
    return found


# -- jpeg_compression_distortion -----------------------------------------------------------------


def test_jpeg_qualities():
    """Equal to upstream's, which encodes and decodes with libjpeg-turbo."""
    x = photos()
    for quality in (1, 10, 50, 75, 95, 100, 0, -3, 1000):
        check("jpeg_compression_distortion", x, layout="HWC", quality=quality)
    each = per_sample([-5, 20, 40, 60, 80, 300])
    check("jpeg_compression_distortion", x, layout="HWC", quality=each)
    check("jpeg_compression_distortion", x)
    check("jpeg_compression_distortion", x, batch=False, quality=5)
    check("jpeg_compression_distortion", photos(ODD_SIZES), quality=90)


def test_jpeg_of_extremes():
    flat = [np.full((9, 11, 3), v, np.uint8) for v in (0, 255)]
    noise = samples([(24, 24, 3), (8, 1, 3)])
    for quality in (1, 50, 100):
        check("jpeg_compression_distortion", flat + noise, layout="HWC", quality=quality)


def test_jpeg_of_sequences():
    frames = photos([(20, 30)] * 3)
    x = [np.stack(frames), np.stack(frames[:1]), np.stack(photos([(9, 4)] * 2))]
    check("jpeg_compression_distortion", x, layout="FHWC", quality=per_sample([90, 10, 30]))
    check("jpeg_compression_distortion", x, quality=30)


def test_jpeg_of_nothing():
    for shape, layout in (((0, 4, 3), "HWC"), ((4, 0, 3), "HWC"), ((0, 4, 5, 3), "FHWC")):
        x = ndd.zeros(shape=list(shape), dtype=ndd.uint8, layout=layout)
        assert ndd.jpeg_compression_distortion(x).shape == shape


def distorted(x):
    y = ndd.jpeg_compression_distortion(ndd.flip(x), quality=ndd.batch([5, 10, 30, 50, 70, 90]))
    return ndd.brightness(y, brightness=1.5)


def test_jpeg_in_all_modes():
    same_everywhere(lambda: distorted(ndd.batch(photos(), layout="HWC")))


@pytest.mark.gpu
def test_jpeg_on_the_gpu():
    same_on_the_gpu(distorted, photos(), "HWC")


def test_jpeg_of_strided_memory():
    """Memory of others with any strides, which the codec gets as a copy."""
    image = photos([(20, 30)])[0]
    turned = image[::-1, ::2]
    got = ndd.jpeg_compression_distortion(ndd.as_tensor(turned, layout="HWC"))
    want = ndd.jpeg_compression_distortion(ndd.tensor(turned.copy(), layout="HWC"))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_jpeg_after_decoding(tmp_path):
    """In one pipeline with a decoder and a kernel."""
    import cv2

    file = tmp_path / "photo.jpg"
    cv2.imwrite(str(file), photos([(40, 64)])[0])
    batch = ndd.imread([file] * 5)
    got = ndd.jpeg_compression_distortion(batch, quality=20) + 1
    decoded = np.asarray(ndd.imread(file))
    want = ndd.jpeg_compression_distortion(ndd.tensor(decoded, layout="HWC"), quality=20)
    for found in arrays(got):
        np.testing.assert_array_equal(found, np.asarray(want + 1))


def test_jpeg_errors():
    def image(*shape, dtype=ndd.uint8, layout="HWC"):
        return ndd.zeros(shape=list(shape), dtype=dtype, layout=layout)

    cases = [
        (TypeError, "`input` must be of uint8, got f32", image(4, 4, 3, dtype=ndd.float32), 50),
        (ValueError, "`input` must have 3 channels, sample 0 of shape (4, 4, 1) (HWC) has 1",
         image(4, 4, 1), 50),
        (ValueError, "the layout 'CHW' does not match any of the allowed layouts: HWC, FHWC",
         image(3, 4, 4, layout="CHW"), 50),
        (ValueError, "sample 0 of shape (1, 70000, 3) is too large for JPEG: height and width may "
         "be 65500 at most", image(1, 70000, 3), 50),
        (ValueError, "argument `quality` must be a number or one number per sample, got shape (2,)",
         image(4, 4, 3), ndd.tensor([1, 2])),
    ]  # fmt: skip
    for kind, text, x, quality in cases:
        error_everywhere(
            kind, text,
            lambda x=x, quality=quality: ndd.jpeg_compression_distortion(x, quality=quality),
        )  # fmt: skip


# -- dump_image ----------------------------------------------------------------------------------


def dumped(folder):
    return {p.name: p.read_bytes() for p in sorted(Path(folder).iterdir())}


def test_dumped_files(tmp_path, monkeypatch):
    """The same files as upstream's, byte by byte, written before the call returns."""
    x = [photos([(3, 5)])[0], photos([(2, 1)])[0], photos([(1, 1)])[0]]
    grey = [a[..., :1].copy() for a in x]
    found = {}
    for lib in (ndd, upstream):
        (tmp_path / lib.__name__).mkdir()
        monkeypatch.chdir(tmp_path / lib.__name__)
        with lib.EvalMode.sync_cpu:
            same = lib.dump_image(lib.batch(x, layout="HWC"), suffix="rgb")
            lib.dump_image(lib.batch(grey), suffix="grey")
            lib.dump_image(lib.tensor(x[0]))
        found[lib] = dumped(".")
        assert (same.layout, str(same.dtype), list(same.shape)) == (
            "HWC", "u8", [a.shape for a in x],
        )  # fmt: skip
        for a, b in zip(same.tensors, x, strict=True):
            np.testing.assert_array_equal(np.array(a), b)
    assert found[ndd] == found[upstream] and len(found[ndd]) == 7


def test_dumps_are_written_at_the_call(tmp_path, monkeypatch):
    """In every mode, also if nobody uses the result."""
    monkeypatch.chdir(tmp_path)
    image = ndd.ones(shape=[2, 2, 3], dtype=ndd.uint8, layout="HWC")
    for mode in MODES:
        with mode:
            ndd.dump_image(ndd.brightness(image, brightness=2.0), suffix=mode.name)
            assert Path(f"0-{mode.name}-0.ppm").read_text().split()[4] == "2"


def test_dumps_in_a_loop(tmp_path, monkeypatch):
    """Each iteration writes its own images, however far ahead the loop works."""
    monkeypatch.chdir(tmp_path)
    names = []
    for k in range(12):
        names.append(tmp_path / f"{k}.ppm")
        names[-1].write_text(f"P3 1 1 255 {k} {k} {k} ")
    reader = ndd.readers.File(files=[str(n) for n in names])
    for k, (files, _) in enumerate(reader.next_epoch(batch_size=1)):
        image = ndd.dump_image(ndd.decoders.image(files), suffix="loop")
        assert (tmp_path / "0-loop-0.ppm").read_text().split()[4] == str(k)
        assert arrays(image)[0].ravel().tolist() == [k, k, k]


@pytest.mark.gpu
def test_dump_from_the_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    monkeypatch.chdir(tmp_path)
    x = ndd.batch(photos([(3, 5)]), layout="HWC")
    assert ndd.dump_image(x.gpu(), suffix="gpu").device.device_type == "gpu"
    ndd.dump_image(x, suffix="cpu")
    files = dumped(".")
    assert files["0-gpu-0.ppm"] == files["0-cpu-0.ppm"]


def test_dump_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def zeros(*shape, dtype=ndd.uint8):
        return ndd.zeros(shape=list(shape), dtype=dtype)

    cases = [
        (TypeError, "`input` must be of uint8, got f32", zeros(2, 2, 3, dtype=ndd.float32), {}),
        (ValueError, "`input` must have three dimensions (HWC), got 2", zeros(2, 2), {}),
        (ValueError, "images must have 1 or 3 channels, sample 0 of shape (2, 2, 4) has 4",
         zeros(2, 2, 4), {}),
        (ValueError, "`input_layout` must be 'HWC', got 'CHW'", zeros(3, 2, 2),
         {"input_layout": "CHW"}),
        (ValueError, "`suffix` must be a part of a file's name, got '../up'", zeros(2, 2, 3),
         {"suffix": "../up"}),
    ]  # fmt: skip
    for kind, text, x, choices in cases:
        error_everywhere(
            kind, text, lambda x=x, choices=choices: ndd.dump_image(x, **choices)
        )  # fmt: skip
    assert not dumped(".")


# -- optical_flow --------------------------------------------------------------------------------


def video(*shape, dtype=ndd.uint8):
    return ndd.zeros(shape=list(shape), dtype=dtype, layout="FHWC")


FLOW_ERRORS = [
    (TypeError, "`input_0` must be of uint8, got f32", video(3, 8, 8, 3, dtype=ndd.float32), {}),
    (ValueError, "`input_0` must have two frames at least, sample 0 is of shape (1, 8, 8, 3)",
     video(1, 8, 8, 3), {}),
    (ValueError, "`input_0` must have 3 channels, sample 0 is of shape (2, 8, 8, 1) (FHWC)",
     video(2, 8, 8, 1), {}),
    (ValueError, "`input_0` must have 1 channels", video(2, 8, 8, 3), {"image_type": "GRAY"}),
    (ValueError, "`input_0` must have pixels", video(2, 0, 8, 3), {}),
    (ValueError, "`preset` must be one of 0.0, 0.5, 1.0, got 0.3", video(2, 8, 8, 3),
     {"preset": 0.3}),
    (ValueError, "`output_grid` must be one of 1, 2, 4, got 3", video(2, 8, 8, 3),
     {"output_grid": 3}),
    (ValueError, "`output_grid` must be one of 1, 2, 4, got 8", video(2, 8, 8, 3),
     {"output_format": 8}),
    (ValueError, "`hint_grid` must be one of 1, 2, 4, 8, got 5", video(2, 8, 8, 3),
     {"hint_grid": 5}),
    (ValueError, "`image_type` must be RGB, BGR or GRAY, got YCbCr", video(2, 8, 8, 3),
     {"image_type": "YCbCr"}),
    (ValueError, "enable_external_hints=True: one of both is missing", video(2, 8, 8, 3),
     {"enable_external_hints": True}),
    (ValueError, "`input_1` must have the shape (1, 2, 2, 2) (FHWC) for sample 0, got (1, 3, 2, 2)",
     video(2, 8, 8, 3),
     {"enable_external_hints": True, "input_1": ndd.zeros(shape=[1, 3, 2, 2], dtype=ndd.float32)}),
    (TypeError, "`input_1` must be of float32, got u8", video(2, 8, 8, 3),
     {"enable_external_hints": True, "input_1": ndd.zeros(shape=[1, 2, 2, 2], dtype=ndd.uint8)}),
    (RuntimeError, "the optical-flow engine is a part of GPUs: use device='gpu'",
     video(2, 8, 8, 3), {}),
]  # fmt: skip


def test_flow_errors():
    for kind, text, x, choices in FLOW_ERRORS:
        error_everywhere(
            kind, text, lambda x=x, choices=choices: ndd.optical_flow(x, **choices)
        )  # fmt: skip


@pytest.mark.gpu
def test_flow_without_an_engine(monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    x = video(2, 8, 8, 3)
    error_everywhere(
        RuntimeError, "a simulated GPU has no optical-flow engine: a real GPU is needed",
        lambda: ndd.optical_flow(x, device="gpu"),
    )  # fmt: skip
    monkeypatch.setattr(flow_engine, "simulating", lambda: False)
    for library in (None, object()):
        monkeypatch.setitem(sys.modules, "cv2", library)
        error_everywhere(
            RuntimeError, "the optical-flow engine needs OpenCV with CUDA",
            lambda: ndd.optical_flow(x, device="gpu"),
        )  # fmt: skip


class Engine:
    """Stands for OpenCV's driver of the engine: the motion is the difference of the brightness."""

    COLOR_RGB2GRAY, COLOR_BGR2GRAY = "rgb", "bgr"

    def __init__(self):
        self.cuda = self
        self.made, self.hints = [], []

    def cvtColor(self, frame, code):
        return frame[..., 0 if code == "rgb" else 2]

    def NvidiaOpticalFlow_2_0_create(self, *arguments):
        self.made.append(arguments)
        return self

    def calc(self, first, second, _flow, hint=None):
        self.hints.append(hint)
        grid = self.made[-1][2]
        moved = second.astype(np.float32)[::grid, ::grid] - first[::grid, ::grid]
        return np.stack([moved, -moved], axis=-1), None

    def convertToFloat(self, flow, _):
        return flow

    def collectGarbage(self):
        pass


@pytest.mark.gpu
def test_flow_with_an_engine(monkeypatch):
    """The call that real hardware would get, and what becomes of its result."""
    monkeypatch.setenv("NDD_GPU", "simulate")
    monkeypatch.setattr(flow_engine, "simulating", lambda: False)
    library = Engine()
    monkeypatch.setitem(sys.modules, "cv2", library)
    x = samples([(3, 9, 6, 3), (2, 4, 4, 3)])
    hints = [np.full((2, 5, 3, 2), 1.5, np.float32), np.full((1, 2, 2, 2), -2.0, np.float32)]
    flow = ndd.optical_flow(
        ndd.batch(x, layout="FHWC").gpu(), ndd.batch(hints).gpu(), enable_external_hints=True,
        enable_temporal_hints=True, hint_grid=2, output_grid=4, preset=0.5, image_type="BGR",
    )  # fmt: skip
    assert flow.device.device_type == "gpu" and flow.layout == "FHWC"
    assert flow.shape == [(2, 3, 2, 2), (1, 1, 1, 2)] and flow.dtype is ndd.float32
    for found, frames in zip(arrays(flow), x, strict=True):
        moved = np.diff(frames[:, ::4, ::4, 2].astype(np.float32), axis=0)
        np.testing.assert_array_equal(found, np.stack([moved, -moved], axis=-1))
    assert library.made == [((6, 9), 10, 4, 2, True, True, False, 0),
                            ((4, 4), 10, 4, 2, True, True, False, 0)]  # fmt: skip
    assert [h.dtype.name for h in library.hints] == ["int16"] * 3
    assert (library.hints[0] == 48).all() and (library.hints[2] == -64).all()
    monkeypatch.setattr(library, "calc", lambda *_a, **_k: 1 / 0)
    with pytest.raises(RuntimeError, match="engine failed for sample 0: division by zero"):
        ndd.optical_flow(video(2, 8, 8, 3), device="gpu").cpu().evaluate()
