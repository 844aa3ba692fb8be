"""A server for the service: uvicorn on an event loop of ours, stopped in order."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final

import msgspec
import uvicorn

from forebay.domain.limits import Limit
from forebay.errors import ConfigError
from forebay.service.auth import Admits, Guard, OpenDoor
from forebay.service.http.app import http_app
from forebay.service.http.connecting import Connecting
from forebay.service.operations.service import Service
from forebay.service.rates import Rates
from forebay.service.schema.shared import LONGEST_WAIT_SECONDS
from forebay.stores.protocol import Engine

DEFAULT_PORT: Final = 8080
GRACE_SECONDS: Final = 25
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
BACKLOG: Final = 2_048
Around = Callable[[Any], Any]  # an ASGI app from another one


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


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Who is let in, and how they are protected.

    With `asks_for_keys` only who shows an API key; else everybody who can reach the server, by its address or
    under one of `hosts`. `rate` is for clients whose key has none of its own. With `debug` administrators
    may look deeper than programs need. With a certificate (and its key, if that is a file of its own) the
    server speaks TLS and nothing else.
    """

    asks_for_keys: bool = False
    hosts: frozenset[str] = frozenset()
    rate: Limit | None = None
    debug: bool = False
    certificate: str | None = None
    private_key: str | None = None

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"

    def guard(self, service: Service) -> Admits:
        """What stands at the door of this service."""
        clock = service.desk.clock
        rates = Rates(self.rate, clock)
        return Guard(service.desk, clock, rates) if self.asks_for_keys else OpenDoor(rates)

    def check(self) -> None:
        """Raise ConfigError for a certificate that cannot be used, before anybody is told of an address."""
        if self.certificate is None:
            if self.private_key is not None:
                raise ConfigError("a private key goes with a certificate")
            return
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.certificate, self.private_key
            )
        except (OSError, ValueError) as exc:
            raise ConfigError(f"the certificate {self.certificate} cannot be used: {exc}") from exc


class Server(uvicorn.Server):
    """Runs the HTTP service until it is told to stop.

    `around` may put something before the app, such as a page. The first SIGTERM or SIGINT ends long polls
    with an empty answer and lets requests end for `grace`; a second one does not wait for them.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        version: str,
        grace: int = GRACE_SECONDS,
        security: Security | None = None,
        longest_wait: float = LONGEST_WAIT_SECONDS,
        around: Around | None = None,
    ) -> None:
        self.service = Service(engine, longest_wait=longest_wait)
        secured = security or Security()
        app = http_app(
            self.service,
            version=version,
            guard=secured.guard(self.service),
            hosts=secured.hosts,
            debug=secured.debug,
        )
        super().__init__(
            uvicorn.Config(
                app if around is None else around(app),
                ssl_certfile=secured.certificate,
                ssl_keyfile=secured.private_key,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                http=Connecting,
                ws="none",
                timeout_graceful_shutdown=grace,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Before anybody is waited for: a long poll would hold up the stop for as long as it may wait.
        self.service.refuse()
        await super().shutdown(sockets)
        if self.force_exit:  # then nobody stops the service in order
            self.service.desk.break_off()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The library's own takes only a second SIGINT for haste.
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The library's own raises what it has heard again when all is done, and the program would end by it.
        with ExitStack() as stack:
            # In another thread nobody hears a signal; whoever has started it says `should_exit`.
            for number in _STOPS if current_thread() is main_thread() else ():
                stack.callback(signal.signal, number, signal.signal(number, self.handle_exit))
            yield


def serve(
    engine: Engine,
    address: Address,
    *,
    version: str,
    grace: int = GRACE_SECONDS,
    security: Security | None = None,
    tell: Callable[[str], None] = lambda _: None,
    around: Around | None = None,
) -> None:
    """Serve until a signal says stop; `tell` hears the address. Raises ConfigError for one that cannot be."""
    secured = security or Security()
    secured.check()
    if not address.is_loopback and not secured.asks_for_keys:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and nobody would have to say who they are; "
            "ask for keys (--keys), or listen on 127.0.0.1"
        )
    with listening(address) as listener:
        host, port = listener.getsockname()[:2]
        tell(f"{secured.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        server = Server(engine, version=version, grace=grace, security=secured, around=around)
        asyncio.run(server.serve([listener]))


def listening(address: Address) -> socket.socket:
    """A socket that listens; raises ConfigError if it cannot."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as exc:
        raise ConfigError(f"cannot listen on {address.host} port {address.port}: {exc}") from exc
