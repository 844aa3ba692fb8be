"""Channels of alerts: what can be called and written to, and what is never shown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.channel import MASK, Mail, Tls, Webhook
from forebay.errors import ConfigError

WORD = "s3cret"
HOOK = Webhook(name="ops", url="https://example.com:8443/T0K3N?a=b", secret=WORD)
MAIL = Mail(name="m", to=("a@example.com",), sender="f@example.com", host="mx", password=WORD)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "no name"}, "cannot be the name of a channel"),
        ({"url": ""}, "needs an address"),
        ({"url": "https://[::1"}, "needs an address"),
        ({"url": "https://a:99999/"}, "needs an address"),
        ({"url": "https://a:0/"}, "by http or https"),
        ({"url": "file:///etc/passwd"}, "by http or https"),
        ({"url": "gopher://a/"}, "by http or https"),
        ({"url": "https:///path"}, "by http or https"),
        ({"url": "https://bücher.example/"}, "by http or https"),
        ({"url": "https://u:p@a/"}, "no name or password"),
        ({"url": "https://a/b c"}, "no blanks"),
        ({"secret": "a\nb"}, "a secret is a line of at most 500"),
        ({"secret": "x" * 501}, "a secret is a line of at most 500"),
    ],
)
def test_an_address_that_cannot_be_called_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(HOOK, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "cannot be the name of a channel"),
        ({"to": ()}, "needs 1 to 50 receivers"),
        ({"to": ("a@b\nBcc: c@d",)}, "no address of a mail"),
        ({"to": ("a@[",)}, "no address of a mail"),
        ({"sender": "nobody"}, "no address of a mail"),
        ({"host": ""}, "host must be a text"),
        ({"username": "a\nb"}, "control characters"),
        ({"port": 0}, "a port is from 1 to 65535"),
        ({"password": "a\nb"}, "a password is a line"),
        ({"tls": Tls.NEVER}, "password in the clear"),
    ],
)
def test_mail_that_cannot_be_sent_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(MAIL, **changes)


def test_secrets_are_not_shown() -> None:
    assert HOOK.shown() == replace(HOOK, url="https://example.com:8443/***", secret=MASK)
    assert replace(HOOK, secret="").shown().secret == ""
    assert MAIL.shown() == replace(MAIL, password=MASK)
    assert replace(MAIL, password="", username="u").shown().password == ""
