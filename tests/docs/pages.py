"""The documents as their readers see them: blocks of code, and programs made of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
# Generous, and shorter than the time of a test, so that a program that hangs is ended with its test.
DEADLINE: Final = 120
_FENCE: Final = re.compile(r"^\s*(```+|~~~+)\s*(\S*)")


class Block(NamedTuple):
    """A fenced block; `language` is empty for output. `line` is where it begins."""

    line: int
    language: str
    body: str


def text(page: str) -> str:
    """A page by its path under docs, such as `guide/tasks.md` or `../README.md`."""
    return (DOCS / page).read_text(encoding="utf-8")


def pages() -> list[str]:
    found = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    return ["../README.md", *found]


def fenced(source: str) -> list[Block]:
    """All fenced blocks of a text; one that is never closed goes on to the end."""
    blocks: list[Block] = []
    fence, language, start = "", "", 0
    body: list[str] = []
    for number, line in enumerate([*source.splitlines(), ""], start=1):
        found = _FENCE.match(line)
        if fence and found and found[1].startswith(fence) and not found[2]:
            blocks.append(Block(start, language, "".join(body)))
            fence = ""
        elif fence:
            body.append(f"{line}\n")
        elif found:
            fence, language, start, body = found[1], found[2], number, []
    return [*blocks, Block(start, language, "".join(body))] if fence else blocks


def blocks(page: str, language: str) -> list[str]:
    """The blocks of one language, "" meaning output."""
    return [block.body for block in fenced(text(page)) if block.language == language]


def whole(page: str, language: str) -> str:
    """All blocks of one language as one text."""
    return "\n\n".join(blocks(page, language))


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, without settings of ours from outside."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**plain, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def run_page(folder: Path, page: str) -> subprocess.CompletedProcess[str]:
    """Run the Python blocks of a page as one program, `jobs.py`."""
    (folder / "jobs.py").write_text(whole(page, "python"))
    return run(folder, "jobs.py")
