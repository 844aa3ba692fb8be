"""Options of `forebay server` for logins through an OpenID provider."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import click

from forebay.domain.openid_roles import GroupGrant, OpenIdSettings
from forebay.errors import ConfigError

Command: TypeAlias = Callable[..., Any]


def oidc_options(func: Command) -> Command:
    """Add `--oidc-issuer` and its options."""
    for option in (
        click.option("--oidc-label", metavar="TEXT", help="Name of the provider on the login page."),
        click.option(
            "--oidc-scope",
            "oidc_scopes",
            metavar="NAME",
            multiple=True,
            help="Request this scope in addition to openid and email, such as groups; may be repeated.",
        ),
        click.option(
            "--oidc-groups-claim",
            metavar="NAME",
            default="groups",
            show_default=True,
            help="The claim with the groups of a user; may be a path with dots.",
        ),
        click.option(
            "--oidc-group",
            "oidc_groups",
            metavar="GROUP=ROLE[:QUEUES]",
            multiple=True,
            help="Role of the members of a group, such as ops=operate; may be repeated.",
        ),
        click.option(
            "--oidc-client-secret",
            metavar="env:NAME|file:PATH",
            help="Where the client secret is; without one the client is public.",
        ),
        click.option("--oidc-client-id", metavar="ID", help="Client id of this server at the provider."),
        click.option(
            "--oidc-issuer", metavar="URL", help="Allow logins to the dashboard through this OpenID provider."
        ),
    ):
        func = option(func)
    return func


def build_oidc_settings(options: dict[str, Any]) -> OpenIdSettings | None:
    """Return the provider that the options name, if any; raise ConfigError for invalid options."""
    issuer = options["oidc_issuer"]
    if issuer is None:
        given = [
            name for name in ("client_id", "client_secret", "groups", "label") if options[f"oidc_{name}"]
        ]
        if given:
            raise ConfigError("options that begin with --oidc go with --oidc-issuer")
        return None
    return OpenIdSettings(
        issuer=issuer,
        client_id=options["oidc_client_id"] or "",
        client_secret=_read_secret(options["oidc_client_secret"]),
        groups=tuple(map(GroupGrant.parse, options["oidc_groups"])),
        groups_claim=options["oidc_groups_claim"],
        scopes=tuple(dict.fromkeys(("openid", "email", *options["oidc_scopes"]))),
        label=options["oidc_label"] or urlsplit(issuer).hostname or "single sign-on",
    )


def _read_secret(reference: str | None) -> str | None:
    """Read the client secret; a command line is readable by every program of the machine."""
    if reference is None:
        return None
    kind, _, name = reference.partition(":")
    try:
        found = {"env": lambda: os.environ[name], "file": lambda: Path(name).read_text().strip()}[kind]()
    except KeyError:
        reason = f"there is no variable {name:.60}" if kind == "env" else "write env:NAME or file:PATH"
        raise ConfigError(f"--oidc-client-secret cannot be read: {reason}") from None
    except (OSError, ValueError) as exc:
        raise ConfigError(f"--oidc-client-secret cannot be read: {exc}") from exc
    if not found:
        raise ConfigError(f"--oidc-client-secret is empty in {reference:.100}")
    return found
