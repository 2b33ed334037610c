"""Two nodes agree on every owner: nothing in site rule or ring depends on the process that computes it.

Run as a program, this file reads hosts from its standard input and prints `site position owner` for each.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared import errors, ring, sites, urls

ROOT = Path(__file__).parents[2]
NODES = {"n1": 1.0, "n2": 0.5, "n3": 2.0, "n4": 1.0}


def answers(hosts, algorithm, weights):
    rule = sites.Sites(("github.io",))
    circle = ring.Ring.build(weights, algorithm=algorithm, vnodes=256)
    for host in hosts:
        try:
            site = rule.site_of(urls.canonical(f"http://{host}/"))
        except errors.InvalidUrl as error:
            yield f"<{error}>"
            continue
        yield f"{site} {ring.position(algorithm, site)} {circle.owner(site)}"


def another_process(hosts, algorithm, weights, seed):
    ran = subprocess.run(
        [sys.executable, "-W", "error", __file__, algorithm, json.dumps(weights)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)},
        input="\n".join(hosts),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def odd_hosts():
    return [*sites.ODD_HOSTS, *(f"site-{i}.example.com" for i in range(50)), "bücher.de", "BÜCHER.de", "a..b", "co.uk."]


def hosts_of(folder):
    """Every host name of the lists, once."""
    found = (folder / "cocrawler-top-1k.txt").read_text("utf-8").split()
    found += (folder / "protego_top-10000-websites.txt").read_text("utf-8").split()
    found += [row["rootDomain"] for row in json.loads((folder / "moz-top-500.json").read_text("utf-8"))]
    found += [
        line.split(",")[0] for line in (folder / "cc-domains-top-500-excerpt.csv").read_text("utf-8").splitlines()
    ]
    for path in folder.glob("cc-webgraph-*.json"):
        found += [".".join(reversed(row[4].split("."))) for row in json.loads(path.read_text("utf-8"))["rows"]]
    for url in (folder / "ada-kasztp-urls.txt").read_text("utf-8-sig").splitlines():
        try:
            found.append(urls.host_of(urls.canonical(url)))
        except errors.InvalidUrl:
            continue
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("algorithm", ring.ALGORITHMS)
def test_two_processes_agree_on_odd_hosts_whatever_the_order_of_the_members(odd_hosts, algorithm):
    backwards = dict(reversed(NODES.items()))
    here = list(answers(odd_hosts, algorithm, NODES))
    assert another_process(odd_hosts, algorithm, backwards, seed=1) == here
    assert another_process(odd_hosts, algorithm, NODES, seed=2) == here
    assert len(here) == len(odd_hosts)
    assert len({line.split()[-1] for line in here} & set(NODES)) == len(NODES)


@pytest.mark.parametrize("algorithm", ring.ALGORITHMS)
def test_two_processes_agree_on_every_real_host(conformance, algorithm):
    hosts = hosts_of(conformance / "domains")
    assert len(hosts) > 25_000
    one = another_process(hosts, algorithm, NODES, seed=1)
    assert another_process(hosts, algorithm, NODES, seed=2) == one
    assert len(one) == len(hosts)
    assert sum(line.startswith("<") for line in one) < 10
    for line in one[::7]:
        if not line.startswith("<"):
            site, position, _ = line.split()
            assert int(position) == independent(algorithm, site)


def independent(algorithm, site):
    """A position worked out without the ring's code; for xxh3 there is no second implementation at hand."""
    if algorithm == "sha1-64":
        return int(hashlib.sha1(site.encode()).hexdigest()[:16], 16)
    if algorithm == "md5-32":
        return int(hashlib.md5(site.encode()).hexdigest()[:8], 16)
    return ring.position(algorithm, site)


@pytest.mark.parametrize(
    ("key", "position"),
    [("", 0x2D06800538D394C2), ("example.com", 0x8B66107E8045BB73), ("bücher.de", 0xBA3589B631799C4)],
)
def test_xxh3_positions_are_fixed_for_ever(key, position):
    assert ring.position("xxh3-64", key) == position


if __name__ == "__main__":
    for answer in answers(sys.stdin.read().split("\n"), sys.argv[1], json.loads(sys.argv[2])):
        print(answer)
