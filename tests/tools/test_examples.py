"""All programs of examples/ run on the CPU; those of the upstream guide also on the simulated GPU and on upstream."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
GUIDE = sorted(p.stem for p in EXAMPLES.glob("guide_*.py"))
OURS = "import ndd\n"
UPSTREAM = "import nvidia.dali.experimental.dynamic as ndd\n"
SMALL = {
    "guide_classification": "--epochs 1 --per-class 4 --batch-size 4 --resolution 24",
    "guide_flip": "--per-class 2",
    "guide_random": "--per-class 3",
    "guide_sharding": "--per-class 3",
    "guide_checkpoint": "--per-class 4",
}
SAYS = {
    "guide_classification": r"epoch 0: 3 batches of \(4, 3, 24, 24\), last loss \d",
    "guide_flip": r"^6 pictures are the mirrors",
    "guide_random": r"default generator: .*\nown generators: .*\none generator per rank",
    "guide_sharding": r"rank 0: labels \[0, 0, 0, 1, 1, 1, 1, 1\]\nrank 1: labels \[1, 1, 2, 2, 2, 2, 2, 2\]",
    "guide_checkpoint": r"saved after 2 of 3 batches\nresumed: . batches, first the 1 that",
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs an example in this process, which has imported torch already; returns what it prints."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def run(name: str, arguments: str = "", library: str = OURS) -> str:
        path = EXAMPLES / f"{name}.py"
        source = path.read_text()
        assert source.count(OURS) == 1
        monkeypatch.setattr(sys, "argv", [str(path), *arguments.split()])
        code = compile(source.replace(OURS, library), str(path), "exec")
        exec(
            code, {"__name__": "__main__", "__doc__": source.split('"""')[1], "__file__": str(path)}
        )
        return capsys.readouterr().out

    yield run
    for name in ("data", "train"):  # top-level names that others may want
        sys.modules.pop(name, None)


def test_the_guide_is_complete():
    assert set(GUIDE) == set(SMALL) == set(SAYS)


def test_every_example_is_tested_and_linked():
    tests = "".join(
        p.read_text() for p in (Path(__file__), EXAMPLES.parent / "tests/integrations/test_jax.py")
    )
    front = (EXAMPLES.parent / "README.md").read_text()
    for path in sorted(EXAMPLES.glob("*.py")):
        if path.stem != "data" and path.stem not in GUIDE:  # `data` is what the others share
            assert re.search(rf"['\"]{path.stem}(\.py)?['\"]", tests), path.name
            assert f"examples/{path.name})" in front, path.name


@pytest.mark.parametrize("name", GUIDE)
def test_guide(run, device, name):
    text = run(name, f"{SMALL[name]} --size 16 --device {device}")
    assert re.search(SAYS[name], text), text
    if name == "guide_checkpoint":
        assert "resumed: 1 batches" in text  # ours: the epoch ends where it would have


@pytest.mark.parametrize("name", GUIDE)
def test_guide_runs_on_upstream_with_the_import_changed(run, name):
    text = run(name, f"{SMALL[name]} --size 16", UPSTREAM)
    assert re.search(SAYS[name], text), text


def test_train_learns(run):
    text = run("train", "--per-class 32 --size 48 --resolution 40")
    accuracies = [float(a) for a in re.findall(r"accuracy (\d\.\d+)", text)]
    assert len(accuracies) == 3 and accuracies[-1] > 0.85, text


def test_ssl_views(run, tmp_path):
    text = run(
        "ssl_views", f"--per-class 4 --size 40 --resolution 32 --picture {tmp_path / 'views.png'}"
    )
    assert text.count("two of (8, 3, 32, 32)") == 2
    assert "in 2 groups" in text  # a view is a kernel
    assert (tmp_path / "views.png").read_bytes().startswith(b"\x89PNG")


def test_auto_augment(run, tmp_path):
    path = tmp_path / "augmented.png"
    text = run("auto_augment", f"--per-class 4 --size 40 --resolution 32 --picture {path}")
    for name in ("RandAugment", "TrivialAugment", "AutoAugment"):
        assert f"{name}: 2 batches, the last of (8, 3, 32, 32)" in text, text
    assert path.read_bytes().startswith(b"\x89PNG")


def test_speech_learns(run, tmp_path):
    text = run("speech", f"--per-word 24 --epochs 4 --picture {tmp_path / 'words.png'}")
    accuracies = [float(a) for a in re.findall(r"accuracy (\d\.\d+)", text)]
    assert len(accuracies) == 4 and accuracies[-1] > 0.75, text
    assert (tmp_path / "words.png").read_bytes().startswith(b"\x89PNG")


def test_clips_are_told_apart_by_their_motion(run, tmp_path, one_torch_thread):
    """Guessing would be right for a third of the clips, and so would be a look at single frames."""
    text = run("video", f"--per-move 12 --epochs 4 --picture {tmp_path / 'clips.png'}")
    accuracies = [float(a) for a in re.findall(r"accuracy (\d\.\d+)", text)]
    assert len(accuracies) == 4 and accuracies[-1] > 0.85, text
    assert (tmp_path / "clips.png").read_bytes().startswith(b"\x89PNG")


def test_custom_stream_says_that_there_is_no_gpu(run, monkeypatch):
    monkeypatch.delenv("NDD_GPU", raising=False)
    assert run("custom_stream").startswith("skipped: no GPU here")


@pytest.mark.gpu
def test_custom_stream_simulated(run, monkeypatch):
    monkeypatch.setenv("NDD_GPU", "simulate")
    assert run("custom_stream", "--size 16").count("(3, 24, 24, 3) on Stream(") == 2


def test_resume_ends_with_the_same_weights(run):
    text = run("resume", "--per-class 4 --size 32 --steps 4 --cut-at 3")
    assert "cut off after 3 of 4 steps, resumed: the same weights" in text


def test_research_prints_kernels_and_bytes(run):
    text = run("research", "--size 32 --resolution 32 --source")
    fused, unfused = (
        int(n.replace(",", ""))
        for n in re.search(r"([\d,]+) bytes instead of ([\d,]+)", text).groups()
    )
    assert unfused > 10 * fused > 0
    assert "resize → flip" in text.replace("resize → resize", "resize")
    assert "def " in text and "2 kernels" in text


def test_ddp_with_two_processes():
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    arguments = ["--epochs", "1", "--size", "32", "--per-class", "4"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [*command, str(EXAMPLES / "ddp.py"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "epoch 0: [6, 6] files, 12 in all, same weights" in found.stdout


@pytest.mark.slow
def test_ddp_goes_on_with_another_number_of_processes(run, tmp_path):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    arguments = f"--size 32 --per-class 4 --checkpoint {tmp_path / 'job.pt'}"
    found = subprocess.run(
        [*command, str(EXAMPLES / "ddp_elastic.py"), *arguments.split(), "--stop-after", "2"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    assert "2 ranks: 8 files so far, 8 different ones" in found.stdout
    assert "1 ranks: 12 files so far, 12 different ones" in run("ddp_elastic", arguments)


def test_workers_of_a_dataloader(run):
    text = run("dataloader_workers", "--size 32 --per-class 4")
    assert "2 workers (fork): the same views twice" in text


@pytest.mark.slow
def test_lightning_learns():
    arguments = "--per-class 32 --size 48 --resolution 40"
    command = [sys.executable, str(EXAMPLES / "lightning_training.py"), *arguments.split()]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr[-2000:]
    assert float(re.search(r"after 3 epochs: accuracy (\d\.\d+)", found.stdout)[1]) > 0.85


def test_boxes_follow_their_pictures(run, device):
    text = run("detection", f"--batches 1 --batch-size 6 --resolution 48 --device {device}")
    assert int(re.match(r"(\d+) boxes lie where", text)[1]) >= 8, text
    assert re.search(r"batches of 6 × \(48, 48, 3\), [1-9]\d* anchors with a box", text), text


def test_masks_follow_their_pictures(run, device):
    text = run("segmentation", f"--batches 1 --batch-size 4 --resolution 32 --device {device}")
    assert int(re.match(r"(\d+) pixels have the colours", text)[1]) > 2000, text
    assert "batches of 4 × (3, 32, 32) with masks of the same size" in text


@pytest.fixture
def one_torch_thread():
    """On a busy machine torch's threads mostly wait for each other: 17 s of CPU time instead of 5."""
    import torch

    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def test_detection_from_coco(run, one_torch_thread):
    """Guessing would recognise a third of the objects, and so do wrong boxes or labels."""
    text = run("coco_detection", "--epochs 4 --pictures 128 --batch-size 8")
    found = re.findall(r"epoch \d: loss (\d\.\d+), (\d+) of (\d+) objects recognised\n", text)
    assert len(found) == 4 and float(found[-1][0]) < float(found[0][0]), text
    assert int(found[-1][1]) > 0.85 * int(found[-1][2]) > 100, text


def test_training_from_tfrecords(run):
    text = run("tfrecord_training")
    assert text.count(".idx: ") == 6 and "24 records" in text  # 4 + 2 files
    accuracies = [float(a) for a in re.findall(r"accuracy (\d\.\d+)", text)]
    assert len(accuracies) == 3 and accuracies[-1] > 0.85, text


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_shards_from_an_s3_server(run):
    pytest.importorskip("moto")
    text = run("webdataset_s3")
    assert "rank 1: batches up to (2, 3, 64, 64), 36 pictures so far" in text, text
    assert "36 pictures in 4 shards: {'across': 12, 'discs': 12, 'upright': 12}" in text
    assert int(re.search(r"(\d+) bytes in the cache", text)[1]) > 50_000
