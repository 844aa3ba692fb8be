"""Hooks on Django's databases: `migrate` creates the tables for jobs, and no connection outlives a database.

Django's tests create a database, migrate it and drop it again. PostgreSQL drops none that has connections,
and clones none for parallel tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from django.db.backends.base.base import NO_DB_ALIAS

from forebay.app.app import Forebay
from forebay.errors import ConfigError
from forebay.integrations.django.backend import ForebayBackend, close_handles, url_of
from forebay.integrations.django.tasks_api import task_backends

# Stores on PostgreSQL whose tables this process has checked. Django migrates after each TransactionTestCase
# too.
_migrated: Final[set[str]] = set()


def create_tables(*, using: str, **_: Any) -> None:
    """Create the tables for jobs in a database that Django has migrated, if TASKS keeps jobs there."""
    for backend in _backends():
        if backend.database == using:
            try:
                url = url_of(using)
            except ConfigError:
                return  # it cannot hold jobs: SQLite in memory; a task that is enqueued there is refused
            _migrate(url)


def _migrate(url: str) -> None:
    if url in _migrated:
        return
    with Forebay(url) as app:  # closed again: a clone of the database is made next
        app.engine.migrate()
    if url.startswith("postgresql"):  # the file of SQLite may be another one next time, and a check is cheap
        _migrated.add(url)


def close_idle_connections(*, connection: Any, **_: Any) -> None:
    """Close the idle connections of all stores before Django creates, clones or drops a database: it does so
    over a connection without a database."""
    if connection.alias == NO_DB_ALIAS:
        _migrated.clear()
        close_handles()


def _backends() -> Iterator[ForebayBackend]:
    configured = (task_backends[alias] for alias in task_backends.settings)
    return (backend for backend in configured if isinstance(backend, ForebayBackend))
