"""What a document may be."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.domain.stored_document import MAX_BODY, Document
from forebay.errors import ConfigError


def test_a_document_may_be_as_long_as_its_limit() -> None:
    assert Document(kind="key", name="a", body="x" * MAX_BODY).revision == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "a:b"},
        {"kind": ""},
        {"name": ""},
        {"name": "n" * 101},
        {"name": "a\nb"},
        {"body": "x" * (MAX_BODY + 1)},
        {"body": "é" * (MAX_BODY // 2 + 1)},
        {"body": "a\0b"},
        {"body": "half a character: \ud800"},
    ],
)
def test_what_no_engine_could_keep_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Document(**{"kind": "key", "name": "a", "body": "{}", **fields})
