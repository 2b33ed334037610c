"""A node that may not take part ends at once with status 2 and says why."""

import time
from pathlib import Path

import pytest

from coordinator import local, nodes
from tests.cluster import harness

pytestmark = pytest.mark.cluster

NOWHERE = "127.0.0.1:1"


def refused(node: harness.Node, *, within_s: float) -> str:
    """Its last words, once it has ended with status 2."""
    status = node.child.wait(within_s)
    assert status == 2, f"{node.id}: {status}\n{node.log()}"
    return [line for line in node.log().splitlines() if line.startswith("crawlring: ")][-1]


def test_a_node_that_disagrees_or_whose_id_is_taken_is_refused(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    ttl_s = 3
    with harness.running(
        tmp_path, etcd=etcd, redis=valkey, name=cluster, site_count=2, pages=4, options=(f"--lease-ttl={ttl_s}",)
    ) as run:
        run.start_all("n1")
        first = run.nodes["n1"]
        began = time.monotonic()
        other = run.start("n2", environ={"CRAWLRING_RING__VNODES": "128"})
        twin = run.start("n1")
        told = refused(other, within_s=15)
        assert "xxh3-64/1024" in told, told
        assert "xxh3-64/128" in told, told
        assert "n2" not in run.members()
        told = refused(twin, within_s=20)
        assert time.monotonic() - began >= ttl_s + 2, "a crashed predecessor's key would have run out by then"
        assert "'n1' is taken" in told, told
        assert "another --id" in told, told
        assert first.child.poll() is None
        assert set(run.members()) == {"n1"}


@pytest.mark.parametrize(
    ("options", "environ", "reason"),
    [
        ((), {}, "a user agent is required"),
        (("--user-agent=Test/1.0",), {}, "how to reach you"),
        (("--user-agent=Test/1.0 (+https://localhost/)",), {"CRAWLRING_NODE__SPEED": "9"}, "speed"),
    ],
    ids=["no user agent", "no contact", "unknown key"],
)
def test_what_is_missing_or_unknown_is_refused(
    tmp_path: Path, options: tuple[str, ...], environ: dict[str, str], reason: str
) -> None:
    place = nodes.Place(
        etcd=NOWHERE,
        redis=f"redis://{NOWHERE}/0",
        cluster="c",
        out=tmp_path / "out",
        logs=tmp_path,
        arguments=options,
        environ=environ,
    )
    child = local.Child(nodes.node_command(place, "n1"), log=tmp_path / "log", environ=nodes.node_environ(place))
    try:
        assert reason in refused(harness.Node("n1", child, NOWHERE), within_s=15)
        assert not (tmp_path / "out").exists(), "nothing was begun"
    finally:
        child.kill()
