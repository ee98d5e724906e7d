"""Load and augment data: calls build a graph, a pass fuses it, generated kernels run it."""

from __future__ import annotations

import sys
from types import ModuleType

from . import (
    auto_augment,
    capture,
    checkpoint,
    decoders,
    experimental,
    io,
    math,
    noise,
    pytorch,
    random,
    readers,
    reductions,
    segmentation,
    tfrecord,
    transforms,
    types,
)
from .core.batch import Batch, as_batch, batch
from .core.suggestions import missing, suggest_names
from .core.tensor import Tensor, as_tensor, tensor
from .kernels.common.threads import ThreadPool
from .kernels.gpu.streams import Stream, stream
from .kernels.ir.dtypes import (
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
from .kernels.ir.dtypes import bool_ as bool
from .ops.audio.levels import preemphasis_filter, to_decibels
from .ops.audio.mel import mel_filter_bank, mfcc
from .ops.audio.resampling import audio_resample
from .ops.audio.silence import nonsilent_region
from .ops.audio.spectra import power_spectrum, spectrogram
from .ops.boxes.bounding_boxes import bb_flip, bbox_paste, bbox_rotate
from .ops.boxes.box_crop import random_bbox_crop
from .ops.boxes.encoder import box_encoder
from .ops.filters.blur import gaussian_blur
from .ops.filters.correlate import filter
from .ops.filters.debayer import debayer
from .ops.filters.laplacian import laplacian
from .ops.geometry.crop_mirror_normalize import crop_mirror_normalize, erase
from .ops.geometry.crops import crop, flip, pad, slice, transpose
from .ops.geometry.paste import multi_paste, paste
from .ops.histograms.clahe import clahe
from .ops.histograms.equalize import equalize
from .ops.images.dump import dump_image
from .ops.images.image_decoders import imread, peek_image_shape
from .ops.images.jpeg_distortion import jpeg_compression_distortion
from .ops.images.optical_flow import optical_flow
from .ops.pointwise.choosing import where
from .ops.pointwise.color import (
    brightness,
    brightness_contrast,
    color_space_conversion,
    color_twist,
    contrast,
    hsv,
    hue,
    saturation,
)
from .ops.pointwise.conversion import cast, cast_like, copy
from .ops.pointwise.masks import coord_flip, coord_transform, grid_mask, lookup_table, one_hot
from .ops.random.crop import random_crop_generator, random_resized_crop
from .ops.random.draws import batch_permutation
from .ops.random.roi_crop import roi_random_crop
from .ops.reduce.normalize import normalize
from .ops.resample.displace import jitter, sphere, water
from .ops.resample.merging import fusion_options
from .ops.resample.resize import resize, resize_crop_mirror, tensor_resize
from .ops.resample.warp import rotate, warp_affine
from .ops.shape.creation import (
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
from .ops.shape.reshape import cat, expand_dims, reinterpret, reshape, squeeze, stack
from .ops.shape.sequence_axis import per_frame, sequence_rearrange
from .readers.external_source import ExternalSource
from .runtime.context import (
    EvalContext,
    EvalMode,
    get_current_stream,
    get_default_stream,
    get_num_threads,
    set_current_stream,
    set_default_stream,
    set_num_threads,
)
from .runtime.device import Device, device
from .tools.explain import explain

__version__ = "0.2.0"

# Seldom used, imported on first use so that `import ndd` stays quick: name → module.
_LAZY: dict[str, str] = {
    "kernel_report": ".tools.roofline",
    "memory_stats": ".runtime.memory",
    "nvtx": ".tools.profiling",
    "profile": ".tools.profiling",
    "report": ".tools.profiling",
    "set_memory_limit": ".runtime.memory",
    "show": ".tools.showing",
    "warmup": ".loop.warmup",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _LAZY:
        value = globals()[name] = getattr(import_module(_LAZY[name], __name__), name)
        return value
    raise missing(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(n for n in globals() if n.startswith("__"))})


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
    "audio_resample",
    "auto_augment",
    "batch",
    "batch_permutation",
    "bb_flip",
    "bbox_paste",
    "bbox_rotate",
    "bfloat16",
    "bool",
    "box_encoder",
    "brightness",
    "brightness_contrast",
    "capture",
    "cast",
    "cast_like",
    "cat",
    "checkpoint",
    "clahe",
    "color_space_conversion",
    "color_twist",
    "contrast",
    "coord_flip",
    "coord_transform",
    "copy",
    "crop",
    "crop_mirror_normalize",
    "debayer",
    "decoders",
    "device",
    "dtype",
    "dump_image",
    "element_extract",
    "equalize",
    "erase",
    "expand_dims",
    "experimental",
    "explain",
    "filter",
    "flip",
    "float16",
    "float32",
    "float64",
    "full",
    "fusion_options",
    "full_like",
    "gaussian_blur",
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
    "jpeg_compression_distortion",
    "kernel_report",
    "laplacian",
    "lookup_table",
    "math",
    "mel_filter_bank",
    "memory_stats",
    "mfcc",
    "multi_paste",
    "noise",
    "nonsilent_region",
    "normalize",
    "nvtx",
    "one_hot",
    "ones",
    "ones_like",
    "optical_flow",
    "pad",
    "paste",
    "peek_image_shape",
    "per_frame",
    "permute_batch",
    "power_spectrum",
    "preemphasis_filter",
    "profile",
    "pytorch",
    "random",
    "random_bbox_crop",
    "random_crop_generator",
    "random_resized_crop",
    "readers",
    "tfrecord",
    "reductions",
    "reinterpret",
    "report",
    "reshape",
    "resize",
    "resize_crop_mirror",
    "roi_random_crop",
    "rotate",
    "saturation",
    "segmentation",
    "sequence_rearrange",
    "set_current_stream",
    "set_default_stream",
    "set_memory_limit",
    "set_num_threads",
    "show",
    "slice",
    "spectrogram",
    "sphere",
    "squeeze",
    "stack",
    "stream",
    "tensor",
    "tensor_resize",
    "to_decibels",
    "transforms",
    "transpose",
    "type_id",
    "types",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "warmup",
    "warp_affine",
    "water",
    "where",
    "zeros",
    "zeros_like",
]

suggest_names(*(v for v in map(globals().get, __all__) if isinstance(v, ModuleType)))
