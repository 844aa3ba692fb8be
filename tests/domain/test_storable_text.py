"""Text is made such that every store can hold it."""

from __future__ import annotations

import pytest

from forebay.domain.storable_text import clean_text, escape_unencodable, truncate_bytes, without_nul


@pytest.mark.parametrize("text", ["", "plain", "größer", "😀"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert (clean_text(text), without_nul(text)) == (text, text)


def test_nul_is_shown_as_a_picture_and_half_a_pair_as_a_question_mark() -> None:
    assert clean_text("a\x00b\udc80ö") == "a␀b?ö"
    assert without_nul("a\x00b\udc80") == "a␀b\udc80"


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [("abc", 3, "abc"), ("abcd", 3, "abc"), ("öö", 4, "öö"), ("öö", 3, "ö"), ("a😀", 4, "a"), ("a", 4, "a")],
)
def test_a_text_is_cut_between_its_signs(text: str, most: int, kept: str) -> None:
    assert truncate_bytes(text, most) == kept


def test_what_utf8_cannot_encode_is_escaped() -> None:
    assert escape_unencodable("half \ud83d of a pair") == "half \\ud83d of a pair"
    assert escape_unencodable("caf\u00e9") == "caf\u00e9"
