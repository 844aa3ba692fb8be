"""A server that speaks gRPC, on the event loop of the one that speaks HTTP."""

from __future__ import annotations

from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from forebay.errors import ConfigError
from forebay.service.auth import Authenticator
from forebay.service.budgets import Budget
from forebay.service.certificates import Certificates, FileBackedValue
from forebay.service.grpc.health import (
    MAX_OPEN_CALLS,
    MAX_OPEN_CALLS_PER_ADDRESS,
    HealthServicer,
    OpenCalls,
    Reflection,
)
from forebay.service.grpc.health import NAME as HEALTH
from forebay.service.grpc.methods import SERVICES
from forebay.service.grpc.servicer import PACKAGE, Servicer
from forebay.service.service import Service

MAX_MESSAGE: Final = 16 * 1_048_576  # as a body over HTTP
# Calls that are under way at a time, nearly all of which wait for jobs. More are refused at once: each costs
# memory, and a server without memory serves no client.
MAX_CALLS: Final = 20_000
SILENT_MS: Final = 30_000
MAX_STREAMS: Final = 1_000  # calls at a time on one connection; a client queues or connects again
IDLE_MS: Final = 300_000
# A connection is asked to end after this; its calls have as long as the longest stream over HTTP.
AGE_MS: Final = 3_600_000
AGE_GRACE_MS: Final = 600_000
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    (
        "grpc.so_reuseport",
        0,
    ),  # else two servers on one port each get some of the calls, with no way to tell which
    # A client that is gone without a word is noticed, and what waits for it ends.
    ("grpc.keepalive_time_ms", SILENT_MS),
    ("grpc.keepalive_timeout_ms", SILENT_MS // 3),
    # Clients may look whether we are there just as often.
    ("grpc.http2.min_ping_interval_without_data_ms", SILENT_MS // 3),
    ("grpc.server_handshake_timeout_ms", SILENT_MS),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.max_connection_age_ms", AGE_MS),
    ("grpc.max_connection_age_grace_ms", AGE_GRACE_MS),
)


class GrpcServer:
    """Made on an event loop. Its start and stop lie within those of the service.

    Reflection names all methods to every client, so it is there only with `debug`. `counts_addresses` bounds
    the calls without a key of each address: not behind a proxy, which has one for all its clients.
    """

    def __init__(
        self,
        service: Service,
        guard: Authenticator,
        *,
        certificates: Certificates | None = None,
        debug: bool = False,
        counts_addresses: bool = True,
        logs_access: bool = False,
    ) -> None:
        self._certificates = certificates
        self._server: Any = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
        each = MAX_OPEN_CALLS_PER_ADDRESS if counts_addresses else None
        calls = OpenCalls(guard, Budget(MAX_OPEN_CALLS, each))
        health = HealthServicer(service, calls)
        asks_clients = certificates is not None and certificates.asks_clients
        answering = Servicer(service, guard, reads_certificates=asks_clients, logs_access=logs_access)
        self._server.add_generic_rpc_handlers((*answering.handlers(), health.handler()))
        if debug:
            names = (*(f"{PACKAGE}.{name}" for name in SERVICES), HEALTH, reflection.SERVICE_NAME)
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(Reflection(names, calls), self._server)

    def listen(self, host: str, port: int) -> int:
        """Take a port, any if it is 0; raises ConfigError if it cannot be had."""
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certificates is None:
                found: int = self._server.add_insecure_port(where)
            else:
                found = self._server.add_secure_port(where, _credentials(self._certificates))
            return found
        except (RuntimeError, OSError) as exc:
            raise ConfigError(f"cannot listen on {host} port {port}: {exc}") from exc

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """Take no new calls and let the others end for so long. Stopping twice is fine."""
        await self._server.stop(grace)


def _credentials(certificates: Certificates) -> Any:
    """Credentials that are read again when their files change; the library asks before each handshake.

    Where client certificates are optional the library asks for none, so only those that are required are
    known here.
    """

    def configuration() -> Any:
        key, chain, authority = certificates.pem()
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authority)

    files = FileBackedValue(certificates.paths, configuration)
    given = first = files.current()

    def renewed() -> Any:
        nonlocal given
        # None goes on with what the library has: to read a certificate into it costs as much as a handshake.
        before, given = given, files.current()
        return None if given is before else given

    return grpc.dynamic_ssl_server_credentials(first, renewed, certificates.asks_clients)
