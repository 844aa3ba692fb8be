"""`forebay server`: the service over HTTP and gRPC, until a signal says stop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import click

from forebay import __version__
from forebay.cli.delivery_options import delivery_options, delivery_policy
from forebay.cli.logs import log_options, set_up_logs
from forebay.cli.oidc import build_oidc_settings, oidc_options
from forebay.cli.options import DurationParam, quota_options, with_store
from forebay.cli.output import Output
from forebay.cli.platform_check import not_on_windows
from forebay.cli.store_session import StoreSession
from forebay.dashboard.static_files import NOT_BUILT, StaticFiles, is_built
from forebay.domain.access import DEFAULT_QUOTA, Quota
from forebay.domain.limits import Limit
from forebay.domain.session import SessionLimits
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

    from forebay.domain.delivery import DeliveryPolicy
    from forebay.telemetry.logs import LogFormat

logger: logging.Logger = logging.getLogger(__name__)

MAX_PORT: Final = 65_535
MAX_SHUTDOWN_SECONDS: Final = 3_600


@click.command(epilog="Example: `forebay server --url sqlite:///jobs.db --port 8080`.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen; beyond loopback only with --require-keys and TLS.",
)
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    default=8_080,
    show_default=True,
    help="Where to listen; 0 takes a free one.",
)
@click.option(
    "--grpc",
    metavar="HOST:PORT",
    help="Serve gRPC too, there; beyond loopback only with --require-keys and TLS.",
)
@click.option(
    "--shutdown-timeout",
    type=click.IntRange(0, MAX_SHUTDOWN_SECONDS),
    default=25,
    show_default=True,
    help="Seconds to let requests end on a stop.",
)
@click.option(
    "--require-keys", is_flag=True, help="Serve only clients with an API key; `forebay keys` creates keys."
)
@click.option("--rate", type=int, help="So many requests a second of each client whose key has no rate.")
@click.option("--burst", type=int, help="So many of them at once; else twice the rate.")
@quota_options("of each client whose key says nothing", DEFAULT_QUOTA)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Without --require-keys: a Host name that a proxy sends; may be repeated.",
)
@click.option("--certificate", metavar="FILE", help="Speak TLS with this certificate (PEM, with its chain).")
@click.option("--private-key", metavar="FILE", help="Its key, if that is a file of its own.")
@click.option(
    "--client-ca",
    metavar="FILE",
    help="Ask clients for a certificate of this authority; its common name names their API key.",
)
@click.option(
    "--client-certificate",
    type=click.Choice(["required", "optional"]),
    default="required",
    show_default=True,
    help="With --client-ca: whether a client may come without one. gRPC asks for none if optional.",
)
@click.option(
    "--behind-tls-proxy", is_flag=True, help="A proxy speaks TLS with all clients; this server does not."
)
@click.option(
    "--public-url", metavar="URL", help="The address that browsers use, such as https://jobs.example.org."
)
@click.option(
    "--session-idle",
    type=DurationParam(),
    default="30m",
    show_default=True,
    help="A login to the dashboard ends when it is not used for so long.",
)
@click.option(
    "--session-lasts",
    type=DurationParam(),
    default="12h",
    show_default=True,
    help="A login to the dashboard ends after so long in any case.",
)
@oidc_options
@click.option("--access-log", is_flag=True, help="Log a line for each request.")
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="Open HTTP connections at a time.",
)
@click.option(
    "--max-connections-each",
    type=click.IntRange(1),
    help="The same of one address; 1000 beyond loopback without a proxy, else no limit.",
)
@click.option("--debug", is_flag=True, help="Also what helps to look for a fault, below /v1/debug.")
@click.option("--dashboard/--no-dashboard", default=True, show_default=True, help="The page in a browser.")
@delivery_options
@log_options
@not_on_windows
@with_store(create=True)
def server(
    session: StoreSession, out: Output, log_format: LogFormat | None, log_level: str | None, **options: Any
) -> None:
    """Serve jobs over HTTP, and gRPC, until a signal says stop.

    Programs in any language enqueue, claim and settle jobs; /openapi/v1.json describes how. People look and
    steer at /dashboard in a browser. Any number of
    servers may run beside each other on one store. SIGTERM or SIGINT: end long polls, let other requests end;
    a second one stops at once.
    """
    set_up_logs(log_format, log_level, session.settings)
    serving = _load_server_module()
    if options["dashboard"] and not is_built():
        logger.warning(NOT_BUILT)

    def tell(address: str) -> None:
        place = session.engine.location
        out.print_message({"address": address, "store": place}, f"serving {place} at {address}")

    address = serving.ListenAddress(options["host"], options["port"])
    security = serving.ServerSecurity(
        requires_keys=options["require_keys"],
        allowed_hosts=frozenset(host.lower() for host in options["allowed_hosts"]),
        rate=_build_rate_limit(options["rate"], options["burst"]),
        quota=Quota(**{name: options[name] for name in Quota.__struct_fields__}),
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
    serving.serve(
        session.engine,
        address,
        version=__version__,
        grpc=None if options["grpc"] is None else serving.ListenAddress(*_parse_address(options["grpc"])),
        shutdown_timeout=options["shutdown_timeout"],
        security=security,
        notify=tell,
        wrap_app=StaticFiles if options["dashboard"] else None,
    )


def _parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > MAX_PORT:
        raise ConfigError(f"--grpc takes HOST:PORT, such as 127.0.0.1:9090, and not {text!r:.100}")
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
            raise ConfigError("--burst goes with --rate")
        return None
    return Limit(scope="global", rate=rate, burst=burst)


def _load_server_module() -> ModuleType:
    try:
        from forebay.service import server as serving  # noqa: PLC0415 - what it stands on is an extra
    except ModuleNotFoundError as exc:
        raise ConfigError(
            f"the server needs {exc.name}, which is not installed: pip install 'forebay[server]'"
        ) from exc
    return serving
