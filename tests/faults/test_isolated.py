"""Decoding in processes of their own: the same pixels, and a hostile file costs only itself."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ndd
from ndd.codecs.image.isolated import decoder_process
from ndd.codecs.image.isolated.isolated_images import group_bounds
from ndd.codecs.image.isolated.messages import MOST_AT_ONCE
from tests.decoders.fixtures import as_bytes, files
from tests.faults.corpus import corpus
from tests.helpers import ROOT, arrays, assert_same, run_python, start_python

# A decoder process that misbehaves when it gets one of these files: a sound picture and a word.
# It replaces the program of the decoder process.
WORDS = ("crash", "hang", "explode", "lie", "exit", "native", "stuck")


def bad(word: str, name: str = "jpeg") -> Any:
    return as_bytes(corpus()[name] + f"[{word}]".encode())


@pytest.fixture
def misbehaving(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Decoder processes that do what a word at the end of a file says."""
    monkeypatch.setattr(decoder_process, "_CHILD", ("tests.faults.misbehaving", "serve"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(decoder_process, "SECONDS", 4)
    monkeypatch.setattr(decoder_process, "MEGABYTES", 512)
    stop()
    ndd.decoders.errors.clear()
    yield
    stop()


def stop() -> None:
    """End the decoder processes of all threads; they are started again when they are needed."""
    for own in list(decoder_process._running.values()):
        own.process.kill()
        own.process.wait()


def test_the_same_pixels() -> None:
    kinds = [as_bytes(c) for n, c in corpus().items() if n != "bmp_16bit"]
    for options in ({}, {"output_type": ndd.types.GRAY}, {"dtype": ndd.float32},
                    {"output_type": ndd.types.YCbCr}, {"use_fast_idct": True}):  # fmt: skip
        for files_of in (kinds, [as_bytes(files()["jpeg"])] * 11):
            batch = ndd.batch(files_of)
            assert_same(
                ndd.decoders.image(batch, isolate=True, **options),
                arrays(ndd.decoders.image(batch, isolate=False, **options)),
            )


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_groups(threads: int) -> None:
    """Every picture is in one group; groups are small in number, in bytes, and towards the end."""
    for nbytes in ([], [5], [600_000] * 64, [1 << 25] * 3, [1 << 23] * 9, [7] * 1000):
        bounds = group_bounds(nbytes, threads)
        sizes = np.diff(bounds)
        assert bounds[0] == 0 and bounds[-1] == len(nbytes) and (sizes > 0).all()
        assert sizes.max(initial=1) <= MOST_AT_ONCE
        for begin, end in itertools.pairwise(bounds):
            assert end == begin + 1 or sum(nbytes[begin:end]) <= 1 << 24
    assert np.diff(group_bounds([7] * 64, 2)).tolist() == [8] * 5 + [6, 4, 3, 2, 2, 2, 2, 2, 1]


def test_pictures_of_several_processes_and_ways() -> None:
    """Groups that the loop takes, and samples between them that it leaves to Python."""
    deep, photo = as_bytes(corpus()["png_16"]), as_bytes(files()["jpeg"])
    batch = ndd.batch([deep if k % 5 == 3 else photo for k in range(48)])
    with ndd.EvalContext(num_threads=3), ndd.EvalMode.deferred:
        for dtype in (ndd.uint8, ndd.float32):
            wanted, found = (
                ndd.resize(ndd.decoders.image(batch, dtype=dtype, isolate=i), size=[9, 7])
                for i in (False, True)
            )
            assert_same(found, arrays(wanted))


def test_regions_and_headers(mode: str) -> None:
    names = ("jpeg", "png", "jpeg_exif6", "tiff_jpeg", "webp", "jpeg_cmyk", "jp2", "pnm")
    batch = ndd.batch([as_bytes(corpus()[n]) for n in names])
    for call in (
        lambda **o: ndd.decoders.image_crop(batch, crop=[5, 7], **o),
        lambda **o: ndd.decoders.image_slice(batch, start=[2, 3], shape=[9, 8], **o),
        lambda **o: ndd.decoders.image_random_crop(batch, rng=ndd.random.RNG(3), **o),
        lambda **o: ndd.resize(ndd.crop(ndd.decoders.image(batch, **o), crop=[9, 8]), size=[4, 4]),
        lambda **o: ndd.peek_image_shape(batch, **o),
    ):
        assert_same(call(isolate=True), arrays(call(isolate=False)))


def test_imread_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jpg").write_bytes(files()["jpeg"])
    wanted = np.asarray(ndd.imread(tmp_path / "a.jpg", isolate=False))
    np.testing.assert_array_equal(ndd.imread(tmp_path / "a.jpg", isolate=True), wanted)
    stop()
    monkeypatch.setenv("NDD_ISOLATE", "1")
    before = set(decoder_process._running)
    np.testing.assert_array_equal(ndd.imread(tmp_path / "a.jpg"), wanted)
    assert set(decoder_process._running) - before  # started again


@pytest.mark.usefixtures("misbehaving")
@pytest.mark.parametrize("word", WORDS)
def test_a_hostile_file_costs_itself(word: str) -> None:
    good = as_bytes(files()["jpeg"])
    wanted = np.asarray(ndd.decoders.image(ndd.tensor(good)))
    batch = ndd.batch([good, good, bad(word), *[good] * 9])
    x = ndd.decoders.image(batch, isolate=True, on_error="fill")
    found = arrays(x)
    for sample, pixels in enumerate(found):
        np.testing.assert_array_equal(pixels, np.zeros_like(wanted) if sample == 2 else wanted)
    (entry,) = ndd.decoders.errors
    causes = {"crash": "died of SIGSEGV", "hang": "stopped after 4 seconds",
              "explode": "memory|cannot be decoded", "lie": "gave|cannot", "exit": "exit code 7",
              "native": "died of SIGSEGV", "stuck": "stopped after 4 seconds"}  # fmt: skip
    assert entry.index == 2 and any(c in str(entry.cause) for c in causes[word].split("|")), entry


@pytest.mark.usefixtures("misbehaving")
def test_policies(mode: str) -> None:
    good = as_bytes(files()["jpeg"])
    wanted = np.asarray(ndd.decoders.image(ndd.tensor(good)))
    batch = ndd.batch([bad("crash"), good, bad("exit"), good, bad("crash", "png")])
    with pytest.raises(
        ValueError, match=r"decoders\.image: sample 1 .*decoder process died of SIG"
    ):
        ndd.decoders.image(ndd.batch([good, bad("crash")]), isolate=True).evaluate()
    x = ndd.decoders.image(batch, isolate=True, on_error="fill")
    assert x.valid.tolist() == [False, True, False, True, False]
    assert_same(x.tensors[x.valid], [wanted] * 2)
    assert sorted(e.index for e in ndd.decoders.errors) == [0, 2, 4]
    with pytest.raises(ValueError, match="died"):
        ndd.peek_image_shape(ndd.tensor(bad("crash", "png")), isolate=True)
    with pytest.raises(ValueError, match="is no header"):
        ndd.peek_image_shape(ndd.tensor(bad("lie", "png")), isolate=True)
    assert_same(ndd.decoders.image(ndd.batch([good]), isolate=True), [wanted])


@pytest.mark.usefixtures("misbehaving")
def test_in_a_loop_over_a_reader(tmp_path: Path) -> None:
    for k in range(16):
        data = bad("crash") if k in (3, 11) else as_bytes(files()["jpeg"])
        (tmp_path / f"{k:02d}.jpg").write_bytes(data.tobytes())
    reader = ndd.readers.File(files=sorted(tmp_path.iterdir()))
    for prefetch in (0, 2):
        ndd.decoders.errors.clear()
        count = 0
        for jpegs, _ in reader.next_epoch(4, prefetch=prefetch):
            x = ndd.decoders.image(jpegs, isolate=True, on_error="fill")
            count += len(arrays(ndd.resize(x, size=[8, 8])))
        names = sorted(Path(e.file).name for e in ndd.decoders.errors)
        assert count == 16 and names == ["03.jpg", "11.jpg"]


def test_time_in_which_everything_was_stopped_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ndd.decoders.image(ndd.batch([as_bytes(files()["jpeg"])] * 2), isolate=True).evaluate()
    process = decoder_process.of_this_thread()
    looks = iter([[], [], [], [1]])  # what poll sees: nothing, three times
    clock = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(process, "_ready", SimpleNamespace(poll=lambda _: next(looks)))
    monkeypatch.setattr(decoder_process, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert process._is_readable(7) and not list(looks)
    looks = iter([[]] * 9)
    assert not process._is_readable(7) and len(list(looks)) == 5  # 4 looks of 2 seconds


def test_a_process_that_was_killed_is_replaced() -> None:
    good = ndd.batch([as_bytes(files()["jpeg"])])
    ndd.decoders.image(good, isolate=True).evaluate()
    stop()
    assert ndd.decoders.image(good, isolate=True).evaluate().shape == [(37, 53, 3)]


def test_threads_have_their_own_and_end_them() -> None:
    before = set(decoder_process._running)
    seen: list[set[int]] = []

    def work() -> None:
        ndd.peek_image_shape(ndd.tensor(as_bytes(files()["png"])), isolate=True).evaluate()
        seen.append(set(decoder_process._running) - before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(seen[0]) == 1
    assert not seen[0] & set(decoder_process._running)


ENDLESS = """
import ndd, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
from ndd.codecs.image.isolated import decoder_process
from tests.decoders.fixtures import as_bytes, files
data = ndd.batch([as_bytes(files()["jpeg"])] * 32)
wanted = ndd.decoders.image(data).torch()
while True:
    ndd.decoders.image(data, isolate=True).evaluate()
    print(*decoder_process._running, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_behind(number: signal.Signals) -> None:
    started = start_python(ENDLESS)
    assert started.stdout is not None
    started.stdout.readline()
    children = [int(pid) for pid in started.stdout.readline().split()]
    assert children
    started.send_signal(number)
    try:
        started.communicate(timeout=60)
    finally:
        started.kill()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.05)


def test_interrupts() -> None:
    """Ctrl-C at any moment: the next call is right."""
    told = run_python(
        """
        import ndd, signal, numpy as np
        from tests.decoders.fixtures import as_bytes, files
        data = ndd.batch([as_bytes(files()["jpeg"])] * 8)
        wanted = np.asarray(ndd.decoders.image(data).tensors[7])
        ndd.set_num_threads(1)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        caught = 0
        for k in range(14):
            # Again and again, because an interrupt that hits a destructor is lost.
            signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.002 * k, 0.2)
            try:
                while True:
                    ndd.decoders.image(data, isolate=True).evaluate()
            except KeyboardInterrupt:
                caught += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            if k % 4 == 0:
                x = ndd.decoders.image(data, isolate=True)
                assert (np.asarray(x.tensors[7]) == wanted).all()
        print(caught)
        """,
    )
    assert told == "14"


def test_a_fork_starts_its_own() -> None:
    told = run_python(
        """
        import os, warnings, ndd, numpy as np
        from ndd.codecs.image.isolated import decoder_process
        from tests.decoders.fixtures import as_bytes, files
        data = ndd.batch([as_bytes(files()["jpeg"])])
        def shape():
            with ndd.EvalMode.deferred:
                return ndd.decoders.image(data, isolate=True).evaluate().shape
        shape()
        before = set(decoder_process._running)
        warnings.simplefilter("ignore")
        pid = os.fork()
        if pid == 0:
            ok = shape() == [(37, 53, 3)] and not before & set(decoder_process._running)
            decoder_process._kill_all()
            os._exit(0 if ok else 1)
        print(os.waitpid(pid, 0)[1], shape(), before <= set(decoder_process._running))
        """
    )
    assert told == "0 [(37, 53, 3)] True"


def test_the_current_folder_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "ndd.py").write_text("raise SystemExit(3)")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import os, ndd, numpy as np\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "data = np.frombuffer(b'P6 1 1 255 abc', np.uint8)\n"
        "print(ndd.decoders.image(data, isolate=True).evaluate().shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120,
        check=False, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )  # fmt: skip
    assert done.stdout.strip() == "(1, 1, 3)", done.stderr
