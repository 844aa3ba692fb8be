"""Options of commands that deliver alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.options import Command

if TYPE_CHECKING:
    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy


def delivery_options(func: Command) -> Command:
    """Add `--allow-webhooks-to` and `--secrets-folder`."""
    for option in (
        click.option(
            "--secrets-folder",
            metavar="FOLDER",
            help="Folder of the secrets of alert channels that are given as file:PATH.",
        ),
        click.option(
            "--allow-webhooks-to",
            metavar="CIDR,...",
            help="Networks that alerts may be delivered to, also by mail servers, such as 10.1.0.0/16; "
            "default: public addresses only.",
        ),
    ):
        func = option(func)
    return func


def delivery_policy(
    networks: str | None, secrets_folder: str | None, default: DeliveryPolicy | None
) -> DeliveryPolicy | None:
    """Return the delivery policy of the options; `default`, that of the app, fills the gaps."""
    if networks is None and secrets_folder is None:
        return default
    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy, parse_policy  # noqa: PLC0415 - few commands deliver

    known, found = default or DeliveryPolicy(), parse_policy(networks or (), secrets_folder)
    return DeliveryPolicy(
        known.networks if networks is None else found.networks,
        known.secrets_folder if secrets_folder is None else found.secrets_folder,
    )
