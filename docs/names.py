"""`python -m docs.names`: update the table of the names of DALI's dynamic mode that ndd has."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import ndd

HERE = Path(__file__).parent
PAGE = HERE / "migrating-dali-dynamic.md"
BEGIN, END = "<!-- names: begin -->", "<!-- names: end -->"
# In the order of the table.
MODULES = ("", "math", "random", "noise", "transforms", "decoders", "readers", "checkpoint",
           "io.file", "experimental", "experimental.decoders", "experimental.readers",
           "reductions", "segmentation", "capture", "pytorch.nodes")  # fmt: skip


def upstream_names() -> list[str]:
    """The public names of nvidia.dali.experimental.dynamic 2.4.0, except names it imports."""
    return (HERE / "dali-names.txt").read_text().split()


def is_here(name: str) -> bool:
    """Whether ndd has a public object of this name."""
    try:
        reduce(getattr, name.split("."), ndd)
    except AttributeError:
        return False
    return True


def table() -> str:
    """A Markdown table with one row per module: names that ndd has, and names that it lacks."""
    names = upstream_names()
    count = sum(map(is_here, names))
    lines = [f"{count} of {len(names)} names of upstream 2.4.0 are here.", ""]
    lines += ["| module | here | not here |", "|---|---|---|"]
    for module in MODULES:
        members = [n for n in names if n.rpartition(".")[0] == module]
        cells = (" ".join(f"`{n.rpartition('.')[2]}`" for n in members if is_here(n) is found)
                 for found in (True, False))  # fmt: skip
        lines.append(
            f"| `ndd{'.' if module else ''}{module}` | {' | '.join(c or '–' for c in cells)} |"
        )
    return "\n".join(lines)


def rendered(text: str) -> str:
    """The text of the page with an updated table."""
    return re.sub(f"{BEGIN}.*{END}", f"{BEGIN}\n{table()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
