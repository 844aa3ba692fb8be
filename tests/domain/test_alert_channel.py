"""Channels of alerts: what can be called and written to, and what is never shown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.alert_channel import MASK, MailChannel, TlsMode, WebhookChannel
from forebay.errors import ConfigError

WORD = "s3cret"
HOOK = WebhookChannel(name="ops", url="https://example.com:8443/T0K3N?a=b", secret=WORD)
MAIL = MailChannel(name="m", to=("a@example.com",), sender="f@example.com", host="mx", password=WORD)


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
        ({"secret": "env:HOME"}, "is written env:FOREBAY_SECRET_NAME"),
        ({"secret": "env:FOREBAY_ENCRYPTION_KEYS"}, "is written env:FOREBAY_SECRET_NAME"),
        ({"secret": "env:FOREBAY_SECRET_"}, "is written env:FOREBAY_SECRET_NAME"),
        ({"secret": "file:secret"}, "is written file:/absolute/path"),
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
        ({"sender": "absent"}, "no address of a mail"),
        ({"host": ""}, "host must be a text"),
        ({"username": "a\nb"}, "control characters"),
        ({"port": 0}, "a port is from 1 to 65535"),
        ({"password": "a\nb"}, "a password is a line"),
        ({"tls": TlsMode.NEVER}, "password in the clear"),
    ],
)
def test_mail_that_cannot_be_sent_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(MAIL, **changes)


def test_secrets_are_not_shown() -> None:
    assert HOOK.public_view() == replace(HOOK, url="https://example.com:8443/***", secret=MASK)
    assert replace(HOOK, secret="").public_view().secret == ""
    assert MAIL.public_view() == replace(MAIL, password=MASK)
    assert replace(MAIL, password="", username="u").public_view().password == ""


@pytest.mark.parametrize("reference", ["env:FOREBAY_SECRET_OPS", "file:/run/secrets/ops"])
def test_references_are_shown(reference: str) -> None:
    assert replace(HOOK, secret=reference).public_view().secret == reference
    assert replace(MAIL, password=reference).public_view().password == reference
    assert not replace(MAIL, password=reference).public_view().is_masked


def test_a_secret_with_a_colon_is_no_reference() -> None:
    word = "environment:x"
    assert replace(HOOK, secret=word).public_view().secret == MASK


def test_what_is_masked_can_be_told() -> None:
    assert HOOK.public_view().is_masked
    assert replace(HOOK, secret="").public_view().is_masked  # the path of its address
    assert MAIL.public_view().is_masked
    assert not HOOK.is_masked
    assert not MAIL.is_masked
    assert not replace(MAIL, password="").public_view().is_masked


def test_destinations_differ_by_server_and_not_by_path() -> None:
    same = replace(HOOK, url="https://EXAMPLE.com:8443/other", enabled=False)
    assert same.destination == HOOK.destination
    for url in ("http://example.com:8443/", "https://example.org:8443/", "https://example.com/"):
        assert replace(HOOK, url=url).destination != HOOK.destination
    assert replace(HOOK, url="https://a/").destination == replace(HOOK, url="https://a:443/").destination
    assert replace(MAIL, to=("b@example.com",)).destination == MAIL.destination
    for changes in ({"host": "other"}, {"port": 25}, {"tls": TlsMode.ALWAYS}, {"username": "u"}):
        assert replace(MAIL, **changes).destination != MAIL.destination
