"""`forebay migrate`: create a store, or bring its schema up to date."""

from __future__ import annotations

import click

from forebay.cli.opening import Desk
from forebay.cli.options import at_store
from forebay.cli.output import Output, waiting


@click.command()
@at_store(create=True)
def migrate(desk: Desk, out: Output) -> None:
    """Create the store or bring its schema up to date.

    Safe to repeat, and safe when several programs do it at once.
    """
    with waiting(f"bringing {desk.name} up to date"):
        schema = desk.engine.migrate()
    engine = desk.engine.features.name
    out.say({"engine": engine, "schema": schema, "store": desk.name}, f"{desk.name} has schema {schema}")
