"""`--until-idle` ends only when every node has said for a while that nothing is pending anywhere."""

import asyncio
import os
import signal

import pytest

from coordinator import watching
from shared import records


def report(node: str = "n1", *, time_ms: int = 0, **figures) -> records.NodeReport:
    return records.NodeReport(
        **{
            "id": node,
            "incarnation": 1,
            "epoch": 1,
            "weight": 1.0,
            "address": "",
            "time_ms": time_ms,
            "state": "member",
            "sites": 5,
            **figures,
        }
    )


@pytest.mark.parametrize(
    ("figures", "quiet"),
    [
        ({}, True),
        ({"sites": 6}, True),
        ({"sites": 4}, False),
        ({"pending": 1}, False),
        ({"in_flight": 1}, False),
        ({"unclaimed": 1}, False),
        ({"state": "joining"}, False),
        ({"state": "paused"}, False),
        ({"later": 3, "later_in_s": 3_600.0}, True),
        ({"later": 3, "later_in_s": 2.0}, False),
    ],
)
def test_quiet_is_judged_from_each_figure(figures: dict, quiet: bool):
    assert watching.is_quiet([report(**figures)], sites=5) is quiet


def look(quiet: watching.Quiet, now_s: float, *, alive: tuple[str, ...] = ("n1",), **figures) -> bool:
    reports = {node: report(node, time_ms=int(now_s) * 1000, **figures) for node in alive}
    return quiet.see(reports, alive=alive, sites=5, now_s=now_s)


def test_it_ends_after_two_quiet_seconds_and_three_reports():
    quiet = watching.Quiet()
    assert [look(quiet, now_s / 2) for now_s in range(5)] == [False, False, False, False, True]


def test_one_report_read_often_is_not_enough():
    quiet = watching.Quiet()
    stale = {"n1": report()}
    assert not any(quiet.see(stale, alive=["n1"], sites=5, now_s=float(now_s)) for now_s in range(10))


def test_any_work_begins_the_wait_anew():
    quiet = watching.Quiet()
    looks = [
        look(quiet, 0),
        look(quiet, 1),
        look(quiet, 2, pending=1),
        look(quiet, 3),
        look(quiet, 4),
        look(quiet, 5),
    ]
    assert looks == [False, False, False, False, False, True]


def test_a_silent_or_missing_node_is_not_idle():
    quiet = watching.Quiet()
    one = {"n1": report()}
    assert not any(quiet.see(one, alive=["n1", "n2"], sites=5, now_s=float(now_s)) for now_s in range(9))
    assert not any(quiet.see({}, alive=[], sites=0, now_s=float(now_s)) for now_s in range(9))


def test_progress_sums_all_nodes():
    line = watching.progress({"n1": report(pages=1_500, pending=7), "n2": report(pages=500)}, elapsed_s=10)
    assert line == "pages 2,000  pending 7  later 0  sites 10  nodes 2  200 pages/s"


def test_a_plain_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]):
    ticker = watching.Ticker()
    ticker.show("too early")
    ticker.say("kept")
    assert capsys.readouterr().err == "kept\n"
    ticker._last_s -= watching.PLAIN_LINE_S
    ticker.show("now")
    ticker.show("too early")
    assert capsys.readouterr().err == "now\n"


async def test_interrupts_are_counted_and_end_a_wait():
    interrupts = watching.Interrupts()
    loop = asyncio.get_running_loop()
    loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
    await interrupts.wait(30)
    assert interrupts.count == 1
    loop.call_soon(os.kill, os.getpid(), signal.SIGINT)
    await interrupts.wait(30)
    assert interrupts.count == 2
    await interrupts.wait(0.01)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
