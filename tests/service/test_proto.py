"""The .proto file, the code that is made from it and its page are fresh, and numbers stay what they are."""

from __future__ import annotations

import pytest

from tools.proto import Numbers, known_numbers, proto, stale


@pytest.mark.shows("R-GRPC-05")
def test_what_is_made_from_the_shapes_is_fresh() -> None:
    assert stale() == [], "make reference"


@pytest.mark.shows("R-GRPC-05")
def test_a_field_keeps_its_number_and_one_that_is_gone_leaves_it_behind() -> None:
    # As if a field had been removed, one had been moved and one were new.
    known = known_numbers(proto({}))
    known["ActionResponse"] = Numbers({"id": 9, "applied": 2, "state": 3, "mood": 4}, {"colour": 7})

    made = known_numbers(proto(known))["ActionResponse"]

    assert made.used == {"id": 9, "applied": 2, "state": 3, "reason": 10}
    assert made.gone == {"mood": 4, "colour": 7}
    assert known_numbers(proto({"ActionResponse": made}))["ActionResponse"] == made
