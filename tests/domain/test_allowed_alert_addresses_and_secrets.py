"""Addresses that deliveries of alerts may connect to."""

from __future__ import annotations

import pytest

from forebay.domain.allowed_alert_addresses_and_secrets import DeliveryPolicy, parse_policy
from forebay.errors import ConfigError

PUBLIC = [
    "93.184.216.34",
    "2606:2800:220:1::1",
    "::ffff:93.184.216.34",
    "64:ff9b::5db8:d822",
    "2002:5db8:d822::1",
]
REFUSED = {
    "loopback": ["127.0.0.1", "127.8.8.8", "::1"],
    "this host": ["0.0.0.0", "0.1.2.3", "::"],  # noqa: S104 - to call
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%eth0"],
    "unique local": ["fc00::1", "fd00:ec2::254"],
    "site-local": ["fec0::1"],
    "carrier-grade NAT": ["100.64.0.1", "100.100.100.200"],
    "metadata": ["168.63.129.16", "192.0.0.192"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "2001:db8::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"],
    "compatible": ["::127.0.0.1", "::a00:1"],
    "6to4": ["2002:7f00:1::", "2002:a9fe:a9fe::1"],
    "NAT64": ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
}


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert DeliveryPolicy().allows(address)


@pytest.mark.parametrize(
    "address", [pytest.param(one, id=f"{kind} {one}") for kind, ones in REFUSED.items() for one in ones]
)
def test_other_addresses_are_refused(address: str) -> None:
    assert not DeliveryPolicy().allows(address)


def test_networks_are_allowed_by_name() -> None:
    policy = parse_policy("10.1.0.0/16, 127.0.0.1,,fd00::/8")

    allowed = ("10.1.2.3", "127.0.0.1", "fd12::1", "::ffff:10.1.2.3", "64:ff9b::a01:203", "93.184.216.34")
    assert [policy.allows(address) for address in allowed] == [True] * 6
    assert [policy.allows(address) for address in ("10.2.0.1", "127.0.0.2", "fe80::1")] == [False] * 3


def test_networks_may_come_one_by_one() -> None:
    assert parse_policy(["10.1.0.0/16", "::1"]) == parse_policy("10.1.0.0/16,::1")
    assert parse_policy() == DeliveryPolicy()


@pytest.mark.parametrize("text", ["10.1.0.1/16", "intranet", "10.0.0.0/33", "10.0.0.0-10.0.0.9"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no network .*: write 10\.1\.0\.0/16 or 10\.1\.2\.3"):
        parse_policy(text)


def test_the_folder_of_secrets_has_an_absolute_path() -> None:
    assert parse_policy((), "/run/secrets").secrets_folder == "/run/secrets"
    with pytest.raises(ConfigError, match="needs an absolute path, not 'secrets'"):
        parse_policy((), "secrets")
