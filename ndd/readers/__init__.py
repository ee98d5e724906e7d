"""Readers: data sets enter, batches leave, in epochs that can be interrupted and resumed.

>>> import ndd, pathlib, tempfile
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> files = [folder / f"{i}.bin" for i in range(4)]
>>> for i, file in enumerate(files):
...     _ = file.write_bytes(bytes([i]))
>>> reader = ndd.readers.File(files=files, random_shuffle=True, seed=1)
>>> sorted(label.item() for data, label in reader.next_epoch())
[0, 1, 2, 3]
"""

from __future__ import annotations

from .caffe import Caffe
from .caffe2 import Caffe2
from .coco import COCO
from .epoch import Epoch
from .files import File
from .mxnet import MXNet
from .nemo_asr import NemoAsr
from .numpy_files import Numpy
from .reader import Reader
from .state import ReaderState
from .tfrecords import TFRecord
from .video import Video
from .video_resize import VideoResize
from .webdataset import Webdataset

__all__ = [
    "COCO",
    "Caffe",
    "Caffe2",
    "Epoch",
    "File",
    "MXNet",
    "NemoAsr",
    "Numpy",
    "Reader",
    "ReaderState",
    "TFRecord",
    "Video",
    "VideoResize",
    "Webdataset",
]
