"""`python -m ndd`: commands to inspect an installation, scripts, kernels and ops, and a demo."""

from __future__ import annotations

import argparse


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    chosen = _parser().parse_args(arguments)
    # Each command imports only the modules it needs, to start fast.
    if chosen.command == "info":
        from .info import info

        return info()
    if chosen.command == "demo":
        from ..tools.demo import main as demo

        demo(chosen.output, chosen.seconds, chosen.photos)
        return 0
    if chosen.command == "bench":
        from .bench import bench

        return bench(chosen.arguments)
    if chosen.command == "explain":
        from .explain import explain

        return explain(chosen.script, chosen.arguments, chosen.source, chosen.html)
    if chosen.command == "cache":
        from .cache import cache

        return cache(chosen.clear)
    if chosen.command == "index":
        from .index import index

        return index(chosen.kind, chosen.files, chosen.output)
    if chosen.command == "warm":
        from .warm import warm

        return warm(chosen.processes, chosen.ops)
    from .gallery import gallery

    return gallery(chosen.output, chosen.ops)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ndd", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, devices, codecs, cache; what is missing")
    demo = commands.add_parser("demo", help="JPEG files to batches: speed, plan, contact sheet")
    demo.add_argument("--output", default="demo.png", help="the contact sheet")
    demo.add_argument("--photos", help="a folder with a wheel of scikit-image, for its photographs")
    demo.add_argument("--seconds", type=float, default=3.0, help="to measure each of two programs")
    bench = commands.add_parser("bench", help="the benchmarks of the repository, the quick ones")
    bench.add_argument("arguments", nargs=argparse.REMAINDER, help="for `python -m bench`")
    explain = commands.add_parser("explain", help="run a script and tell what was fused")
    explain.add_argument("--source", action="store_true", help="print the generated kernels, too")
    explain.add_argument("--html", metavar="FILE", help="write the plans as a page with drawings")
    explain.add_argument("script")
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="for the script")
    cache = commands.add_parser("cache", help="list the compiled kernels, or remove them")
    cache.add_argument("--clear", action="store_true")
    warm = commands.add_parser("warm", help="compile the kernels of single ops ahead of time")
    warm.add_argument("--processes", type=int, help="at most this many; default: up to 4")
    warm.add_argument("ops", nargs="*", help="only these")
    index = commands.add_parser("index", help="write indexes of record files: FILE.idx")
    index.add_argument("kind", choices=("tfrecord", "tar", "recordio"))
    index.add_argument("files", nargs="+")
    index.add_argument("--output", help="the index of a single file")
    gallery = commands.add_parser("gallery", help="a picture for every image op: before and after")
    gallery.add_argument("--output", default="gallery", help="a folder")
    gallery.add_argument("ops", nargs="*", help="only these")
    return parser
