"""Load and augment data: calls build a graph, a pass fuses it, generated kernels run it."""

from __future__ import annotations

from . import checkpoint, decoders, experimental, io, math, random, readers, transforms, types
from .batch import Batch, as_batch, batch
from .context import (
    EvalContext,
    EvalMode,
    get_current_stream,
    get_default_stream,
    get_num_threads,
    set_current_stream,
    set_default_stream,
    set_num_threads,
)
from .decoders import imread
from .device import Device, device
from .explain import explain
from .external_source import ExternalSource
from .kernels.dtypes import (
    DataType,
    DType,
    ImageType,
    InterpType,
    bfloat16,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    type_id,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .kernels.dtypes import bool_ as bool
from .kernels.streams import Stream, stream
from .kernels.threads import ThreadPool
from .ops.boxes import bb_flip, bbox_paste, bbox_rotate
from .ops.color import (
    brightness,
    brightness_contrast,
    color_space_conversion,
    color_twist,
    contrast,
    hsv,
    hue,
    saturation,
)
from .ops.conversion import cast, cast_like, copy
from .ops.creation import (
    element_extract,
    full,
    full_like,
    get_property,
    ones,
    ones_like,
    permute_batch,
    zeros,
    zeros_like,
)
from .ops.decoders import peek_image_shape
from .ops.displace import jitter, sphere, water
from .ops.geometry import crop, flip, pad, slice, transpose
from .ops.masks import coord_flip, coord_transform, grid_mask, lookup_table, one_hot
from .ops.merging import fusion_options
from .ops.normalize import crop_mirror_normalize, erase
from .ops.paste import multi_paste, paste
from .ops.random_crop import random_crop_generator, random_resized_crop
from .ops.resize import resize, resize_crop_mirror, tensor_resize
from .ops.shapes import cat, expand_dims, reinterpret, reshape, squeeze, stack
from .ops.warp import rotate, warp_affine
from .tensor import Tensor, as_tensor, tensor

__version__ = "0.1.0"

# Seldom used, imported on first use so that `import ndd` stays quick: name → module.
_LAZY: dict[str, str] = {}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _LAZY:
        value = globals()[name] = getattr(import_module(_LAZY[name], __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = [
    "Batch",
    "DType",
    "DataType",
    "Device",
    "EvalContext",
    "EvalMode",
    "ExternalSource",
    "ImageType",
    "InterpType",
    "Stream",
    "Tensor",
    "ThreadPool",
    "as_batch",
    "as_tensor",
    "batch",
    "bb_flip",
    "bbox_paste",
    "bbox_rotate",
    "bfloat16",
    "bool",
    "brightness",
    "brightness_contrast",
    "cast",
    "cast_like",
    "cat",
    "checkpoint",
    "color_space_conversion",
    "color_twist",
    "contrast",
    "coord_flip",
    "coord_transform",
    "copy",
    "crop",
    "crop_mirror_normalize",
    "decoders",
    "device",
    "dtype",
    "element_extract",
    "erase",
    "expand_dims",
    "experimental",
    "explain",
    "flip",
    "float16",
    "float32",
    "float64",
    "full",
    "fusion_options",
    "full_like",
    "get_current_stream",
    "get_default_stream",
    "get_num_threads",
    "get_property",
    "grid_mask",
    "hsv",
    "hue",
    "imread",
    "int8",
    "int16",
    "int32",
    "int64",
    "io",
    "jitter",
    "lookup_table",
    "math",
    "multi_paste",
    "one_hot",
    "ones",
    "ones_like",
    "pad",
    "paste",
    "peek_image_shape",
    "permute_batch",
    "random",
    "random_crop_generator",
    "random_resized_crop",
    "readers",
    "reinterpret",
    "reshape",
    "resize",
    "resize_crop_mirror",
    "rotate",
    "saturation",
    "set_current_stream",
    "set_default_stream",
    "set_num_threads",
    "slice",
    "sphere",
    "squeeze",
    "stack",
    "stream",
    "tensor",
    "tensor_resize",
    "transforms",
    "transpose",
    "type_id",
    "types",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "warp_affine",
    "water",
    "zeros",
    "zeros_like",
]
