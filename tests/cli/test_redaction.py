from __future__ import annotations

import pytest

from forebay.cli.redaction import redact, redact_data


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("cannot reach 'redis://:secret@host:6379/0'!", "cannot reach 'redis://:***@host:6379/0'!"),
        ("postgresql://me:se@cr/et@host/db", "postgresql://me:***@host/db"),
        ("POSTGRESQL://me:secret@host", "POSTGRESQL://me:***@host"),
        ("postgresql://host/db?user=me&password=secret&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        (
            "redis://h?ssl_key_password=a1&api_key=b2&AccessToken=c3&client_secret=d4&x=1",
            "redis://h?ssl_key_password=***&api_key=***&AccessToken=***&client_secret=***&x=1",
        ),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("sqlite:////var/lib/jobs.db", "sqlite:////var/lib/jobs.db"),
        ("at 12:30 write to ada@example.com", "at 12:30 write to ada@example.com"),
    ],
)
def test_a_message_shows_no_password(message: str, shown: str) -> None:
    assert redact(message) == shown


def test_data_loses_its_passwords_and_nothing_else() -> None:
    urls = [
        "a://u:p@h/x",
        "http://host:80/?to=me@home",
        "b://h?api_key=x&y=1",
        "http://h/?monkey=1&compass=n",
    ]
    data = {"urls": urls, "n": 3, "none": None}

    assert redact_data(data) == {
        "urls": ["a://u:***@h/x", urls[1], "b://h?api_key=***&y=1", urls[3]],
        "n": 3,
        "none": None,
    }
