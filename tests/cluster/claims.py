"""What must hold after any fault, judged by the web's own log, the records, and the product's audit."""

from collections import Counter, defaultdict

import msgspec

from coordinator import demo_report
from shared import audit, records
from tests.cluster import harness

CLOCK_MS = 3  # two readings of one clock, each rounded to a millisecond


def finish(cluster: harness.Cluster, *, within_s: float = 45) -> None:
    """Wait until every page is asked for or refused for a recorded reason, and nothing is pending (P2)."""
    cluster.until(lambda: not cluster.ledger.missing(), within_s, "every page is asked for")

    def left() -> list[str]:
        looks = cluster.sites()
        aside = {site: look.get("set_aside", {}) for site, look in looks.items()}
        pending = [site for site, look in looks.items() if look["pending"] or look["later"]]
        return pending or demo_report.refused_as_recorded(cluster.graph, aside)

    cluster.until(lambda: not left(), 20, "every site's record accounts for all its pages")


def gaps_kept(cluster: harness.Cluster) -> float:
    """P1 at the web, nothing forbidden asked for; returns the smallest gap over what was owed."""
    cluster.read()
    assert not cluster.ledger.short, [
        (gap.site, round(gap.seconds, 3), gap.required_s, [(r.node, r.url, r.boot_s) for r in cluster.to(gap.site)])
        for gap in cluster.ledger.short[:3]
    ]
    assert not cluster.ledger.trespasses()
    assert cluster.ledger.smallest is not None
    return cluster.ledger.smallest.ratio


def audited(cluster: harness.Cluster) -> audit.Findings:
    """`crawlring audit` finds no violation of P1, P3 or P4 in the nodes' logs."""
    done = cluster.command("audit", str(cluster.folder / "out"), "--json", status=None)
    assert done.returncode == 0, done.stdout[:3000] + done.stderr
    return msgspec.json.decode(done.stdout, type=audit.Findings)


def repeated(cluster: harness.Cluster) -> dict[str, list[harness.Request]]:
    """Pages that were asked for more than once."""
    asked: dict[str, list[harness.Request]] = defaultdict(list)
    for one in cluster.requests:
        if not one.robots:
            asked[one.url].append(one)
    return {url: requests for url, requests in asked.items() if len(requests) > 1}


def only_aborted_repeat(cluster: harness.Cluster) -> int:
    """P3 without a crash: each repeat is of a request that its node cut short and logged so; returns how many."""
    cut = Counter(line.url for line in cluster.crawl_lines() if line.outcome in audit.STOPPED)
    repeats = repeated(cluster)
    unexplained = {url: again for url, again in repeats.items() if cut[url] < len(again) - 1}
    assert not unexplained, unexplained
    return len(repeats)


def only_in_flight_repeat(cluster: harness.Cluster, victim: str, end_s: float) -> int:
    """P3 after a node ended without a word: of each site at most the last page it had asked for, and by another."""
    last = {one.site: one for one in cluster.by(victim, until_s=end_s)}
    repeats = repeated(cluster)
    for url, asked in repeats.items():
        assert len(asked) == 2, asked
        first, again = asked
        assert first == last.get(first.site), f"{url} was neither in flight nor uncommitted: {asked}"
        assert again.node != victim, asked
        assert end_s - first.boot_s < 3, f"{url} was answered long before: {asked}"
    return len(repeats)


def moves(cluster: harness.Cluster, victim: str, since_ms: float) -> list[demo_report.Move]:
    """The sites that left a node, with their first requests; all must have come to a claim."""
    return demo_report.moves_from(victim, cluster.handoffs(), since_ms=int(since_ms))


def taken_over(
    cluster: harness.Cluster, victim: str, sites: set[str], since_ms: int, *, within_s: float
) -> list[demo_report.Move]:
    """Wait until all these sites of a node were claimed by others, and asked where they had something to do."""

    def all_asked() -> list[demo_report.Move]:
        found = moves(cluster, victim, since_ms)
        if not sites <= {move.moved.site for move in found}:
            return []
        unasked = {move.moved.site for move in found if not move.first and move.moved.pending}
        # What was pending may all be refused by robots.txt, and then nobody is asked for anything.
        looks = cluster.sites() if unasked else {}
        return found if all(looks[site or ""]["pending"] == 0 for site in unasked) else []

    return cluster.until(all_asked, within_s, f"the sites of {victim} are taken over: {sorted(sites)}")


def waited_in_full(cluster: harness.Cluster, moved: list[demo_report.Move]) -> list[float]:
    """After a claim nobody asks the site before a full delay has passed; returns the seconds from claim to request."""
    waits = []
    for move in moved:
        line = move.moved
        assert line.site is not None
        assert line.delay_ms is not None
        after = cluster.to(line.site, since_ms=line.time_ms)
        assert all(one.wall_ms - line.time_ms >= line.delay_ms - CLOCK_MS for one in after), (line, after[0])
        if after and line.to:
            assert after[0].node == line.to or _moved_on(moved, line), (line, after[0])
            waits.append((after[0].wall_ms - line.time_ms) / 1000)
        if move.first is not None and move.first.gap_ms is not None:
            assert move.first.gap_ms >= line.delay_ms, move.first
    return waits


def told_in_full(line: records.Handoff, *, cause: str, settled_by: set[str]) -> None:
    """A handoff entry says what moved with the site, why, and how long the next owner waits."""
    assert line.cause == cause, line
    assert line.settled_by in settled_by, line
    assert line.pending is not None, line
    assert line.validators is not None, line
    assert line.due_ms is not None, line
    assert line.due_term, line
    assert line.delay_ms, line


def _moved_on(moved: list[demo_report.Move], line: records.Handoff) -> bool:
    return any(other.moved.site == line.site and other.moved.epoch > line.epoch for other in moved)
