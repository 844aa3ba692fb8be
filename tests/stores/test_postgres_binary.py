"""Values that are packed by hand are those that the driver would send."""

from __future__ import annotations

from typing import Final

import pytest

from forebay.stores.postgres.binary_parameters import texts, uniform_texts
from forebay.stores.postgres.connection import use_our_types
from tests.stores.postgres_support import raw

KINDS: Final[dict[type, str]] = {bool: "boolean[]", str: "text[]", int: "bigint[]", bytes: "bytea[]"}


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
    assert uniform_texts(values) == texts(values)


@pytest.mark.parametrize(
    "given", [["a", None, "long"], [None, 3, -(2**63)], [b"\x00", None, b""], [None, None], [], [True, False]]
)
def test_lists_are_packed_as_the_driver_packs_them(given: list[object], postgres: object) -> None:
    kind = next((word for of, word in KINDS.items() if of in map(type, given)), "text[]")
    with raw() as connection:
        use_our_types(connection.adapters)
        query = f"select %b::{kind}".encode()
        [(found,)] = connection.execute(query, [given], binary=True).fetchall()

    assert found == given
