"""A server for the service: uvicorn on an event loop of ours, stopped in order."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final, Protocol

import msgspec
import uvicorn

from forebay.domain.delivery import DeliveryPolicy
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
_HASTE_SECONDS: Final = 0.1  # how soon a second signal is heard
_LEAST_SECONDS: Final = 1
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
    server speaks TLS and nothing else. The delivery policy says which hosts alerts may be sent to.
    """

    asks_for_keys: bool = False
    hosts: frozenset[str] = frozenset()
    rate: Limit | None = None
    debug: bool = False
    certificate: str | None = None
    private_key: str | None = None
    delivery_policy: DeliveryPolicy | None = None

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


class Beside(Protocol):
    """A server for another protocol, on the same event loop and with the same service."""

    async def start(self) -> None: ...

    async def stop(self, grace: float | None) -> None:
        """Let calls end for so long; None ends them at once."""
        ...


class Server(uvicorn.Server):
    """Runs the HTTP service until it is told to stop, and gRPC beside it if it was told to listen for that.

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
        self._security = secured = security or Security()
        self.service: Service = Service(engine, longest_wait=longest_wait, policy=secured.delivery_policy)
        self._guard = secured.guard(self.service)  # one for all protocols, so that rates are counted together
        self._beside: Beside | None = None
        app = http_app(
            self.service,
            version=version,
            guard=self._guard,
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

    def listen_for_grpc(self, address: Address) -> int:
        """Take the port for gRPC, on the event loop; raises ConfigError if it cannot be had."""
        try:
            from forebay.service.grpc.server import GrpcServer  # noqa: PLC0415 - it stands on an extra of its own
        except ModuleNotFoundError as exc:
            raise ConfigError(
                f"gRPC needs {exc.name}, which is not installed: pip install 'forebay[grpc]'"
            ) from exc
        secured = self._security
        beside = GrpcServer(self.service, self._guard)
        port = beside.listen(
            address.host, address.port, certificate=secured.certificate, private_key=secured.private_key
        )
        self._beside = beside
        return port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._beside is not None and self.started:
            await self._beside.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Before anybody is waited for: a long poll would hold up the stop for as long as it may wait.
        self.service.refuse()
        if self._beside is not None:
            self._close_doors(sockets)
            # First: the library's own stop ends with that of the service.
            await self._stop_beside(self._beside)
        hastened = asyncio.ensure_future(self._let_go_in_haste())
        try:
            await super().shutdown(sockets)
        finally:
            hastened.cancel()
        if self.force_exit:  # then nobody stops the service in order
            self.service.desk.break_off()

    async def _let_go_in_haste(self) -> None:
        """The library leaves connections open then, and since Python 3.12 a closed door waits for them."""
        while True:
            await asyncio.sleep(_HASTE_SECONDS)
            for connection in list(self.server_state.connections) if self.force_exit else ():
                connection.transport.abort()

    def _close_doors(self, sockets: list[socket.socket] | None) -> None:
        """What the library's own stop begins with: else HTTP would take requests until gRPC has ended, and
        have no time left for them."""
        for door in (*self.servers, *(sockets or ())):
            door.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    async def _stop_beside(self, beside: Beside) -> None:
        loop = asyncio.get_running_loop()
        grace, begun = self.config.timeout_graceful_shutdown or 0, loop.time()
        stopping = asyncio.ensure_future(beside.stop(grace))
        while not stopping.done() and not self.force_exit:
            await asyncio.wait((stopping,), timeout=_HASTE_SECONDS)
        if self.force_exit:
            await beside.stop(None)
        await stopping
        # HTTP has had this time as well, and has the rest; at least enough to see that all have ended.
        self.config.timeout_graceful_shutdown = max(_LEAST_SECONDS, grace - round(loop.time() - begun))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The library's own takes only a second SIGINT for haste.
        self.force_exit: bool = self.should_exit
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
    grpc: Address | None = None,
    grace: int = GRACE_SECONDS,
    security: Security | None = None,
    tell: Callable[[str], None] = lambda _: None,
    around: Around | None = None,
) -> None:
    """Serve until a signal says stop; `tell` hears each address. Raises ConfigError for one that cannot
    be."""
    secured = security or Security()
    secured.check()
    for one in (address, grpc or address):
        _check_reach(one, secured)

    async def run(listener: socket.socket) -> None:
        server = Server(engine, version=version, grace=grace, security=secured, around=around)
        port = None if grpc is None else server.listen_for_grpc(grpc)
        tell(_told(secured.scheme, *listener.getsockname()[:2]))
        if grpc is not None and port is not None:
            tell(_told("grpc" if secured.certificate is None else "grpcs", grpc.host, port))
        # A full collection would go through all that was loaded, again and again and for nothing, and whoever
        # has asked for something meanwhile waits for it.
        gc.collect()
        gc.freeze()
        await server.serve([listener])

    allow_connections()
    with listening(address) as listener:
        asyncio.run(run(listener))


def allow_connections() -> None:
    """Let this process have as many open files as the system allows: each client that waits is one, and the
    usual thousand would refuse the next."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems name no bound and still refuse it; then it stays as it was.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check_reach(address: Address, secured: Security) -> None:
    if not address.is_loopback and not secured.asks_for_keys:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and nobody would have to say who they are; "
            "ask for keys (--keys), or listen on 127.0.0.1"
        )


def _told(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def listening(address: Address) -> socket.socket:
    """A socket that listens; raises ConfigError if it cannot."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as exc:
        raise ConfigError(
            f"cannot listen on {address.host} port {address.port}: {exc}; name another port (--port), or "
            "0 for one that is free"
        ) from exc
