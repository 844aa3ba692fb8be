"""ULIDs write 128 bits and sort like them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.domain.ulid import decode_ulid, encode_ulid, encode_ulids, ulid_created_at
from forebay.errors import InvalidJob

BITS = st.integers(min_value=0, max_value=2**128 - 1)
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def written_plainly(bits: int) -> str:
    """Crockford's base 32, digit by digit."""
    return "".join(ALPHABET[bits // 32**place % 32] for place in reversed(range(26)))


@given(BITS)
def test_the_text_is_the_number_in_base_32(bits: int) -> None:
    assert encode_ulid(bits) == written_plainly(bits)


@given(st.integers(min_value=0, max_value=2**127), st.integers(min_value=0, max_value=50))
@example(2**20 - 3, 9)
@example(2**100 - 3, 9)
def test_numbers_that_follow_each_other_are_written_like_any_others(first: int, count: int) -> None:
    assert encode_ulids(first, count) == [encode_ulid(first + nth) for nth in range(count)]


@given(BITS)
def test_a_number_comes_back_from_its_text(bits: int) -> None:
    assert decode_ulid(encode_ulid(bits)) == bits


@given(BITS)
def test_small_letters_mean_the_same(bits: int) -> None:
    assert decode_ulid(encode_ulid(bits).lower()) == bits


@given(BITS, BITS)
def test_texts_sort_like_their_numbers(one: int, other: int) -> None:
    assert (encode_ulid(one) < encode_ulid(other)) == (one < other)


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0, "00000000000000000000000000"),
        (1, "00000000000000000000000001"),
        (2**128 - 1, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"),
    ],
)
def test_the_ends_of_the_range_are_written_in_26_characters(bits: int, text: str) -> None:
    assert encode_ulid(bits) == text


@pytest.mark.shows("R-JOB-03")
@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_id_tells_when_it_was_made(milliseconds: int, rest: int) -> None:
    assert ulid_created_at(encode_ulid(milliseconds << 80 | rest)) == milliseconds


@pytest.mark.shows("R-JOB-03")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 25,
        "0" * 27,
        "I" + "0" * 25,
        "0" * 25 + "L",
        "0" * 25 + "O",
        "0" * 25 + "U",
        "0" * 25 + " ",
        "0" * 25 + "-",
        "0" * 25 + "\N{LATIN SMALL LETTER SHARP S}",
        "0" * 25 + "\N{LATIN SMALL LETTER LONG S}",
        "0" * 25 + "\N{FULLWIDTH DIGIT ONE}",
        "8" + "0" * 25,
        "Z" * 26,
    ],
)
def test_other_texts_are_not_ulids(text: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        decode_ulid(text)

    assert caught.value.field == "id"


def test_the_error_names_the_wrong_letter() -> None:
    with pytest.raises(InvalidJob, match="'U' is not in its alphabet"):
        decode_ulid("U" * 26)
