"""What the logs and the records say of a drill, put into its report.

The audit of the nodes' own crawl logs is the judge of gaps, repeats and fencing; it reads the files, and no store.
"""

import asyncio
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from coordinator import auditing, drill_report, drill_scene
from shared import audit, clock, errors


async def report(scene: drill_scene.Scene, before: drill_scene.Before, trouble: str) -> drill_report.Report:
    await drill_scene.follow(scene)
    moves, idle, now_ms = scene.moves, frozenset(await drill_scene.idle(scene)), clock.wall_ms()
    after = await drill_scene.counts(scene.store)
    gone = drill_report.lost(before.counts, after)
    takeover = drill_report.times(
        moves,
        began_ms=scene.began_ms + scene.store_ahead_ms,
        now_ms=now_ms + scene.store_ahead_ms,
        within_s=drill_report.promised_s(scene.fault, scene.settings.membership),
        idle=idle,
    )
    lines, found = await asyncio.to_thread(audited, scene)
    verdicts = drill_report.verdicts(
        found,
        gone=gone,
        seen=sum(count.seen for count in after.values()),
        takeover=takeover,
        moved=len(moves),
        recovered=trouble,
    )
    resumed_ms = resumed(scene, lines)
    return drill_report.Report(
        fault=scene.fault,
        node=scene.node,
        stores=scene.stores,
        began_ms=scene.began_ms,
        healed_ms=scene.healed_ms,
        sites_owned=len(before.owned),
        pending_owned=before.pending,
        moved=len({move.moved.site for move in moves}),
        back=_back(scene),
        takeover=takeover,
        bound=drill_report.bound_text(scene.fault, scene.settings.membership) if moves else None,
        resumed_s=None if resumed_ms is None or scene.healed_ms is None else (resumed_ms - scene.healed_ms) / 1000,
        requests=len(lines),
        smallest_gap_ratio=found.smallest_gap_ratio if found else None,
        repeats=found.repeats if found else 0,
        lost=sum(gone.values()),
        promises=verdicts,
        kept=all(verdict.holds for verdict in verdicts),
    )


class Line(msgspec.Struct, frozen=True):
    """As much of a crawl line as choosing it needs."""

    start_ms: int
    node: str


def audited(scene: drill_scene.Scene) -> tuple[list[Line], audit.Findings | None]:
    """The requests since it began, and what the audit says of them; a minute before them is its background."""
    logs = sorted(Path(scene.link.hello.out).glob("crawl-*.jsonl"))
    decode = msgspec.json.Decoder(Line).decode
    since: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="crawlring-drill-") as folder:
        whole, background = Path(folder) / "whole", Path(folder) / "background"
        with whole.open("wb") as all_lines, background.open("wb") as earlier:
            for raw in _raw_lines(logs):
                try:
                    line = decode(raw)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue  # the unfinished last line of a node that was killed
                if line.start_ms < scene.began_ms - drill_scene.BEFORE_S * 1000:
                    continue
                all_lines.write(raw)
                if line.start_ms >= scene.began_ms:
                    since.append(line)
                else:
                    earlier.write(raw)
        return since, _findings(whole, background, scene) if since else None


def _findings(whole: Path, background: Path, scene: drill_scene.Scene) -> audit.Findings:
    """Of the requests since it began: what the background shows by itself is taken off again."""
    found = auditing.judge([whole], scene.entries)
    try:
        before = auditing.judge([background], ())
    except errors.ConfigError:  # nothing was asked for in that minute
        return found
    violations = tuple(one for one in found.violations if one.start_ms >= scene.began_ms)
    return msgspec.structs.replace(
        found, violations=violations, gaps=found.gaps - before.gaps, repeats=found.repeats - before.repeats
    )


def _raw_lines(logs: Iterable[Path]) -> Iterable[bytes]:
    for log in logs:
        with log.open("rb") as lines:
            for raw in lines:
                if raw.endswith(b"\n"):
                    yield raw


def resumed(scene: drill_scene.Scene, lines: Sequence[Line]) -> int | None:
    """When the node, or any where a store was restarted, made its first request after the heal."""
    healed_ms = scene.healed_ms
    if healed_ms is None:
        return None
    asked = [line.start_ms for line in lines if line.start_ms >= healed_ms and scene.node in {None, line.node}]
    return min(asked, default=None)


def _back(scene: drill_scene.Scene) -> int:
    """Sites that the node got back, or got, since it began."""
    since_ms = scene.began_ms + scene.store_ahead_ms
    return len(
        {
            entry.site
            for entry in scene.entries
            if entry.kind == "moved"
            and entry.to == scene.node
            and entry.from_node != scene.node
            and entry.time_ms >= since_ms
            and scene.node is not None
        }
    )
