"""`forebay migrate`: create a store, or migrate its schema."""

from __future__ import annotations

import click

from forebay.cli.options import with_store
from forebay.cli.output import Output, spinner
from forebay.cli.store_session import StoreSession


@click.command()
@with_store(create=True)
def migrate(session: StoreSession, out: Output) -> None:
    """Create the store or migrate its schema.

    Safe to repeat, and safe when several programs migrate at once.
    """
    with spinner(f"migrating {session.name}"):
        schema = session.engine.migrate()
    engine = session.engine.features.name
    out.print_message(
        {"engine": engine, "schema": schema, "store": session.name}, f"{session.name} has schema {schema}"
    )
