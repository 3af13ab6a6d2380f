"""Egress: which addresses may be connected to, in every spelling there is."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from streams.delivery.egress import CheckedResolver, Egress, EgressRefused
from streams.errors import BadSetting

REFUSED = [
    "0.0.0.0",
    "10.1.2.3",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2001:0:1:2:3:4:5:6",
    "2001:db8::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
    # Not addresses in full; a socket would take them for one.
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "",
    "localhost",
]
ALLOWED = [
    "1.1.1.1",
    "8.8.8.8",
    "172.15.255.255",
    "172.32.0.1",
    "2606:4700:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]


@pytest.mark.parametrize("address", REFUSED)
def test_refused(address: str) -> None:
    assert not Egress(()).allows(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_allowed(address: str) -> None:
    assert Egress(()).allows(address)


def test_what_the_operator_allowed_is_allowed_and_nothing_beside_it() -> None:
    egress = Egress(["127.0.0.0/8", "fd00::/8"])
    assert egress.allows("127.0.0.1")
    assert egress.allows("::ffff:127.0.0.1")
    assert egress.allows("fd00::1")
    assert not egress.allows("10.0.0.1")
    assert not egress.allows("::1")


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(BadSetting, match="egress_allow: 'intranet'"):
        Egress(["intranet"])


def test_no_socket_is_opened_to_a_refused_address() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80))
    with pytest.raises(EgressRefused):
        Egress(()).open_socket(info)
    Egress(["127.0.0.1/32"]).open_socket(info).close()


class _Answers(AbstractResolver):
    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self._addresses
        ]

    async def close(self) -> None:
        return


def _resolved(*answers: str) -> list[str]:
    resolver = CheckedResolver(Egress(()), _Answers(*answers))
    return [place["host"] for place in asyncio.run(resolver.resolve("name.example", 443))]


def test_a_name_leads_to_its_allowed_addresses_only() -> None:
    assert _resolved("127.0.0.1", "1.1.1.1", "::1") == ["1.1.1.1"]
    assert _resolved() == []
    with pytest.raises(EgressRefused):
        _resolved("10.0.0.1", "169.254.169.254")
