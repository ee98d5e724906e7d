"""Exits while daemon threads of the user are inside the library: no crash, no hang, nothing printed.

`python -m tests.faults.exits decode 1 100` ends 100 processes.
"""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

from tests.faults.child import is_over, main

EXIT_SECONDS = 240.0  # usually 2 s; a busy machine that compiles takes its time
PROGRAMS = {
    "decode": """
files = ndd.batch([np.frombuffer(encoded(".jpg", photo(150, 200, seed=k)), np.uint8) for k in range(6)])
def work():
    ndd.resize(ndd.decoders.image(files), size=[40, 50]).evaluate()
""",
    "png": """
files = ndd.batch([np.frombuffer(encoded(".png", photo(90, 100, seed=k)), np.uint8) for k in range(6)])
def work():
    ndd.resize(ndd.decoders.image(files), size=[40, 50]).evaluate()
""",
    "eager": """
images = ndd.batch([photo(200, 210, seed=k) for k in range(8)], layout="HWC")
def work():
    x = ndd.flip(ndd.brightness_contrast(images, brightness=1.2), horizontal=1)
    ndd.resize(x, size=[100, 90]).evaluate()
    np.asarray(ndd.tensor([1.0, 2.0]) * 3.0)
""",
    "reader": """
import pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
for k in range(24):
    (folder / f"{k:02d}.jpg").write_bytes(encoded(".jpg", photo(40, 50, seed=k)))
def work():
    reader = ndd.readers.File(files=sorted(map(str, folder.iterdir())))
    for jpegs, labels in reader.next_epoch(batch_size=4):
        ndd.resize(ndd.decoders.image(jpegs), size=[20, 20]).evaluate()
""",
    "video": """
from tests.decoders.clips import encoded as clip_bytes
files = ndd.batch([np.array(clip_bytes(name, 6)) for name in ("h264.mkv", "mpeg4.avi")])
def work():
    ndd.resize(ndd.decoders.video(files, sequence_length=4), size=[20, 20]).evaluate()
""",
    "isolated": """
files = ndd.batch([np.frombuffer(encoded(".jpg", photo(90, 100, seed=k)), np.uint8) for k in range(6)])
def work():
    ndd.resize(ndd.decoders.image(files, isolate=True), size=[40, 50]).evaluate()
""",
    "tiers": """
from tests.faults.new_chains import NewChains
chains = NewChains(1)
def work():
    chain = chains.drawn()
    for _ in range(4):
        chains.run(chain)
""",
}
WHATS = PROGRAMS

START = """
import sys, threading, time
import numpy as np, ndd
from tests.decoders.fixtures import encoded, photo
"""
END = """
def forever():
    while True:
        work()
work()
for _ in range({threads}):
    threading.Thread(target=forever, daemon=True).start()
time.sleep({seconds})
"""


def attack(what: str, seed: int, count: int) -> dict[str, Any]:
    draw = random.Random(seed)
    tried = 0
    while tried < count and not (tried and is_over()):
        tried += 1
        text = START + PROGRAMS[what] + END.format(
            threads=draw.randint(1, 3), seconds=draw.random() * 0.1
        )  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", text],
            capture_output=True,
            text=True,
            timeout=EXIT_SECONDS,
        )
        assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stderr[-6000:])
    return {"exits": tried}


if __name__ == "__main__":
    main(attack)
