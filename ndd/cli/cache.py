"""`python -m ndd cache`: lists or removes the generated kernels on disk."""

from __future__ import annotations

from pathlib import Path

from ..kernels.common.disk_cache import cache_dir
from ..tools.explain import counted


def kernel_files() -> list[Path]:
    """Source and machine code of all kernels, and marks of wanted ones; other files in
    NDD_CACHE_DIR are left out."""
    found = (f for device in ("cpu", "gpu") for f in (cache_dir() / device).glob("*"))
    return sorted(f for f in found if f.suffix in (".py", ".o", ".wish") and f.is_file())


def cache_size() -> tuple[int, int]:
    """Number of kernels, and bytes of all files."""
    files = kernel_files()
    return sum(f.suffix == ".py" for f in files), sum(f.stat().st_size for f in files)


def cache(clear: bool) -> int:
    """List all kernels, or remove them."""
    folder, files = cache_dir(), kernel_files()
    count, nbytes = cache_size()
    text = f"{counted(count, 'kernel')}, {nbytes / 1e6:.1f} MB"
    if clear:
        for file in files:
            file.unlink(missing_ok=True)
        print(f"{folder}: removed {text}")
        return 0
    for source in (f for f in files if f.suffix == ".py"):
        size = sum(f.stat().st_size for f in source.parent.glob(f"{source.stem}.*"))
        print(f"  {size / 1e3:8.1f} KB  {source.relative_to(folder)}")
    print(f"{folder}: {text}")
    return 0
