"""One address is asked no oftener than its gap, whoever asks; those who wait are served, and nobody else is slowed."""

import asyncio
import heapq
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import addresses, dns, fetch, politeness
from shared import clock, config, records
from tests.node import origins
from tests.node.origins import Gate, Origin, answering

GAP_S = 0.1
IP = "192.0.2.1"


def test_the_first_goes_at_once_and_the_next_is_told_when() -> None:
    crowd = addresses.Addresses(GAP_S)
    assert [crowd.take(IP, f"s{n}", 100.0) for n in range(4)] == pytest.approx([100.0, 100.1, 100.2, 100.3])
    assert crowd.take("192.0.2.2", "s1", 100.0) == 100.0, "another address is another line"


def test_a_promise_is_kept_for_the_one_who_has_it() -> None:
    crowd = addresses.Addresses(GAP_S)
    crowd.take(IP, "a", 100.0)
    moment_s = crowd.take(IP, "b", 100.0)
    assert crowd.take(IP, "b", 100.02) == moment_s, "asked too soon, and told the same"
    assert crowd.take(IP, "c", 100.02) == pytest.approx(100.2), "who comes later does not get it"
    assert crowd.take(IP, "b", moment_s) == moment_s
    assert crowd.take(IP, "c", 100.2) == pytest.approx(100.2)
    assert crowd.promises == 0


def test_who_comes_late_goes_soon_and_takes_nobodys_moment() -> None:
    crowd = addresses.Addresses(GAP_S)
    told = {site: crowd.take(IP, site, 100.0) for site in "abcd"}
    assert crowd.take(IP, "c", told["c"]) == told["c"], "b stayed away"
    late = crowd.take(IP, "b", told["c"] + 0.01)
    assert late == pytest.approx(told["c"] + GAP_S), "the next one, not the last"
    assert crowd.take(IP, "d", told["d"]) == pytest.approx(told["d"]), (
        "b had been told the same: the first to come has it"
    )
    again = crowd.take(IP, "b", late)
    assert again == pytest.approx(late + GAP_S)
    assert crowd.take(IP, "b", again) == pytest.approx(again)


def test_who_never_comes_back_costs_the_others_only_his_own_moment() -> None:
    crowd = addresses.Addresses(GAP_S)
    for site in "abcd":
        crowd.take(IP, site, 100.0)
    assert crowd.take(IP, "e", 101.0) == 101.0
    assert crowd.promises == 0, "what has passed is forgotten"


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "198.51.100.7", "2001:db8::9"]
)
def test_exempt_networks_have_no_limit(address: str) -> None:
    crowd = addresses.Addresses(GAP_S, (*addresses.LOOPBACK, "198.51.100.0/24", "2001:db8::/32"))
    assert [crowd.take(address, f"s{n}", 5.0) for n in range(3)] == [5.0, 5.0, 5.0]
    assert len(crowd) == 0


def test_no_gap_is_no_limit() -> None:
    crowd = addresses.Addresses(0.0)
    assert [crowd.take(IP, f"s{n}", 5.0) for n in range(3)] == [5.0, 5.0, 5.0]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "ADDRESSES_MAX", 10)
    monkeypatch.setattr(addresses, "PROMISES_MAX", 20)
    crowd = addresses.Addresses(GAP_S)
    for number in range(100):
        for site in range(10):
            crowd.take(f"192.0.2.{number}", f"s{site}", 1.0)
    assert len(crowd) == 10
    assert 0 <= crowd.promises <= 20
    for number in range(100):
        for site in range(10):
            crowd.take(f"192.0.2.{number}", f"s{site}", 50.0 + number)
    assert 0 <= crowd.promises <= 20


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 400)), max_size=80),
    gap_ms=st.integers(1, 300),
)
def test_those_who_go_are_a_gap_apart(steps: list[tuple[int, int, int]], gap_ms: int) -> None:
    """Whatever order and lateness: what is let through is spaced, address by address."""
    crowd, now_s = addresses.Addresses(gap_ms / 1000), 1_000.0
    went: dict[str, list[float]] = {}
    for address, site, wait_ms in steps:
        now_s += wait_ms / 1000
        ip = f"192.0.2.{address}"
        moment_s = crowd.take(ip, f"s{site}", now_s)
        assert moment_s >= now_s
        if moment_s <= now_s + addresses.PATIENCE_S:
            went.setdefault(ip, []).append(moment_s)
    for moments in went.values():
        assert all(later - earlier > gap_ms / 1000 - 1e-6 for earlier, later in itertools.pairwise(moments))


@given(st.lists(st.integers(0, 60), min_size=40, max_size=40), st.integers(1, 4))
def test_all_are_served_in_about_the_time_it_takes(late_ms: list[int], lost: int) -> None:
    """Forty sites that come back up to 60 ms late, some of which give up: nobody starves and no herd forms."""
    crowd = addresses.Addresses(GAP_S)
    queue = [(0.0, site) for site in range(40)]
    went: list[float] = []
    asked = 0
    while queue:
        now_s, site = heapq.heappop(queue)
        asked += 1
        moment_s = crowd.take(IP, f"s{site}", now_s)
        if moment_s <= now_s + addresses.PATIENCE_S:
            went.append(moment_s)
        elif not (site % 10 < lost and now_s == 0.0 and site > 20):
            heapq.heappush(queue, (moment_s + late_ms[(site + asked) % 40] / 1000, site))
    assert all(later - earlier > GAP_S - 1e-6 for earlier, later in itertools.pairwise(went))
    assert len(went) >= 40 - 4 * 2
    assert max(went) < 40 * GAP_S * 2, "half of the moments at most are lost to lateness"
    assert asked < 40 * 12


class Hosts(dns.Resolver):
    """Every host is at the one address."""

    port = 0

    async def lookup(self, host: str, port: int) -> dns.Address:
        del host, port
        return dns.Address("127.0.0.2", self.port)


async def test_forty_sites_on_one_address_are_a_gap_apart_at_the_origin() -> None:
    """Judged by the origin: each site asks twice, over a connection that is kept; a refusal sends nothing."""
    gap_s, arrived = 0.02, []
    crowd, refusals = addresses.Addresses(gap_s, ()), []

    async def script(visitor: origins.Visitor) -> None:
        arrived.append(clock.boot_s())
        await visitor.send(origins.OK)

    server = Origin(script)
    async with server, asyncio.timeout(15):
        resolver = Hosts()
        listening = await asyncio.start_server(server._serve, "127.0.0.2", 0)
        resolver.port = listening.sockets[0].getsockname()[1]
        fetches = fetch.Fetcher(
            user_agent=origins.AGENT, limits=config.Limits(), resolver=resolver, idle_max=64, crowd=crowd
        )
        await fetches.start()

        async def site(name: str) -> None:
            for page in range(2):
                while True:
                    gate = Gate()
                    answer = await fetches.fetch(f"http://{name}/{page}", permit=gate.permit(name))
                    if not isinstance(answer.outcome, records.Failed):
                        break
                    assert (answer.outcome.reason, answer.sent, gate.asked) == ("crowded", False, 0)
                    assert answer.wait_s > addresses.PATIENCE_S
                    refusals.append(name)
                    await asyncio.sleep(answer.wait_s)

        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(site(f"s{number}.example"))
        await fetches.close()
        listening.close()
    assert len(arrived) == 80
    assert server.connections == 40, "the second request went over the first one's connection"
    arrived.sort()
    late_s = 0.1  # the origin sees a request when its loop gets to it: single gaps waver, and no run of them does
    for (at, first), (later, last) in itertools.combinations(enumerate(arrived), 2):
        assert last - first >= (later - at) * gap_s - late_s
    assert len(refusals) >= 40
    assert len(refusals) < 400, "told once, and let through then, as a rule"


async def test_a_lone_site_a_staging_web_and_loopback_are_never_slowed() -> None:
    for crowd, fixed in ((addresses.Addresses(60.0, ()), True), (addresses.Addresses(60.0), False)):
        async with Origin(answering(origins.OK)) as origin:
            resolver = dns.Resolver(connect_to=f"127.0.0.1:{origin.port}" if fixed else "", allow_private=True)
            fetches = fetch.Fetcher(
                user_agent=origins.AGENT, limits=config.Limits(), resolver=resolver, idle_max=4, crowd=crowd
            )
            await fetches.start()
            for number in range(3):
                url = f"http://127.0.0.1:{origin.port}/{number}"
                assert isinstance((await fetches.fetch(url, permit=Gate().permit())).outcome, records.Fetched)
            await fetches.close()


async def test_where_no_look_up_has_a_turn_the_fetch_comes_back_later() -> None:
    class Busy(dns.Resolver):
        async def lookup(self, host: str, port: int) -> dns.Address:
            raise dns.BusyError(f"{host} {port}")

    fetches = fetch.Fetcher(user_agent=origins.AGENT, limits=config.Limits(), resolver=Busy(), idle_max=4)
    await fetches.start()
    gate = Gate()
    answer = await fetches.fetch("http://example.com/", permit=gate.permit())
    await fetches.close()
    assert isinstance(answer.outcome, records.Failed)
    assert (answer.outcome.reason, answer.sent, gate.asked, answer.wait_s) == ("crowded", False, 0, fetch.BUSY_S)


def test_crowded_says_nothing_of_the_site() -> None:
    assert "crowded" in politeness.OWN_DOING
