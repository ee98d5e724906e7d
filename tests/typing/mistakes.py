"""Mistakes that mypy and pyright must both find (`make lint`): an unused `ignore` is an error."""

from __future__ import annotations

import ndd


def mistakes(x: ndd.Batch) -> None:
    ndd.flip(x, horizntal=1)  # type: ignore[call-overload]
    ndd.resize(x, [224, 224])  # type: ignore[call-overload]
    ndd.crop(x, out_of_bounds_policy="padd")  # type: ignore[call-overload]
    ndd.cast(x, dtype="flaot32")  # type: ignore[call-overload]
    ndd.cast(x)  # type: ignore[call-overload]
    ndd.flip("image.jpg")  # type: ignore[call-overload]
    ndd.color_space_conversion(x, image_type="RGB", output_type="HSV")  # type: ignore[call-overload]
    ndd.rotate(x, angle="30")  # type: ignore[arg-type]
    ndd.readers.file(file_root="/data")  # type: ignore[attr-defined]
    ndd.readers.File(file_rot="/data")  # type: ignore[call-arg]
    ndd.rezise(x)  # type: ignore[attr-defined]
    x.at(0)  # type: ignore[attr-defined]
    print(x[0])  # type: ignore[index]
    print(x + "a")  # type: ignore[operator]
