"""Store of one command: opened on first use, closed at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from urllib.parse import unquote, urlsplit

from forebay.app.app import Forebay
from forebay.app.client import Client
from forebay.cli.app_loader import load_app
from forebay.cli.settings import Settings
from forebay.cli.suggestions import suggest
from forebay.clock import SystemClock
from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy
from forebay.domain.job import QueueName
from forebay.domain.queue import Queue, QueueState
from forebay.errors import ConfigError, IllegalTransition, QueueNotFound, StoreUnusable
from forebay.payload.masking import mask_names
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.url_redaction import redact_url


class StoreSession:
    """Store handles of one command. `name` is how questions and results call the store."""

    def __init__(self, settings: Settings, engine: Engine, name: str, app: Forebay | None = None) -> None:
        self.settings = settings
        self.engine = engine
        self.name = name
        self.delivery_policy: DeliveryPolicy | None = app.delivery_policy if app is not None else None
        self._handles: list[Store | Reader | Client] = []

    @cached_property
    def store(self) -> Store:
        store = self.engine.store()
        self._handles.append(store)
        return store

    @cached_property
    def reader(self) -> Reader:
        reader = self.engine.reader()
        self._handles.append(reader)
        return reader

    @cached_property
    def client(self) -> Client:
        client = Client(self.engine, SystemClock(), actor=self.actor)
        self._handles.append(client)
        return client

    @property
    def actor(self) -> str:
        return self.settings.actor

    def find_queue(self, name: str) -> Queue:
        """Return a queue that exists, dropped or not; raise QueueNotFound otherwise."""
        found = self.reader.queues([QueueName(name)])
        if not found:
            known = [queue.name for queue in self.reader.queues()]
            otherwise = "`forebay queues list` lists the queues"
            raise QueueNotFound(f"there is no queue {name}{suggest(name, known, otherwise=otherwise)}")
        return found[0]

    def require_queue(self, name: str) -> Queue:
        """Return a queue that exists and is not dropped. Without this check a write would create the queue,
        also under a mistyped name."""
        queue = self.find_queue(name)
        if queue.state is QueueState.DROPPED:
            raise IllegalTransition(f"queue {name} was deleted; `forebay queues create` brings it back")
        return queue

    def close(self) -> None:
        while self._handles:
            self._handles.pop().close()


@contextmanager
def open_session(settings: Settings, *, create: bool = False) -> Iterator[StoreSession]:
    """Open the store that the settings name. Only `create` allows the command to create or migrate it."""
    mask_names(*settings.masked_names)
    kind, named = settings.store
    session = (
        _open_app_store(settings, named) if kind == "app" else _open_url_store(settings, named, create=create)
    )
    if not session.engine.features.is_shared:
        raise ConfigError(
            f"{session.name} lives inside one program, so a command cannot see it; name another store"
        )
    if not create:
        session.engine.check_schema()  # opening a handle would create the tables in any database
    try:
        yield session
    finally:
        session.close()


def _open_app_store(settings: Settings, target: str) -> StoreSession:
    app: Forebay = load_app(target)
    return StoreSession(settings, app.engine, f"the store of {target}", app)


def _open_url_store(settings: Settings, url: str, *, create: bool) -> StoreSession:
    if "\0" in unquote(url):
        raise ConfigError(f"{redact_url(url)!r} cannot name a store: there is a NUL in it")
    engine = _wrap_engine(settings, open_engine_at(settings, url))
    if not create:
        _check_file(url, is_named="url" in settings.found)
    return StoreSession(settings, engine, redact_url(url))


def open_engine_at(settings: Settings, url: str) -> Engine:
    """Return the engine for a URL; a service gets the API key of the settings."""
    is_service = url.partition("://")[0].lower() in ("http", "https")
    return open_engine(url, key=settings.get("api_key") if is_service else None)


def _wrap_engine(settings: Settings, engine: Engine) -> Engine:
    keys, blobs = settings.get("encryption_keys"), settings.get("blob_store")
    requires = bool(settings.get("require_encryption"))
    if keys is None and blobs is None and not requires:
        return engine
    from forebay.payload.engine_wrapper import wrap_engine  # noqa: PLC0415 - most commands have neither

    return wrap_engine(engine, keys, blobs, requires_encryption=requires)


def _check_file(url: str, *, is_named: bool) -> None:
    """Raise StoreUnusable for a missing file: opening would create it, and a mistyped name would look like
    an empty store."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or os.path.exists(unquote(parts.path[1:])):
        return
    if is_named:
        raise StoreUnusable(f"there is no store at {redact_url(url)}; `forebay migrate` creates it")
    raise StoreUnusable(
        f"no store is named, and there is none at {url}: give --url or --app, set FOREBAY_URL or "
        "FOREBAY_APP, or set url or app in forebay.toml"
    )
