"""rand_augment, trivial_augment and auto_augment: random augmentations for every sample.

All draws are made at the call, from the words of one draw: element k of sample s decides about the
k-th augmentation of the sample. So modes and devices choose the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import convert
from ...core.schema import REQUIRED, data, geometry, op, static
from ...fusion.graph import build
from ...fusion.graph.node import Node
from ...fusion.graph.shapes import Array
from ...kernels.ir import dtypes as dt
from ...kernels.ir.dtypes import DALIInterpType
from ...runtime.rng import below, draw_of, unit
from ..geometry.window import beside
from ..histograms.equalize import check_bytes
from ..random.crop import RNG_DOC
from ..resample.sampling import LINEAR, NN, check_filter
from .augmentations import WarpOptions, augmented
from .policies import (
    AUTO,
    POLICIES,
    POLICY_BINS,
    RAND,
    RAND_NON_MONOTONIC,
    TRANSLATIONS,
    TRIVIAL_WIDE,
    Suite,
    Use,
)

_DATA = "Images or sequences of uint8, in RGB; all frames of a sequence are treated alike."
_BINS = "Number of steps between the weakest and the strongest magnitude."
_SHAPE = "Height and width, also per sample; then translations are relative to them."
_FILL = "Value outside of the image after warps; None repeats its border."
_INTERP = "INTERP_LINEAR or INTERP_NN, for warps."
_ABS = "Largest translation in pixels, if there is no `shape`: one number, or height and width."
_REL = "Largest translation relative to `shape`: one number, or height and width."
_EXCLUDED = "Names of augmentations that are left out."
_IMAGE = "image = ndd.zeros(shape=[48, 64, 3], dtype=ndd.uint8, layout='HWC')\n"
_CALL = ", rng=ndd.random.RNG(seed=1234)).shape\n=(48, 64, 3)"
LAYOUTS = "HWC FHWC"


@op.graph(
    name="auto_augment.rand_augment", layouts=LAYOUTS, needs_channels=3,
    sample=f"{_IMAGE}ndd.auto_augment.rand_augment(image, n=2, m=9{_CALL}",
)  # fmt: skip
def rand_augment(
    data=data(_DATA),
    n=static(int, REQUIRED, "How many augmentations each sample gets.", positional=True),
    m=static(int, REQUIRED, "Their magnitude, from 0.", positional=True),
    num_magnitude_bins=static(int, 31, _BINS),
    shape=geometry(float, None, _SHAPE, vector=True),
    fill_value=static(float, 128.0, _FILL, takes_none=True),
    interp_type=static(DALIInterpType, LINEAR, _INTERP),
    max_translate_abs=static("floats", None, f"{_ABS} 100 if omitted."),
    max_translate_rel=static("floats", None, f"{_REL} 100/224 if omitted."),
    rng=static("RNG", None, RNG_DOC),
    monotonic_mag=static(
        bool, True, "Whether larger magnitudes are stronger for all augmentations; if not, some "
        "have the magnitudes of AutoAugment.",
    ),
    excluded=static("names", (), _EXCLUDED),
):  # fmt: skip
    """RandAugment: `n` augmentations of each sample, chosen at random from 14.

    They are translate_x, translate_y, shear_x, shear_y, rotate, brightness, contrast, color,
    sharpness, posterize, solarize, equalize, auto_contrast and identity.
    """
    x = data
    if n < 0:
        raise ValueError(f"`n` must not be negative, got {n}")
    _check_bin(m, num_magnitude_bins)
    suite = _without(RAND if monotonic_mag else RAND_NON_MONOTONIC, excluded)
    limits = _limits(shape, max_translate_abs, max_translate_rel, 100.0, 100 / 224, x)
    options = _options(x, fill_value, interp_type)
    draw = draw_of(rng)
    names = list(suite)
    for k in range(n):
        which, sign, _, _ = draw.blocks(k, np.arange(x.count))
        chosen = below(which, np.array(len(names)))
        bins = np.full(x.count, m)
        numbers = _parameters(suite, names, chosen, bins, num_magnitude_bins, sign, limits)
        x = augmented("auto_augment.rand_augment", x, names, chosen, numbers, options)
    return _result(x, data)


@op.graph(
    name="auto_augment.trivial_augment", layouts=LAYOUTS, needs_channels=3,
    sample=f"{_IMAGE}ndd.auto_augment.trivial_augment(image{_CALL}",
)  # fmt: skip
def trivial_augment(
    data=data(_DATA),
    num_magnitude_bins=static(int, 31, _BINS),
    shape=geometry(float, None, _SHAPE, vector=True),
    fill_value=static(float, 128.0, _FILL, takes_none=True),
    interp_type=static(DALIInterpType, LINEAR, _INTERP),
    max_translate_abs=static("floats", None, f"{_ABS} 32 if omitted."),
    max_translate_rel=static("floats", None, f"{_REL} 1 if omitted."),
    rng=static("RNG", None, RNG_DOC),
    excluded=static("names", (), _EXCLUDED),
):
    """TrivialAugment: one augmentation of each sample, with a magnitude, both chosen at random.

    The augmentations are those of `rand_augment`, with the wider magnitudes of the paper.
    """
    x = data
    _check_bin(0, num_magnitude_bins)
    suite = _without(TRIVIAL_WIDE, excluded)
    limits = _limits(shape, max_translate_abs, max_translate_rel, 32.0, 1.0, x)
    options = _options(x, fill_value, interp_type)
    which, sign, strength, _ = draw_of(rng).blocks(0, np.arange(x.count))
    names = list(suite)
    chosen = below(which, np.array(len(names)))
    bins = below(strength, np.array(num_magnitude_bins))
    numbers = _parameters(suite, names, chosen, bins, num_magnitude_bins, sign, limits)
    y = augmented("auto_augment.trivial_augment", x, names, chosen, numbers, options)
    return _result(y, x)


@op.graph(
    name="auto_augment.auto_augment", layouts=LAYOUTS, needs_channels=3,
    sample=f"{_IMAGE}ndd.auto_augment.auto_augment(image, 'image_net'{_CALL}",
)  # fmt: skip
def auto_augment(
    data=data(_DATA),
    policy_name=static(
        tuple(POLICIES), "image_net", f"The policy: {', '.join(POLICIES)}.", positional=True
    ),
    shape=geometry(float, None, _SHAPE, vector=True),
    fill_value=static(float, 128.0, _FILL, takes_none=True),
    interp_type=static(DALIInterpType, LINEAR, _INTERP),
    max_translate_abs=static("floats", None, f"{_ABS} 250 if omitted."),
    max_translate_rel=static("floats", None, f"{_REL} 1 if omitted."),
    rng=static("RNG", None, RNG_DOC),
):
    """AutoAugment: each sample gets one of the 25 sub-policies of a published policy.

    A sub-policy is one or two augmentations, each with a magnitude and with a probability.
    """
    x, policy = data, POLICIES[policy_name]
    limits = _limits(shape, max_translate_abs, max_translate_rel, 250.0, 1.0, x)
    options = _options(x, fill_value, interp_type)
    draw, samples = draw_of(rng), np.arange(x.count)
    which = below(draw.blocks(0, samples)[0], np.array(len(policy)))
    for k in range(max(map(len, policy))):
        chance, sign, _, _ = draw.blocks(1 + k, samples)
        names, chosen, bins = _uses(policy, which, k, chance)
        numbers = _parameters(AUTO, names, chosen, bins, POLICY_BINS, sign, limits)
        x = augmented("auto_augment.auto_augment", x, names, chosen, numbers, options)
    return _result(x, data)


def _uses(
    policy: Sequence[Sequence[Use]], which: Array, k: int, chance: Array
) -> tuple[list[str], Array, Array]:
    """What the k-th augmentations of a policy are; for each sample the index of its own, or of
    identity if it is left out, and its bin."""
    nothing = Use("identity", 1.0)
    uses = [own[k] if k < len(own) else nothing for own in policy]
    names = list(dict.fromkeys(["identity", *(use.name for use in uses)]))
    index = np.array([names.index(use.name) for use in uses])
    is_used = unit(chance) < np.array([use.probability for use in uses])[which]
    bins = np.array([use.bin for use in uses])
    return names, np.where(is_used, index[which], 0), bins[which]


# -- arguments -------------------------------------------------------------------------------------


def _check_bin(bin: int, count: int) -> None:
    if count < 1:
        raise ValueError(f"`num_magnitude_bins` must be positive, got {count}")
    if not 0 <= bin < count:
        raise ValueError(f"`m` must lie in [0, {count - 1}] (`num_magnitude_bins` - 1), got {bin}")


def _without(suite: Suite, excluded: Any) -> Suite:
    """The suite without some of its augmentations."""
    names = [excluded] if isinstance(excluded, str) else list(excluded)
    unknown = [name for name in names if name not in suite]
    if unknown:
        raise ValueError(f"`excluded` must be names of {', '.join(suite)}, got {unknown[0]!r}")
    left = {name: found for name, found in suite.items() if name not in names}
    if not left:
        raise ValueError("`excluded` leaves no augmentation")
    return left


def _limits(
    shape: Array | None, in_pixels: Any, relative: Any, usual: float, usual_part: float, x: Node
) -> Array:
    """Largest translations [samples or 1, (height, width)] in pixels."""
    if shape is None:
        if relative is not None:
            raise ValueError("`max_translate_rel` needs `shape`")
        return _pair("max_translate_abs", in_pixels, usual)[None]
    if in_pixels is not None:
        raise ValueError("`max_translate_abs` and `shape` exclude each other")
    if shape.shape[1] not in (2, x.rank):
        raise ValueError(f"`shape` must have 2 values (height, width), got {shape.shape[1]}")
    first = (x.layout or "").index("H") if shape.shape[1] == x.rank else 0
    return _pair("max_translate_rel", relative, usual_part) * shape[:, first : first + 2]


def _pair(name: str, given: Any, usual: float) -> Array:
    """Height and width of a limit: (usual, usual) if omitted."""
    values = (usual,) if given is None else given
    if len(values) not in (1, 2):
        raise ValueError(f"`{name}` must have 1 or 2 values (height, width), got {len(values)}")
    if not all(0 <= v < np.inf for v in values):
        raise ValueError(f"`{name}` must be finite and not negative, got {list(values)}")
    return np.array(values * 2 if len(values) == 1 else values, np.float64)


def _options(x: Node, fill: float | None, interp: DALIInterpType) -> WarpOptions:
    check_bytes(x)
    check_filter(x, "interp_type", interp, (NN, LINEAR))
    node = None if fill is None else beside(convert.const_scalar(float(fill), dt.float32), x)
    return WarpOptions(node, interp)


# -- parameters ------------------------------------------------------------------------------------


def _parameters(
    suite: Suite, names: Sequence[str], chosen: Array, bins: Array, count: int, signs: Array,
    limits: Array,
) -> Array:  # fmt: skip
    """The parameter of each sample's augmentation: its magnitude with its sign, as its kernel needs
    it. `chosen` are indices into `names`."""
    first, last, signed, neutral = np.array([suite[n] for n in names], np.float64)[chosen].T
    for k, name in enumerate(names):
        if name in TRANSLATIONS:
            last = np.where(chosen == k, limits[:, int(name == "translate_x")], last)
    step = (last - first) / max(count - 1, 1)
    # The last magnitude is exact, as that of `np.linspace`.
    magnitude = np.where((bins == count - 1) & (count > 1), last, first + bins * step)
    negated = (signed > 0) & (signs >= 2**31)
    magnitude = np.where(negated, -magnitude, magnitude) + neutral
    for k, name in enumerate(names):
        if name in _ROUNDED:
            own = chosen == k
            magnitude[own] = [_ROUNDED[name](v) for v in magnitude[own].tolist()]
    return magnitude


def _mask(bits: float) -> float:
    """The mask that keeps this many of the highest bits, at least one."""
    kept = min(max(round(bits), 1), 8)
    return float(0xFF & (0xFF << (8 - kept)))


_ROUNDED: dict[str, Callable[[float], float]] = {"posterize": _mask, "solarize_add": math.trunc}


def _result(x: Node, given: Node) -> Node:
    """The result of a call, which is a node of its own even if nothing changes."""
    return build.copy("auto_augment", x) if x is given else x
