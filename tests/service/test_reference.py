"""The reference page is as the service describes itself."""

from __future__ import annotations

import pytest

from tools.reference import PAGE, TYPES, document, page, types


@pytest.mark.shows("R-HTTP-47")
def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(document()), "make reference"


def test_the_types_of_the_dashboard_are_fresh() -> None:
    assert TYPES.read_text(encoding="utf-8") == types(document()), "make reference"
