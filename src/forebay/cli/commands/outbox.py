"""`forebay outbox`: relay jobs from a table of another database to the store until a stop signal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from forebay.cli.log_options import log_options, set_up_logs
from forebay.cli.options import DurationParam, with_store
from forebay.cli.output import Output
from forebay.cli.settings import OUTBOX_DATABASE
from forebay.cli.stop_signals import collect_signals
from forebay.cli.store_session import StoreSession
from forebay.errors import ConfigError, StoreUnavailable, StoreUnusable, WorkersDied
from forebay.telemetry.log_setup import LogFormat
from forebay.worker.coordinator_inbox import WakeSignal

if TYPE_CHECKING:
    from types import ModuleType

    from sqlalchemy import Engine, Table

    from forebay.integrations.outbox import Relay

_POLL_SECONDS: Final = 1.0

logger: logging.Logger = logging.getLogger(__name__)


@click.command(
    epilog="Example: `forebay outbox --database postgresql+psycopg://app@db/shop --url redis://cache/0`."
)
@click.option(
    "--database",
    metavar="URL",
    required=True,
    envvar=OUTBOX_DATABASE,
    show_envvar=True,
    help="The database with the outbox, as a SQLAlchemy URL.",
)
@click.option(
    "--table", "name", default="forebay_outbox", show_default=True, help="The table; may be SCHEMA.NAME."
)
@click.option("--create", is_flag=True, help="Create the table if it does not exist.")
@click.option("--once", is_flag=True, help="Relay the present rows, and exit.")
@click.option(
    "--polling-interval", type=DurationParam(), default="1s", show_default=True, help="How often to poll."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    help="Rows per batch.",
)
@log_options
@with_store(create=True)
def outbox(
    session: StoreSession, out: Output, log_format: LogFormat | None, log_level: str | None, **options: Any
) -> None:
    """Relay jobs from an outbox table to the store.

    Programs write jobs into a table of their own database, in their own transactions. This command stores
    each of them once, until a stop signal. Any number of relays may run at the same time.
    """
    set_up_logs(log_format, log_level, session.settings)
    relay_module = _load_relay_module()
    with _open_outbox(options["database"], options["name"], create=options["create"]) as (engine, table):
        every, limit = options["polling_interval"] / 1_000, options["batch_size"]
        relay: Relay = relay_module.Relay(table, engine, session.client, every=every, limit=limit)
        if options["once"]:
            relay.tick()
        else:
            _run_until_stopped(relay)
    answer = {"stored": relay.stored, "refused": relay.refused}
    out.print_message(answer, f"{relay.stored:,} rows of the outbox stored, {relay.refused:,} refused")


def _run_until_stopped(relay: Relay) -> None:
    wake_signal = WakeSignal()
    with collect_signals(wake_signal) as signals:
        relay.start()
        logger.info("the relay runs")
        while relay.is_running and not signals:
            wake_signal.wait(_POLL_SECONDS)
        relay.stop()
    if not signals:
        raise WorkersDied("the relay has ended by itself; see its log")


@contextmanager
def _open_outbox(url: str, name: str, *, create: bool) -> Iterator[tuple[Engine, Table]]:
    """Open the database and its outbox table; raise ConfigError for an invalid URL, and StoreUnusable if the
    table does not exist."""
    from sqlalchemy import MetaData, create_engine, inspect  # noqa: PLC0415 - as below
    from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError  # noqa: PLC0415

    from forebay.integrations.outbox import outbox_table  # noqa: PLC0415

    schema, _, last = name.rpartition(".")
    table = outbox_table(MetaData(), last, schema=schema or None)
    try:
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as exc:
        raise ConfigError(f"--database does not name a database that SQLAlchemy can open: {exc}") from exc
    try:
        if create:
            table.create(engine, checkfirst=True)
        if not inspect(engine).has_table(last, schema=schema or None):
            raise StoreUnusable(f"there is no table {name} in that database; --create creates it")
        yield engine, table
    except DBAPIError as exc:
        raise StoreUnavailable(f"the database of the outbox: {exc.orig}") from exc
    finally:
        engine.dispose()


def _load_relay_module() -> ModuleType:
    try:
        from forebay.integrations.outbox import relay as relay_module  # noqa: PLC0415 - what it stands on is an extra
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"an outbox needs {exc.name}, which is not installed: pip install 'forebay[outbox]'"
        ) from exc
    return relay_module
