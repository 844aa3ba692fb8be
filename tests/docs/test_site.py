"""The site: it is built without a warning, everything can be found, and nothing is asked of other hosts."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.search.en import SearchEnglish

from tests.docs.pages import ROOT
from tests.docs.site_build import built, ran
from tools.site_pages import Site


class Page(HTMLParser):
    """What of a page matters here: where links lead, what it loads, and what links to it may name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "srcset", "href", "data", "poster"):
                self.loads.append(value or "")


class Built(NamedTuple):
    """The site of this project."""

    folder: Path
    pages: dict[Path, Page]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built once, also where several processes run the tests."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "searchindex.js").exists():
            answer = ran("-m", "tools.build_site", str(folder))
            assert (answer.returncode, answer.stderr) == (0, "")
            assert "pages: open" in answer.stdout
    return Built(folder, {path: Page(path) for path in folder.rglob("*.html")})


def test_every_document_is_a_page_that_the_navigation_leads_to(site: Built) -> None:
    start = (site.folder / "index.html").read_text(encoding="utf-8")
    tree = start[start.index('class="sidebar-tree"') : start.index('class="main"')]
    led_to = {unquote(href) for href in re.findall(r'href="([^"#]+)', tree)}
    names = {name.removesuffix(".md") + ".html" for name in Site(ROOT).names.values()}

    assert len(names) > 100
    assert [name for name in sorted(names) if not (site.folder / name).is_file()] == []
    assert sorted(names - led_to - {"index.html"}) == []


def test_the_navigation_is_in_the_order_of_the_index(site: Built) -> None:
    [group] = Site(ROOT).groups(ROOT / "docs" / "guide" / "README.md")
    start = (site.folder / "index.html").read_text(encoding="utf-8")

    assert group.entries[:2] == [("Tasks", "tasks"), ("Enqueueing", "enqueue")]
    places = [start.index(f'href="guide/{entry.page}.html"') for entry in group.entries]
    assert places == sorted(places)


def test_no_page_loads_anything_from_another_host(site: Built) -> None:
    loaded = {where for page in site.pages.values() for where in page.loads}
    styles = [path.read_text(encoding="utf-8") for path in site.folder.rglob("*.css")]

    assert [where for where in sorted(loaded) if is_elsewhere(where)] == []
    named = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", "\n".join(styles))
    assert [where for where in named if is_elsewhere(where)] == []
    assert any(where.endswith("searchindex.js") for page in site.pages.values() for where in page.loads)


def is_elsewhere(where: str) -> bool:
    parts = urlsplit(where)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def test_every_link_within_the_site_leads_somewhere(site: Built) -> None:
    assert sorted(broken(site)) == []


def broken(site: Built) -> Iterator[str]:
    for path, page in site.pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            ids = site.pages[there].ids if there in site.pages else set()
            if not there.exists() or (parts.fragment and there in site.pages and parts.fragment not in ids):
                yield f"{path.relative_to(site.folder)}: {link}"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("lease", "guide/workers"),
        ("dead letter", "guide/dead-letters"),
        ("enqueue_many", "guide/enqueue"),
        ("enqueue_many", "reference/python"),
        ("database locked", "troubleshooting"),
        ("pgbouncer", "guide/postgresql"),
    ],
)
def test_the_search_finds(site: Built, words: str, page: str) -> None:
    assert page in found(site, words)


def test_the_search_does_not_find_what_is_nowhere(site: Built) -> None:
    assert found(site, "zzyzx") == set()


def found(site: Built, words: str) -> set[str]:
    """The pages that have all of these words, by the index that the page of the search uses."""
    text = (site.folder / "searchindex.js").read_text(encoding="utf-8")
    index: dict[str, Any] = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    language = SearchEnglish({})
    hits = [pages_with(index, language.stem(word)) for word in words.split()]
    return {index["docnames"][number] for number in set.intersection(*hits)}


def pages_with(index: dict[str, Any], stem: str) -> set[int]:
    """The numbers of the pages that have a word in their text or in a heading."""
    entries = [index[part].get(stem, []) for part in ("terms", "titleterms")]
    return {number for entry in entries for number in (entry if isinstance(entry, list) else [entry])}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project with few documents."""
    docs = tmp_path / "project" / "docs"
    (docs / "guide").mkdir(parents=True)
    (docs.parent / "README.md").write_text("# About\n\nSee [the guide](docs/guide/README.md).\n")
    (docs / "README.md").write_text(
        "# Start\n\n## Use\n\n- [Guide](guide/README.md)\n- [About](../README.md)\n"
    )
    (docs / "guide" / "README.md").write_text("# Guide\n\n- [One](one.md)\n")
    (docs / "guide" / "one.md").write_text("# One\n\n## Part\n\nBack to [the\nstart](../README.md#use).\n")
    return docs.parent


def test_links_of_the_repository_become_links_of_the_site(small: Path, tmp_path: Path) -> None:
    (small / "code").mkdir()
    (small / "code" / "tool.py").write_text("print()\n")
    (small / "code" / "README.md").write_text("# Code\n")
    with (small / "docs" / "guide" / "one.md").open("a") as page:
        page.write("\n[a file](../../code/tool.py), [a folder](../guide), [about](../../README.md)\n")
        page.write("\n[code](../../code), [its page](../../code/README.md)\n")

    answer = built(small, tmp_path / "site")

    assert (answer.stderr, answer.returncode) == ("", 0)
    links = Page(tmp_path / "site" / "guide" / "one.html").links
    assert {"../index.html#use", "index.html", "../readme.html"} <= set(links)
    assert [link.rpartition("/")[2] for link in links if "_downloads" in link] == ["tool.py", "README.md.txt"]
    assert "code, " in (tmp_path / "site" / "guide" / "one.html").read_text()


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("[lost](nowhere.md)", "nowhere.md"),
        ("[lost](README.md#nowhere)", "nowhere"),
        ("![lost](picture.png)", "picture.png"),
    ],
)
def test_a_broken_link_fails_the_build(small: Path, tmp_path: Path, more: str, complaint: str) -> None:
    with (small / "docs" / "guide" / "one.md").open("a") as page:
        page.write(f"\n{more}\n")

    answer = built(small, tmp_path / "site")

    assert answer.returncode == 1
    assert "guide/one.md" in answer.stderr
    assert complaint in answer.stderr


def test_a_page_that_no_index_lists_fails_the_build(small: Path, tmp_path: Path) -> None:
    (small / "docs" / "guide" / "two.md").write_text("# Two\n")

    answer = built(small, tmp_path / "site")

    assert answer.returncode == 1
    assert "guide/two.md" in answer.stderr


def test_a_folder_with_something_else_in_it_is_left_alone(small: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")

    answer = built(small, tmp_path / "home")

    assert answer.returncode == 1
    assert "is no site" in answer.stderr
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"


def test_a_site_is_built_again_without_what_is_gone(small: Path, tmp_path: Path) -> None:
    assert built(small, tmp_path / "site").returncode == 0
    (tmp_path / "site" / "old.html").write_text("old")

    assert built(small, tmp_path / "site").returncode == 0
    assert not (tmp_path / "site" / "old.html").exists()
