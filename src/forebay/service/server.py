"""Server process: uvicorn on an event loop of its own, with an orderly stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final, Protocol, cast

import uvicorn

from forebay.errors import ConfigError
from forebay.service.http.access_log import AccessLog
from forebay.service.http.app import http_app
from forebay.service.http.connection_timeouts import TimedConnection
from forebay.service.schema.base import LONGEST_WAIT_SECONDS
from forebay.service.server_security import ListenAddress, ServerSecurity, check_exposure
from forebay.service.service import Service
from forebay.service.tls_certificates import make_reloading_context
from forebay.stores.contract.engine import Engine

SHUTDOWN_TIMEOUT_SECONDS: Final = 25
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
BACKLOG: Final = 2_048
_FORCE_EXIT_POLL_SECONDS: Final = 0.1  # delay until a second signal is noticed
_MIN_STOP_SECONDS: Final = 1
_M_MMAP_THRESHOLD: Final = -3  # of malloc.h
_LARGE_BLOCK: Final = 262_144
AppWrapper = Callable[[Any], Any]  # an ASGI app from another one


class ProtocolServer(Protocol):
    """Server for another protocol, on the same event loop and with the same service."""

    async def start(self) -> None: ...

    async def stop(self, grace: float | None) -> None:
        """Give calls this time to end; None ends them at once."""
        ...


class Server(uvicorn.Server):
    """HTTP server that runs until it is stopped, with gRPC on the same event loop if requested.

    `wrap_app` may put something before the app, such as the dashboard. The first SIGTERM or SIGINT ends long
    polls with an empty answer and gives requests `shutdown_timeout` seconds; a second one does not wait for
    them.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        version: str,
        shutdown_timeout: int = SHUTDOWN_TIMEOUT_SECONDS,
        security: ServerSecurity | None = None,
        longest_wait: float = LONGEST_WAIT_SECONDS,
        wrap_app: AppWrapper | None = None,
        address: ListenAddress | None = None,
    ) -> None:
        self._security = secured = security or ServerSecurity()
        self.service: Service = Service(
            engine,
            longest_wait=longest_wait,
            policy=secured.delivery_policy,
            logins=secured.logins,
        )
        self._guard = secured.guard(self.service)  # shared by all protocols, so that rates count together
        self._protocol_server: ProtocolServer | None = None
        where = address or ListenAddress()
        app: Any = http_app(
            self.service,
            version=version,
            guard=self._guard,
            hosts=secured.allowed_hosts,
            debug=secured.debug,
        )
        app = app if wrap_app is None else wrap_app(app)
        certificates = secured.certificates
        super().__init__(
            uvicorn.Config(
                AccessLog(app, self.service.pool.clock) if secured.access_log else app,
                # uvicorn takes no context, only file names or a factory.
                ssl_context_factory=None
                if certificates is None
                else lambda *_: make_reloading_context(certificates),
                headers=secured.headers(where),
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                http=cast(
                    "type[asyncio.Protocol]",
                    partial(
                        TimedConnection,
                        slots=secured.connection_slots(where),
                        refusals=self.service.refusals,
                    ),
                ),
                ws="none",
                timeout_graceful_shutdown=shutdown_timeout,
            )
        )

    def listen_for_grpc(self, address: ListenAddress) -> int:
        """Open the gRPC port on the event loop and return it; raises ConfigError."""
        try:
            from forebay.service.grpc.server import GrpcServer  # noqa: PLC0415 - needs an extra
        except ModuleNotFoundError as exc:
            raise ConfigError(
                f"gRPC needs {exc.name}, which is not installed: pip install 'forebay[grpc]'"
            ) from exc
        secured = self._security
        grpc_server = GrpcServer(
            self.service,
            self._guard,
            certificates=secured.certificates,
            debug=secured.debug,
            counts_addresses=secured.counts_addresses(address),
            logs_access=secured.access_log,
            max_connections=secured.available_connections,
        )
        port = grpc_server.listen(address.host, address.port)
        self._protocol_server = grpc_server
        return port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._protocol_server is not None and self.started:
            await self._protocol_server.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # First: a long poll would delay the stop for as long as it may wait.
        self.service.end_waits()
        if self._protocol_server is not None:
            self._close_listeners(sockets)
            # Before uvicorn's own shutdown, which ends with the stop of the service.
            await self._stop_protocol_server(self._protocol_server)
        aborting = asyncio.ensure_future(self._abort_on_force_exit())
        try:
            await super().shutdown(sockets)
        finally:
            aborting.cancel()
        if self.force_exit:  # uvicorn has then skipped the orderly stop of the service
            self.service.pool.break_off()

    async def _abort_on_force_exit(self) -> None:
        """Abort connections after a second signal: uvicorn leaves them open, and since Python 3.12 a closed
        listener waits for them."""
        while True:
            await asyncio.sleep(_FORCE_EXIT_POLL_SECONDS)
            for connection in list(self.server_state.connections) if self.force_exit else ():
                connection.transport.abort()

    def _close_listeners(self, sockets: list[socket.socket] | None) -> None:
        """Close the listeners as uvicorn's shutdown does first. Else HTTP would accept requests until gRPC
        has ended, and have no time left for them."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    async def _stop_protocol_server(self, server: ProtocolServer) -> None:
        loop = asyncio.get_running_loop()
        grace, started_at = self.config.timeout_graceful_shutdown or 0, loop.time()
        stopping = asyncio.ensure_future(server.stop(grace))
        while not stopping.done() and not self.force_exit:
            await asyncio.wait((stopping,), timeout=_FORCE_EXIT_POLL_SECONDS)
        if self.force_exit:
            await server.stop(None)
        await stopping
        # HTTP requests had this time too, and get the rest; at least enough to notice that all have ended.
        elapsed = round(loop.time() - started_at)
        self.config.timeout_graceful_shutdown = max(_MIN_STOP_SECONDS, grace - elapsed)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn's own handler forces the exit only for a second SIGINT.
        self.force_exit: bool = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own method raises the signal again after the stop, which would kill the program.
        with ExitStack() as stack:
            # Signals reach the main thread only; on another thread the starter sets `should_exit`.
            for number in _STOPS if current_thread() is main_thread() else ():
                stack.callback(signal.signal, number, signal.signal(number, self.handle_exit))
            yield


def serve(
    engine: Engine,
    address: ListenAddress,
    *,
    version: str,
    grpc: ListenAddress | None = None,
    shutdown_timeout: int = SHUTDOWN_TIMEOUT_SECONDS,
    security: ServerSecurity | None = None,
    notify: Callable[[str], None] = lambda _: None,
    wrap_app: AppWrapper | None = None,
) -> None:
    """Serve until a signal stops the server; `notify` gets each URL. Raises ConfigError for an unusable
    address."""
    secured = security or ServerSecurity()
    secured.check()
    for listen_address in (address, grpc or address):
        check_exposure(listen_address, secured)

    async def run(listener: socket.socket) -> None:
        server = Server(
            engine,
            version=version,
            shutdown_timeout=shutdown_timeout,
            security=secured,
            wrap_app=wrap_app,
            address=address,
        )
        port = None if grpc is None else server.listen_for_grpc(grpc)
        notify(_format_url(secured.scheme, *listener.getsockname()[:2]))
        if grpc is not None and port is not None:
            notify(_format_url("grpc" if secured.certificate is None else "grpcs", grpc.host, port))
        # A full collection would scan all loaded modules each time, find nothing and delay every request.
        gc.collect()
        gc.freeze()
        await server.serve([listener])

    allow_connections()
    return_large_blocks()
    with open_listener(address) as listener:
        asyncio.run(run(listener))


def allow_connections() -> None:
    """Raise the limit of open files to the hard limit: each waiting client is one, and the usual 1,024 are
    too few."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report no hard limit and still refuse it; then the limit stays.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def return_large_blocks() -> None:
    """Return large blocks to the system when they are freed, where the C library can: glibc.

    Otherwise it raises its threshold with each large block that is freed, up to 32 MiB, and keeps the blocks
    below. After many large messages a server then has 100 MiB that it does not use.
    """
    # A static Python has no such function.
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


def _format_url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def open_listener(address: ListenAddress) -> socket.socket:
    """Return a listening socket; raises ConfigError."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as exc:
        raise ConfigError(
            f"cannot listen on {address.host} port {address.port}: {exc}; name another port (--port), or "
            "0 for one that is free"
        ) from exc
