"""The promised names are those in `__all__`, and no others lie about."""

from __future__ import annotations

import types

import forebay


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
