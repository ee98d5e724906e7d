"""The kernel cache runs code: only what this user or root has written, and each kernel is made once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ndd.kernels.common import disk_cache, own_process, trust
from tests.helpers import ROOT, run_python, start_python

STRANGER = 54321  # a user who does not exist
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

# Prints what it compiled, a result and its warnings.
JOB = """
    import warnings
    import numpy as np, ndd
    from ndd.kernels.cpu import helpers, runtime
    # Deferred: on a busy machine, the thread of eager mode may cut a chain into other kernels.
    with warnings.catch_warnings(record=True) as told, ndd.EvalMode.deferred:
        warnings.simplefilter("always")
        x = ndd.tensor(np.arange(60, dtype=np.uint8).reshape(4, 5, 3), layout="HWC")
        total = int(np.asarray(ndd.flip(x) + 3).astype(np.int64).sum())
        total += int(np.asarray(ndd.resize(x, size=[3, 4])).astype(np.int64).sum())
    print(runtime.compile_count + helpers.compile_count, total)
    for t in told:
        print(t.category.__name__, t.message)
"""


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A cache that holds the kernels of JOB, how many these are, and JOB's result."""
    folder = tmp_path_factory.mktemp("warm") / "cache"
    compiled, total = run_python(JOB, NDD_CACHE_DIR=str(folder)).split()
    assert run_python(JOB, NDD_CACHE_DIR=str(folder)) == f"0 {total}"
    return folder, int(compiled), total


def give_away_the_folder(folder: Path) -> None:
    os.chown(folder / "cpu", STRANGER, STRANGER)


def give_away_a_parent(folder: Path) -> None:
    os.chown(folder, STRANGER, STRANGER)


def open_the_folder_to_all(folder: Path) -> None:
    (folder / "cpu").chmod(0o777)


def open_the_folder_to_all_like_tmp(folder: Path) -> None:
    (folder / "cpu").chmod(0o1777)


def open_a_parent_to_a_group(folder: Path) -> None:
    folder.chmod(0o770)


def exchange_the_folder_for_a_link(folder: Path) -> None:
    (folder / "cpu").rename(folder / "other")
    (folder / "cpu").symlink_to("other")
    os.lchown(folder / "cpu", STRANGER, STRANGER)


def lead_through_an_open_folder(folder: Path) -> None:
    """The folder is sound, but a link on the way to it lies where all may exchange it."""
    between = folder.with_name("between")
    between.mkdir()
    folder.rename(folder.with_name("real"))
    (between / "link").symlink_to("../real")
    folder.symlink_to("between/link")
    between.chmod(0o777)


FOLDERS = (
    open_the_folder_to_all, open_the_folder_to_all_like_tmp, open_a_parent_to_a_group,
    lead_through_an_open_folder,
    *(pytest.param(f, marks=AS_ROOT) for f in
      (give_away_the_folder, give_away_a_parent, exchange_the_folder_for_a_link)),
)  # fmt: skip


def copy_of(folder: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-r", str(folder), str(tmp_path / "cache")], check=True)
    return tmp_path / "cache"


@pytest.mark.parametrize("spoil", FOLDERS)
def test_folders_of_others_are_not_used(
    warm: tuple[Path, int, str], tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    cache = copy_of(warm[0], tmp_path)
    spoil(cache)
    assert disk_cache._folders.get(cache / "cpu") is None
    with pytest.warns(RuntimeWarning, match="the kernel cache .* is not used: .*NDD_CACHE_DIR"):
        assert not disk_cache.is_usable(cache / "cpu")
    files = sorted(p.name for p in (cache / "cpu").iterdir())
    path = next((cache / "cpu").glob("*.o"))
    assert disk_cache.load_object(path, "anything") is None  # and no second warning
    disk_cache.write_atomically(cache / "cpu" / "x.o", b"")
    assert sorted(p.name for p in (cache / "cpu").iterdir()) == files


def test_a_program_runs_without_the_cache(warm: tuple[Path, int, str], tmp_path: Path) -> None:
    cache = copy_of(warm[0], tmp_path)
    open_the_folder_to_all(cache)
    counts, *told = run_python(JOB, NDD_CACHE_DIR=str(cache)).splitlines()
    assert counts == f"{warm[1]} {warm[2]}"
    assert len(told) == 1 and "can be written by others (mode 777)" in told[0]


@pytest.fixture
def loaded(warm: tuple[Path, int, str], tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A stored object and its source, which can be loaded."""
    path = copy_of(warm[0], tmp_path) / "cpu" / "some.o"
    disk_cache.store_object(path, "source", "symbol", b"code")
    assert disk_cache.load_object(path, "source") == ("symbol", b"code")
    yield path, "source"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_files_that_others_may_write(loaded: tuple[Path, str], mode: int) -> None:
    loaded[0].chmod(mode)
    with pytest.warns(RuntimeWarning, match=r"not used: .*some\.o can be written by others"):
        assert disk_cache.load_object(*loaded) is None
    disk_cache.store_object(*loaded, "symbol", b"code")  # replaces it
    assert disk_cache.load_object(*loaded) == ("symbol", b"code")


@AS_ROOT
def test_files_of_others(loaded: tuple[Path, str]) -> None:
    os.chown(loaded[0], STRANGER, STRANGER)
    with pytest.warns(RuntimeWarning, match=f"belongs to another user .uid {STRANGER}"):
        assert disk_cache.load_object(*loaded) is None


def test_links_and_pipes_are_not_loaded(loaded: tuple[Path, str]) -> None:
    path, source = loaded
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))
    assert disk_cache.load_object(path, source) is None
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.warns(RuntimeWarning, match="is not a regular file"):
        assert disk_cache.load_object(path, source) is None


def test_sound_ways_to_a_folder(tmp_path: Path) -> None:
    """Sticky folders above, links of one's own, and `..` behind a link are sound."""
    sticky = tmp_path / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    assert trust.make_folder(sticky / "a" / "b") is None
    assert (sticky / "a").stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(sticky / "a")
    assert trust.make_folder(tmp_path / "link" / ".." / "c") is None and (sticky / "c").is_dir()
    (tmp_path / "loop").symlink_to("loop")
    assert "too many symbolic links" in str(trust.make_folder(tmp_path / "loop" / "x"))


def test_no_home_at_all() -> None:
    """Without HOME and without an entry in the password file, kernels are not cached."""
    told = run_python(
        """
        import os, pwd
        for name in ("HOME", "XDG_CACHE_HOME", "NDD_CACHE_DIR"):
            os.environ.pop(name, None)
        def nobody(uid):
            raise KeyError(uid)
        pwd.getpwuid = nobody
        import numpy as np, ndd
        from ndd.cli.info import info
        x = ndd.tensor([1.0, 2.0])
        print(np.asarray(x + 1), str(ndd.explain(x + 1)) != "")
        info()
        """
    )
    assert told.startswith("[2. 3.] True") and "/dev/null/ndd" in told


# -- who is run ------------------------------------------------------------------------------------

PLANTED = ("ndd", "numba", "numpy", "llvmlite", "importlib", "json", "sitecustomize")


def test_no_process_of_ours_looks_into_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'run')!r}, 'a').write('{name} ')"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "relative"]))
    command = own_process.command("ndd.kernels.cpu.compile_ahead", "main", "fill_taps")
    env = own_process.environment(NDD_CACHE_DIR=str(tmp_path / "cache"))
    assert "PYTHONPATH" not in env
    subprocess.run(command, env=env, check=True, timeout=120)
    assert [p.name.split(".")[0] for p in (tmp_path / "cache/cpu").glob("*.o")] == [
        "helper_fill_taps"
    ]
    assert not (tmp_path / "run").exists(), (tmp_path / "run").read_text()


def test_every_process_of_the_package_is_started_in_one_way() -> None:
    """A new place that starts processes must be looked at, and then be added here."""
    known = {"ndd/codecs/image/isolated/decoder_process.py", "kernels/cpu/compile_ahead.py"}
    known |= {"kernels/cpu/compile_beside.py", "ndd/cli/warm.py"}
    known |= {"ndd/runtime/lineage.py"}  # asks multiprocessing which child it is, and starts none
    # The first runs the benchmarks of a checkout in that checkout, the second a tool by its full path.
    known |= {"ndd/cli/bench.py", "kernels/gpu/cubin.py"}
    words = ("subprocess", "multiprocessing", "os.system", "os.exec", "os.spawn", "posix_spawn")
    found = set()
    for top in ("ndd", "fusion", "kernels"):
        for path in (ROOT / top).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            if not name.startswith(("ndd/fusion", "ndd/kernels")):
                text = path.read_text()
                found |= {name} & {name for w in words if w in text}
                assert '"-m"' not in text or name == "ndd/cli/bench.py", name
    assert found == known


# -- once ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_four_processes_compile_each_kernel_once(
    warm: tuple[Path, int, str], tmp_path: Path
) -> None:
    four = [start_python(JOB, NDD_CACHE_DIR=str(tmp_path / "cache")) for _ in range(4)]
    lines = [process.communicate(timeout=300)[0].split() for process in four]
    assert [line[1:] for line in lines] == [[warm[2]]] * 4
    assert sum(int(line[0]) for line in lines) == warm[1], lines


# Holds the lock of an object until it is killed; then others get it.
HOLDER = """
    import time, pathlib
    from ndd.kernels.common import disk_cache
    def make():
        print("compiling", flush=True)
        time.sleep(600)
    disk_cache.cached_object(pathlib.Path(PATH), "source", make)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """An object that another process is compiling."""
    path = tmp_path / "cache" / "some.o"
    holder = start_python(HOLDER.replace("PATH", repr(str(path))))
    assert holder.stdout is not None and holder.stdout.readline() == "compiling\n"
    yield path, holder
    holder.kill()
    holder.communicate()


def test_a_killed_process_holds_no_lock(held: tuple[Path, subprocess.Popen[str]]) -> None:
    path, holder = held
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    begun = time.monotonic()
    assert disk_cache.cached_object(path, "source", lambda: ("a", b"b")) == ("a", b"b")
    assert time.monotonic() - begun < disk_cache.LOCK_SECONDS / 2


def test_nobody_waits_for_ever(
    held: tuple[Path, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, holder = held
    monkeypatch.setattr(disk_cache, "LOCK_SECONDS", 0.2)
    holder.send_signal(signal.SIGSTOP)
    assert disk_cache.cached_object(path, "source", lambda: ("a", b"b")) == ("a", b"b")
    other = path.with_name("other.o")  # one byte of the file each: nobody holds this one
    monkeypatch.setattr(disk_cache, "LOCK_SECONDS", 600.0)
    assert disk_cache.cached_object(other, "source", lambda: ("c", b"d")) == ("c", b"d")


def test_a_forked_child_does_not_hold_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "some.o"
    told = run_python(
        f"""
        import os, pathlib, time
        from ndd.kernels.common import disk_cache
        path = pathlib.Path({str(path)!r})
        def make():
            children.append(os.fork())
            if not children[0]:
                time.sleep(600)
            return "a", b"b"
        children = []
        disk_cache.cached_object(path, "source", make)
        path.unlink()
        begun = time.monotonic()
        if not (child := os.fork()):
            disk_cache.cached_object(path, "source", lambda: ("c", b"d"))
            os._exit(0)
        os.waitpid(child, 0)
        print(time.monotonic() - begun < 10, disk_cache.load_object(path, "source"))
        os.kill(children[0], 9)
        """
    )
    assert told == "True ('c', b'd')"


# -- Triton ----------------------------------------------------------------------------------------

# Compiles a kernel for a GPU that need not exist, and prints whether Triton found it in its cache.
TRITON = """
    import warnings, numpy as np, triton, ndd
    from triton.backends.compiler import GPUTarget
    from ndd.kernels.gpu import kernel, triton_cache
    from ndd.kernels.gpu.runtime import _gather
    from ndd.kernels.ir import dtypes as dt
    hits = []
    triton.knobs.compilation.listener = lambda **k: hits.append(k["cache_hit"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = kernel.GpuKernel(_gather(dt.uint8, 2))
        variant = kernel.Variant("ragged", False, False)
        for block in (128, 256):
            made.compile(variant, GPUTarget("cuda", 80, 32), block)
    print(hits.count(False), triton_cache._own is not None, len(told))
"""


@pytest.mark.slow
@pytest.mark.gpu
def test_triton_has_a_safe_cache_and_compiles_once(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    cache = tmp_path / "cache"
    four = [start_python(TRITON, NDD_CACHE_DIR=str(cache)) for _ in range(4)]
    lines = [process.communicate(timeout=300) for process in four]
    assert all(out.split()[1:] == ["False", "0"] for out, _ in lines), lines
    assert sum(int(out.split()[0]) for out, _ in lines) == 2, lines
    some = next((cache / "gpu/triton").glob("*/*.cubin"))
    some.chmod(0o666)
    assert run_python(TRITON, NDD_CACHE_DIR=str(cache)) == "2 True 1"
    some.chmod(0o600)
    (cache / "gpu/triton").chmod(0o777)
    assert run_python(TRITON, NDD_CACHE_DIR=str(cache)) == "2 True 1"
    own = str(cache / "gpu/triton")
    assert run_python(TRITON, NDD_CACHE_DIR=str(tmp_path / "x"), TRITON_CACHE_DIR=own) == "2 True 1"
