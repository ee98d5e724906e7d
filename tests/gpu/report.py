"""`python -m tests.gpu.report`: compile all kernels of tests/gpu/programs.py and renew docs/gpu.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
BEGIN, END = "<!-- kernels: begin -->", "<!-- kernels: end -->"


def table(rows: list[dict[str, object]]) -> str:
    """Markdown: one line per kernel, registers and modelled occupancy per architecture."""
    kernels: dict[str, dict[int, dict[str, object]]] = {}
    for row in rows:
        kernels.setdefault(str(row["kernel"]), {})[int(row["arch"])] = row
    archs = sorted({int(r["arch"]) for r in rows})
    head = (
        "| kernel | "
        + " | ".join(f"sm_{a} registers / occupancy" for a in archs)
        + " | spills | SASS |"
    )
    lines = [head, "|---" * (len(archs) + 3) + "|"]
    for name, by_arch in sorted(kernels.items()):
        cells = [f"{by_arch[a]['registers']} / {float(by_arch[a]['occupancy']):.2f}" for a in archs]
        spills = max(int(by_arch[a]["local"]) for a in archs)
        short = re.sub(r"__[0-9a-f]+$", "", name)
        lines.append(
            f"| `{short}` | {' | '.join(cells)} | {spills} | {by_arch[archs[0]]['instructions']} |"
        )
    return "\n".join(lines)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cubins.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "tests/gpu",
            "-k",
            "compile_without_spills",
        ]
        status = subprocess.run(
            command, env={**os.environ, "NDD_RECORD_CUBINS": str(path)}, check=False
        )
        rows = json.loads(path.read_text())
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{after}")
    print(f"wrote {PAGE}")
    return status.returncode


if __name__ == "__main__":
    sys.exit(main())
