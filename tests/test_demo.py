"""The command line: the demo, info and cache run and say what they should."""

from __future__ import annotations

import subprocess
import sys

from ndd.__main__ import main


def test_demo_writes_a_picture_and_says_what_was_fused(tmp_path):
    output = tmp_path / "demo.png"
    command = [sys.executable, "-m", "ndd", "demo", "--seconds", "0.2", "--output", str(output)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert output.read_bytes().startswith(b"\x89PNG")
    assert "8 operations in 1 groups" in run.stdout
    assert "images/s fused" in run.stdout
    assert "nvjpeg" not in run.stderr


def test_info_names_what_is_installed(capsys):
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "numba" in text and "threads" in text and "kernel cache" in text


def test_cache_lists_and_clears(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NDD_CACHE_DIR", str(tmp_path))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "flip__u8_u8__0.py").write_text("")
    main(["cache"])
    assert "flip__u8_u8__0.py" in capsys.readouterr().out
    main(["cache", "--clear"])
    assert not list(tmp_path.rglob("*.py"))
