"""`python -m ndd info`: prints what this installation can do, and what is missing."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata

import numpy as np

import ndd

from ..kernels.common.disk_cache import cache_dir, package_version
from ..kernels.gpu.env import driver_device_count, simulating
from .cache import cache_size

PACKAGE = "ndd-fusion"
CODECS = ("jpeg", "png", "bmp", "tiff", "webp", "jpeg2k", "pnm")
_NOT_FOR_USERS = {"test", "bench", "dev", "docs"}


def info() -> int:
    """Print versions, devices, codecs and cache."""
    print(f"ndd {ndd.__version__}, Python {platform.python_version()}, {platform.platform()}")
    print("\npackages")
    for name, extra in packages():
        _package(name, f'pip install "{PACKAGE}[{extra}]"' if extra else f"pip install {PACKAGE}")
    _package("tqdm", "pip install tqdm (for progress bars)")
    print("\ndevices")
    print(f"  CPU    {platform.machine()}, {os.cpu_count()} cores, {ndd.get_num_threads()} threads")
    print(f"  GPU    {_gpu()}")
    print(f"\ndecodes  {_codecs()}")
    count, nbytes = cache_size()
    print(f"kernels  {count} in {cache_dir()}, {nbytes / 1e6:.1f} MB")
    chosen = {k: v for k, v in sorted(os.environ.items()) if k.startswith("NDD_")}
    print(f"environment  {' '.join(f'{k}={v}' for k, v in chosen.items()) or 'no NDD_* is set'}")
    return 0


def _package(name: str, install: str) -> None:
    found = package_version(name)
    print(f"  {name:24s} {found if found != 'none' else f'missing: {install}'}")


def packages() -> list[tuple[str, str]]:
    """Required and optional packages, each with the extra that adds it, or ""."""
    try:
        required = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        required = ["numpy", "numba", "nvidia-nvimgcodec-cu12"]
    found: dict[str, str] = {}
    for line in required:
        match = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra == ["'](.+?)["']""", line)
        if match and not (extra and extra[1] in _NOT_FOR_USERS):
            found.setdefault(match[0], extra[1] if extra else "")
    return list(found.items())


def _gpu() -> str:
    if simulating():
        return "simulated (NDD_GPU=simulate)"
    count = driver_device_count()
    return f"{count} CUDA devices" if count else "none; NDD_GPU=simulate tries GPU code without one"


def _codecs() -> str:
    """The formats in which encoding and decoding a small picture works."""
    from ..codecs.image.nvimgcodec import nvimgcodec

    try:
        library = nvimgcodec()
    except Exception as error:
        return f"nothing: {error}"
    encoder = library.Encoder(
        device_id=library.NVIMGCODEC_DEVICE_CPU_ONLY,
        backends=[library.Backend(library.BackendKind.CPU_ONLY)],
    )
    pixels = np.zeros((32, 32, 3), np.uint8)
    found = []
    for codec in CODECS:
        try:
            data = bytes(encoder.encode(library.as_image(pixels), codec=codec))
            ndd.decoders.image(np.frombuffer(data, np.uint8)).evaluate()
            found.append(codec)
        except Exception:
            found.append(f"({codec} does not work)")
    return " ".join(found)
