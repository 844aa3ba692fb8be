"""Policy for deliveries of alerts: allowed addresses, and the folder of secrets.

Channels are set over the network and delivered from inside of it. Without a policy an administrator of alerts
could send requests to metadata services, databases and loopback (server-side request forgery).
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

from forebay.errors import ConfigError

IpAddress: TypeAlias = IPv4Address | IPv6Address
IpNetwork: TypeAlias = IPv4Network | IPv6Network

# RFC 6052: the last 32 bits are the IPv4 address that a translator connects to.
_NAT64: Final = IPv6Network("64:ff9b::/96")
# Metadata services with addresses that Python (Oracle's, before 3.11.9) or IANA (Azure's) counts as public.
_METADATA: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))
_IPV4_BITS: Final = 0xFFFF_FFFF


class DeliveryPolicy(NamedTuple):
    """Policy of deliveries: they connect to public addresses and to `networks`. Secrets written as
    `file:PATH` are read from `secrets_folder` alone."""

    networks: tuple[IpNetwork, ...] = ()
    secrets_folder: str | None = None

    def allows(self, text: str) -> bool:
        """Return whether a delivery may connect to this address."""
        address = ip_address(text)
        target = _target(address)
        return is_public(target) or any(
            candidate in network for candidate in (address, target) for network in self.networks
        )


def parse_policy(networks: str | Iterable[str] = (), secrets_folder: str | None = None) -> DeliveryPolicy:
    """Parse the policy of a program; networks as `10.1.0.0/16`, in a sequence or separated by commas.
    Raises ConfigError."""
    texts = networks.split(",") if isinstance(networks, str) else networks
    if secrets_folder is not None and not secrets_folder.startswith("/"):
        raise ConfigError(f"the folder of secrets needs an absolute path, not {secrets_folder!r:.200}")
    return DeliveryPolicy(
        tuple(_parse_network(text.strip()) for text in texts if text.strip()), secrets_folder
    )


def is_public(address: IpAddress) -> bool:
    """Return whether this is a public unicast address. Refused are loopback, private, link-local (with cloud
    metadata), unique local, carrier-grade NAT, multicast and reserved ranges."""
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    is_special = address.is_multicast or address.is_reserved or is_site_local
    return address.is_global and not is_special and not any(address in network for network in _METADATA)


def _target(address: IpAddress) -> IpAddress:
    """Return the IPv4 address that a mapped, 6to4 or NAT64 address leads to; others as they are."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _IPV4_BITS)
    return address.ipv4_mapped or address.sixtofour or address


def _parse_network(text: str) -> IpNetwork:
    try:
        return ip_network(text)
    except ValueError as exc:
        raise ConfigError(f"{text!r:.60} is no network ({exc}): write 10.1.0.0/16 or 10.1.2.3") from None
