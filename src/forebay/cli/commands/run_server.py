"""`forebay server`: serve jobs over HTTP and gRPC until a stop signal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import click

from forebay import __version__
from forebay.cli.allowed_alert_address_and_secret_options import delivery_options, delivery_policy
from forebay.cli.log_options import log_options, set_up_logs
from forebay.cli.oidc_options import build_oidc_settings, oidc_options
from forebay.cli.options import DurationParam, quota_options, with_store
from forebay.cli.output import Output
from forebay.cli.platform_check import not_on_windows
from forebay.cli.store_session import StoreSession
from forebay.dashboard.static_files import NOT_BUILT, StaticFiles, is_built
from forebay.domain.api_key import DEFAULT_QUOTA, Quota
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.login_session import SessionLimits
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

    from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy
    from forebay.telemetry.log_setup import LogFormat

logger: logging.Logger = logging.getLogger(__name__)

MAX_PORT: Final = 65_535
MAX_SHUTDOWN_SECONDS: Final = 3_600
PER_KEY: Final = "max_connections_per_key"  # `--max-connections` is the bound of all clients together


@click.command(epilog="Example: `forebay server --url sqlite:///jobs.db --port 8080`.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; beyond loopback only with --require-keys and TLS.",
)
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    default=8_080,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--grpc",
    metavar="HOST:PORT",
    help="Serve gRPC on this address; beyond loopback only with --require-keys and TLS.",
)
@click.option(
    "--shutdown-timeout",
    type=click.IntRange(0, MAX_SHUTDOWN_SECONDS),
    default=25,
    show_default=True,
    help="Seconds to let requests finish on a stop.",
)
@click.option(
    "--require-keys", is_flag=True, help="Serve only clients with an API key; `forebay keys` creates keys."
)
@click.option("--rate", type=int, help="Requests per second of each client whose key has no rate.")
@click.option("--burst", type=int, help="Requests at once; default: twice the rate.")
@quota_options("of each client whose key has no such limit", DEFAULT_QUOTA, PER_KEY)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Without --require-keys: a Host name that a proxy sends; may be repeated.",
)
@click.option("--certificate", metavar="FILE", help="TLS certificate (PEM, with its chain).")
@click.option(
    "--private-key", metavar="FILE", help="Private key of the certificate, if it is in a separate file."
)
@click.option(
    "--client-ca",
    metavar="FILE",
    help="Request client certificates of this authority; the common name is the name of an API key.",
)
@click.option(
    "--client-certificate",
    type=click.Choice(["required", "optional"]),
    default="required",
    show_default=True,
    help="With --client-ca: whether a client must show one. If optional, gRPC requests none.",
)
@click.option(
    "--behind-tls-proxy", is_flag=True, help="A proxy in front of this server speaks TLS with all clients."
)
@click.option("--public-url", metavar="URL", help="URL that browsers use, such as https://jobs.example.org.")
@click.option(
    "--session-idle",
    type=DurationParam(),
    default="30m",
    show_default=True,
    help="A login to the dashboard expires after this time without use.",
)
@click.option(
    "--session-lasts",
    type=DurationParam(),
    default="12h",
    show_default=True,
    help="A login to the dashboard expires after this time in any case.",
)
@oidc_options
@click.option("--access-log", is_flag=True, help="Log each request.")
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="Open connections, over HTTP and over gRPC each.",
)
@click.option(
    "--max-connections-each",
    type=click.IntRange(1),
    help="Open HTTP connections of one address; default: 1000 beyond loopback without a proxy, "
    "else no limit.",
)
@click.option("--debug", is_flag=True, help="Serve debugging information below /v1/debug.")
@click.option("--dashboard/--no-dashboard", default=True, show_default=True, help="Serve the dashboard.")
@delivery_options
@log_options
@not_on_windows
@with_store(create=True)
def server(
    session: StoreSession, out: Output, log_format: LogFormat | None, log_level: str | None, **options: Any
) -> None:
    """Serve jobs over HTTP and gRPC until a stop signal.

    Programs in any language enqueue, claim and settle jobs; /openapi/v1.json describes the API. The dashboard
    is at /dashboard. Any number of servers may run on one store. SIGTERM or SIGINT: end long polls and let
    other requests finish; a second signal stops at once.
    """
    set_up_logs(log_format, log_level, session.settings)
    server_module = _load_server_module()
    if options["dashboard"] and not is_built():
        logger.warning(NOT_BUILT)

    location = session.engine.location

    def print_address(address: str) -> None:
        out.print_message({"address": address, "store": location}, f"serving {location} at {address}")

    address = server_module.ListenAddress(options["host"], options["port"])
    security = server_module.ServerSecurity(
        requires_keys=options["require_keys"],
        allowed_hosts=frozenset(host.lower() for host in options["allowed_hosts"]),
        rate=_build_rate_limit(options["rate"], options["burst"]),
        quota=Quota(
            **{name: options[name] for name in Quota.__struct_fields__}
            | {"max_connections": options[PER_KEY]}
        ),
        certificate=options["certificate"],
        private_key=options["private_key"],
        client_ca=options["client_ca"],
        client_certificate=options["client_certificate"],
        behind_tls_proxy=options["behind_tls_proxy"],
        public_url=options["public_url"],
        sessions=SessionLimits(idle_ms=options["session_idle"], lasts_ms=options["session_lasts"]),
        openid=build_oidc_settings(options),
        access_log=options["access_log"],
        max_connections=options["max_connections"],
        max_connections_per_address=options["max_connections_each"],
        debug=options["debug"],
        delivery_policy=_build_delivery_policy(session, options),
    )
    server_module.serve(
        session.engine,
        address,
        version=__version__,
        grpc=None
        if options["grpc"] is None
        else server_module.ListenAddress(*_parse_address(options["grpc"])),
        shutdown_timeout=options["shutdown_timeout"],
        security=security,
        notify=print_address,
        wrap_app=StaticFiles if options["dashboard"] else None,
    )


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        raise ConfigError(f"--grpc takes HOST:PORT, such as 127.0.0.1:9090, not {text!r:.100}")
    return host, int(port)


def _build_delivery_policy(session: StoreSession, options: dict[str, Any]) -> DeliveryPolicy | None:
    defaults = session.settings.worker_defaults()
    networks, folder = (
        options[name] or defaults.get(name) for name in ("allow_webhooks_to", "secrets_folder")
    )
    return delivery_policy(networks, folder, session.delivery_policy)


def _build_rate_limit(rate: int | None, burst: int | None) -> Limit | None:
    if rate is None:
        if burst is not None:
            raise ConfigError("--burst works only with --rate")
        return None
    return Limit(scope="global", rate=rate, burst=burst)


def _load_server_module() -> ModuleType:
    try:
        from forebay.service import server as server_module  # noqa: PLC0415 - what it stands on is an extra
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"the server needs {exc.name}, which is not installed: pip install 'forebay[server]'"
        ) from exc
    return server_module
