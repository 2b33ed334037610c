"""What a machine sends while it is told to fetch URLs, by its own firewall's count: run inside a machine of its own.

`python -m tests.node.packets GATE LINK < rows.json`: a row is {"url", "allow_private", "names"}; a line of JSON is
printed for each. Nothing leaves: what would is counted and dropped, save the questions to the name server here.
"""

import asyncio
import ipaddress
import json
import subprocess
import sys
from typing import Any

from node import dns, fetch
from shared import config, errors, urls
from tests.node import name_server, origins

CONNECT_S = 0.15
OUR_V6, ROUTER_V6 = "2001:db8:5::2", "2001:db8:5::1"


class Count:
    """Packets to addresses that are not public, and to all others, since the last question."""

    def __init__(self, dns_port: int) -> None:
        self._seen = (0, 0)
        for program, version in (("iptables", 4), ("ip6tables", 6)):
            for side in ("--dport", "--sport"):
                _run(program, "-A", "OUTPUT", "-p", "udp", side, str(dns_port), "-j", "ACCEPT")
            for network in dns._REFUSED_NETWORKS:
                if network.version == version:
                    _run(program, "-A", "OUTPUT", "-p", "tcp", "-d", str(network), "-j", "DROP")
            _run(program, "-A", "OUTPUT", "-p", "tcp", "-j", "DROP")

    def since(self) -> tuple[int, int]:
        private = other = 0
        for program in ("iptables", "ip6tables"):
            rows = [line.split() for line in _run(program, "-nvxL", "OUTPUT").splitlines()[2:]]
            dropped = [int(row[0]) for row in rows if row[2] == "DROP"]
            private += sum(dropped[:-1])
            other += dropped[-1]
        before, self._seen = self._seen, (private, other)
        return private - before[0], other - before[1]


async def main(gate: str, link: str) -> None:
    _run("ip", "route", "add", "default", "via", gate)
    _run("ip", "-6", "addr", "add", f"{OUR_V6}/64", "dev", link, "nodad")
    _run("ip", "-6", "route", "add", "default", "via", ROUTER_V6, "dev", link)
    server = name_server.NameServer()
    address = await server.start()
    count = Count(int(address.rpartition(":")[2]))
    for row in json.load(sys.stdin):
        server.records = {name: list(ips) for name, ips in row.get("names", {}).items()}
        resolver = dns.Resolver(allow_private=row.get("allow_private", False), nameservers=[address])
        fetcher = fetch.Fetcher(
            user_agent=origins.AGENT,
            limits=config.Limits(connect_s=CONNECT_S, total_s=2.0),
            resolver=resolver,
            idle_max=4,
        )
        await fetcher.start()
        outcomes = [await _fetched(fetcher, url) for url in _spellings(row["url"])]
        await fetcher.close()
        private, other = count.since()
        told = {"url": row["url"], "outcomes": outcomes, "private": private, "other": other}
        print(json.dumps(told), flush=True)
    server.stop()


def _spellings(url: str) -> list[str]:
    """As a page has it, and as the frontier would."""
    try:
        return [url, urls.canonical(url)]
    except errors.InvalidUrl:
        return [url]


async def _fetched(fetcher: fetch.Fetcher, url: str) -> list[Any]:
    answer = await fetcher.fetch(url, permit=origins.Gate().permit())
    return [type(answer.outcome).__name__, getattr(answer.outcome, "reason", ""), answer.sent]


def _run(*line: str) -> str:
    wait = ["-w"] if line[0].endswith("tables") else []
    return subprocess.run([line[0], *wait, *line[1:]], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    ipaddress.ip_address(sys.argv[1])
    asyncio.run(main(sys.argv[1], sys.argv[2]))
