"""Options of commands that deliver alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.options import Command

if TYPE_CHECKING:
    from forebay.domain.delivery import DeliveryPolicy


def delivery_options(func: Command) -> Command:
    """`--allow-webhooks-to` and `--secrets-folder`."""
    for option in (
        click.option(
            "--secrets-folder",
            metavar="FOLDER",
            help="Read secrets of alert channels that are written as file:PATH from this folder.",
        ),
        click.option(
            "--allow-webhooks-to",
            metavar="CIDR,...",
            help="Deliver alerts, also by mail servers, to hosts in these networks, such as 10.1.0.0/16; "
            "default: to public addresses only.",
        ),
    ):
        func = option(func)
    return func


def delivery_policy(
    networks: str | None, secrets_folder: str | None, default: DeliveryPolicy | None
) -> DeliveryPolicy | None:
    """The policy that options name; `default`, that of the app, for what they do not name."""
    if networks is None and secrets_folder is None:
        return default
    from forebay.domain.delivery import DeliveryPolicy, parse_policy  # noqa: PLC0415 - few commands deliver

    known, found = default or DeliveryPolicy(), parse_policy(networks or (), secrets_folder)
    return DeliveryPolicy(
        known.networks if networks is None else found.networks,
        known.secrets_folder if secrets_folder is None else found.secrets_folder,
    )
