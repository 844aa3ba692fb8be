"""A server that speaks gRPC, on the event loop of the one that speaks HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection

from forebay.errors import ConfigError
from forebay.service.auth import Admits
from forebay.service.grpc.answering import PACKAGE, Answering
from forebay.service.grpc.health import NAME as HEALTH
from forebay.service.grpc.health import Health
from forebay.service.grpc.methods import SERVICES
from forebay.service.operations.service import Service

MAX_MESSAGE: Final = 16 * 1_048_576  # as a body over HTTP
# Calls that are under way at a time, nearly all of which wait for jobs. More are refused at once: each costs
# memory, and nobody is served by a server that has none left.
MOST_CALLS: Final = 20_000
SILENT_MS: Final = 30_000
OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.so_reuseport", 0),  # else two servers on one port each get some of the calls, and nobody knows
    # A client that is gone without a word is noticed, and what waits for it ends.
    ("grpc.keepalive_time_ms", SILENT_MS),
    ("grpc.keepalive_timeout_ms", SILENT_MS // 3),
    # Clients may look whether we are there just as often.
    ("grpc.http2.min_ping_interval_without_data_ms", SILENT_MS // 3),
    ("grpc.server_handshake_timeout_ms", SILENT_MS),
)


class GrpcServer:
    """Made on an event loop. Its start and stop lie within those of the service."""

    def __init__(self, service: Service, guard: Admits) -> None:
        self._server: Any = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=MOST_CALLS)
        health = Health(service)
        self._server.add_generic_rpc_handlers((*Answering(service, guard).handlers(), health.handler()))
        names = (*(f"{PACKAGE}.{name}" for name in SERVICES), HEALTH, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    def listen(
        self, host: str, port: int, *, certificate: str | None = None, private_key: str | None = None
    ) -> int:
        """Take a port, any if it is 0; raises ConfigError if it cannot be had."""
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if certificate is None:
                found: int = self._server.add_insecure_port(where)
                return found
            # One file may hold both.
            chain, key = Path(certificate).read_bytes(), Path(private_key or certificate).read_bytes()
            found = self._server.add_secure_port(where, grpc.ssl_server_credentials([(key, chain)]))
            return found
        except (RuntimeError, OSError) as exc:
            raise ConfigError(f"cannot listen on {host} port {port}: {exc}") from exc

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """Take no new calls and let the others end for so long. Stopping twice is fine."""
        await self._server.stop(grace)
