"""Kernels and plans are made once: warm starts, new sizes, damaged files, several processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ndd
from tests.helpers import arrays, nothing_planned, ragged, run_python, start_python, worker_held

# Prints how many kernels were compiled, whether Numba was imported, and a result.
JOB = """
    import sys
    import numpy as np
    import ndd
    from ndd.kernels.cpu import runtime as cpu_runtime
    x = ndd.batch([np.arange(60, dtype=np.uint8).reshape(4, 5, 3)] * 2, layout="HWC")
    with ndd.EvalMode.deferred:
        y = ndd.crop(ndd.flip(x), crop=(3, 3)) * ndd.batch([0.5, 2.0])
        z = ndd.math.exp(ndd.math.sin(y))
        total = float(np.asarray((z + ndd.flip(z)).tensors[1]).sum())
    print(cpu_runtime.compile_count, "numba" in sys.modules, repr(total))
"""
KERNELS = {"flip_crop_mul_sin_exp__u8_f32", "flip_add__f32_f32"}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache that holds the kernels of JOB, and JOB's result."""
    folder = tmp_path_factory.mktemp("cache")
    compiled, has_numba, total = run_python(JOB, NDD_CACHE_DIR=str(folder)).split()
    assert int(compiled) == len(KERNELS) and has_numba == "True"
    return folder, total


def copy_of(warm: tuple[Path, str], tmp_path: Path) -> Path:
    shutil.copytree(warm[0], tmp_path / "cache")
    return tmp_path / "cache"


def test_a_warm_start_compiles_nothing(warm: tuple[Path, str]) -> None:
    folder, total = warm
    before = {p.name: p.stat().st_mtime_ns for p in (folder / "cpu").iterdir()}
    assert run_python(JOB, NDD_CACHE_DIR=str(folder)) == f"0 False {total}"
    assert {p.name: p.stat().st_mtime_ns for p in (folder / "cpu").iterdir()} == before


def test_files_have_names_and_can_be_read(warm: tuple[Path, str]) -> None:
    folder = warm[0] / "cpu"
    sources = {p.stem.rpartition("__")[0]: p for p in folder.glob("*.py")}
    assert sources.keys() == KERNELS
    for path in sources.values():
        assert f"def {path.stem}(table, begin, end):" in path.read_text()
        assert len(list(folder.glob(f"{path.stem}.*.o"))) == 1
    assert not list(folder.glob(".*")), "a temporary file was left"


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip_a_bit(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("damages", [(cut, flip_a_bit), (lambda _: b"", lambda _: b"no object")])
def test_damaged_files_are_compiled_again(
    warm: tuple[Path, str], tmp_path: Path, damages: tuple[Any, Any]
) -> None:
    folder = copy_of(warm, tmp_path)
    kernels = sorted((folder / "cpu").glob("flip_*.o"))  # not the helpers that they call
    for path, damage in zip(kernels, damages, strict=True):
        path.write_bytes(damage(path.read_bytes()))
    assert run_python(JOB, NDD_CACHE_DIR=str(folder)) == f"2 True {warm[1]}"
    assert run_python(JOB, NDD_CACHE_DIR=str(folder)) == f"0 False {warm[1]}"


def test_a_missing_source_does_not_matter(warm: tuple[Path, str], tmp_path: Path) -> None:
    folder = copy_of(warm, tmp_path)
    for path in (folder / "cpu").glob("*.py"):
        path.unlink()
    assert run_python(JOB, NDD_CACHE_DIR=str(folder)) == f"0 False {warm[1]}"


def test_two_processes_fill_one_cache(warm: tuple[Path, str], tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    both = [start_python(JOB, NDD_CACHE_DIR=str(folder)) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.split()[2] == warm[1]
    assert run_python(JOB, NDD_CACHE_DIR=str(folder)) == f"0 False {warm[1]}"


def test_compiling_imports_no_linear_algebra(tmp_path: Path) -> None:
    """Numba imports SciPy's at its start (numba_start.py); it still does where a function needs it."""
    pytest.importorskip("scipy")
    told = run_python(
        """
        import sys
        import numba, numpy as np, ndd
        print(np.asarray(ndd.tensor([1, 2]) + 1).tolist(), "scipy.linalg" in sys.modules)
        product = numba.njit(lambda a: (a @ a, np.convolve(a[0], a[1])))
        print([x.tolist() for x in product(np.array([[1.0, 2.0], [3.0, 4.0]]))])
        """,
        NDD_CACHE_DIR=str(tmp_path),
    )
    assert told.splitlines() == ["[2, 3] False", "[[[7.0, 10.0], [15.0, 22.0]], [3.0, 10.0, 8.0]]"]


DECODE_AND_RESIZE = """
    import io, numpy as np, ndd
    from ndd.kernels.cpu import compile_ahead, helpers
    from PIL import Image
    file = io.BytesIO()
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(file, "JPEG")
    images = ndd.decoders.image(np.frombuffer(file.getvalue(), np.uint8))
    plain, made = helpers._compile, []
    helpers._compile = lambda name: (made.append(name), plain(name))[1]
    print(ndd.resize(images, size=[8, 8]).shape)
    print(compile_ahead._process is not None, sorted(set(compile_ahead.USUAL) - set(made)))
    if compile_ahead._process is not None:
        compile_ahead._process.wait()
    print(all(any((compile_ahead.Path(DIR) / "cpu").glob(f"helper_{n}.*.o")) for n in compile_ahead.USUAL))
"""


@pytest.mark.slow
def test_another_process_compiles_helpers_meanwhile(tmp_path: Path) -> None:
    code = DECODE_AND_RESIZE.replace("DIR", repr(str(tmp_path)))
    env = {"NDD_CACHE_DIR": str(tmp_path)}
    shape, begun, complete = run_python(code, **env, NDD_COMPILE_AHEAD="1").splitlines()
    assert shape == "(8, 8, 3)" and complete == "True"
    assert begun.startswith("True [") and "'sum_band_u8_3'" in begun, begun  # and perhaps more
    # all helpers are on disk now, so no process is started
    shape, begun, _ = run_python(code, **env, NDD_COMPILE_AHEAD="1").splitlines()
    assert shape == "(8, 8, 3)" and begun.startswith("False")


def test_no_process_if_it_is_switched_off_or_of_no_use(tmp_path: Path, monkeypatch: Any) -> None:
    from ndd.kernels.common import own_process
    from ndd.kernels.cpu import compile_ahead

    started: list[Any] = []
    monkeypatch.setattr(compile_ahead.subprocess, "Popen", lambda *a, **k: started.append(a))
    monkeypatch.setattr(compile_ahead.atexit, "register", lambda f: None)
    monkeypatch.setattr(compile_ahead, "_process", None)
    monkeypatch.setenv("NDD_COMPILE_AHEAD", "0")
    compile_ahead.begin(["pad_row"], tmp_path)
    monkeypatch.setenv("NDD_COMPILE_AHEAD", "1")
    monkeypatch.setattr(compile_ahead.os, "cpu_count", lambda: 2)
    compile_ahead.begin([], tmp_path)
    compile_ahead.begin(["pad_row"], Path("/proc/no/such/folder"))
    monkeypatch.setattr(own_process.sys, "executable", "/usr/sbin/server")
    compile_ahead.begin(["pad_row"], tmp_path)
    assert not started
    monkeypatch.setattr(own_process.sys, "executable", "/usr/bin/python3")
    compile_ahead.begin(["pad_row"], tmp_path)
    assert len(started) == 1 and started[0][0][-1] == "pad_row"


def test_a_cache_that_cannot_be_written(warm: tuple[Path, str], tmp_path: Path) -> None:
    # A file where the folder should be: like a read-only disk, but also for root.
    blocked = tmp_path / "file"
    blocked.write_text("")
    compiled, _, total = run_python(JOB, NDD_CACHE_DIR=str(blocked / "cache")).split()
    assert int(compiled) == len(KERNELS) and total == warm[1]


def test_a_read_only_cache_is_used(warm: tuple[Path, str], tmp_path: Path) -> None:
    folder = copy_of(warm, tmp_path)
    paths = [folder, folder / "cpu", *(folder / "cpu").iterdir()]
    for path in reversed(paths):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert run_python(JOB, NDD_CACHE_DIR=str(folder)) == f"0 False {warm[1]}"
    finally:
        for path in paths:
            path.chmod(0o700)


# -- new numbers ---------------------------------------------------------------------------------


def program(shapes: list[tuple[int, ...]], seed: int, value: float, window: tuple[int, int]) -> Any:
    n = len(shapes)
    rng = np.random.default_rng(seed)
    x = ragged(shapes, seed=seed)
    x = ndd.flip(x, horizontal=ndd.batch(list(rng.integers(0, 2, n))), vertical=seed % 2)
    x = ndd.crop(x, crop=window, crop_pos_x=min(abs(value), 1.0))
    x = ndd.brightness_contrast(
        x, brightness=value, contrast=ndd.batch(list(rng.random(n, np.float32)))
    )
    x = ndd.color_twist(x, hue=value * 10)
    y = ndd.cast(x, dtype=ndd.float32) * value - ndd.tensor(rng.random(3, np.float32))
    y = ndd.pad(y, fill_value=value, axes=(0, 1), align=(4,))
    return ndd.cat(y, ndd.transpose(y.slice[:, ::-1], perm=[0, 1, 2]), axis=0)


NUMBERS: list[Any] = [
    ([(8, 9, 3), (5, 6, 3)], 1, 0.5, (3, 4)),
    ([(8, 9, 3)], 2, 1.5, (3, 4)),
    ([(30, 20, 3)] * 9, 3, -2.0, (7, 2)),
    ([(4, 4, 3), (100, 90, 3), (4, 5, 3)], 4, 0.0, (1, 1)),
    ([(200, 300, 3)] * 4, 5, 3.25, (150, 150)),
    ([(5, 4, 3)] * 33, 6, float("inf"), (5, 4)),
]


@pytest.fixture
def whole_programs() -> Iterator[None]:
    """Hold the background thread, so that eager mode plans whole programs and plans can be counted."""
    with worker_held():
        yield


@pytest.mark.usefixtures("whole_programs")
def test_new_sizes_and_values_neither_compile_nor_plan(mode: str) -> None:
    arrays(program(*NUMBERS[0]))
    with nothing_planned():
        for numbers in NUMBERS[1:]:
            assert all(a.size for a in arrays(program(*numbers)))


@pytest.mark.usefixtures("whole_programs")
def test_new_numbers_of_operators_neither_compile_nor_plan(mode: str) -> None:
    def loop(k: int) -> float:
        t = ndd.tensor(np.arange(6 + k, dtype=np.float32))
        return float((t[k] * (k + 1) - k / 7.0) ** 2)

    loop(0)
    with nothing_planned():
        for k in range(1, 6):
            assert loop(k) == pytest.approx((k * (k + 1) - k / 7) ** 2, rel=1e-5)


@pytest.mark.usefixtures("whole_programs")
def test_a_loop_plans_once(mode: str) -> None:
    x = ragged()
    arrays(ndd.flip(x) * 2.0 + 1.0)
    with nothing_planned():
        for _ in range(5):
            arrays(ndd.flip(x) * 2.0 + 1.0)
