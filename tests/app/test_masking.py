from __future__ import annotations

from typing import Any

import pytest

from forebay.app.masking import holds_mask, is_secret, masked

NAMES = "password user_password PassWord passwd passphrase token accessToken refresh_token tokens secret "
NAMES += "clientSecret secret_key api_key apikey API-KEY key keys privateKey signingKey host_keys x.key "
NAMES += "Authorization authorization_header credentials aws_credential SSH_KEY"
OPEN = "name monkey keyboard hotkeys keyword turkey pass compass to subject keyed whiskey KeyError"


@pytest.mark.shows("R-SEC-05", "R-DASH-15")
@pytest.mark.parametrize("name", NAMES.split())
def test_a_name_that_looks_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", [*OPEN.split(), "", 7, None])
def test_a_name_that_does_not(name: object) -> None:
    assert not is_secret(name)


@pytest.mark.shows("R-SEC-05", "R-EDGE-87")
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"to": "ann", "password": "x"}, {"to": "ann", "password": "***"}),
        ([{"a": {"token": ["x"]}}], [{"a": {"token": "***"}}]),
        ({"token": None}, {"token": None}),
        ({"~": "map", "v": [[1, "a"], ["key", "x"]]}, {"~": "map", "v": [[1, "a"], ["key", "***"]]}),
        ({"~": "map", "v": [1, [2]]}, {"~": "map", "v": [1, [2]]}),
        ({"~": "tuple", "v": [{"secret": 1}]}, {"~": "tuple", "v": [{"secret": "***"}]}),
        ("password", "password"),
        (7, 7),
    ],
)
def test_what_is_under_such_a_name_is_masked_however_deep(value: Any, shown: Any) -> None:
    assert masked(value) == shown


@pytest.mark.parametrize(
    ("value", "is_masked"),
    [
        ({"to": "ann", "password": "***"}, True),
        ([{"a": {"token": "***"}}], True),
        ({"~": "map", "v": [[1, "a"], ["key", "***"]]}, True),
        ({"~": "map", "v": [1, [2], ["key", "x"]]}, False),
        ({"to": "***", "password": "x"}, False),
        ("***", False),
    ],
)
def test_what_was_shown_with_a_mask_is_known_by_it(value: Any, is_masked: bool) -> None:
    assert holds_mask(value) is is_masked
