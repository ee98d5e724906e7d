"""NVDEC, with a stand-in for PyNvVideoCodec that decodes elementary streams with FFmpeg."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest

import ndd
from ndd.codecs.video import nvdec
from ndd.codecs.video.elementary import Elementary
from ndd.codecs.video.video_index import build_index
from tests.helpers import arrays

from .clips import EXACT, FRAMES, HEIGHT, WIDTH, by_ffmpeg, encoded

_FFMPEG = {
    "H264": "h264",
    "HEVC": "hevc",
    "VP8": "vp8",
    "VP9": "vp9",
    "AV1": "libdav1d",
    "MPEG4": "mpeg4",
}
_PITCH = 3 * WIDTH + 64


class _Failure(Exception):
    pass


class _Frame:
    def __init__(self, picture: Any, is_padded: bool) -> None:
        pixels = picture.reformat(format="rgb24", interpolation=EXACT).to_ndarray()
        rows = np.zeros((HEIGHT, _PITCH if is_padded else 3 * WIDTH), np.uint8)
        rows[:, : 3 * WIDTH] = pixels.reshape(HEIGHT, -1)
        self._rows, self._number = rows, picture.pts

    def getPTS(self) -> int:
        return self._number

    def cuda(self) -> list[Any]:
        place = {"shape": (HEIGHT, WIDTH, 3), "typestr": "|u1", "version": 3,
                 "data": (self._rows.ctypes.data, False), "strides": (self._rows.strides[0], 3, 1)}  # fmt: skip
        return [SimpleNamespace(__cuda_array_interface__=place)]


class _Decoder:
    """It knows nothing but packets: parameters must come with them, and so must start codes."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._context = av.codec.CodecContext.create(_FFMPEG[options["codec"]], "r")
        self._is_padded = options["codec"] == "VP9"

    def Decode(self, packet: Any) -> list[_Frame]:
        try:
            if packet.bsl == 0:
                found = self._context.decode(None)
                self._context.flush_buffers()
            else:
                data = av.Packet(ctypes.string_at(packet.bsl_data, packet.bsl))
                data.pts = packet.pts
                found = self._context.decode(data)
        except av.error.FFmpegError as error:
            raise _Failure(str(error)) from None
        return [_Frame(f, self._is_padded) for f in found]


@pytest.fixture
def made(monkeypatch):
    """The options of all decoders that are made."""
    options: list[dict[str, Any]] = []

    def create(**given: Any) -> _Decoder:
        options.append(given)
        return _Decoder(given)

    names = SimpleNamespace(**{name: name for name in _FFMPEG})
    library = SimpleNamespace(
        CreateDecoder=create, PacketData=SimpleNamespace, cudaVideoCodec=names,
        OutputColorType=SimpleNamespace(RGB="RGB"), PyNvVCException=_Failure,
    )  # fmt: skip
    monkeypatch.setenv("NDD_GPU", "simulate")
    monkeypatch.setattr(nvdec, "library", lambda: library)
    monkeypatch.setattr("ndd.ops.video.video_decoder.simulating", lambda: False)
    return options


NAMES = (
    "h264-open.mp4",
    "h264.mkv",
    "h264.ts",
    "hevc.mp4",
    "vp8.webm",
    "vp9.webm",
    "av1.mkv",
    "mpeg4.mp4",
)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_frames_by_number(made, name) -> None:
    want = by_ffmpeg(name)[0]
    data = ndd.tensor(encoded(name))
    video = ndd.decoders.video(
        data, device="gpu", start_frame=20, stride=3, sequence_length=5, fill_value=[1, 2, 3]
    )
    assert str(video.device).startswith("gpu")
    found = np.asarray(video.cpu())
    np.testing.assert_array_equal(found[:4], want[20::3])
    assert (found[4] == [1, 2, 3]).all()
    chosen = [28, 3, 3, 11]
    found = np.asarray(ndd.decoders.video(data, device="gpu", frames=chosen).cpu())
    np.testing.assert_array_equal(found, want[chosen])
    assert len(made) == 2 and all(
        o["outputColorType"] == "RGB" and o["usedevicememory"] for o in made
    )


@pytest.mark.gpu
def test_readers(made, tmp_path) -> None:
    (tmp_path / "clip.mp4").write_bytes(encoded("h264-open.mp4").tobytes())
    options = dict(
        filenames=[str(tmp_path / "clip.mp4")], labels=[7], sequence_length=8, device="gpu"
    )
    want = by_ffmpeg("h264-open.mp4")[0]
    for kind, more in ((ndd.experimental.readers.Video, {}), (ndd.readers.Video, {"dtype": ndd.float32}),
                       (ndd.readers.VideoResize, {"size": [10, 12]})):  # fmt: skip
        videos, labels = kind(**options, **more)(batch_size=2)
        assert {str(o.device)[:3] for o in (videos, labels)} == {"gpu"}
        whole = ndd.batch([want[:8], want[8:16]], layout="FHWC")
        plain = ndd.resize(whole, size=[10, 12]) if "size" in more else whole
        for a, b in zip(arrays(videos.cpu()), arrays(plain), strict=True):
            np.testing.assert_array_equal(a, b)
        assert [t.item() for t in labels.cpu().tensors] == [7, 7]
    assert len(made) == 6


@pytest.mark.gpu
def test_damaged_frames(made) -> None:
    data = encoded("h264.mkv").copy()
    index = build_index(data)
    at, size = int(index.packet_at[9]), int(index.packet_size[9])
    data[at : at + size] = 255
    with pytest.raises(
        ValueError, match=r"decoders.video: sample 0: a unit is longer than its packet"
    ):
        ndd.decoders.video(ndd.tensor(data), device="gpu").evaluate()
    found = np.asarray(ndd.decoders.video(ndd.tensor(data), device="gpu", on_error="fill").cpu())
    assert found.shape[0] == FRAMES and not found[-1].any()
    ndd.decoders.errors.clear()


def test_parameters_that_are_cut_off() -> None:
    from dataclasses import replace

    for name in ("h264.mkv", "hevc.mp4"):
        index = build_index(encoded(name))
        assert Elementary(index).parameters
        for size in (3, 12, 30):
            with pytest.raises(ValueError, match="cut off"):
                Elementary(replace(index, extradata=index.extradata[:size]))


@pytest.mark.gpu
def test_without_the_package(monkeypatch) -> None:
    """The CPU decodes, and one warning says why."""
    import sys

    monkeypatch.setenv("NDD_GPU", "simulate")
    monkeypatch.setattr("ndd.ops.video.video_decoder.simulating", lambda: False)
    monkeypatch.setitem(sys.modules, "PyNvVideoCodec", None)
    nvdec.library.cache_clear()
    data = ndd.tensor(encoded("vp8.webm"))
    with pytest.warns(
        UserWarning, match="decoded on the CPU .* NVDEC needs the package PyNvVideoCodec"
    ):
        first = ndd.decoders.video(data, device="gpu", frames=[4])
    second = ndd.decoders.video(data, device="gpu", frames=[4])
    for video in (first, second):
        np.testing.assert_array_equal(np.asarray(video.cpu()), by_ffmpeg("vp8.webm")[0][[4]])
    nvdec.library.cache_clear()
