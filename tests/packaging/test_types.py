"""A type checker of a program that uses Forebay knows the type of every importable name."""

from __future__ import annotations

import pytest

from tools import typed


@pytest.mark.shows("R-SDK-14")
@pytest.mark.parametrize("package", typed.PACKAGES)
def test_every_name_that_can_be_imported_is_typed(package: str) -> None:
    told = typed.judged(package)

    assert typed.faults(told) == []
    assert told["typeCompleteness"]["completenessScore"] == 1
    assert told["typeCompleteness"]["pyTypedPath"].endswith("py.typed")


def test_what_is_not_typed_is_named_with_its_reason() -> None:
    symbol = {"name": "forebay.x", "isExported": True, "isTypeKnown": False}
    inner = {**symbol, "name": "forebay._x", "isExported": False}
    told = {"typeCompleteness": {"symbols": [{**symbol, "diagnostics": [{"message": "no\nmore"}]}, inner]}}

    assert typed.faults(told) == ["forebay.x: no"]
