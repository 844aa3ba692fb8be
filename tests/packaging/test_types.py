"""A type checker of a program that uses Forebay knows the type of every importable name."""

from __future__ import annotations

import pytest

from tools import typed


@pytest.mark.shows("R-SDK-14")
@pytest.mark.parametrize("package", typed.PACKAGES)
def test_every_name_that_can_be_imported_is_typed(package: str) -> None:
    report = typed.judged(package)

    assert typed.faults(report) == []
    assert report["typeCompleteness"]["completenessScore"] == 1
    assert report["typeCompleteness"]["pyTypedPath"].endswith("py.typed")


def test_what_is_not_typed_is_named_with_its_reason() -> None:
    symbol = {"name": "forebay.x", "isExported": True, "isTypeKnown": False}
    inner = {**symbol, "name": "forebay._x", "isExported": False}
    report = {"typeCompleteness": {"symbols": [{**symbol, "diagnostics": [{"message": "no\nmore"}]}, inner]}}

    assert typed.faults(report) == ["forebay.x: no"]
