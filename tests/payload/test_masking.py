from __future__ import annotations

from typing import Any

import pytest

from forebay.errors import ConfigError
from forebay.payload import masking
from forebay.payload.masking import contains_mask, is_secret, mask, mask_names, mask_text

NAMES = "password user_password PassWord passwd passphrase token accessToken refresh_token tokens secret "
NAMES += "clientSecret secret_key api_key apikey API-KEY key keys privateKey signingKey host_keys x.key "
NAMES += "Authorization authorization_header credentials aws_credential SSH_KEY "
NAMES += "pwd db_pwd userPwd passcode pin PIN cardPin pins cvv CVC otp OTP_CODE totp cookie Set-Cookie "
NAMES += "jwt idJwt session session_id sessionId auth basicAuth x-auth AUTH_HEADER dsn DATABASE_DSN bearer"
OPEN = "name monkey keyboard hotkeys keyword turkey pass compass to subject keyed whiskey KeyError "
OPEN += "shipping pinned PINNED opinion author authentic authorized obsession sessional forbearer"


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
    assert mask(value) == shown


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
    assert contains_mask(value) is is_masked


@pytest.mark.parametrize("name", ["", " ", "x" * 101])
def test_what_names_nothing_cannot_be_masked(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a masked name"):
        mask_names("iban", name)


def test_names_of_ones_own_are_masked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_own_names", set())
    value = {"customerIBAN": "DE1", "ssn": "2", "password": "3", "city": "Ulm"}

    assert mask(value) == {**value, "password": "***"}
    mask_names("iban", " SSN ")
    assert mask(value) == {"customerIBAN": "***", "ssn": "***", "password": "***", "city": "Ulm"}
    assert mask_text("iban=DE1 city=Ulm") == "iban=*** city=Ulm"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("login with pin=1234, ok", "login with pin=***, ok"),
        ('{"pin": "12 34", "a": 1}', '{"pin": ***, "a": 1}'),
        ("password: 'a b' then token=x;y=2", "password: *** then token=***;y=2"),
        ("Authorization: Bearer abc.def sent", "Authorization: *** sent"),
        ("GET /hook?access_token=abc&page=1", "GET /hook?access_token=***&page=1"),
        ("to postgresql://ann:hun@ter2@db/x", "to postgresql://ann:***@db/x"),
        ("at 12:30:05 the key for ann was found", "at 12:30:05 the key for ann was found"),
        ("author=ann https://host:80/?to=me@home", "author=ann https://host:80/?to=me@home"),
        ("a=" * 1_000 + "b", "a=" * 1_000 + "b"),
        ("x" * 2_000 + "=1", "x" * 2_000 + "=1"),
        ("", ""),
    ],
)
def test_a_line_of_text_is_masked_behind_such_a_name(text: str, shown: str) -> None:
    assert mask_text(text) == shown
