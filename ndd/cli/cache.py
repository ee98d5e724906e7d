"""`python -m ndd cache`: the generated kernels on disk."""

from __future__ import annotations

from ..kernels.cache import cache_dir


def cache_size() -> tuple[int, int]:
    """Number of kernels, and bytes of all files."""
    files = [f for f in cache_dir().rglob("*") if f.is_file()]
    return sum(f.suffix == ".py" for f in files), sum(f.stat().st_size for f in files)


def cache(clear: bool) -> int:
    """List all kernels, or remove them."""
    folder = cache_dir()
    if clear:
        count, nbytes = cache_size()
        for file in folder.rglob("*"):
            if file.is_file():
                file.unlink()
        print(f"{folder}: removed {count} kernels, {nbytes / 1e6:.1f} MB")
        return 0
    for source in sorted(folder.rglob("*.py")):
        nbytes = sum(f.stat().st_size for f in source.parent.glob(f"{source.stem}.*"))
        print(f"  {nbytes / 1e3:8.1f} KB  {source.relative_to(folder)}")
    count, nbytes = cache_size()
    print(f"{folder}: {count} kernels, {nbytes / 1e6:.1f} MB")
    return 0
