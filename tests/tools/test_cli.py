"""`python -m ndd`: every command runs and says what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import ndd
from ndd.cli import bench, gallery, info, main
from ndd.codecs.image.jpeg_round_trip import encoded
from ndd.core.schema import OPS
from ndd.tools import demo, photos
from tests.tools.test_seeing import Page, pixels


def wheel_of_photographs(folder):
    """As scikit-image's, but the pictures are tiny."""
    with zipfile.ZipFile(folder / "scikit_image-9.9-any.whl", "w") as wheel:
        for k, name in enumerate(photos.PHOTOGRAPHS):
            wheel.writestr(f"skimage/data/{name}", encoded(photos.drawing(60 + k, 80, k), 95))
    return folder


def test_demo_runs_the_real_job_and_says_what_was_fused(tmp_path):
    output = tmp_path / "demo.png"
    command = [sys.executable, "-m", "ndd", "demo", "--seconds", "0.1", "--output", str(output)]
    command += ["--photos", str(wheel_of_photographs(tmp_path))]
    env = {**os.environ, "TQDM_DISABLE": "1"}  # a bar is written to files, too
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=env)
    cells, gap = 1 + demo.VIEWS, 4
    height, width, _ = pixels(output.read_bytes()).shape
    assert (height, width) == (4 * (demo.CELL + gap) - gap, cells * (demo.CELL + gap) - gap)
    assert "256 JPEG files, " in run.stdout
    assert (
        "windows of 4 photographs from scikit-image: astronaut (NASA, public domain)" in run.stdout
    )
    assert re.search(r"first batch of 64 after [\d.]+ s", run.stdout)
    assert "in 2 groups\n" in run.stdout and "only what is read is decoded" in run.stdout
    assert re.search(r"→ color_twist → flip → crop_mirror_normalize\n", run.stdout)
    assert re.search(r"called at \S+/ndd/tools/demo\.py:\d+, ", run.stdout)
    assert re.search(r"batches of torch, \d+ threads, median of \d+ epochs:", run.stdout)
    assert len(re.findall(r"[\d,]+ images/s", run.stdout)) == 2
    assert run.stderr == ""


def test_data_set_of_the_demo(tmp_path, monkeypatch):
    monkeypatch.setattr(photos.importlib.util, "find_spec", lambda name: None)
    assert photos.write_data_set(tmp_path, 9).startswith(
        "windows of 4 drawings, because there are no"
    )
    files = sorted(tmp_path.glob("*/*.jpg"))
    assert len(files) == 9 and len({f.parent for f in files}) == 4
    shapes = ndd.imread(files).shape
    assert len(set(shapes)) > 4 and photos.total_bytes(files) > 9 * 5000
    # no folder that was downloaded to, or one of another version without the pictures
    assert photos.photographs(tmp_path / "nowhere") == {}
    with zipfile.ZipFile(tmp_path / "scikit_image-1-any.whl", "w") as wheel:
        wheel.writestr("skimage/data/astronaut.png", b"x")
    assert photos.photographs(tmp_path) == {}


def test_demo_hands_over_arrays_without_torch(monkeypatch):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda name: None)
    name, hand_over = demo.to_framework()
    given = hand_over(ndd.batch([[1.0], [2.0]]))
    assert name == "NumPy" and type(given) is np.ndarray and given.shape == (2, 1)


def test_info_names_what_is_there_and_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(
        info, "package_version", lambda n: "none" if n in ("torch", "tqdm") else "1.2"
    )
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert f"ndd {ndd.__version__}" in text and re.search(r"numba +1\.2", text)
    assert re.search(r'torch +missing: pip install "ndd-fusion\[(gpu|torch)\]"', text)
    assert "missing: pip install tqdm" in text
    assert "pytest" not in text and "ruff" not in text  # what only we need
    assert "decodes  jpeg png bmp tiff webp jpeg2k pnm\n" in text
    assert f"{ndd.get_num_threads()} threads" in text and "NDD_CACHE_DIR=" in text


def test_cache_lists_and_clears(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NDD_CACHE_DIR", str(tmp_path))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "flip__u8_u8__0.py").write_bytes(b"x" * 1000)
    (tmp_path / "cpu" / "flip__u8_u8__0.machine.o").write_bytes(b"x" * 2000)
    assert main(["cache"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"3\.0 KB +cpu/flip__u8_u8__0\.py", text) and "1 kernel, 0.0 MB" in text
    (tmp_path / "thesis.py").touch()  # not ours, whatever NDD_CACHE_DIR says
    (tmp_path / "cpu" / "notes").mkdir()
    (tmp_path / "cpu" / "notes" / "a.py").touch()
    main(["cache", "--clear"])
    assert {f.name for f in tmp_path.rglob("*") if f.is_file()} == {"thesis.py", "a.py"}
    assert "removed 1 kernel," in capsys.readouterr().out


def test_bench_needs_the_repository(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    assert main(["bench"]) == 2
    assert "clone the repository and run `make bench`" in capfd.readouterr().err
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "__init__.py").touch()  # else another `bench` on the path would win
    (tmp_path / "bench" / "__main__.py").write_text("import sys; print(sys.argv[1:]); sys.exit(3)")
    assert main(["bench"]) == 3 and "['--quick']" in capfd.readouterr().out
    main(["bench", "resample", "--rounds", "2"])
    assert "['resample', '--rounds', '2']" in capfd.readouterr().out


SCRIPT = """
import sys
import numpy as np
import ndd
import beside

x = ndd.batch([np.full((4 + i, 5, 3), 40, np.uint8) for i in range(3)], layout="HWC")
for _ in range(3):
    y = ndd.flip(ndd.brightness(x, brightness=1.5)).evaluate()
print(sys.argv[1:], beside.NAME, np.asarray(y.tensors[0])[0, 0, 0])
z = ndd.hue(y, hue=10.0)
sys.exit(4)
"""


def test_explain_runs_a_script_and_prints_its_plans(tmp_path, capsys):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    before = list(sys.argv), list(sys.path)
    page = tmp_path / "plans.html"
    assert main(["explain", "--source", "--html", str(page), str(script), "a", "--b"]) == 4
    assert (sys.argv, sys.path) == before and not ndd.fusion.run.executor.observers
    text = capsys.readouterr().out
    assert "['a', '--b'] beside 60" in text
    assert re.search(
        r"program 0, 3 times: 2 operations in 1 group\n\[0\] brightness_flip__u8_u8__\w+:", text
    )
    assert f"called at {script}:9" in text and "reads " in text and "    source /" in text
    assert re.search(r"\ndef brightness_flip__u8_u8__\w+\(", text)
    parsed = Page()
    parsed.feed(page.read_text())
    assert parsed.tags.count("svg") == parsed.tags.count("h2") >= 1


def test_explain_tells_what_ran_before_an_error(tmp_path, capsys):
    script = tmp_path / "broken.py"
    script.write_text("import ndd\n(ndd.tensor([1, 2]) + 1).evaluate()\nraise KeyError('x')\n")
    with pytest.raises(KeyError):
        main(["explain", str(script)])
    assert "program 0, once" in capsys.readouterr().out


# -- the gallery ---------------------------------------------------------------------------------


def test_every_image_op_can_be_shown():
    shown = [op for op in OPS.values() if gallery.is_image_op(op)]
    assert len(shown) > 25 and set(gallery.ARGUMENTS) <= {op.name for op in shown}
    for op in shown:
        known = op.name in gallery.ARGUMENTS or not gallery.needs_arguments(op)
        assert known, f"{op.name} needs an entry in ARGUMENTS of ndd/cli/gallery.py"
    names = {op.name for op in shown}
    assert {n for n in OPS if n.startswith("decoders.image")} < names
    x = gallery.photos()
    with ndd.EvalMode.deferred:  # what calls mean is checked when they are made
        for op in shown:
            assert gallery.apply(op.name, x).batch_size == gallery.PHOTOS, op.name


def test_gallery_writes_pictures_and_a_page(tmp_path, capsys):
    assert main(["gallery", "--output", str(tmp_path / "out"), "flip", "crop"]) == 0
    assert "2 pictures" in capsys.readouterr().out
    sheet = pixels((tmp_path / "out" / "flip.png").read_bytes())
    width = gallery.WIDTH
    assert (sheet[: gallery.HEIGHT, :width] == sheet[-gallery.HEIGHT :, width - 1 :: -1]).all()
    page = Page()
    page.feed((tmp_path / "out" / "index.html").read_text())
    text = (tmp_path / "out" / "index.html").read_text()
    assert page.tags.count("img") == 2 and "ndd.crop(x, crop=[80, 80], crop_pos_x=0.2)" in text
    assert all((tmp_path / "out" / src).exists() for src in re.findall(r'img src="([^"]+)"', text))
    assert re.search(r"<small>flip__u8_u8__\w+</small>", text)
    known = r"'cast' has no picture; known: auto_augment\.auto_augment, "
    with pytest.raises(SystemExit, match=known):
        main(["gallery", "cast"])


def test_warm_compiles_single_ops_ahead(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("NDD_CACHE_DIR", str(tmp_path))
    assert main(["warm", "--processes", "1", "flip"]) == 0
    text = capfd.readouterr().out
    made = [f.name.partition("__")[0] for f in (tmp_path / "cpu").glob("*.o")]
    # the conversion of the photos and a mirror, for each type, and the helpers that these call
    assert made.count("cast") == made.count("flip") == 2
    assert text.startswith(f"{tmp_path}: compiled {len(made)} kernels for 1 call in ")
    assert "(1 at once; 0 combinations" in text
    assert main(["warm", "--processes", "1", "flip"]) == 0
    assert "compiled 0 kernels" in capfd.readouterr().out
    with pytest.raises(SystemExit, match="warm: 'cast' is no image op; known: "):
        main(["warm", "cast"])


def test_unknown_commands_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["gallry"])
    assert "invalid choice" in capsys.readouterr().err
