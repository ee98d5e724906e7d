"""Read WebDataset shards from an S3 server: range requests, a local cache, one part per rank.

Without --url, the program starts a server of its own (moto) and fills a bucket. With it, shards of
a real bucket are read, with the credentials of the environment, for example
--url 's3://bucket/train-{00000..00007}.tar'.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from data import CLASSES, arguments, folder

import ndd

BUCKET = "ndd-example"


@contextlib.contextmanager
def server() -> Iterator[dict[str, Any]]:
    """An S3 server in this process; yields the options by which fsspec reaches it."""
    from moto.server import ThreadedMotoServer

    found = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    found.start()
    host, port = found.get_host_and_port()
    endpoint = {"endpoint_url": f"http://{host}:{port}"}
    try:
        yield {"key": "any", "secret": "any", "client_kwargs": endpoint}
    finally:
        found.stop()


def shard(pictures: list[tuple[Path, int]]) -> bytes:
    """A tar archive: a picture and its class have the same name up to the dot."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, label in pictures:
            name = f"{CLASSES[label]}-{path.stem}"
            for ext, data in (("jpg", path.read_bytes()), ("cls", np.int32(label).tobytes())):
                member = tarfile.TarInfo(f"{name}.{ext}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def fill(root: Path, count: int, options: dict[str, Any]) -> list[str]:
    """Put shards into the bucket; returns their URLs."""
    pictures = [(p, k) for k, name in enumerate(CLASSES) for p in sorted((root / name).iterdir())]
    system = fsspec.filesystem("s3", **options)
    system.mkdir(BUCKET)
    urls = [f"s3://{BUCKET}/train-{k:05d}.tar" for k in range(count)]
    for k, url in enumerate(urls):
        system.pipe(url, shard(pictures[k::count]))
    return urls


def expanded(url: str) -> list[str]:
    """The URLs that ``{00000..00007}`` stands for."""
    found = re.search(r"\{(\d+)\.\.(\d+)\}", url)
    if found is None:
        return [url]
    first, last = found.groups()
    numbers = range(int(first), int(last) + 1)
    return [url.replace(found[0], f"{k:0{len(first)}d}") for k in numbers]


def read(urls: list[str], options: dict[str, Any], chosen: argparse.Namespace, cache: Path) -> None:
    seen = []
    for rank in range(chosen.ranks):  # in a real job, each in its own process
        reader = ndd.readers.Webdataset(
            paths=urls, ext=["jpg", "cls"], dtypes=[ndd.uint8, ndd.int32],
            missing_component_behavior="skip", shard_id=rank, num_shards=chosen.ranks,
            random_shuffle=True, last_batch="partial", storage_options=options, cache_dir=cache,
        )  # fmt: skip
        for jpegs, labels in reader.next_epoch(batch_size=chosen.batch_size):
            x = ndd.resize(ndd.decoders.image(jpegs, device=chosen.device), size=[64, 64])
            images = ndd.crop_mirror_normalize(x, mean=[124, 116, 104], std=[58, 57, 57]).torch()
            seen += labels.torch().flatten().tolist()
        print(f"rank {rank}: batches up to {tuple(images.shape)}, {len(seen)} pictures so far")
    kept = sum(f.stat().st_size for f in cache.iterdir())
    counts = {CLASSES[k] if k < len(CLASSES) else k: seen.count(k) for k in sorted(set(seen))}
    print(f"{len(seen)} pictures in {len(urls)} shards: {counts}; {kept} bytes in the cache")


def main() -> None:
    parser = arguments(__doc__, per_class=12, size=64)
    parser.add_argument("--url", help="shards of a real bucket")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache, contextlib.ExitStack() as stack:
        if chosen.url is not None:
            read(expanded(chosen.url), {}, chosen, Path(cache))
            return
        options = stack.enter_context(server())
        read(fill(folder(chosen), chosen.shards, options), options, chosen, Path(cache))


if __name__ == "__main__":
    main()
