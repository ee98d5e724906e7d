"""`python -m ndd demo | info | cache`."""

from __future__ import annotations

import argparse
import platform
import sys

from .kernels.cache import cache_dir, package_version


def _info() -> None:
    import ndd
    from ndd.kernels.gpu_env import gpu_available, simulating

    print(f"ndd {ndd.__version__}, Python {platform.python_version()}, {platform.machine()}")
    for name, extra in (
        ("numpy", ""), ("numba", ""), ("llvmlite", ""), ("nvidia-nvimgcodec-cu12", ""),
        ("torch", "torch"), ("triton", "gpu"), ("cupy-cuda12x", "gpu"),
    ):  # fmt: skip
        found = package_version(name)
        hint = f'not installed: pip install "ndd-fusion[{extra}]"' if found == "none" else found
        print(f"  {name:24s} {hint}")
    gpu = "simulated" if simulating() else ("yes" if gpu_available() else "none")
    print(f"  threads {ndd.get_num_threads()}, GPU {gpu}, kernel cache {cache_dir()}")


def _cache(clear: bool) -> None:
    files = [f for f in cache_dir().rglob("*") if f.is_file()]
    if clear:
        for f in files:
            f.unlink()
    size = sum(f.stat().st_size for f in files if f.exists())
    kernels = sorted(f for f in files if f.suffix == ".py" and f.exists())
    for f in kernels:
        print(f"  {f.relative_to(cache_dir())}")
    state = "cleared" if clear else f"{len(kernels)} kernels, {size / 1e6:.1f} MB"
    print(f"{cache_dir()}: {state}")


def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m ndd", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="run the demo and write a picture")
    demo.add_argument("--output", default="demo.png")
    demo.add_argument("--seconds", type=float, default=2.0)
    commands.add_parser("info", help="versions, devices, what is missing")
    cache = commands.add_parser("cache", help="list or clear compiled kernels")
    cache.add_argument("--clear", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.command == "demo":
        from .demo import main as run_demo

        run_demo(chosen.output, chosen.seconds)
    elif chosen.command == "info":
        _info()
    else:
        _cache(chosen.clear)
    return 0


if __name__ == "__main__":
    sys.exit(main())
