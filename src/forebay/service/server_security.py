"""Access to a server and its protection: keys, TLS, sessions, allowed hosts and bounds on connections."""

from __future__ import annotations

import resource
from typing import Final
from urllib.parse import urlsplit

import msgspec

from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy
from forebay.domain.api_key import DEFAULT_QUOTA, Quota
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.login_session import SessionLimits
from forebay.domain.openid_roles import OpenIdSettings
from forebay.errors import ConfigError
from forebay.service.auth import OPEN_RATE, Authenticator, KeyAuthenticator, OpenAccess
from forebay.service.client_rates_and_quotas import ClientRateLimiter
from forebay.service.loopback import is_loopback
from forebay.service.resources.logins import LoginSettings
from forebay.service.service import Service
from forebay.service.slots_by_address import AddressSlots
from forebay.service.tls_certificates import Certificates, ClientCertificate

DEFAULT_PORT: Final = 8080
# Open connections over each protocol, and over HTTP by address. The store needs file descriptors, too.
MAX_CONNECTIONS: Final = 20_000
MAX_CONNECTIONS_PER_ADDRESS: Final = 1_000
_OTHER_FILES: Final = 256
_HSTS: Final = ("Strict-Transport-Security", "max-age=31536000")


class ListenAddress(msgspec.Struct, frozen=True):
    """Address of a listener; with port 0 the system chooses a port."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it."""
        return is_loopback(self.host)


class ServerSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """Access to a server, and its protection.

    With `requires_keys` each client shows an API key. Without it, every client that reaches the server under
    its address or one of `allowed_hosts` is an administrator. `rate` and `quota` apply to keys without their
    own. `debug` adds the debug routes for administrators.

    With a certificate (and its key, if that is a file of its own) the server speaks TLS only. `client_ca`
    asks clients for certificates, whose common name stands for the key of that name. `behind_tls_proxy` says
    that a proxy terminates TLS; `public_url` is the address that browsers use.

    `max_connections_per_address` None is 1,000 where addresses tell clients apart: not on loopback, and not
    behind a proxy. The delivery policy names the hosts that alerts may be sent to. `sessions` limits browser
    sessions; `openid` is a login provider.
    """

    requires_keys: bool = False
    allowed_hosts: frozenset[str] = frozenset()
    rate: Limit | None = None
    quota: Quota = DEFAULT_QUOTA
    debug: bool = False
    certificate: str | None = None
    private_key: str | None = None
    delivery_policy: DeliveryPolicy | None = None
    client_ca: str | None = None
    client_certificate: ClientCertificate = "required"
    behind_tls_proxy: bool = False
    public_url: str | None = None
    access_log: bool = False
    max_connections: int = MAX_CONNECTIONS
    max_connections_per_address: int | None = None
    sessions: SessionLimits = SessionLimits()
    openid: OpenIdSettings | None = None

    @property
    def certificates(self) -> Certificates | None:
        """TLS files; None without TLS."""
        if self.certificate is None:
            return None
        return Certificates(
            certificate=self.certificate,
            private_key=self.private_key,
            client_ca=self.client_ca,
            client_certificate=self.client_certificate,
        )

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"

    @property
    def is_public_https(self) -> bool:
        """Whether `public_url` is an https URL."""
        return self.public_url is not None and self.public_url.lower().startswith("https:")

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the server over TLS."""
        return self.certificate is not None or self.behind_tls_proxy or self.is_public_https

    @property
    def logins(self) -> LoginSettings:
        """Settings of browser logins."""
        return LoginSettings(
            limits=self.sessions,
            is_secure=self.is_secure,
            public_url=self.public_url,
            openid=self.openid,
        )

    def guard(self, service: Service) -> Authenticator:
        """Return the authenticator for this service."""
        clock = service.pool.clock
        rates = ClientRateLimiter(self.rate, clock, self.quota)
        # A proxy has one address for all its clients: one of them could use up the rate of its health probes.
        open_rate = None if self.behind_tls_proxy else OPEN_RATE
        if self.requires_keys:
            return KeyAuthenticator(service.pool, clock, rates, open_rate, service.logins.cache)
        return OpenAccess(rates, open_rate)

    def check(self) -> None:
        """Raise ConfigError for a contradiction, before the server listens."""
        if self.public_url is not None:
            _check_public_url(self.public_url)
        if self.openid is not None and not (self.requires_keys and self.public_url):
            raise ConfigError(
                "--oidc-issuer needs --require-keys and --public-url, to which the provider leads back"
            )
        found = self.certificates
        if found is not None:
            found.load()
        elif self.private_key is not None:
            raise ConfigError("a private key goes with a certificate (--certificate)")
        elif self.client_ca is not None:
            raise ConfigError("--client-ca needs TLS: name the server's own certificate (--certificate)")

    def counts_addresses(self, address: ListenAddress) -> bool:
        """Return whether a connection's address tells clients apart. On loopback and behind a proxy, many
        clients share one address."""
        return not address.is_loopback and not self.behind_tls_proxy

    @property
    def available_connections(self) -> int:
        """Connections that this process may have open over each protocol."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self.max_connections
        return max(1, min(self.max_connections, files - _OTHER_FILES))

    def connection_slots(self, address: ListenAddress) -> AddressSlots:
        """Return the slots of connections for a listener at this address."""
        max_per_address = self.max_connections_per_address
        if max_per_address is None and self.counts_addresses(address):
            max_per_address = MAX_CONNECTIONS_PER_ADDRESS
        return AddressSlots(self.available_connections, max_per_address)

    def headers(self, address: ListenAddress) -> list[tuple[str, str]]:
        """Return headers for every answer. Browsers apply HSTS to all ports of a host, so loopback gets
        none."""
        is_https = self.certificate is not None and not address.is_loopback
        return [_HSTS] if is_https or self.is_public_https else []


def check_exposure(address: ListenAddress, secured: ServerSecurity) -> None:
    """Raise ConfigError for an address beyond this machine without keys or without TLS."""
    if address.is_loopback:
        return
    if not secured.requires_keys:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and clients would need no API key; "
            "ask for keys (--require-keys), or listen on 127.0.0.1"
        )
    if secured.certificate is None and not secured.behind_tls_proxy:
        raise ConfigError(
            f"{address.host} can be reached from other machines, and API keys would be sent unencrypted; "
            "speak TLS (--certificate), listen on 127.0.0.1, or say that a proxy speaks TLS with all "
            "clients (--behind-tls-proxy)"
        )


def _check_public_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_right = False
    if not is_right or "@" in url or "?" in url or "#" in url:
        raise ConfigError(
            f"--public-url takes the address that browsers use, such as https://jobs.example.org, "
            f"and not {url!r:.200}"
        )
