"""The documents: links lead somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_links import ROOT, broken_links

THERE = """# There

## Part

### A `run_at`: the *second* one?

## Part

```
# no heading
```
"""


def test_no_document_of_the_project_has_a_broken_link() -> None:
    assert broken_links(ROOT) == []


@pytest.mark.parametrize(
    "text",
    [
        "[there](docs/there.md)",
        "[a heading](docs/there.md#part)",
        "[with code](docs/there.md#a-run_at-the-second-one)",
        "[the second of a name](docs/there.md#part-1)",
        "[this page](#here)\n\n## Here",
        "[a line of code](src.py#L3)",
        "[another host](https://example.com/x)",
        "```\n[in code](nowhere.md)\n```",
    ],
)
def test_a_good_link_is_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text(THERE)
    (tmp_path / "src.py").write_text("x = 1\n")
    (tmp_path / "README.md").write_text(text)

    assert broken_links(tmp_path) == []


def test_a_broken_link_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nSee [b](../b.md).\n")

    assert broken_links(tmp_path) == ["docs/a.md:3: ../b.md leads nowhere"]


@pytest.mark.parametrize(
    "target", ["docs/there.md#parts", "docs/there.md#no-heading", "#part", "docs/there.md#Part"]
)
def test_a_link_to_a_heading_that_is_not_there_is_named(target: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "there.md").write_text(THERE)
    (tmp_path / "README.md").write_text(f"# Here\n\n[x]({target})\n")

    assert broken_links(tmp_path) == [f"README.md:3: {target} leads to no heading"]
