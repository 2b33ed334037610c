"""Rule 5: who can no longer act under an earlier view, judged by each gaining node from one read of its own.

Pure. Asking only the previous owner is not enough: whoever stood in an earlier view may still hold one.
"""

from collections.abc import Mapping

from shared import agreement, records


def verdict(
    state: agreement.State, snapshot: agreement.Snapshot, who: tuple[str, int], now_s: float
) -> records.Settled | None:
    """Rule 5: how we know that this incarnation cannot act under a view before ours; None while we do not."""
    if who == agreement.UNKNOWN:
        return "time" if now_s >= state.generation_seen_s + state.settings.silence_s else None
    node, number = who
    alive = incarnation(snapshot, node) == number
    seen = snapshot.beats.get(number)
    if seen is not None and seen.beat.applied >= state.epoch:
        return "ack"
    if alive:
        return None
    if seen is None:
        return "time"  # its key is gone and it never confirmed: it never had authority
    if seen.beat.resigned:
        return "resigned"
    return "time" if now_s >= _first_saw(state, seen.revision, now_s) + state.settings.silence_s else None


def _first_saw(state: agreement.State, revision: int, now_s: float) -> float:
    return next((at for seen, at in state.revisions if seen >= revision), now_s)


def how(verdicts: Mapping[tuple[str, int], records.Settled | None]) -> dict[str, records.Settled]:
    """By node id; of several incarnations the weakest proof counts."""
    rank = {"ack": 0, "resigned": 1, "time": 2}
    found: dict[str, records.Settled] = {}
    for (node, _), proof in verdicts.items():
        if node and proof is not None and rank[proof] >= rank.get(found.get(node, "ack"), 0):
            found[node] = proof
    return found


def members(view: records.View) -> list[tuple[str, int]]:
    return [(node, member.incarnation) for node, member in view.members.items()]


def named(view: records.View) -> list[tuple[str, int]]:
    return list(dict.fromkeys([*members(view), *view.elders]))


def incarnation(snapshot: agreement.Snapshot, node: str) -> int:
    seen = snapshot.members.get(node)
    return seen.incarnation if seen else 0
