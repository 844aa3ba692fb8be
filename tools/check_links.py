"""Check that every relative link in the documents leads to a file, and to a heading of it if it names one.

Links to other hosts are not followed.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
ELSEWHERE = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def documents(root: Path) -> list[Path]:
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a document outside its code blocks, with their numbers."""
    in_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            yield number, line


def links(path: Path) -> Iterator[tuple[int, str]]:
    """The links of a document to this project's files, with their line numbers."""
    for number, line in prose(path):
        targets = (match[1] for match in LINK.finditer(line))
        yield from ((number, target) for target in targets if not ELSEWHERE.match(target))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document: a heading as Markdown readers write it, a second one with -1."""
    seen: Counter[str] = Counter()
    found = set()
    for _, line in prose(path):
        if heading := HEADING.match(line):
            name = anchor(heading[1])
            found.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return found


def anchor(heading: str) -> str:
    words = LINK.sub(lambda match: match[0][1:].partition("]")[0], heading)
    return re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")


def fault(path: Path, target: str) -> str:
    """Return the fault of a link; empty if it is good."""
    name, _, heading = target.partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return "leads nowhere"
    # In other files the part after # is a line, and lines move.
    if heading and file.suffix == ".md" and heading not in anchors(file):
        return "leads to no heading"
    return ""


def broken_links(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: {target} {wrong}"
        for path in documents(root)
        for number, target in links(path)
        if (wrong := fault(path, target))
    ]


def main() -> int:
    broken = broken_links(ROOT)
    for message in broken:
        print(message, file=sys.stderr)
    print(f"{len(documents(ROOT))} documents, {len(broken)} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
