"""The promised names are those in `__all__`, and no others lie about."""

from __future__ import annotations

import re
import types

import pytest

import forebay
from tests.docs.pages import pages, text


def test_the_public_names_are_sorted() -> None:
    assert list(forebay.__all__) == sorted(forebay.__all__)


def test_the_public_names_are_all_that_the_package_shows() -> None:
    visible = {
        name
        for name, value in vars(forebay).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }

    assert visible == set(forebay.__all__) - {"__version__"}


def test_every_public_name_exists() -> None:
    assert [name for name in forebay.__all__ if not hasattr(forebay, name)] == []


@pytest.mark.shows("R-NFR-16")
def test_every_public_name_is_in_the_reference_and_in_an_example_that_runs() -> None:
    names = set(forebay.__all__) - {"__version__"}
    reference = text("reference/python.md") + text("reference/errors.md")
    examples = [
        re.findall(r"^```python\n(.*?)^```", text(page), re.DOTALL | re.MULTILINE) for page in pages()
    ]

    def without(words: str) -> set[str]:
        return names - set(re.findall(r"\w+", words))

    assert without(reference) == set()
    assert without(" ".join(block for blocks in examples for block in blocks)) == set()
