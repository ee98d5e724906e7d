"""NumPy references for the colour, lookup, mask and coordinate ops, as the CPU oracle computes them.

All arithmetic is float32 in the order written, with no fused multiply-add. Inputs carry the op's natural layout.
"""

import ctypes
import ctypes.util

import numpy as np

f32 = np.float32


def to_float16(values):
    """Round to nearest, ties away from zero (NumPy: to even); 65520 and above become infinite."""
    values = np.asarray(values, f32)
    with np.errstate(over="ignore"):
        near = values.astype(np.float16)
        away = np.nextafter(near, np.copysign(np.float16(np.inf), near))
    tie = np.abs(values.astype(np.float64) - near) == np.abs(away - values.astype(np.float64))
    return np.where(tie & (np.abs(values) > np.abs(near)), away, near)


def convert(values, dtype):
    """Round half away from zero, then saturate. NaN becomes 0, in int32 and int64 the minimum."""
    dtype = np.dtype(dtype)
    if dtype == np.float16:
        return to_float16(values)
    if dtype.kind == "f":
        return values.astype(dtype)
    wide = np.asarray(values, np.float64)
    rounded = np.sign(wide) * np.floor(np.abs(wide) + 0.5)
    if dtype == np.bool_:
        return rounded != 0
    info = np.iinfo(dtype)
    low, high = rounded <= float(info.min), rounded >= float(info.max)
    low |= np.isnan(rounded) & (dtype.name in ("int32", "int64"))
    out = np.where(low | high | np.isnan(rounded), 0, rounded).astype(dtype)
    return np.where(low, info.min, np.where(high, info.max, out)).astype(dtype)


def c_cast(values, dtype):
    """Fill values: integers truncate and wrap."""
    values = np.asarray(values, f32)
    if np.dtype(dtype).kind == "f":
        return convert(values, dtype)
    return values.astype(np.int64).astype(dtype)


# ---------------------------------------------------------------- brightness and contrast

HALF_RANGE = {"uint8": 128, "int16": 16384, "int32": 2**30, "float32": 0.5}
FULL_RANGE = {"uint8": 255, "int16": 32767, "int32": 2**31 - 1, "float32": 1}


def brightness_contrast(
    x, brightness=1, brightness_shift=0, contrast=1, contrast_center=None, dtype=None
):
    dtype = np.dtype(dtype or x.dtype)
    center = f32(HALF_RANGE[x.dtype.name] if contrast_center is None else contrast_center)
    b, shift, c = f32(brightness), f32(brightness_shift), f32(contrast)
    mul = b * c
    add = shift * f32(FULL_RANGE[dtype.name]) + b * (center - c * center)
    return convert(x.astype(f32) * mul + add, dtype)


def brightness(x, brightness=1, brightness_shift=0, dtype=None):
    return brightness_contrast(x, brightness, brightness_shift, dtype=dtype)


def contrast(x, contrast=1, contrast_center=None, dtype=None):
    return brightness_contrast(x, contrast=contrast, contrast_center=contrast_center, dtype=dtype)


# ---------------------------------------------------------------- hue, saturation, value, twist

RGB_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]], f32)
# The oracle's own float32 inverse: 0 to 1 ulp from the exactly rounded one, so it has to be spelled out.
YIQ_TO_RGB = np.array(
    [
        [0.9996643662452698, 0.9565411806106567, 0.6208617091178894],
        [0.9996248483657837, -0.2722744643688202, -0.6474512815475464],
        [1.0028122663497925, -1.1068480014801025, 1.705405592918396],
    ],
    f32,
)


def _libm(name, x):
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    return f32(function(float(x)))


def _matmul(a, b):
    return (a[:, :1] * b[:1] + a[:, 1:2] * b[1:2]) + a[:, 2:] * b[2:]


def _hue_matrix(degrees):
    radians = f32(float(f32(degrees)) * np.pi / 180)
    cos, sin = _libm("cosf", radians), _libm("sinf", radians)
    return np.array([[1, 0, 0], [0, cos, sin], [0, -sin, cos]], f32)


def _saturation_matrix(saturation):
    return np.diag(np.array([1, saturation, saturation], f32))


def _transform(x, matrix, offset, dtype):
    """y = ((m0*r + m1*g) + m2*b) + offset for every pixel."""
    x = x.astype(f32)
    rows = [((x[..., 0] * m[0] + x[..., 1] * m[1]) + x[..., 2] * m[2]) + offset for m in matrix]
    return convert(np.stack(rows, axis=-1), dtype)


def color_twist(x, hue=0, saturation=1, contrast=1, brightness=1, dtype=None):
    b, c = f32(brightness), f32(contrast)
    center = f32(0.5 if x.dtype.kind == "f" else 128)
    matrix = _matmul(
        _matmul(YIQ_TO_RGB * (b * c), _hue_matrix(hue)), _saturation_matrix(saturation)
    )
    return _transform(x, _matmul(matrix, RGB_TO_YIQ), (center - center * c) * b, dtype or x.dtype)


def hue(x, hue=0, dtype=None):
    return color_twist(x, hue=hue, dtype=dtype)


def saturation(x, saturation=1, dtype=None):
    return color_twist(x, saturation=saturation, dtype=dtype)


def hsv(x, hue=0, saturation=1, value=1, dtype=np.uint8):
    matrix = _matmul(_matmul(YIQ_TO_RGB, _hue_matrix(hue)), _saturation_matrix(saturation))
    return _transform(x, _matmul(matrix * f32(value), RGB_TO_YIQ), f32(0), dtype)


# ---------------------------------------------------------------- colour spaces (uint8 only)

LUMA = np.array([0.299, 0.587, 0.114])
FULL_TO_STUDIO, CHROMA = 219 / 255, 224 / 255
RGB_TO_YCBCR = np.array(
    [
        LUMA * FULL_TO_STUDIO,
        (np.array([0, 0, 1]) - LUMA) / 1.772 * CHROMA,
        (np.array([1, 0, 0]) - LUMA) / 1.402 * CHROMA,
    ]
).astype(f32)


def rgb_to_gray(x):
    r, g, b = np.moveaxis(x.astype(np.int32), -1, 0)
    return ((9798 * r + 19235 * g + 3735 * b + 16384) >> 15).astype(np.uint8)[..., None]


def rgb_to_ycbcr(x):
    r, g, b = np.moveaxis(x.astype(f32), -1, 0)
    rows = [
        ((m[0] * r + m[1] * g) + m[2] * b) + offset
        for m, offset in zip(RGB_TO_YCBCR, (16, 128, 128), strict=True)
    ]
    return convert(np.stack(rows, -1), np.uint8)


def ycbcr_to_rgb(x):
    y, cb, cr = np.moveaxis(x.astype(f32), -1, 0)
    y, cb, cr = (y - 16) * f32(1 / FULL_TO_STUDIO), cb - 128, cr - 128
    r = y + f32(1.402 / CHROMA) * cr
    g = (y - f32(1.772 * 0.114 / 0.587 / CHROMA) * cb) - f32(1.402 * 0.299 / 0.587 / CHROMA) * cr
    b = y + f32(1.772 / CHROMA) * cb
    return convert(np.stack([r, g, b], -1), np.uint8)


def gray_to_ycbcr(x):
    luma = convert(x.astype(f32) * f32(FULL_TO_STUDIO) + 16, np.uint8)
    return np.concatenate([luma, np.full((*x.shape[:-1], 2), 128, np.uint8)], -1)


def ycbcr_to_gray(x):
    return convert((x[..., :1].astype(f32) - 16) * f32(1 / FULL_TO_STUDIO), np.uint8)


def color_space_conversion(x, image_type, output_type):
    """The twelve pairs of distinct types; equal types are an error in the oracle."""
    if image_type == "BGR":
        x, image_type = x[..., ::-1], "RGB"
        if output_type == "RGB":
            return x
    if output_type == "BGR":
        return (
            x[..., ::-1]
            if image_type == "RGB"
            else color_space_conversion(x, image_type, "RGB")[..., ::-1]
        )
    functions = {
        ("RGB", "GRAY"): rgb_to_gray,
        ("RGB", "YCbCr"): rgb_to_ycbcr,
        ("YCbCr", "RGB"): ycbcr_to_rgb,
        ("YCbCr", "GRAY"): ycbcr_to_gray,
        ("GRAY", "YCbCr"): gray_to_ycbcr,
        ("GRAY", "RGB"): lambda gray: np.repeat(gray, 3, axis=-1),
    }
    return functions[image_type, output_type](x)


# ---------------------------------------------------------------- crop, mirror, normalise


def crop_window(extent, size, position, rounding="round"):
    """(anchor, size) of a crop along one axis; size 0 or less keeps the axis."""
    size = int(size) if size > 0 else extent
    offset = float(f32(position)) * (extent - size)
    anchor = (
        np.copysign(np.floor(abs(offset) + 0.5), offset)
        if rounding == "round"
        else np.trunc(offset)
    )
    return int(anchor), size


def crop_mirror_normalize(
    x,
    layout="HWC",
    crop=(),
    crop_pos=(0.5, 0.5, 0.5),
    mean=(0,),
    std=(1,),
    scale=1,
    shift=0,
    mirror=0,
    fill_values=(0,),
    out_of_bounds_policy="error",
    pad_output=False,
    output_layout="CHW",
    dtype=f32,
    rounding="round",
):
    """crop is (h, w) or (d, h, w); crop_pos is (x, y, z). Fill values are written unnormalised and cast C-style."""
    x = np.moveaxis(x, layout.index("C"), -1)
    axes = layout.replace("C", "") + "C"
    channels = x.shape[-1]
    mean, std = (np.broadcast_to(np.asarray(v, f32), channels) for v in (mean, std))
    k = f32(scale) / std
    center = (
        mean.astype(np.float64) - float(f32(shift)) * std.astype(np.float64) / float(f32(scale))
    ).astype(f32)
    values = convert((x.astype(f32) - center) * k, dtype)

    padded = 1 << (channels - 1).bit_length() if pad_output else channels
    use_fill = out_of_bounds_policy == "pad" and len(fill_values) > 0
    fill = np.broadcast_to(c_cast(fill_values if use_fill else [0], dtype), padded)

    shape, source, target = list(values.shape), [], []
    spatial = [len(axes) - 1 - n for n in range(len(crop), 0, -1)]
    for axis, size, position in zip(spatial, crop, crop_pos[: len(crop)][::-1], strict=True):
        extent = x.shape[axis]
        anchor, size = crop_window(extent, size, position, rounding)
        if out_of_bounds_policy == "trim_to_shape":
            end = min(anchor + size, extent)
            anchor = max(anchor, 0)
            size = end - anchor
        elif out_of_bounds_policy == "error" and (anchor < 0 or anchor + size > extent):
            raise ValueError("crop out of bounds")
        source.append(slice(max(anchor, 0), min(anchor + size, extent)))
        target.append(slice(source[-1].start - anchor, source[-1].stop - anchor))
        shape[axis] = size
    rest = (slice(None),) * (len(axes) - 1 - len(crop))
    out = np.empty((*shape[:-1], padded), dtype)
    out[...] = fill
    out[(*rest, *target, slice(0, channels))] = values[(*rest, *source)]
    if mirror:
        out = np.flip(out, axes.index("W"))
    return out.transpose([axes.index(name) for name in output_layout or layout])


# ---------------------------------------------------------------- regions


def erase(
    x,
    anchor,
    shape,
    axes,
    fill_value=(0,),
    channel_axis=-1,
    normalized_anchor=False,
    normalized_shape=False,
    centered_anchor=False,
):
    """anchor and shape are flat lists, len(axes) numbers per region; by default axes are all but C, in layout order."""
    out = x.copy()
    fill = c_cast(fill_value, x.dtype)
    fill = fill.reshape([-1 if axis == channel_axis % x.ndim else 1 for axis in range(x.ndim)])
    fill = np.broadcast_to(fill, x.shape)
    for region in range(0, len(anchor), len(axes)):
        window = [slice(None)] * x.ndim
        for n, axis in enumerate(axes):
            start, size, extent = f32(anchor[region + n]), f32(shape[region + n]), x.shape[axis]
            start = start * f32(extent) if normalized_anchor else start
            size = size * f32(extent) if normalized_shape else size
            start = start - size * f32(0.5) if centered_anchor else start
            window[axis] = slice(max(int(start), 0), max(int(start + size), 0))
        out[tuple(window)] = fill[tuple(window)]
    return out


def grid_mask(x, tile=100, ratio=0.5, angle=0, shift_x=0, shift_y=0):
    """Times 0 where both rotated tile coordinates have a fraction below ratio. HWC; the angle is in radians."""
    tile, angle = f32(tile), f32(angle)
    cos, sin = _libm("cosf", angle) / tile, _libm("sinf", angle) / tile
    i, j = np.arange(x.shape[0], dtype=f32)[:, None], np.arange(x.shape[1], dtype=f32)[None, :]
    u = (-f32(shift_x) / tile - sin * i) + j * cos
    v = (-f32(shift_y) / tile + cos * i) + j * sin
    hole = (u - np.floor(u) < f32(ratio)) & (v - np.floor(v) < f32(ratio))
    return x * (~hole[..., None]).astype(x.dtype)


# ---------------------------------------------------------------- tables and classes


def lookup_table(x, keys, values, default_value=0, dtype=f32):
    """Keys are 0..65535, later duplicates win; inputs outside every key, negative ones too, take the default."""
    table = np.full(65536, f32(default_value), f32)
    table[np.asarray(keys, int)] = np.asarray(values, f32)
    inside = (x >= 0) & (x <= 65535)
    index = np.where(inside, x, 0).astype(np.int64)
    return np.where(inside, convert(table, dtype)[index], convert(f32(default_value), dtype))


def one_hot(x, num_classes=0, on_value=1, off_value=0, axis=None, dtype=f32):
    """Ids become int32 (integers wrap, floats truncate). With axis omitted, a single element counts as a scalar."""
    on, off = c_cast([on_value, off_value], dtype)
    ids = np.where(np.abs(x) < 2**31, x, -1) if x.dtype.kind == "f" else x
    ids = ids.astype(np.int32)
    if axis is None and ids.size == 1:
        ids = ids.reshape(())
    axis = ids.ndim if axis in (None, -1) else axis
    classes = np.arange(num_classes).reshape([-1 if n == axis else 1 for n in range(ids.ndim + 1)])
    return np.where(np.expand_dims(ids, axis) == classes, on, off)


# ---------------------------------------------------------------- coordinates and batches


def coord_flip(points, flip=(1, 0, 0), center=(0.5, 0.5, 0.5), layout="xyz"):
    out = points.copy()
    for column, name in enumerate(layout[: points.shape[1]]):
        n = "xyz".index(name)
        if flip[n]:
            out[:, column] = f32(2) * f32(center[n]) - points[:, column]
    return out


def coord_transform(points, M=1, T=0, dtype=f32):
    """((m0*x0 + m1*x1) + …) + t; a scalar M is that multiple of the identity."""
    columns = points.shape[-1]
    M = np.asarray(M, f32)
    M = M * np.eye(columns, dtype=f32) if M.size == 1 else M.reshape(-1, columns)
    T = np.broadcast_to(np.asarray(T, f32), M.shape[0])
    x = points.astype(f32)
    rows = []
    for m, t in zip(M, T, strict=True):
        value = m[0] * x[..., 0]
        for n in range(1, columns):
            value = value + m[n] * x[..., n]
        rows.append(value + t)
    return convert(np.stack(rows, -1), dtype)


def element_extract(x, element_map):
    return [x[n] for n in element_map]


def permute_batch(samples, indices):
    """As many indices as samples; repeats are fine."""
    return [samples[n] for n in indices]


def get_property(key, layout="", source_info=""):
    return np.frombuffer({"layout": layout, "source_info": source_info}[key].encode(), np.uint8)
