"""A server for the service: uvicorn on an event loop of ours, stopped in order."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec
import uvicorn

from forebay.errors import ConfigError
from forebay.service.http.app import http_app
from forebay.service.operations.service import Service
from forebay.stores.protocol import Engine

DEFAULT_PORT: Final = 8080
GRACE_SECONDS: Final = 25
BACKLOG: Final = 2_048


class Address(msgspec.Struct, frozen=True):
    """Where a server listens; port 0 lets the system choose one."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Server(uvicorn.Server):
    """Runs the HTTP service until it is told to stop.

    The first SIGTERM or SIGINT ends long polls with an empty answer and lets requests end for `grace`; a
    second one does not wait for them.
    """

    def __init__(self, engine: Engine, *, version: str, grace: int = GRACE_SECONDS) -> None:
        self.service = Service(engine)
        super().__init__(
            uvicorn.Config(
                http_app(self.service, version=version),
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=grace,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Before anybody is waited for: a long poll would hold up the stop for as long as it may wait.
        self.service.refuse()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The library's own raises what it has heard again when all is done, and the program would end by it.
        with ExitStack() as stack:
            for number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, number, signal.signal(number, self.handle_exit))
            yield


def serve(
    engine: Engine,
    address: Address,
    *,
    version: str,
    grace: int = GRACE_SECONDS,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until a signal says stop; `tell` hears the address. Raises ConfigError for one that cannot be."""
    if not address.is_loopback:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and nobody would have to say who they are; "
            "listen on 127.0.0.1, and let a proxy that knows your users stand before it"
        )
    with listening(address) as listener:
        host, port = listener.getsockname()[:2]
        tell(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        asyncio.run(Server(engine, version=version, grace=grace).serve([listener]))


def listening(address: Address) -> socket.socket:
    """A socket that listens; raises ConfigError if it cannot."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as exc:
        raise ConfigError(f"cannot listen on {address.host} port {address.port}: {exc}") from exc
