"""Texts of a megabyte without a blank are shown at once; they held up a terminal for hours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from forebay.cli.output import cell, text
from forebay.cli.redaction import redact, redact_data

MANY: Final = 1 << 20
PARTS: Final = (
    *("a", "a.", "://", "a://b:", "a://b:c@", "@", "?", "?a", "?token", "&key", "=", "?token=", "pass"),
    *("fbk_", "fbk_a.", "fbk_" + "a" * 50 + "." + "b" * 19),
)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("show", [redact, redact_data, text, cell])
def test_long_words_are_shown_at_once(show: Callable[[Any], object], part: str) -> None:
    assert show(part * (MANY // len(part))) is not None


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("see -http://u:p@h and 1.x://u:p@h", "see -http://u:***@h and 1.x://u:***@h"),
        ("a://u:p/a://v:q@h", "a://u:***@h"),
        ("a://h?x=1?token=2=3&y=4", "a://h?x=1?token=***&y=4"),
        ("a://h?x?pass=1", "a://h?x?pass=***"),
        ("a://h?x=pass=1", "a://h?x=pass=1"),
        ("why?; a=token=5", "why?; a=token=5"),
    ],
)
def test_odd_urls_show_no_password(message: str, shown: str) -> None:
    assert redact(message) == shown
