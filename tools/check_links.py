"""Check that every relative link in the documents leads to a file.

Links to other hosts are not followed. A link to a heading is checked as far as the file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|#)", re.IGNORECASE)


def documents(root: Path) -> list[Path]:
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def links(path: Path) -> Iterator[tuple[int, str]]:
    """The relative links of a document, outside its code blocks, with their line numbers."""
    in_code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if FENCE.match(line):
            in_code = not in_code
        if not in_code:
            targets = (match[1] for match in LINK.finditer(line))
            yield from ((number, target) for target in targets if not ELSEWHERE.match(target))


def broken_links(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}: {target} leads nowhere"
        for path in documents(root)
        for number, target in links(path)
        if not (path.parent / target.partition("#")[0]).exists()
    ]


def main() -> int:
    broken = broken_links(ROOT)
    for message in broken:
        print(message, file=sys.stderr)
    print(f"{len(documents(ROOT))} documents, {len(broken)} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
