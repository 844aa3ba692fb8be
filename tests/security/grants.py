"""A server that asks for keys, and holders of some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from forebay.domain.api_key import KeyPermissions
from forebay.domain.job import QueueName
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.service.live_server import Holder, Served, serving


class KeyHolder(Holder):
    """A program with a key: it asks over HTTP, and has the store over the service."""

    def __init__(self, served: Served, token: str) -> None:
        super().__init__(served, token)
        engine = open_engine(served.address, key=token)
        self.store: Store = engine.store()
        self.reader: Reader = engine.reader()

    def close(self) -> None:
        self.store.close()
        self.reader.close()


class Guarded:
    """The store behind the service, and the holders of its keys by name."""

    def __init__(self, store: Store, reader: Reader, holders: Mapping[str, KeyHolder]) -> None:
        self.store = store
        self.reader = reader
        self.holders = holders

    def __getitem__(self, name: str) -> KeyHolder:
        return self.holders[name]


@contextmanager
def guarded(grants: Mapping[str, Sequence[str]], queues: Sequence[QueueName]) -> Iterator[Guarded]:
    """Serve an empty store with these keys and queues while the block lasts."""
    engine = open_engine("memory://")
    with ExitStack() as stack:
        served = stack.enter_context(serving(engine, security=ServerSecurity(requires_keys=True)))
        store = stack.enter_context(closing(engine.store()))
        reader = stack.enter_context(closing(engine.reader()))
        for queue in queues:
            store.save_queue(queue)
        keys, holders = ApiKeyAdmin(store, reader, actor="ann"), dict[str, KeyHolder]()
        for name, texts in grants.items():
            allowed: dict[str, Any] = KeyPermissions.parse(texts)._asdict()
            token = keys.create(name, **allowed).token
            holders[name] = stack.enter_context(closing(KeyHolder(served, token)))
        yield Guarded(store, reader, holders)
