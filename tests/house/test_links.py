"""The documents: links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_links import ROOT, broken_links


def test_no_document_of_the_project_has_a_broken_link() -> None:
    assert broken_links(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        "[there](docs/there.md)",
        "[a heading](docs/there.md#part)",
        "[this page](#part)",
        "[another host](https://example.com/x)",
        "```\n[in code](nowhere.md)\n```",
    ],
)
def test_a_good_link_is_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text("# There\n")
    (tmp_path / "README.md").write_text(text)

    assert broken_links(tmp_path) == []


def test_a_broken_link_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nSee [b](../b.md).\n")

    assert broken_links(tmp_path) == ["docs/a.md:3: ../b.md leads nowhere"]
