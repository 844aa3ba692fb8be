"""The documents of the repository as the pages of a site: their names, their navigation, their links.

Nothing is written twice for the site. Its navigation is what the index of a folder lists: the README.md of
`docs`, of `docs/guide` and so on. Links are those that work where the repository is shown; here they are
turned to where the pages are on the site.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from tools.check_links import ELSEWHERE, FENCE, LINK
from tools.states_picture import picture

INDEX: Final = "README.md"
# What stands beside the pages and is shown by them.
_ATTACHMENTS: Final = (".png", ".svg", ".txt")
_ITEM: Final = re.compile(r"^(?:-|\d+\.) +\[([^\]]*)\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^## +(.+)$")


class Entry(NamedTuple):
    """A page as an index names it."""

    title: str
    page: str


class Group(NamedTuple):
    """Entries of the navigation under one heading, which is empty where there is none."""

    caption: str
    entries: list[Entry]


class Site:
    """The pages of a repository, by where they stand in it and what they are called on the site."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: Mapping[Path, str] = dict(self._named())

    def _named(self) -> Iterator[tuple[Path, str]]:
        for path in sorted(self.root.glob("*.md")):
            yield path, path.name.lower()
        for path in sorted((self.root / "docs").rglob("*.md")):
            name = path.relative_to(self.root / "docs").as_posix()
            yield path, name.removesuffix(INDEX) + "index.md" if path.name == INDEX else name

    def write(self, folder: Path) -> None:
        """Write everything that the site is made of to an empty folder."""
        for path, name in self.names.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self._page(path, folder), encoding="utf-8")
        docs = self.root / "docs"
        for path in docs.rglob("*"):
            if path.suffix in _ATTACHMENTS:
                _copy(path, folder / path.relative_to(docs))

    def _page(self, path: Path, folder: Path) -> str:
        parts = [
            self._drawn(text, path, folder)
            if is_code
            else LINK.sub(lambda found: self._turned(found, path, folder), text)
            for is_code, text in _parts(path)
        ]
        return "\n".join([*parts, "", *self._navigation(path)]) + "\n"

    def _drawn(self, code: str, path: Path, folder: Path) -> str:
        """Code as it is, but a picture in the place of the diagram, which others draw in the browser."""
        if not code.startswith("```mermaid"):
            return code
        name = (folder / self.names[path]).with_suffix(".svg")
        name.write_text(picture(code), encoding="utf-8")
        return f"![The states of a job]({name.name})"

    def _turned(self, found: re.Match[str], path: Path, folder: Path) -> str:
        target = found[1]
        if ELSEWHERE.match(target) or target.startswith("#"):
            return found[0]
        name, sign, heading = target.partition("#")
        there = (path.parent / name).resolve()
        if there.is_dir() and there / INDEX not in self.names:
            return found[0][1:].partition("](")[0]  # a folder of code: nothing of it is on the site
        place = self._place(there, folder)
        here = PurePosixPath(self.names[path]).parent
        return found[0].replace(f"({target}", f"({os.path.relpath(place, here)}{sign}{heading}", 1)

    def _place(self, there: Path, folder: Path) -> str:
        """Return the place of a link's target on the site; a file that is no page is copied."""
        page = there / INDEX if there.is_dir() else there
        if page in self.names:
            return self.names[page]
        if there.is_file() and there.suffix not in _ATTACHMENTS:
            # The builder would take every .md for a page.
            kept = f"files/{there.relative_to(self.root).as_posix()}{'.txt' if there.suffix == '.md' else ''}"
            _copy(there, folder / kept)
            return kept
        # A page that is not there is left for the builder to complain about, with the line it stands in.
        return os.path.relpath(there, self.root / "docs")

    # Navigation

    def _navigation(self, path: Path) -> Iterator[str]:
        if path.name != INDEX or path.parent == self.root:
            return
        for group in self.groups(path):
            caption = [f":caption: {group.caption}"] if group.caption else []
            entries = [f"{entry.title} <{entry.page}>" for entry in group.entries]
            yield from ("```{toctree}", ":hidden:", *caption, "", *entries, "```", "")

    def groups(self, index: Path) -> list[Group]:
        """Return the pages in the lists of an index, in their order. That of `docs` is the navigation of the
        whole site and may name any page, under its headings; others name the pages of their folder."""
        is_whole = index.parent == self.root / "docs"
        groups = [Group("", [])]
        for line in index.read_text(encoding="utf-8").splitlines():
            heading, item = _HEADING.match(line), _ITEM.match(line)
            if heading and is_whole:
                groups.append(Group(heading[1], []))
            if item:
                groups[-1].entries.extend(self._entry(index, item[1], item[2], is_whole=is_whole))
        return [group for group in groups if group.entries]

    def _entry(self, index: Path, title: str, target: str, *, is_whole: bool) -> Iterator[Entry]:
        page = (index.parent / target).resolve()
        if page in self.names and (is_whole or page.parent == index.parent):
            here = PurePosixPath(self.names[index]).parent
            yield Entry(title, os.path.relpath(self.names[page], here).removesuffix(".md"))


def _parts(path: Path) -> Iterator[tuple[bool, str]]:
    """A document as turns of prose and code, fences with the code. A link may be broken over two lines."""
    part: list[str] = []
    in_code = False
    for line in path.read_text(encoding="utf-8").splitlines():
        is_fence = FENCE.match(line) is not None
        if is_fence and not in_code and part:
            yield False, "\n".join(part)
            part = []
        part.append(line)
        if is_fence and in_code:
            yield True, "\n".join(part)
            part = []
        in_code = in_code != is_fence
    if part:
        yield in_code, "\n".join(part)


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
