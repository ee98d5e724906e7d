"""`python -m docs.pictures`: take the pictures in docs/images with headless Chromium.

It needs the built pages (`make docs`), the Debian package chromium, and Pillow to compress them.
`python -m docs.pictures WHEELS` makes only the contact sheet of the demo, from the photographs in
the wheel of scikit-image in this folder (`.venv/photos` after `make demo`); it needs no browser.
"""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from PIL import Image

import ndd
from ndd.tools import demo
from ndd.tools.photos import drawing, photographs, write_data_set

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
MAX_BYTES = 180_000
CHROMIUM = (
    "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --hide-scrollbars"
)
STYLE = """<meta charset="utf-8"><style>
body { font: 14px/1.45 sans-serif; margin: 20px; color: #222; background: #fff }
pre { background: #f5f7f7; padding: 10px 12px; margin: 0 0 12px; border-left: 3px solid #009485 }
pre, .in, .out { font: 12.5px/1.4 monospace }
.cell { display: grid; grid-template-columns: 62px 1fr; gap: 4px 8px; align-items: start }
.in { color: #303f9f; padding-top: 10px } .out { color: #d84315; padding-top: 4px }
.row { display: flex; gap: 20px; align-items: flex-start } h3 { margin: 0 0 6px; font-weight: 600 }
svg { max-width: 100%; height: auto }
</style>"""
CELLS = (
    "images",
    """with ndd.EvalMode.deferred:
    x = ndd.rotate(images, angle=ndd.random.uniform(range=(-20, 20), batch_size=4))
    x = ndd.color_twist(ndd.flip(x), hue=40.0)
    x = ndd.crop_mirror_normalize(x, crop=[96, 96], mean=[124, 116, 104], std=[58, 57, 57])
ndd.explain(x)""",
)


def shot(url: str, target: Path, width: int, height: int) -> None:
    """Save a page as a PNG file."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "shot.png"
        options = [f"--user-data-dir={folder}/profile", f"--window-size={width},{height}"]
        command = [*CHROMIUM.split(), *options, f"--screenshot={raw}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=90)
        compressed(raw.read_bytes(), target)


def compressed(png: bytes, target: Path) -> None:
    """Save a PNG file, with 256 colours if it would exceed MAX_BYTES otherwise."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.save(target, optimize=True)
    if target.stat().st_size > MAX_BYTES:
        palette = picture.quantize(256)
        picture.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(
            target, optimize=True
        )
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1000:.0f} KB")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP, because the search box does not work with file:// addresses."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


def page(body: str, target: Path, width: int, height: int) -> None:
    """Save a picture of a page with this HTML body."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(f"<!doctype html>{STYLE}{body}")
        shot(path.as_uri(), target, width, height)


def notebook() -> str:
    """HTML of two cells as Jupyter shows them: the input, and the result of `_repr_html_`."""
    photos = [drawing(110 + 12 * i, 150, i) for i in range(4)]
    namespace = {"ndd": ndd, "images": ndd.batch(photos, layout="HWC")}
    parts = []
    for number, source in enumerate(CELLS, 1):
        *lines, last = source.splitlines()
        exec("\n".join(lines), namespace)
        result = eval(last, namespace)._repr_html_()
        parts.append(f'<div class="in">In [{number}]:</div><pre>{source}</pre>')
        parts.append(f'<div class="out">Out[{number}]:</div><div>{result}</div>')
    return f'<div class="cell">{"".join(parts)}</div>'


def augment(images: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    """A chain that is one kernel: the images after colour and crop, and the normalised ones."""
    x = ndd.color_twist(images, hue=ndd.batch([25.0, -30.0]), saturation=ndd.batch([1.4, 0.8]))
    x = ndd.brightness_contrast(x, brightness=1.1, contrast=ndd.batch([1.2, 0.9]))
    x = ndd.flip(x, horizontal=ndd.batch([1, 0]))
    x = ndd.crop(x, crop=[224, 224], crop_pos_x=ndd.batch([0.2, 0.7]), crop_pos_y=0.4)
    return x, ndd.crop_mirror_normalize(x, mean=demo.MEAN, std=demo.STD)


def contact_sheet(wheels: str) -> None:
    """The contact sheet of the demo."""
    if not photographs(wheels):
        sys.exit(f"{wheels}: no wheel of scikit-image")
    ndd.random.set_seed(12)
    with tempfile.TemporaryDirectory() as folder:
        root, sheet = Path(folder) / "files", Path(folder) / "sheet.png"
        write_data_set(root, demo.FILES, wheels)
        demo.contact_sheet(root, sheet, cell=112)
        compressed(sheet.read_bytes(), IMAGES / "demo.png")


def chain() -> str:
    """HTML of a chain: images before and after, and the plan."""
    photos = ndd.batch([drawing(380, 480, i) for i in (0, 3)], layout="HWC")
    with ndd.EvalMode.deferred:
        shown, result = augment(photos)
        (group,) = ndd.explain(result).groups
    before, after = (image(x, 2) for x in (photos, shown))
    ops = " → ".join(dict.fromkeys(group.ops))
    return (
        f'<div class="row"><div><h3>before</h3>{before}<h3>after</h3>{after}</div><div>'
        f"<h3>one kernel</h3><p>{ops}<br>{group.moved}</p><pre>{excerpt(group.code)}</pre>"
        f"</div></div>"
    )


def excerpt(code: str) -> str:
    """The beginning and the end of the loop over the pixels of a line, from a kernel's source."""
    lines = code.splitlines()
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("for o_1"))
    end = next(i for i, line in enumerate(lines) if line.lstrip().startswith("store"))
    indent = len(lines[start]) - len(lines[start].lstrip())
    name = next(line for line in lines if line.startswith("def "))
    shown = [name, "    …", *(f"    {x[indent:]}" for x in lines[start : start + 13])]
    return "\n".join(
        [*shown, "            …", *(f"    {x[indent:]}" for x in lines[end : end + 3])]
    )


def augmentations(target: Path) -> None:
    """Save photos, and below what each kind of automatic augmentation makes of them."""
    photos = ndd.batch([drawing(110, 150, i) for i in range(6)], layout="HWC")
    module = ndd.auto_augment
    rows = [
        photos,
        module.rand_augment(photos, 2, 15, rng=ndd.random.RNG(seed=3)),
        module.trivial_augment(photos, rng=ndd.random.RNG(seed=2)),
        module.auto_augment(photos, rng=ndd.random.RNG(seed=1)),
    ]
    samples = ndd.batch([np.asarray(t) for row in rows for t in row.tensors], layout="HWC")
    picture = Image.fromarray(ndd.show(samples, columns=6, size=150).array)
    picture.quantize(256, dither=Image.Dither.FLOYDSTEINBERG).save(target, optimize=True)


def image(x: ndd.Batch, columns: int) -> str:
    png = base64.b64encode(ndd.show(x, columns=columns, size=190).png()).decode()
    return f'<img src="data:image/png;base64,{png}">'


def main() -> None:
    if len(sys.argv) == 2:
        contact_sheet(sys.argv[1])
        return
    start = ROOT / "site" / "index.html"
    if not start.exists():
        sys.exit("no built pages: run `make docs` first")
    IMAGES.mkdir(exist_ok=True)
    page(chain(), IMAGES / "chain.png", 1100, 490)
    page(notebook(), IMAGES / "notebook.png", 960, 700)
    augmentations(IMAGES / "auto-augment.png")
    with served(ROOT / "site") as address:
        shot(address, IMAGES / "start-page.png", 1360, 800)


if __name__ == "__main__":
    main()
