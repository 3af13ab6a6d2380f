"""Which addresses may be connected to. The address is checked, not the name.

A name is resolved once and only addresses that pass are handed on to the connector, so a name
that changes its answer between check and use gains nothing. The socket is checked again, which
covers hosts written as addresses in any spelling.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from streams.errors import BadSetting

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NETWORKS_REFUSED: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, and the metadata service of some clouds
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, and the metadata service of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",  # unspecified, loopback, and addresses with a v4 address at their end
        "64:ff9b:1::/48",  # local NAT64
        "100::/64",
        "2001::/23",  # Teredo and other special purposes
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
"""The IANA special-purpose registries as of 2025, plus what is retired but still routed."""

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


class EgressRefused(OSError):
    """The destination's address is not allowed. Name its network in MINUTEWHEEL_EGRESS_ALLOW."""


class Egress:
    """The rule: public addresses, and what the operator allowed."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """`allowed` are networks such as `10.0.0.0/8`; `BadSetting` if one is none."""
        self._allowed = [_network(text) for text in allowed]

    def allows(self, text: str) -> bool:
        """Whether an address may be connected to. What is not an address in full is refused."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        forms = list(_forms(address))
        if any(form in network for form in forms for network in self._allowed):
            return True
        return not any(
            form in network for form in forms for network in _NETWORKS_REFUSED
        ) and not any(form.is_multicast or form.is_reserved for form in forms)

    def open_socket(self, info: Any) -> socket.socket:
        """The connector's socket factory: the last look at the address before connecting."""
        family, kind, protocol, _, address = info
        if not self.allows(str(address[0])):
            raise EgressRefused("the address is not allowed")
        return socket.socket(family=family, type=kind, proto=protocol)


class CheckedResolver(AbstractResolver):
    """Resolves names to those of their addresses that may be connected to."""

    def __init__(self, egress: Egress, resolver: AbstractResolver | None = None) -> None:
        self._egress = egress
        self._resolver = ThreadedResolver() if resolver is None else resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The allowed addresses of a name; `EgressRefused` if there are only others."""
        found = await self._resolver.resolve(host, port, family)
        passed = [place for place in found if self._egress.allows(place["host"])]
        if found and not passed:
            raise EgressRefused("none of the name's addresses is allowed")
        return passed

    async def close(self) -> None:
        """Close the resolver underneath."""
        await self._resolver.close()


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise BadSetting(f"egress_allow: {text!r} is not a network such as 10.0.0.0/8") from None


def _forms(address: Address) -> Iterator[Address]:
    """What an address stands for: itself, or the v4 address that it carries.

    ::ffff:a.b.c.d and NAT64 lead to a.b.c.d and are judged by it. 6to4 and Teredo are judged by
    both; as they are retired, that means refused unless allowed by name.
    """
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    if address in _NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return
    yield address
