"""Options of `forebay server` for logins by a provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.stores.contract.store import Store
from tests.cli.command_runner import refusal

ISSUER = ("--oidc-issuer", "https://id.example.org")
CLIENT = ("--oidc-client-id", "forebay", "--oidc-group", "ops=operate")
READY = ("--require-keys", "--public-url", "https://jobs.example.org")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--oidc-client-id", "x"), "go with --oidc-issuer"),
        (ISSUER, "--oidc-client-id"),
        ((*ISSUER, "--oidc-client-id", "x"), "--oidc-group"),
        ((*ISSUER, *CLIENT, "--oidc-group", "ops"), "GROUP=ROLE"),
        ((*ISSUER, *CLIENT), "needs --require-keys and --public-url"),
        (("--oidc-issuer", "http://id.example.org", *CLIENT, *READY), "address of https"),
        ((*ISSUER, *CLIENT, "--oidc-client-secret", "s3cret"), "write env:NAME or file:PATH"),
        ((*ISSUER, *CLIENT, "--oidc-client-secret", "env:NO_SUCH_SECRET"), "no variable NO_SUCH_SECRET"),
        ((*ISSUER, *CLIENT, "--oidc-client-secret", "file:/no/such/file"), "cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused(store: Store, words: tuple[str, ...], why: str) -> None:
    assert why in refusal("server", "--port", "0", *words)["message"]


def test_an_empty_secret_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("\n")

    error = refusal("server", *ISSUER, *CLIENT, "--oidc-client-secret", f"file:{tmp_path / 'secret'}")

    assert "is empty" in error["message"]
