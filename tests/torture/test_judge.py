"""The judge of a torture run: each kind of violation is found, and what is explained is explained rightly."""

import argparse
import json

import msgspec
import pytest

from coordinator import small_web
from tests.torture import faults_alone, forest, judge, report, stories, test_takeovers


@pytest.fixture
def story() -> stories.Story:
    return stories.Story()


def judged(story: stories.Story, *, single: bool = False) -> judge.Verdict:
    return judge.verdict(story.told(), single=single)


def test_a_clean_run_holds(story, tmp_path):
    story.crawled()
    for i in range(40):
        story.sample(i * 5, "n1", 80 + i * 0.01)
    verdict = judge.judge(story.write(tmp_path))
    assert verdict.held
    assert verdict.broken == {}
    assert verdict.gaps.judged == len(story.requests) - 2
    assert verdict.gaps.smallest_ratio == pytest.approx(1.1)
    assert verdict.pages.asked == verdict.pages.wanted
    assert verdict.repeats_by_why == {}
    assert verdict.bad_lines == 0
    assert report.text(verdict).startswith("ALL HELD\n")
    assert json.loads(report.encode(verdict))["held"] is True
    assert sum(count for _, count in verdict.gaps.histogram) == verdict.gaps.judged


def test_unfinished_lines_are_counted_and_no_fault(story, tmp_path):
    story.crawled()
    folder = story.write(tmp_path)
    with (folder / "out" / "crawl-n1.jsonl").open("a") as log:
        log.write('{"start_ms": 17')
    assert judge.judge(folder).bad_lines == 1


# --- P1 -------------------------------------------------------------------------------------------------------------


def test_a_short_gap_is_found_with_both_requests_and_the_faults_before(story):
    story.crawled(but=(story.pages[3],))
    last_s = story.last_s(story.one.name)
    story.fault(last_s - 5, "silent", "n1", name="freeze-long")
    story.fault(last_s - 200, "crash", "n2", name="kill")
    story.asks(last_s + 0.9, story.pages[3], "n2", tenure=2)
    verdict = judged(story)
    assert verdict.broken["P1 gap"] >= 1
    (short,) = verdict.gaps.worst
    assert (short.site, short.first.node, short.second.node) == (story.one.name, "n1", "n2")
    assert short.gap_s == pytest.approx(0.9)
    assert [name.split(" ")[0] for name in short.faults] == ["freeze-long"]
    assert verdict.gaps.smallest_move_ratio == pytest.approx(0.9)
    assert verdict.gaps.moves == 1
    assert dict(verdict.gaps.histogram)["below 1"] == 1
    text = report.text(verdict)
    assert text.startswith("BROKEN: P1 gap")
    assert "TOO SHORT" in text
    assert "freeze-long n1" in text


def test_robots_txt_is_a_request_like_any_other(story):
    story.crawled()
    last_s = story.last_s(story.one.name)
    story.asks(last_s + 0.5, f"http://{story.one.name}/robots.txt")
    assert judged(story).gaps.violations == 1


def test_a_slow_site_whose_record_was_lost_is_owed_the_minimum(story):
    """Only just after the store lost it, and only as far as the node's own line agrees."""
    story.web = forest.grow(8, stories.PAGES, stories.SEED)
    slow = story.web.sites[7]
    story.delay_s = 0.5
    story.asks(1, slow.pages[0].url)
    story.asks(1.6, f"http://{slow.name}/robots.txt", tenure=2)
    assert judged(story).gaps.violations == 1
    story.fault(1.2, "store", name="store-slow")
    assert judged(story).gaps.violations == 1, "that forgets nothing"
    story.fault(1.2, "store", name="store-killed")
    story.run["store"] = "cluster"
    assert judged(story).gaps.violations == 1, "strict"
    story.run["store"] = "single"
    verdict = judged(story)
    assert (verdict.gaps.violations, verdict.gaps.forgotten) == (0, 1)
    story.crawl[-1] = msgspec.structs.replace(story.crawl[-1], delay_ms=1000)
    assert judged(story).gaps.violations == 1


# --- P2 -------------------------------------------------------------------------------------------------------------


def test_a_page_that_nobody_asked_for_is_lost(story):
    story.crawled(but=(story.pages[2],))
    verdict = judged(story)
    assert verdict.broken == {"P2 nothing lost": 1, "liveness": 1}
    assert verdict.pages.missing == (story.pages[2],)
    assert story.pages[2] in report.text(verdict)


def test_a_page_that_its_record_accounts_for_is_not_lost(story):
    story.crawled(but=(story.pages[2],))
    story.run["records"] = {story.one.name: {"pending": 0, "later": 0, "set_aside": {"unanswered": 1}}}
    assert judged(story).held
    story.ends_s = 20
    story.run["records"] = {story.one.name: {"pending": 1, "later": 0, "set_aside": {}}}
    assert judged(story).pages.unaccounted == ()
    story.run["done"] = False
    assert judged(story).pages.crooked == (), "it was still at it"
    story.run["done"] = True
    assert judged(story).broken == {"P2 nothing lost": 1}
    assert "still queued after the end" in judged(story).pages.crooked[0]
    story.run["records"] = {story.other.name: {"pending": 1, "later": 0, "set_aside": {}}}
    verdict = judged(story)
    assert verdict.broken == {"P2 nothing lost": 2}
    assert verdict.pages.unaccounted == (story.one.name,)


def test_a_page_without_a_whole_answer_is_lost_unless_the_record_has_it(story):
    story.ends_s = 20
    story.crawled(but=(story.pages[2],))
    story.asks(15, story.pages[2], outcome="failed:timeout")
    assert judged(story).pages.unanswered == (story.pages[2],)
    assert judged(story).held, "no record was read"
    story.run["records"] = {}
    assert judged(story).broken == {"P2 nothing lost": 1}
    story.run["records"] = {story.one.name: {"later": 1}}
    assert judged(story).held


def test_private_pages_must_be_in_the_record_and_nowhere_else(story):
    story.web = forest.grow(8, 16, stories.SEED)
    story.ends_s = 100
    site = story.web.sites[7]
    private = next(page.url for page in site.pages if page.kind is small_web.Kind.PRIVATE)
    story.crawled()
    story.run["records"] = {}
    assert site.name in (judged(story).pages.unaccounted or ())
    story.run["records"] = {
        one.name: {"set_aside": {"robots": sum(page.kind is small_web.Kind.PRIVATE for page in one.pages)}}
        for one in story.web.sites
    }
    assert judged(story).held
    assert "refused by robots.txt" not in report.text(judged(story))
    story.run["records"][site.name]["set_aside"]["robots"] += 1
    assert "2 refused by robots.txt, not 1" in report.text(judged(story))
    story.run["records"][site.name] = {"set_aside": {"robots": 1}, "seen": len(site.pages) + 1}
    assert f"{len(site.pages) + 1} seen, but {len(site.pages) - 1} answered" in report.text(judged(story))
    story.run["records"][site.name]["seen"] -= 1
    assert judged(story).held
    story.asks(60, private)
    verdict = judged(story)
    assert verdict.broken == {"P2 nothing lost": 1}
    assert verdict.pages.trespasses == (private,)


def test_a_host_that_nobody_linked_is_a_trespass(story):
    story.crawled()
    story.asks(20, "http://nobody.example/robots.txt", status=404)
    story.requests[-1]["site"] = ""
    story.asks(20.1, "http://nobody.example/robots.txt", status=404, outcome=None)
    story.requests[-1]["site"] = ""
    verdict = judged(story)
    assert verdict.pages.trespasses == ("http://nobody.example/robots.txt",)
    assert verdict.broken == {"P2 nothing lost": 1}, "and no gap of it is judged"


def test_a_crawl_that_did_not_end_does_not_hold(story):
    story.crawled()
    story.run["done"] = False
    assert judged(story).broken == {"P2 nothing lost": 1}


# --- P4, and the nodes' own gaps -------------------------------------------------------------------------------------


def test_a_request_of_an_older_tenure_is_found(story):
    story.crawled()
    story.asks(20, story.pages[0], "n2", tenure=2, outcome="failed:aborted")
    story.asks(22, story.pages[0], "n1", tenure=1)
    verdict = judged(story)
    assert verdict.own_logs.fencing_violations == 1
    assert verdict.broken["P4 fencing"] == 1


def test_a_node_that_breaks_its_own_delay_is_found_in_its_log(story):
    story.crawled()
    story.crawl[1] = msgspec.structs.replace(story.crawl[1], delay_ms=60_000)
    assert judged(story).own_logs.gap_violations == 0, "the first of its site"
    story.crawl = [msgspec.structs.replace(one, delay_ms=1_200) for one in story.crawl]
    assert judged(story).own_logs.gap_violations > 0


def test_a_stepped_clock_accuses_nobody_and_hides_nothing(story):
    story.crawled(but=(story.pages[3], story.pages[4]))
    story.fault(10, "clock", "n2", name="clock-stepped", lasts_s=20)
    story.asks(12, story.pages[3], "n2", tenure=2, skew_ms=3_600_000)
    story.asks(14, story.pages[4], "n2", tenure=2, skew_ms=-3_600_000)
    assert judged(story).broken == {}
    story.faults.clear()
    assert judged(story).own_logs.gap_violations + judged(story).own_logs.fencing_violations > 0


# --- the fault itself ------------------------------------------------------------------------------------------------


def test_a_single_run_needs_its_one_fault_whole(story):
    story.crawled()
    assert judged(story, single=True).broken == {"fault": 1}
    assert "NOT THE FAULT: 0 faults struck, not one" in report.text(judged(story, single=True))
    story.fault(10, "none", name="etcd-compacted")
    assert judged(story, single=True).held
    story.faults[0]["trouble"] = "etcd was not compacted"
    assert judged(story, single=True).broken == {"fault": 1}
    assert judged(story).held
    assert "etcd-compacted at 10 s was not whole: etcd was not compacted" in report.text(judged(story))
    story.faults[0]["trouble"] = ""
    story.run["skipped"] = ["kill: no node is free"]
    assert judged(story, single=True).broken == {"fault": 1}


# --- recovery and memory ---------------------------------------------------------------------------------------------


def test_a_node_that_did_nothing_after_the_last_fault_is_found(story):
    story.fault(0, "silent", "n2", lasts_s=0.5)
    story.crawled()
    for i in range(20):
        story.sample(i * 5, "n1", 80)
    story.sample(5, "n2", 80)
    verdict = judged(story)
    assert verdict.idle_nodes == ("n2",)
    assert verdict.broken == {"recovery": 1}
    story.asks(20, story.pages[0], "n2", outcome="failed:timeout", tenure=2)
    assert judged(story).idle_nodes == ()


@pytest.mark.parametrize(
    "run", [{"recovered_s": None}, {"died_alone": [{"node": "n1", "status": 1}]}, {"drained": {"n1": -9}}]
)
def test_who_did_not_recover_is_told(story, run):
    story.crawled()
    story.run |= run
    assert judged(story).broken == {"recovery": 1}


def test_where_readiness_was_asked_a_crawl_that_is_over_idles_nobody(story):
    story.fault(290, "silent", "n2", lasts_s=0.5)
    story.crawled()
    story.sample(5, "n2", 80)
    story.run["recovered_s"] = 0.5
    assert judged(story).held


def test_memory_that_grows_is_found_in_the_longest_life_of_a_process(story):
    story.crawled()
    for i in range(60):
        story.sample(i * 5, "n1", 80 + i, pid=7)
        story.sample(i * 5, "n2", 80 + (i % 20) * 3, pid=i // 20)
        story.sample(i * 5, "redis", 50 + i)
    verdict = judged(story)
    found = {one.process: one for one in verdict.memory}
    assert found["n1"].flat is False
    assert found["n1"].growth_mb == pytest.approx(30)
    assert found["n2"].minutes == pytest.approx(95 / 60)
    assert found["redis"].flat is False
    assert verdict.broken == {"memory": 2}, "a store grows with what is found"


def test_a_site_that_falls_silent_with_pages_to_ask_is_found(story):
    story.crawled(but=(story.pages[3],))
    story.run["calm_s"] = stories.START_S + 10
    story.asks(40, story.pages[3])
    assert judged(story).held
    del story.requests[-1], story.crawl[-1]
    story.asks(50, story.pages[3])
    verdict = judged(story)
    assert verdict.broken == {"liveness": 1}
    assert f"SILENT  {story.one.name} for 40.0 s of 31.0 s from 10.0 s on, with 1 pages" in report.text(verdict)
    story.asks(12, f"http://{story.one.name}/p/9999.html", outcome="failed:timeout")
    story.requests.pop()
    assert not judged(story).quiet, "it backs off"


def test_memory_that_grows_in_every_life_is_found_by_its_slope(story):
    story.crawled()
    for life in range(3):
        for i in range(40):
            story.sample(life * 200 + i * 5, "n1", 80 + i * 5 / 60 * 1.5, pid=life)
            story.sample(life * 200 + i * 5, "n2", 80 + i * 5 / 60 * 0.5, pid=life)
    found = {one.process: one for one in judged(story).memory}
    assert (found["n1"].flat, found["n1"].mb_a_minute) == (False, pytest.approx(1.5))
    assert (found["n2"].flat, found["n2"].mb_a_minute) == (True, pytest.approx(0.5))
    assert "1 of 2 nodes grew" in report.text(judged(story))


def test_a_short_life_says_nothing_of_memory(story):
    story.crawled()
    for i in range(5):
        story.sample(i * 5, "n1", 80 + 30 * i)
    assert judged(story).memory[0].flat is None
    assert judged(story).held
    assert "none    memory              not judged (1 of 1 too short)" in report.text(judged(story))


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_table_of_faults_adds_runs_up_and_puts_the_broken_first(story):
    test_takeovers.taken(story, "crash", asked_s=6.5)
    story.crawled(but=(story.pages[0],))
    good = judged(story, single=True)
    bad = stories.Story()
    bad.crawled(but=(bad.pages[1],))
    table = report.combine([("kill", good), ("kill", good), ("term", judged(bad, single=True))])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    assert [row[0] for row in rows[2:]] == ["term", "kill"]
    kill = dict(zip(rows[0], rows[3], strict=True))
    assert (kill["runs"], kill["sites moved"], kill["worst s"], kill["bound s"]) == ("2", "2", "6.50", "7.75")
    assert kill["violations"] == "none"
    assert "P2 nothing lost 1" in rows[2][-1]


def test_a_run_that_did_not_finish_makes_the_series_fail(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(faults_alone, "_spawn", lambda *_: 0)
    options = argparse.Namespace(store="single", faults="kill", runs=2, out=tmp_path / "out", at_once=1)
    assert faults_alone.run_all(options) == faults_alone.NO
    assert "did not finish 2" in (tmp_path / "out" / "faults.md").read_text()


def test_a_run_that_left_nothing_stands_in_the_table(story):
    test_takeovers.taken(story, "crash", asked_s=6.5)
    table = report.combine([("kill", judged(story, single=True))], unfinished=["kill", "term"])
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    found = {row[0]: row for row in rows[2:]}
    assert "did not finish 1" in found["kill"][-1]
    assert found["kill"][1] == "2"
    assert found["term"][-1] == "did not finish 1"
