"""Names become one public address at a time, judged after every look-up, remembered for a bounded time."""

import asyncio
import ipaddress
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import dns
from shared import errors
from tests.node import name_server, origins

CONFORMANCE = Path(os.environ.get("CRAWLRING_CONFORMANCE", Path(__file__).parents[3] / "shared" / "conformance"))
SSRF = CONFORMANCE / "ssrf" / "ssrf_cases.json"


@pytest.fixture
async def server() -> AsyncIterator[name_server.NameServer]:
    server = name_server.NameServer()
    server.address = await server.start()
    yield server
    server.stop()


@pytest.fixture
async def resolver(server: name_server.NameServer) -> AsyncIterator[dns.Resolver]:
    resolver = dns.Resolver(nameservers=[server.address])
    yield resolver
    await resolver.close()


async def test_a_name_is_looked_up_once_for_its_time(server: name_server.NameServer, resolver: dns.Resolver) -> None:
    server.records["site.test"] = ["93.184.216.34"]
    for _ in range(3):
        assert await resolver.lookup("site.test", 80) == dns.Address("93.184.216.34", 80)
    assert server.asked == ["site.test"]


@pytest.mark.parametrize(("ttl_s", "kept_s"), [(0, 60), (1, 60), (300, 300), (86_400, 3_600)])
async def test_the_time_is_bounded(
    server: name_server.NameServer, resolver: dns.Resolver, ttl_s: int, kept_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.records["site.test"] = ["93.184.216.34"]
    server.ttl_s = ttl_s
    now_s = 1_000.0
    monkeypatch.setattr(dns.clock, "boot_s", lambda: now_s)
    await resolver.lookup("site.test", 80)
    now_s += kept_s - 1
    await resolver.lookup("site.test", 80)
    assert len(server.asked) == 1
    now_s += 2
    # c-ares keeps answers of its own for their TTL; ours has run out.
    assert resolver._known["site.test"].until_s < now_s
    await resolver.lookup("site.test", 80)
    assert resolver._known["site.test"].until_s > now_s


@pytest.mark.parametrize(("kind", "kept_s"), [("none", 86_400), ("broken", 30), ("mute", 30)])
async def test_a_failure_is_remembered_as_long_as_it_may_last(
    server: name_server.NameServer,
    resolver: dns.Resolver,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    kept_s: int,
) -> None:
    """That there is no such name holds for a day; that nobody could say, half a minute."""
    monkeypatch.setattr(dns, "LOOKUP_S", 0.3)
    now_s = 1_000.0
    monkeypatch.setattr(dns.clock, "boot_s", lambda: now_s)
    if kind != "none":
        getattr(server, kind).add("gone.test")
    with pytest.raises(dns.UnresolvedError):
        await resolver.lookup("gone.test", 80)
    asked = len(server.asked)
    now_s += kept_s - 1
    with pytest.raises(dns.UnresolvedError):
        await resolver.lookup("gone.test", 80)
    assert len(server.asked) == asked >= 1
    server.records["gone.test"] = ["93.184.216.34"]
    server.broken.clear()
    server.mute.clear()
    now_s += 2
    assert (await resolver.lookup("gone.test", 80)).ip == "93.184.216.34"
    assert len(server.asked) > asked


async def test_only_the_name_whose_server_is_slow_waits(
    server: name_server.NameServer, resolver: dns.Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns, "LOOKUP_S", 1.0)
    server.mute.add("slow.test")
    names = [f"h{number}.test" for number in range(200)]
    server.records.update((name, ["93.184.216.34"]) for name in names)
    slow = asyncio.create_task(resolver.lookup("slow.test", 80))
    found = await asyncio.wait_for(asyncio.gather(*(resolver.lookup(name, 80) for name in names)), 5)
    assert {address.ip for address in found} == {"93.184.216.34"}
    assert not slow.done()
    with pytest.raises(dns.UnresolvedError, match="timeout"):
        await slow


async def test_a_flood_of_names_waits_its_turn(
    server: name_server.NameServer, resolver: dns.Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a turn is no answer about the name: all are found, however short a single question may take."""
    monkeypatch.setattr(dns, "LOOKUP_S", 1.0)
    names = [f"h{number}.test" for number in range(3_000)]
    server.records.update((name, ["93.184.216.34"]) for name in names[::2])
    most = 0
    turns = resolver._turns

    async def ask(name: str) -> str:
        nonlocal most
        most = max(most, dns.LOOKUPS_MAX - turns._value)
        try:
            return (await resolver.lookup(name, 80)).ip
        except dns.UnresolvedError as error:
            return str(error)

    found = await asyncio.wait_for(asyncio.gather(*map(ask, names)), 20)
    assert set(found[::2]) == {"93.184.216.34"}
    assert "timeout" not in set(found[1::2])
    assert most <= dns.LOOKUPS_MAX
    assert len(server.asked) <= len(names) * dns.TRIES


async def test_who_finds_no_turn_is_told_to_come_back(
    server: name_server.NameServer, resolver: dns.Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns, "LOOKUP_S", 1.0)
    monkeypatch.setattr(dns, "TURN_S", 0.1)
    server.silent = True
    slow = [asyncio.create_task(resolver.lookup(f"s{number}.test", 80)) for number in range(dns.LOOKUPS_MAX)]
    await origins.until(resolver._turns.locked)
    with pytest.raises(dns.BusyError):
        await resolver.lookup("late.test", 80)
    assert "late.test" not in resolver._known, "it says nothing of the name"
    assert all(isinstance(one, dns.UnresolvedError) for one in await asyncio.gather(*slow, return_exceptions=True))
    server.silent = False
    server.records["late.test"] = ["93.184.216.34"]
    assert (await resolver.lookup("late.test", 80)).ip == "93.184.216.34"


async def test_a_name_with_addresses_of_six_alone_is_found_and_one_with_both_has_both(
    server: name_server.NameServer, resolver: dns.Resolver
) -> None:
    server.records["six.test"] = ["2606:2800:220:1::1"]
    server.records["both.test"] = ["2606:2800:220:1::1", "93.184.216.34"]
    server.records["inner.test"] = ["::ffff:10.0.0.1", "fd00::1"]
    assert (await resolver.lookup("six.test", 80)).ip == "2606:2800:220:1::1"
    first = await resolver.lookup("both.test", 80)
    resolver.failed("both.test", first)
    assert [first.ip, (await resolver.lookup("both.test", 80)).ip] == ["93.184.216.34", "2606:2800:220:1::1"]
    with pytest.raises(dns.ForbiddenError, match="private_address"):
        await resolver.lookup("inner.test", 80)


async def test_after_a_failed_attempt_the_next_address_is_given(
    server: name_server.NameServer, resolver: dns.Resolver
) -> None:
    server.records["site.test"] = ["93.184.216.34", "93.184.216.35", "93.184.216.36"]
    seen = []
    for _ in range(4):
        address = await resolver.lookup("site.test", 80)
        seen.append(address.ip)
        resolver.failed("site.test", address)
    assert len(set(seen[:3])) == 3
    assert seen[3] == seen[0]
    resolver.failed("never.asked", address)


async def test_a_name_with_one_private_address_never_leads_there(
    server: name_server.NameServer, resolver: dns.Resolver
) -> None:
    server.records["mixed.test"] = ["10.0.0.1", "93.184.216.34"]
    for _ in range(3):
        address = await resolver.lookup("mixed.test", 80)
        assert address.ip == "93.184.216.34"
        resolver.failed("mixed.test", address)


async def test_a_public_name_with_a_private_address_is_refused(
    server: name_server.NameServer, resolver: dns.Resolver
) -> None:
    server.records["metadata.test"] = ["169.254.169.254"]
    for _ in range(2):
        with pytest.raises(dns.ForbiddenError, match="private_address"):
            await resolver.lookup("metadata.test", 80)


async def test_a_name_that_turns_private_is_refused_then(
    server: name_server.NameServer, resolver: dns.Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(dns.clock, "boot_s", lambda: now_s)
    server.records["rebinding.test"] = ["93.184.216.34"]
    server.ttl_s = 0
    await resolver.lookup("rebinding.test", 80)
    server.records["rebinding.test"] = ["127.0.0.1"]
    assert (await resolver.lookup("rebinding.test", 80)).ip == "93.184.216.34"
    now_s += 61
    with pytest.raises(dns.ForbiddenError):
        await resolver.lookup("rebinding.test", 80)


async def test_a_server_that_is_silent_costs_a_bounded_time(
    server: name_server.NameServer, resolver: dns.Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.silent = True
    monkeypatch.setattr(dns, "LOOKUP_S", 0.3)
    with pytest.raises(dns.UnresolvedError, match="timeout"):
        await asyncio.wait_for(resolver.lookup("slow.test", 80), 3)


async def test_the_cache_is_bounded(
    server: name_server.NameServer, resolver: dns.Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns, "CACHE_NAMES_MAX", 3)
    for number in range(6):
        server.records[f"h{number}.test"] = ["93.184.216.34"]
        await resolver.lookup(f"h{number}.test", 80)
    assert list(resolver._known) == ["h3.test", "h4.test", "h5.test"]


async def test_the_hosts_file_counts() -> None:
    resolver = dns.Resolver(allow_private=True)
    assert ipaddress.ip_address((await resolver.lookup("localhost", 80)).ip).is_loopback
    await resolver.close()


@pytest.mark.parametrize("host", ["x" * 70, "a..b", "bad host", "-", "*"])
async def test_what_is_no_name_is_unresolved(host: str, resolver: dns.Resolver) -> None:
    with pytest.raises(dns.UnresolvedError):
        await resolver.lookup(host, 80)


async def test_connect_to_takes_everything_private_or_not() -> None:
    for target, address in (
        ("127.0.0.1:8080", dns.Address("127.0.0.1", 8080)),
        ("[::1]:81", dns.Address("::1", 81)),
    ):
        resolver = dns.Resolver(connect_to=target)
        for host in ("example.com", "10.0.0.1", "::1"):
            assert await resolver.lookup(host, 443) == address
        resolver.failed("example.com", address)


@pytest.mark.parametrize("text", ["127.0.0.1", ":80", "host:", "host:http", "host:0", "host:65536", "host:-1"])
def test_connect_to_wants_a_host_and_a_port(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="HOST:PORT"):
        dns.Resolver(connect_to=text)


def cases() -> dict:
    return (
        json.loads(SSRF.read_text())
        if SSRF.is_file()
        else {"must_refuse": [], "must_allow": [], "networks_refused": []}
    )


needs_cases = pytest.mark.skipif(not SSRF.is_file(), reason="the conformance data is not there")


@needs_cases
@pytest.mark.parametrize("url", [case["url"] for case in cases()["must_refuse"]])
async def test_what_is_to_be_refused_is(url: str, resolver: dns.Resolver) -> None:
    """A canonical host is a dotted address by then; the odd spellings are refused here as well."""
    parts = urlsplit(url)
    with pytest.raises((dns.ForbiddenError, dns.UnresolvedError)):
        await resolver.lookup(parts.hostname or "", parts.port or 80)


@needs_cases
@pytest.mark.parametrize("url", [case["url"] for case in cases()["must_allow"]])
async def test_what_is_to_be_allowed_is(url: str, resolver: dns.Resolver) -> None:
    parts = urlsplit(url)
    assert (await resolver.lookup(parts.hostname or "", parts.port or 80)).ip == parts.hostname


@needs_cases
@pytest.mark.parametrize("text", cases()["networks_refused"])
def test_a_refused_network_is_refused_from_end_to_end(text: str) -> None:
    network = ipaddress.ip_network(text.split(maxsplit=1)[0])
    if "judge the embedded" in text:
        return
    for address in (network[0], network[-1]):
        assert not dns.is_public(str(address)), address


@given(st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address))
def test_an_address_inside_another_is_judged_by_itself(v4: ipaddress.IPv4Address) -> None:
    inner = int(v4)
    forms = [
        f"::ffff:{v4}",
        f"64:ff9b::{v4}",
        str(ipaddress.IPv6Address(0x2002 << 112 | inner << 80)),
        str(ipaddress.IPv6Address(0x2001_0000 << 96 | (~inner & 0xFFFF_FFFF))),
    ]
    for form in forms:
        assert dns.is_public(form) == dns.is_public(str(v4)), form


@pytest.mark.parametrize("port", [22, 25, 6667, 10080])
async def test_ports_of_other_protocols_are_refused(port: int, resolver: dns.Resolver) -> None:
    with pytest.raises(dns.ForbiddenError, match="port"):
        await resolver.lookup("93.184.216.34", port)
