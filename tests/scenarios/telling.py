"""A run in words: what an answer of etcd comes to, and why a process thinks that a site is its own."""

from typing import Any

from shared import agreement
from tests.scenarios.processes import Process


def answered(call: agreement.Call, event: Any, revision: int) -> str | None:
    """What this answer changed for the others; None where it is not worth a line."""
    match call, event:
        case agreement.Join(), agreement.Joined():
            return f"joins as incarnation {event.incarnation}"
        case agreement.Propose(), agreement.Done():
            view = call.view
            who = ", ".join(f"{node}/{member.incarnation}" for node, member in view.members.items())
            elders = ", ".join(f"{node or 'whoever was before'}/{number}" for node, number in view.elders)
            placed = "".join(f"; {site} on {node}" for site, node in view.overrides.items())
            return f"proposed view {revision} of {who}; elders {elders}{placed}"
        case agreement.Confirm(), agreement.Confirmed() if call.applied == call.epoch:
            return f"has acknowledged view {agreement.revision_of(call.applied)}"
        case agreement.Resign() | agreement.Leave(), agreement.Done():
            return f"has resigned incarnation {call.incarnation}"
    return None


def why(process: Process, site: str, t: float) -> str:
    """How this process knows that nobody else can act on the site any more."""
    era = process.owner.gained_in(site)
    if era is None:
        return "not its own by any view"
    known = ", ".join(f"{node} by {proof}" for node, proof in sorted(era.how.items()))
    waited_s = process.boot_s(t) - era.seen_s
    return f"gained with view {agreement.revision_of(era.placement.epoch)}, " + (
        f"all past it ({known})" if known else f"seen {waited_s:.2f} s before"
    )
