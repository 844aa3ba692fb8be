"""gRPC server, on the event loop of the HTTP server."""

from __future__ import annotations

from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from forebay.errors import ConfigError
from forebay.service.auth import Authenticator
from forebay.service.grpc.health import NAME as HEALTH
from forebay.service.grpc.health import HealthServicer
from forebay.service.grpc.keyless_call_limits import MAX_OPEN_CALLS, MAX_OPEN_CALLS_PER_ADDRESS, OpenCalls
from forebay.service.grpc.message_arrival_turns import MAX_MESSAGE, WINDOW_BYTES
from forebay.service.grpc.method_table import SERVICES
from forebay.service.grpc.reflection import Reflection
from forebay.service.grpc.servicer import PACKAGE, Servicer
from forebay.service.service import Service
from forebay.service.slots_by_address import AddressSlots
from forebay.service.tls_certificates import Certificates, FileBackedValue

# Calls in flight, nearly all of which wait for jobs. More are refused at once: each costs memory, and a
# server without memory serves no client.
MAX_CALLS: Final = 20_000
SILENT_MS: Final = 30_000
MAX_STREAMS: Final = 1_000  # concurrent calls on one connection; beyond it a client queues or connects again
IDLE_MS: Final = 300_000
# A connection is asked to end after this time; its calls get as much time as the longest stream over HTTP.
AGE_MS: Final = 3_600_000
AGE_GRACE_MS: Final = 600_000
MAX_CONNECTIONS: Final = "grpc.max_allowed_incoming_connections"
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # A stream holds this much that no handler has read. The probe would let it grow to megabytes.
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ("grpc.http2.bdp_probe", 0),
    # Two servers on one port would each get a part of the calls, without any error.
    ("grpc.so_reuseport", 0),
    # A client that has vanished is noticed, so that its calls end.
    ("grpc.keepalive_time_ms", SILENT_MS),
    ("grpc.keepalive_timeout_ms", SILENT_MS // 3),
    # Clients may ping the server just as often.
    ("grpc.http2.min_ping_interval_without_data_ms", SILENT_MS // 3),
    ("grpc.server_handshake_timeout_ms", SILENT_MS),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.max_connection_idle_ms", IDLE_MS),
    ("grpc.max_connection_age_ms", AGE_MS),
    ("grpc.max_connection_age_grace_ms", AGE_GRACE_MS),
)


class GrpcServer:
    """gRPC server, created on an event loop. It starts after the service and stops before it.

    Reflection tells every client all methods, so it needs `debug`. `counts_addresses` limits calls without a
    key by address; not behind a proxy, which has one address for all its clients.
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
        max_connections: int | None = None,
    ) -> None:
        self._certificates = certificates
        options = OPTIONS if max_connections is None else (*OPTIONS, (MAX_CONNECTIONS, max_connections))
        self._server: Any = grpc.aio.server(options=options, maximum_concurrent_rpcs=MAX_CALLS)
        max_per_address = MAX_OPEN_CALLS_PER_ADDRESS if counts_addresses else None
        calls = OpenCalls(guard, AddressSlots(MAX_OPEN_CALLS, max_per_address))
        health = HealthServicer(service, calls)
        requests_client_certificates = certificates is not None and certificates.requests_client_certificates
        servicer = Servicer(
            service, guard, reads_certificates=requests_client_certificates, logs_access=logs_access
        )
        self._server.add_generic_rpc_handlers((*servicer.handlers(), health.handler()))
        if debug:
            names = (*(f"{PACKAGE}.{name}" for name in SERVICES), HEALTH, reflection.SERVICE_NAME)
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(Reflection(names, calls), self._server)

    def listen(self, host: str, port: int) -> int:
        """Open a port, any free one if it is 0, and return it; raises ConfigError."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certificates is None:
                opened: int = self._server.add_insecure_port(target)
            else:
                opened = self._server.add_secure_port(target, _credentials(self._certificates))
            return opened
        except (RuntimeError, OSError) as exc:
            raise ConfigError(f"cannot listen on {host} port {port}: {exc}") from exc

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """Accept no new calls, and give the others this time to end. May be called twice."""
        await self._server.stop(grace)


def _credentials(certificates: Certificates) -> Any:
    """Return credentials that are read again when their files change; the library asks before each handshake.

    With optional client certificates the library requests none, so only required ones are read here.
    """

    def configuration() -> Any:
        key, chain, authority = certificates.pem()
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=authority)

    files = FileBackedValue(certificates.paths, configuration)
    current = first = files.current()

    def fetch_changed() -> Any:
        nonlocal current
        # None keeps the library's certificate: loading one costs as much as a handshake.
        before, current = current, files.current()
        return None if current is before else current

    return grpc.dynamic_ssl_server_credentials(
        first, fetch_changed, certificates.requests_client_certificates
    )
