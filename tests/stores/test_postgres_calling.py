"""Values that are packed by hand are those that the driver would send."""

from __future__ import annotations

import pytest

from forebay.stores.postgres.calling import alike, texts


@pytest.mark.parametrize(
    "values",
    [
        ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW"],
        ["one"],
        [],
        ["", ""],
        ["short", "longer"],
        ["grün", "blau"],
        ["x" * 127, "y" * 127],
        ["x" * 128, "y" * 128],
    ],
    ids=["ids", "one", "none", "empty", "lengths differ", "not ASCII", "longest", "too long"],
)
def test_texts_of_one_length_are_packed_like_others(values: list[str]) -> None:
    assert alike(values) == texts(values)
