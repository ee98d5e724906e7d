"""The transforms of the public RGB benchmark: our program, and how each library does the same.

A program is `program(lib, x)`, for our library and for the oracle. A peer is a function of the
library's module that returns a function of one image. Results are contiguous: views of arrays and
tensors are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Program = Callable[[Any, Any], Any]
Make = Callable[[Any], Callable[[Any], Any]]
TRANSFORMS: list[Transform] = []


@dataclass(frozen=True)
class Transform:
    name: str
    program: Program
    peers: Mapping[str, Make] = field(default_factory=dict)
    note: str = ""  # where definitions differ


def _torchvision(make: Make) -> Make:
    def made(module: Any) -> Callable[[Any], Any]:
        transform = make(module)
        return lambda image: transform(image).contiguous()

    return made


def _albumentations(make: Callable[[Any], Any]) -> Make:
    def made(module: Any) -> Callable[[Any], Any]:
        transform = make(module)
        return lambda image: np.ascontiguousarray(transform(image=image)["image"])

    return made


def row(
    name: str,
    program: Program,
    note: str = "",
    *,
    ax: Any = None,
    tv: Any = None,
    kornia: Any = None,
    pillow: Any = None,
    cv: Any = None,
) -> None:
    """Add a transform. `ax` and `kornia` make an object of a transform; the others a function."""
    peers = {"kornia": kornia, "pillow": pillow, "opencv": cv}
    if tv is not None:
        peers["torchvision"] = _torchvision(tv)
    if ax is not None:
        peers["albumentationsx"] = _albumentations(ax)
    TRANSFORMS.append(Transform(name, program, {k: v for k, v in peers.items() if v}, note))


def _pil(name: str) -> Any:
    from importlib import import_module

    return import_module(f"PIL.{name}")


def _uniform(lib: Any, x: Any, low: float, high: float) -> Any:
    return lib.random.uniform(range=[low, high], batch_size=len(x.shape))


def _sizes(lib: Any, x: Any, more: int = 0) -> Any:
    """Heights and widths of the photos, plus a number."""
    return lib.batch([np.float32([s[0] + more, s[1] + more]) for s in x.shape])


def _functional(vision: Any) -> Any:
    return vision.functional


# -- moves -----------------------------------------------------------------------------------------

row(
    "Resize",
    lambda lib, x: lib.resize(x, size=[512, 512], antialias=False),
    ax=lambda A: A.Resize(512, 512),
    tv=lambda v: v.Resize((512, 512), antialias=False),
    kornia=lambda k: k.Resize((512, 512)),
    pillow=lambda p: lambda im: im.resize((512, 512), p.BILINEAR),
    cv=lambda c: lambda a: c.resize(a, (512, 512)),
)
row(
    "Pad",
    lambda lib, x: lib.slice(
        x, start=[-10, -10], shape=_sizes(lib, x, 20), axis_names="HW", out_of_bounds_policy="pad"
    ),
    ax=lambda A: A.Pad(padding=10, p=1),
    tv=lambda v: v.Pad(10),
    pillow=lambda p: lambda im: _pil("ImageOps").expand(im, 10),
    cv=lambda c: lambda a: c.copyMakeBorder(a, 10, 10, 10, 10, c.BORDER_CONSTANT),
)
row(
    "RandomCrop224",
    lambda lib, x: lib.crop(
        x, crop=[224, 224], crop_pos_x=_uniform(lib, x, 0, 1), crop_pos_y=_uniform(lib, x, 0, 1)
    ),
    ax=lambda A: A.RandomCrop(224, 224, p=1),
    tv=lambda v: v.RandomCrop(224),
)
row(
    "CenterCrop224",
    lambda lib, x: lib.crop(x, crop=[224, 224]),
    ax=lambda A: A.CenterCrop(224, 224, p=1),
    tv=lambda v: v.CenterCrop(224),
    pillow=lambda p: lambda im: im.crop((138, 75, 362, 299)),
)
row(
    "Transpose",
    lambda lib, x: lib.transpose(x, perm=[1, 0, 2], transpose_layout=False),
    ax=lambda A: A.Transpose(p=1),
    tv=lambda v: lambda t: t.permute(0, 2, 1),
    pillow=lambda p: lambda im: im.transpose(p.Transpose.TRANSPOSE),
    cv=lambda c: c.transpose,
)
row(
    "RandomResizedCrop",
    lambda lib, x: lib.random_resized_crop(x, size=[224, 224], antialias=False),
    ax=lambda A: A.RandomResizedCrop((224, 224), p=1),
    tv=lambda v: v.RandomResizedCrop(224, antialias=False),
    kornia=lambda k: k.RandomResizedCrop((224, 224), p=1.0),
)
row(
    "Erasing",
    lambda lib, x: lib.erase(
        x,
        anchor=lib.random.uniform(range=[0.1, 0.5], shape=[2], batch_size=len(x.shape)),
        shape=[0.3, 0.3],
        normalized=True,
        axis_names="HW",
        fill_value=0,
    ),
    ax=lambda A: A.Erasing(p=1, scale=(0.09, 0.09), ratio=(1, 1)),
    tv=lambda v: v.RandomErasing(p=1.0, scale=(0.09, 0.09), ratio=(1, 1)),
    kornia=lambda k: k.RandomErasing((0.09, 0.09), (1.0, 1.0), p=1.0),
)
_VIEW = "AlbumentationsX gives a view; its time is mostly NumPy's copy of it"
row(
    "HorizontalFlip",
    lambda lib, x: lib.flip(x, horizontal=1),
    _VIEW,
    ax=lambda A: A.HorizontalFlip(p=1),
    tv=lambda v: v.RandomHorizontalFlip(p=1.0),
    kornia=lambda k: k.RandomHorizontalFlip(p=1.0),
    pillow=lambda p: lambda im: im.transpose(p.Transpose.FLIP_LEFT_RIGHT),
    cv=lambda c: lambda a: c.flip(a, 1),
)
row(
    "VerticalFlip",
    lambda lib, x: lib.flip(x, horizontal=0, vertical=1),
    _VIEW,
    ax=lambda A: A.VerticalFlip(p=1),
    tv=lambda v: v.RandomVerticalFlip(p=1.0),
    kornia=lambda k: k.RandomVerticalFlip(p=1.0),
    pillow=lambda p: lambda im: im.transpose(p.Transpose.FLIP_TOP_BOTTOM),
    cv=lambda c: lambda a: c.flip(a, 0),
)
row(
    "RandomRotate90",
    lambda lib, x: lib.rotate(x, angle=90.0),
    "by 90° each time, except AlbumentationsX (0°, 90°, 180° or 270°)",
    ax=lambda A: A.RandomRotate90(p=1),
    tv=lambda v: lambda t: t.rot90(1, (1, 2)),
    pillow=lambda p: lambda im: im.transpose(p.Transpose.ROTATE_90),
    cv=lambda c: lambda a: c.rotate(a, c.ROTATE_90_COUNTERCLOCKWISE),
)
row(
    "LongestMaxSize",
    lambda lib, x: lib.resize(x, resize_longer=512, antialias=False),
    ax=lambda A: A.LongestMaxSize(512),
    tv=lambda v: v.Resize(None, max_size=512, antialias=False),
    kornia=lambda k: k.LongestMaxSize(512),
)
row(
    "SmallestMaxSize",
    lambda lib, x: lib.resize(x, resize_shorter=512, antialias=False),
    ax=lambda A: A.SmallestMaxSize(512),
    tv=lambda v: v.Resize(512, antialias=False),
    kornia=lambda k: k.SmallestMaxSize(512),
)


def _jigsaw(lib: Any, x: Any) -> Any:
    """5×5 tiles in another order, each photo by itself; what is left at the borders is zero."""
    n, count = 5, len(x.shape)
    tiles = np.array([s[:2] for s in x.shape])[:, None] // n
    grid = np.indices((n, n)).reshape(2, n * n).T
    sources = np.int32(grid * tiles)
    places = sources[:, np.random.permutation(n * n)]
    sizes = np.int32(np.broadcast_to(tiles, sources.shape))
    ids = np.int32(np.repeat(np.arange(count)[:, None], n * n, axis=1))
    return lib.multi_paste(
        x,
        in_ids=lib.batch(list(ids)),
        in_anchors=lib.batch(list(sources)),
        out_anchors=lib.batch(list(places)),
        shapes=lib.batch(list(sizes)),
        output_size=_sizes(lib, x),
    )


row(
    "RandomJigsaw",
    _jigsaw,
    ax=lambda A: A.RandomGridShuffle((5, 5), p=1),
    kornia=lambda k: k.RandomJigsaw((5, 5), p=1.0),
)

# -- warps -----------------------------------------------------------------------------------------

_PERSPECTIVE = np.float32([[1.1, 0.1, -20], [0.05, 1.05, -10], [2e-4, 1e-4, 1]])
_CORNERS = [[0, 0], [499, 0], [499, 374], [0, 374]], [[20, 15], [480, 5], [490, 370], [5, 360]]


def _affine(angle: float, scale: float, shear: float, shift: float) -> np.ndarray:
    """A matrix from the result to the input, around the middle of 375×500 pixels."""
    a, t = np.radians(angle), np.tan(np.radians(shear))
    linear = np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]]) @ [[1, t], [0, 1]] / scale
    middle = np.array([250, 187.5])
    return np.float32(np.column_stack([linear, middle - linear @ (middle + shift)]))


_AFFINE, _SHEAR = _affine(25, 2.0, 10, 20), _affine(0, 1.0, 10, 0)


def _warp(c: Any, matrix: np.ndarray, how: int) -> Callable[[Any], Any]:
    return lambda a: c.warpAffine(a, matrix, a.shape[1::-1], flags=how | c.WARP_INVERSE_MAP)


row(
    "Perspective",
    lambda lib, x: lib.experimental.warp_perspective(
        x, matrix=lib.tensor(_PERSPECTIVE), fill_value=0.0
    ),
    ax=lambda A: A.Perspective(p=1, keep_size=True),
    tv=lambda v: lambda t: v.functional.perspective(t, *_CORNERS),
    kornia=lambda k: k.RandomPerspective(0.3, p=1.0),
    cv=lambda c: (
        lambda a: c.warpPerspective(
            a, _PERSPECTIVE, a.shape[1::-1], flags=c.INTER_LINEAR | c.WARP_INVERSE_MAP
        )
    ),
)
row(
    "Rotate",
    lambda lib, x: lib.rotate(x, angle=45.0, keep_size=True, fill_value=0, interp_type=0),
    "nearest neighbours",
    ax=lambda A: A.Rotate((45, 45), interpolation=0, border_mode=0, p=1),
    tv=lambda v: lambda t: v.functional.rotate(t, 45),
    kornia=lambda k: k.RandomRotation((45.0, 45.0), resample="nearest", p=1.0),
    pillow=lambda p: lambda im: im.rotate(45),
    cv=lambda c: _warp(c, _affine(45, 1, 0, 0), c.INTER_NEAREST),
)
row(
    "Affine",
    lambda lib, x: lib.warp_affine(x, lib.tensor(_AFFINE), fill_value=0),
    ax=lambda A: A.Affine(
        rotate=(25, 25), scale=(2, 2), shear=(10, 10), translate_px=(20, 20), p=1
    ),
    tv=lambda v: (
        lambda t: v.functional.affine(
            t, 25.0, [20, 20], 2.0, [10.0, 0.0], v.InterpolationMode.BILINEAR
        )
    ),
    kornia=lambda k: k.RandomAffine((25.0, 25.0), (0.05, 0.05), (2.0, 2.0), (10.0, 10.0), p=1.0),
    cv=lambda c: _warp(c, _AFFINE, c.INTER_LINEAR),
)
row(
    "Shear",
    lambda lib, x: lib.warp_affine(x, lib.tensor(_SHEAR), fill_value=0),
    ax=lambda A: A.Affine(shear=(10, 10), p=1),
    tv=lambda v: (
        lambda t: v.functional.affine(
            t, 0.0, [0, 0], 1.0, [10.0, 0.0], v.InterpolationMode.BILINEAR
        )
    ),
    kornia=lambda k: k.RandomShear((10.0, 10.0), p=1.0),
    cv=lambda c: _warp(c, _SHEAR, c.INTER_LINEAR),
)

_grids: dict[tuple[Any, ...], Any] = {}


def _grid(lib: Any, x: Any) -> tuple[Any, Any]:
    """Columns and rows of every pixel, made once."""
    key = (lib.__name__, *x.shape)
    if key not in _grids:
        made = [np.mgrid[: s[0], : s[1]].astype(np.float32) for s in x.shape]
        _grids[key] = tuple(lib.batch([g[k] for g in made], layout="HW") for k in (1, 0))
    return _grids[key]


def _elastic(lib: Any, x: Any) -> Any:
    columns, rows = _grid(lib, x)

    def moved(at: Any) -> Any:
        noise = lib.random.uniform(at, range=[-1.0, 1.0])
        noise = lib.reinterpret(noise, layout="HW")
        return at + lib.gaussian_blur(noise, sigma=5.0) * 50.0

    return lib.experimental.remap(x, moved(columns), moved(rows))


def _optical(lib: Any, x: Any) -> Any:
    columns, rows = _grid(lib, x)
    u, v = columns / 250.0 - 1.0, rows / 187.5 - 1.0
    r = u * u + v * v
    bent = 1.0 + r * 0.1 + r * r * 0.02
    return lib.experimental.remap(x, (u * bent + 1.0) * 250.0, (v * bent + 1.0) * 187.5)


row(
    "Elastic",
    _elastic,
    ax=lambda A: A.ElasticTransform(alpha=50, sigma=5, p=1),
    tv=lambda v: v.ElasticTransform(alpha=50.0, sigma=5.0),
    kornia=lambda k: k.RandomElasticTransform(p=1.0),
)
row("OpticalDistortion", _optical, ax=lambda A: A.OpticalDistortion((0.1, 0.1), p=1))


def _spline(lib: Any, x: Any) -> Any:
    """16 control points, moved at random: the usual kernel r² log r, in units of 500 pixels."""
    columns, rows = _grid(lib, x)
    u, v = columns / 500.0, rows / 500.0
    points = np.stack(np.mgrid[0:4, 0:4], -1).reshape(-1, 2) * [0.25, 0.33]
    weights = np.random.normal(0, 20, (16, 2))
    total = [columns, rows]
    for (py, px), (wx, wy) in zip(points.tolist(), weights.tolist(), strict=True):
        du, dv = u - px, v - py
        r = du * du + dv * dv + 1e-6
        kernel = r * lib.math.log(r)
        total = [total[0] + kernel * wx, total[1] + kernel * wy]
    return lib.experimental.remap(x, *total)


row(
    "ThinPlateSpline",
    _spline,
    "16 control points, with given weights (no system is solved)",
    ax=lambda A: A.ThinPlateSpline(num_control_points=4, p=1),
    kornia=lambda k: k.RandomThinPlateSpline(p=1.0),
)

# -- colours ---------------------------------------------------------------------------------------

_LINEAR = "ours is one linear matrix in YIQ; the peers convert to HSV"


def _jitter(lib: Any, x: Any) -> Any:
    return lib.color_twist(
        x,
        brightness=_uniform(lib, x, 0.6, 1.4),
        contrast=_uniform(lib, x, 0.6, 1.4),
        saturation=_uniform(lib, x, 0.6, 1.4),
        hue=_uniform(lib, x, -36, 36),
    )


def _reordered(lib: Any, x: Any) -> Any:
    parts = [x.slice[:, :, k : k + 1] for k in (2, 0, 1)]
    return lib.cat(*parts, axis=2)


_JITTER = dict(
    ax=lambda A: A.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1), p=1),
    tv=lambda v: v.ColorJitter(0.4, 0.4, 0.4, 0.1),
    kornia=lambda k: k.ColorJitter(0.4, 0.4, 0.4, 0.1, p=1.0),
)
row("ColorJitter", _jitter, _LINEAR, **_JITTER)
row(
    "ColorJiggle",
    _jitter,
    _LINEAR,
    ax=_JITTER["ax"],
    kornia=lambda k: k.ColorJiggle(0.4, 0.4, 0.4, 0.1, p=1.0),
)
row(
    "PhotoMetricDistort",
    lambda lib, x: _reordered(lib, _jitter(lib, x)),
    _LINEAR,
    ax=lambda A: A.PhotoMetricDistort(p=1),
    tv=lambda v: v.RandomPhotometricDistort(p=1.0),
)
row(
    "Hue",
    lambda lib, x: lib.hue(x, hue=_uniform(lib, x, -20, 20)),
    _LINEAR,
    ax=lambda A: A.HueSaturationValue((20, 20), (0, 0), (0, 0), p=1),
    tv=lambda v: lambda t: v.functional.adjust_hue(t, 0.05),
    kornia=lambda k: k.RandomHue((0.05, 0.05), p=1.0),
)
row(
    "Saturation",
    lambda lib, x: lib.saturation(x, saturation=1.5),
    ax=lambda A: A.ColorJitter((1, 1), (1, 1), (1.5, 1.5), (0, 0), p=1),
    tv=lambda v: lambda t: v.functional.adjust_saturation(t, 1.5),
    kornia=lambda k: k.RandomSaturation((1.5, 1.5), p=1.0),
    pillow=lambda p: lambda im: _pil("ImageEnhance").Color(im).enhance(1.5),
)
row(
    "Brightness",
    lambda lib, x: lib.brightness(x, brightness=1.5),
    ax=lambda A: A.ColorJitter((1.5, 1.5), (1, 1), (1, 1), (0, 0), p=1),
    tv=lambda v: lambda t: v.functional.adjust_brightness(t, 1.5),
    kornia=lambda k: k.RandomBrightness((1.5, 1.5), p=1.0),
    pillow=lambda p: lambda im: _pil("ImageEnhance").Brightness(im).enhance(1.5),
    cv=lambda c: lambda a: c.convertScaleAbs(a, alpha=1.5),
)
row(
    "Contrast",
    lambda lib, x: lib.contrast(x, contrast=1.5, contrast_center=lib.reductions.mean(x)),
    "around the mean of all values; torchvision and Pillow take the mean luma",
    ax=lambda A: A.ColorJitter((1, 1), (1.5, 1.5), (1, 1), (0, 0), p=1),
    tv=lambda v: lambda t: v.functional.adjust_contrast(t, 1.5),
    pillow=lambda p: lambda im: _pil("ImageEnhance").Contrast(im).enhance(1.5),
)
row(
    "ChannelShuffle",
    _reordered,
    ax=lambda A: A.ChannelShuffle(p=1),
    tv=lambda v: v.RandomChannelPermutation(),
    kornia=lambda k: k.RandomChannelShuffle(p=1.0),
)
row(
    "ChannelDropout",
    lambda lib, x: x * lib.tensor(np.uint8([1, 0, 1])),
    ax=lambda A: A.ChannelDropout(p=1),
    kornia=lambda k: k.RandomChannelDropout(p=1.0),
)
row(
    "Grayscale",
    lambda lib, x: lib.color_space_conversion(x, image_type=_rgb(lib), output_type=_grey(lib)),
    "one channel; AlbumentationsX gives three",
    ax=lambda A: A.ToGray(p=1),
    tv=lambda v: v.Grayscale(1),
    pillow=lambda p: lambda im: im.convert("L"),
    cv=lambda c: lambda a: c.cvtColor(a, c.COLOR_RGB2GRAY),
)


def _rgb(lib: Any) -> Any:
    return lib.types.RGB if hasattr(lib, "types") else 0


def _grey(lib: Any) -> Any:
    return lib.types.GRAY if hasattr(lib, "types") else 2


def _bytes(lib: Any, x: Any) -> Any:
    return lib.cast(x, dtype=lib.uint8)


row(
    "RGBShift",
    lambda lib, x: _bytes(lib, x + lib.tensor(np.float32([20, -10, 5]))),
    ax=lambda A: A.RGBShift((20, 20), (-10, -10), (5, 5), p=1),
    kornia=lambda k: k.RandomRGBShift(0.1, 0.1, 0.1, p=1.0),
)
row(
    "Invert",
    lambda lib, x: x ^ lib.tensor(np.uint8(255)),  # a plain 255 would make the result int32
    ax=lambda A: A.InvertImg(p=1),
    tv=lambda v: v.RandomInvert(p=1.0),
    kornia=lambda k: k.RandomInvert(p=1.0),
    pillow=lambda p: _pil("ImageOps").invert,
    cv=lambda c: c.bitwise_not,
)
row(
    "Posterize",
    lambda lib, x: x & lib.tensor(np.uint8(0xF0)),
    ax=lambda A: A.Posterize((4, 4), p=1),
    tv=lambda v: v.RandomPosterize(4, p=1.0),
    kornia=lambda k: k.RandomPosterize(4, p=1.0),
    pillow=lambda p: lambda im: _pil("ImageOps").posterize(im, 4),
)
row(
    "Solarize",
    lambda lib, x: _bytes(lib, x ^ ((x >= 128) * 255)),
    ax=lambda A: A.Solarize((0.5, 0.5), p=1),
    tv=lambda v: v.RandomSolarize(128, p=1.0),
    kornia=lambda k: k.RandomSolarize(0.1, 0.1, p=1.0),
    pillow=lambda p: lambda im: _pil("ImageOps").solarize(im, 128),
)


def _stretched(lib: Any, x: Any) -> Any:
    low = lib.reductions.min(x, axis_names="HW", keep_dims=True)
    high = lib.reductions.max(x, axis_names="HW", keep_dims=True)
    return _bytes(lib, (lib.cast(x, dtype=lib.float32) - low) * (255.0 / (high - low + 1e-6)))


row(
    "AutoContrast",
    _stretched,
    ax=lambda A: A.AutoContrast(p=1),
    tv=lambda v: v.RandomAutocontrast(p=1.0),
    kornia=lambda k: k.RandomAutoContrast(p=1.0),
    pillow=lambda p: _pil("ImageOps").autocontrast,
)
row(
    "Equalize",
    lambda lib, x: (lib if hasattr(lib, "equalize") else lib.experimental).equalize(x),
    ax=lambda A: A.Equalize(p=1),
    tv=lambda v: v.RandomEqualize(p=1.0),
    kornia=lambda k: k.RandomEqualize(p=1.0),
    pillow=lambda p: _pil("ImageOps").equalize,
    cv=lambda c: lambda a: c.merge([c.equalizeHist(p) for p in c.split(a)]),
)
_GAMMA = np.uint8(np.round(255 * (np.arange(256) / 255) ** 1.2))
row(
    "RandomGamma",
    lambda lib, x: _bytes(lib, lib.math.pow(x / 255.0, 1.2) * 255.0),
    ax=lambda A: A.RandomGamma((120, 120), p=1),
    tv=lambda v: lambda t: v.functional.adjust_gamma(t, 1.2),
    kornia=lambda k: k.RandomGamma((1.2, 1.2), p=1.0),
    cv=lambda c: lambda a: c.LUT(a, _GAMMA),
)
row(
    "PlankianJitter",
    lambda lib, x: _bytes(lib, x * lib.tensor(np.float32([1.1, 1.0, 0.85]))),
    ax=lambda A: A.PlanckianJitter(p=1),
    kornia=lambda k: k.RandomPlanckianJitter(p=1.0),
)
row(
    "CLAHE",
    lambda lib, x: lib.clahe(x, tiles_x=8, tiles_y=8, clip_limit=4.0),
    "of the lightness in Lab; kornia: of every channel",
    ax=lambda A: A.CLAHE((4, 4), (8, 8), p=1),
    kornia=lambda k: k.RandomClahe((4.0, 4.0), p=1.0),
)
row(
    "JpegCompression",
    lambda lib, x: lib.jpeg_compression_distortion(x, quality=50),
    "ours loses what a round trip loses, through the codec",
    ax=lambda A: A.ImageCompression(quality_range=(50, 50), p=1),
    tv=lambda v: v.JPEG(50),
    kornia=lambda k: k.RandomJPEG((50.0, 50.0), p=1.0),
    cv=lambda c: lambda a: c.imdecode(c.imencode(".jpg", a, [c.IMWRITE_JPEG_QUALITY, 50])[1], 1),
)
row(
    "GaussianNoise",
    lambda lib, x: lib.noise.gaussian(x, stddev=25.0),
    ax=lambda A: A.GaussNoise(std_range=(0.1, 0.1), p=1),
    kornia=lambda k: k.RandomGaussianNoise(0.0, 0.1, p=1.0),
    tv=lambda v: lambda t: v.functional.gaussian_noise(t.float().div(255), 0.0, 0.1),
)
row(
    "SaltAndPepper",
    lambda lib, x: lib.noise.salt_and_pepper(x, prob=0.05),
    ax=lambda A: A.SaltAndPepper((0.05, 0.05), p=1),
    kornia=lambda k: k.RandomSaltAndPepperNoise(0.05, p=1.0),
)

# -- light -----------------------------------------------------------------------------------------


def _lit(lib: Any, x: Any, light: Any) -> Any:
    """Multiply by a factor per pixel."""
    return _bytes(lib, x * lib.expand_dims(light, axes=2))


def _linear_light(lib: Any, x: Any) -> Any:
    columns, rows = _grid(lib, x)
    return _lit(lib, x, columns * 4e-4 + rows * 3e-4 + 0.85)


def _corner_light(lib: Any, x: Any) -> Any:
    columns, rows = _grid(lib, x)
    return _lit(lib, x, 1.2 - lib.math.sqrt(columns * columns + rows * rows) * 6e-4)


def _gaussian_light(lib: Any, x: Any) -> Any:
    columns, rows = _grid(lib, x)
    u, v = columns - 250.0, rows - 187.5
    return _lit(lib, x, lib.math.exp((u * u + v * v) * -2e-5) * 0.2 + 0.9)


_LIGHT = "in 8 bits by a factor per pixel; kornia adds"
row(
    "LinearIllumination",
    _linear_light,
    _LIGHT,
    ax=lambda A: A.Illumination("linear", p=1),
    kornia=lambda k: k.RandomLinearIllumination(p=1.0),
)
row(
    "CornerIllumination",
    _corner_light,
    _LIGHT,
    ax=lambda A: A.Illumination("corner", p=1),
    kornia=lambda k: k.RandomLinearCornerIllumination(p=1.0),
)
row(
    "GaussianIllumination",
    _gaussian_light,
    _LIGHT,
    ax=lambda A: A.Illumination("gaussian", p=1),
    kornia=lambda k: k.RandomGaussianIllumination(p=1.0),
)


def _plasma(lib: Any, x: Any) -> Any:
    """Clouds in [0, 1]: random numbers of four grids, enlarged and added up."""
    total = None
    for k in range(4):
        grid = lib.random.uniform(range=[0.0, 1.0], shape=[4 << k, 4 << k], batch_size=len(x.shape))
        grid = lib.resize(
            lib.reinterpret(lib.expand_dims(grid, axes=2), layout="HWC"),
            size=_sizes(lib, x),
            dtype=lib.float32,
        )
        part = grid * (0.5 ** (k + 1))
        total = part if total is None else total + part
    return total


_CLOUDS = "other clouds: four enlarged grids of random numbers"
row(
    "PlasmaBrightness",
    lambda lib, x: _bytes(lib, x + (_plasma(lib, x) - 0.5) * 100.0),
    _CLOUDS,
    ax=lambda A: A.PlasmaBrightnessContrast(contrast_range=(0, 0), p=1),
    kornia=lambda k: k.RandomPlasmaBrightness(p=1.0),
)
row(
    "PlasmaContrast",
    lambda lib, x: _bytes(lib, (x - 128.0) * (_plasma(lib, x) + 0.5) + 128.0),
    _CLOUDS,
    ax=lambda A: A.PlasmaBrightnessContrast(brightness_range=(0, 0), p=1),
    kornia=lambda k: k.RandomPlasmaContrast(p=1.0),
)
row(
    "PlasmaShadow",
    lambda lib, x: _bytes(lib, x * (1.0 - _plasma(lib, x) * 0.5)),
    _CLOUDS,
    ax=lambda A: A.PlasmaShadow(p=1),
    kornia=lambda k: k.RandomPlasmaShadow(p=1.0),
)


def _snow(lib: Any, x: Any) -> Any:
    grey = lib.color_space_conversion(x, image_type=_rgb(lib), output_type=_grey(lib))
    return _bytes(lib, x * ((grey < 140) * 0.6 + 1.0))


row(
    "Snow",
    _snow,
    "brightens what is darker than a level; the peers do it in HLS",
    ax=lambda A: A.RandomSnow(method="bleach", p=1),
    kornia=lambda k: k.RandomSnow(p=1.0),
)

# -- windows ---------------------------------------------------------------------------------------

_SHARPEN = np.float32([[-1, -1, -1], [-1, 9, -1], [-1, -1, -1]]) * 0.3 + np.float32(
    [[0, 0, 0], [0, 0.7, 0], [0, 0, 0]]
)
_EDGE = np.float32([[-1, -1, -1], [-1, 10, -1], [-1, -1, -1]]) / 2  # Pillow's EDGE_ENHANCE
_DETAIL = np.float32([[0, -1, 0], [-1, 10, -1], [0, -1, 0]]) / 6  # Pillow's DETAIL
_MOTION = np.float32(np.eye(5)) / 5


def _filtered(kernel: np.ndarray) -> Program:
    return lambda lib, x: (lib if hasattr(lib, "filter") else lib.experimental).filter(
        x, lib.tensor(kernel)
    )


def _filter2d(kernel: np.ndarray) -> Make:
    return lambda c: lambda a: c.filter2D(a, -1, kernel)


row(
    "GaussianBlur",
    lambda lib, x: lib.gaussian_blur(x, window_size=5, sigma=2.0),
    ax=lambda A: A.GaussianBlur((5, 5), (2, 2), p=1),
    tv=lambda v: v.GaussianBlur(5, (2.0, 2.0)),
    kornia=lambda k: k.RandomGaussianBlur((5, 5), (2.0, 2.0), p=1.0),
    cv=lambda c: lambda a: c.GaussianBlur(a, (5, 5), 2.0),
)
row(
    "Blur",
    _filtered(np.full((5, 5), 1 / 25, np.float32)),
    ax=lambda A: A.Blur((5, 5), p=1),
    kornia=lambda k: k.RandomBoxBlur((5, 5), p=1.0),
    pillow=lambda p: lambda im: im.filter(_pil("ImageFilter").BoxBlur(2)),
    cv=lambda c: lambda a: c.blur(a, (5, 5)),
)
row(
    "MedianBlur",
    lambda lib, x: lib.experimental.median_blur(x, window_size=5),
    ax=lambda A: A.MedianBlur((5, 5), p=1),
    kornia=lambda k: k.RandomMedianBlur((5, 5), p=1.0),
    pillow=lambda p: lambda im: im.filter(_pil("ImageFilter").MedianFilter(5)),
    cv=lambda c: lambda a: c.medianBlur(a, 5),
)
row(
    "MotionBlur",
    _filtered(_MOTION),
    ax=lambda A: A.MotionBlur((5, 5), p=1),
    kornia=lambda k: k.RandomMotionBlur(5, 45.0, 0.0, p=1.0),
    cv=_filter2d(_MOTION),
)
row(
    "Sharpen",
    _filtered(_SHARPEN),
    ax=lambda A: A.Sharpen((0.3, 0.3), (1.0, 1.0), p=1),
    tv=lambda v: v.RandomAdjustSharpness(2.0, p=1.0),
    kornia=lambda k: k.RandomSharpness(0.5, p=1.0),
    pillow=lambda p: lambda im: im.filter(_pil("ImageFilter").SHARPEN),
    cv=_filter2d(_SHARPEN),
)
row(
    "EnhanceEdge",
    _filtered(_EDGE),
    ax=lambda A: A.Enhance(mode="edge", p=1),
    pillow=lambda p: lambda im: im.filter(_pil("ImageFilter").EDGE_ENHANCE),
    cv=_filter2d(_EDGE),
)
row(
    "EnhanceDetail",
    _filtered(_DETAIL),
    ax=lambda A: A.Enhance(mode="detail", p=1),
    pillow=lambda p: lambda im: im.filter(_pil("ImageFilter").DETAIL),
    cv=_filter2d(_DETAIL),
)


def _unsharp(lib: Any, x: Any) -> Any:
    blurred = lib.gaussian_blur(x, window_size=5, sigma=2.0, dtype=lib.float32)
    return _bytes(lib, x * 1.5 - blurred * 0.5)


row(
    "UnsharpMask",
    _unsharp,
    "without a threshold; AlbumentationsX and Pillow have one",
    ax=lambda A: A.UnsharpMask((5, 5), (2, 2), (0.5, 0.5), p=1),
    pillow=lambda p: lambda im: im.filter(_pil("ImageFilter").UnsharpMask(2, 50, 3)),
)
