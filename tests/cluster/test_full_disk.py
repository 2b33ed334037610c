"""A node whose disk takes nothing more asks for nothing more; when there is room it goes on, and nothing was asked twice."""

import json
import resource
from pathlib import Path

import pytest

from coordinator import cli
from tests.cluster import claims, harness

pytestmark = pytest.mark.cluster

DELAY_S = 0.3
WATCHED_S = 2.0  # seven delays, and two tries of the disk


def test_a_full_disk_is_waited_for_with_the_pages_in_hand(tmp_path: Path, etcd: str, valkey: str, cluster: str) -> None:
    with harness.running(
        tmp_path, etcd=etcd, redis=valkey, name=cluster, site_count=6, pages=12, delay_s=DELAY_S, options=("--warc",)
    ) as run:
        run.start_all("n1")
        node = run.nodes["n1"]
        run.seed()
        run.until(lambda: run.part_done(0.2), 30, "a part is done")
        _, hard = resource.prlimit(node.child.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.child.pid, resource.RLIMIT_FSIZE, (0, hard))
        run.until(lambda: node.ready()[0] == 503, 20, "the node says that it is not at work")
        assert "cannot write" in node.ready()[1]
        full_s = harness.now_s()
        run.until(lambda: harness.now_s() > full_s + WATCHED_S, 10, "a while has passed")
        assert len(run.by("n1", since_s=full_s + DELAY_S)) <= 6  # one try of the disk with what it had in hand
        resource.prlimit(node.child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        claims.finish(run)
        run.drain()
        assert claims.gaps_kept(run) >= 1
        assert claims.audited(run).repeats == 0
        assert not claims.repeated(run)
        out = tmp_path / "out"
        pages = [json.loads(line)["url"] for line in (out / "pages-n1.jsonl").read_bytes().splitlines()]
        assert len(pages) == len(set(pages)), "each page is there once"
        assert cli.main(["warc", "check", *map(str, out.glob("*.warc.gz"))]) == 0
