"""The published choices of augmentations: which ones, how strong, how often.

RandAugment (arXiv 1909.13719), TrivialAugment with its wide space (arXiv 2103.10158) and the
policies of AutoAugment (arXiv 1805.09501).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

POLICY_BINS = 11  # magnitudes of AutoAugment are bins 0 to 10


class Range(NamedTuple):
    """Magnitudes of an augmentation, from the first bin to the last."""

    first: float = 0.0
    last: float = 0.0
    is_signed: bool = False  # half of the samples get the magnitude negated
    neutral: float = 0.0  # added to the magnitude


class Use(NamedTuple):
    """An augmentation in a policy, with its probability and bin."""

    name: str
    probability: float
    bin: int = 0


Suite = Mapping[str, Range]
TRANSLATIONS = ("translate_x", "translate_y")
_NONE = Range()


def _suite(enhance: Range, posterize: Range, solarize: Range, shear: float, angle: float) -> Suite:
    """The fourteen augmentations of RandAugment, in the order in which they are drawn."""
    side = Range(0.0, 0.0, True)  # of translations, whose limits come from the call
    return MappingProxyType(
        dict(
            translate_x=side, translate_y=side, shear_x=Range(0, shear, True),
            shear_y=Range(0, shear, True), rotate=Range(0, angle, True), brightness=enhance,
            contrast=enhance, color=enhance, sharpness=enhance, posterize=posterize,
            solarize=solarize, equalize=_NONE, auto_contrast=_NONE, identity=_NONE,
        )
    )  # fmt: skip


RAND = _suite(Range(0.0, 0.9, True, 1.0), Range(8, 4), Range(256, 0), 0.3, 30)
RAND_NON_MONOTONIC = _suite(Range(0.1, 1.9), Range(0, 4), Range(0, 256), 0.3, 30)
TRIVIAL_WIDE = _suite(Range(0.01, 0.99, True, 1.0), Range(8, 2), Range(256, 0), 0.99, 135)
# What AutoAugment chooses from has the magnitudes of the second one, and two more.
AUTO: Suite = MappingProxyType(
    {**RAND_NON_MONOTONIC, "solarize_add": Range(0, 110), "invert": _NONE}
)


def _policy(text: str) -> tuple[tuple[Use, ...], ...]:
    """A policy from its text: a sub-policy per line, and in it `name probability [bin]`."""
    lines = (line.split(",") for line in text.strip().splitlines())
    return tuple(
        tuple(Use(name, float(p), *map(int, rest)) for name, p, *rest in map(str.split, line))
        for line in lines
    )


POLICIES = {
    "image_net": _policy("""
        equalize 0.8, shear_y 0.8 4
        color 0.4 9, equalize 0.6
        color 0.4 1, rotate 0.6 8
        solarize 0.8 3, equalize 0.4
        solarize 0.4 2, solarize 0.6 2
        color 0.2 0, equalize 0.8
        equalize 0.4, solarize_add 0.8 3
        shear_x 0.2 9, rotate 0.6 8
        color 0.6 1, equalize 1.0
        invert 0.4, rotate 0.6 0
        equalize 1.0, shear_y 0.6 3
        color 0.4 7, equalize 0.6
        posterize 0.4 6, auto_contrast 0.4
        solarize 0.6 8, color 0.6 9
        solarize 0.2 4, rotate 0.8 9
        rotate 1.0 7, translate_y 0.8 9
        solarize 0.8 4
        shear_y 0.8 0, color 0.6 4
        color 1.0 0, rotate 0.6 2
        equalize 0.8
        equalize 1.0, auto_contrast 0.6
        shear_y 0.4 7, solarize_add 0.6 7
        posterize 0.8 2, solarize 0.6 10
        solarize 0.6 8, equalize 0.6
        color 0.8 6, rotate 0.4 5"""),
    "reduced_image_net": _policy("""
        posterize 0.4 8, rotate 0.6 9
        solarize 0.6 5, auto_contrast 0.6
        equalize 0.8, equalize 0.6
        posterize 0.6 7, posterize 0.6 6
        equalize 0.4, solarize 0.2 4
        equalize 0.4, rotate 0.8 8
        solarize 0.6 3, equalize 0.6
        posterize 0.8 5, equalize 1.0
        rotate 0.2 3, solarize 0.6 8
        equalize 0.6, posterize 0.4 6
        rotate 0.8 8, color 0.4 0
        rotate 0.4 9, equalize 0.6
        equalize 0.8
        invert 0.6, equalize 1.0
        color 0.6 4, contrast 1.0 8
        rotate 0.8 8, color 1.0 2
        color 0.8 8, solarize 0.8 7
        sharpness 0.4 7, invert 0.6
        shear_x 0.6 5, equalize 1.0
        color 0.4 0, equalize 0.6
        equalize 0.4, solarize 0.2 4
        solarize 0.6 5, auto_contrast 0.6
        invert 0.6, equalize 1.0
        color 0.6 4, contrast 1.0 8
        equalize 0.8, equalize 0.6"""),
    "reduced_cifar10": _policy("""
        invert 0.1, contrast 0.2 6
        rotate 0.7 2, translate_x 0.3 9
        sharpness 0.8 1, sharpness 0.9 3
        shear_y 0.5 8, translate_y 0.7 9
        auto_contrast 0.5, equalize 0.9
        shear_y 0.2 7, posterize 0.3 7
        color 0.4 3, brightness 0.6 7
        sharpness 0.3 9, brightness 0.7 9
        equalize 0.6, equalize 0.5
        contrast 0.6 7, sharpness 0.6 5
        color 0.7 7, translate_x 0.5 8
        equalize 0.3, auto_contrast 0.4
        translate_y 0.4 3, sharpness 0.2 6
        brightness 0.9 6, color 0.2 8
        solarize 0.5 2
        equalize 0.2, auto_contrast 0.6
        equalize 0.2, equalize 0.6
        color 0.9 9, equalize 0.6
        auto_contrast 0.8, solarize 0.2 8
        brightness 0.1 3, color 0.7 0
        solarize 0.4 5, auto_contrast 0.9
        translate_y 0.9 9, translate_y 0.7 9
        auto_contrast 0.9, solarize 0.8 3
        equalize 0.8, invert 0.1
        translate_y 0.7 9, auto_contrast 0.9"""),
    "svhn": _policy("""
        shear_x 0.9 4, invert 0.2
        shear_y 0.9 8, invert 0.7
        equalize 0.6, solarize 0.6 6
        invert 0.9, equalize 0.6
        equalize 0.6, rotate 0.9 3
        shear_x 0.9 4, auto_contrast 0.8
        shear_y 0.9 8, invert 0.4
        shear_y 0.9 5, solarize 0.2 6
        invert 0.9, auto_contrast 0.8
        equalize 0.6, rotate 0.9 3
        shear_x 0.9 4, solarize 0.3 3
        shear_y 0.8 8, invert 0.7
        equalize 0.9, translate_y 0.6 6
        invert 0.9, equalize 0.6
        contrast 0.3 3, rotate 0.8 4
        invert 0.8
        shear_y 0.7 6, solarize 0.4 8
        invert 0.6, rotate 0.8 4
        shear_y 0.3 7, translate_x 0.9 3
        shear_x 0.1 6, invert 0.6
        solarize 0.7 2, translate_y 0.6 7
        shear_y 0.8 4, invert 0.8
        shear_x 0.7 9, translate_y 0.8 3
        shear_y 0.8 5, auto_contrast 0.7
        shear_x 0.7 2, invert 0.1"""),
}
