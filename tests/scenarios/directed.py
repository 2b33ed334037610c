"""For each weakened rule the shortest schedule that strikes exactly there, written by hand.

Three nodes without chance in them: n0 holds the site from second 10 on and asks it about once a second. At `AT_S` it
loses etcd or its key; the site goes to n1, mostly. The protocol as it is passes all of these.
"""

from tests.scenarios import moves
from tests.scenarios.moves import Move

AT_S = 14.0
SITE, OTHER = "s0.example", "s1.example"
ALL = ("watch", "look", "confirm", "propose", "resign", "keepalive")
NO_WORD = ("watch", "look", "confirm", "propose")
"""Keep-alives alone still get through."""


def cut(calls: tuple[str, ...], seconds: float, at_s: float = AT_S) -> list[Move]:
    """n0 loses etcd."""
    return [Move(at_s, "cut", 0, call, seconds) for call in calls]


def place(node: str, at_s: float, site: str = SITE) -> Move:
    """Asked for; agreed about a second later, when overrides were gathered."""
    return Move(at_s, "override", site=site, node=node)


def plan(*what: Move | list[Move], more: tuple[moves.Actor, ...] = ()) -> moves.Plan:
    flat = [move for item in what for move in (item if isinstance(item, list) else [item])]
    begin = [place("n0", 1.0), place("n2", 1.0, OTHER)]
    return moves.Plan(
        actors=(*moves.cast("n0", "n1", "n2"), *more),
        moves=tuple(sorted([*begin, *flat], key=lambda move: move.at_s)),
        until_s=AT_S + 16,
        sites=(SITE, OTHER),
    )


def crowded(*what: Move) -> moves.Plan:
    """n0 alone with three sites, of which it holds two."""
    return moves.Plan(
        actors=moves.cast("n0"), moves=what, until_s=AT_S + 16, sites=(SITE, OTHER, "s2.example"), held_max=2
    )


REVOKED = Move(AT_S, "revoke", node="n0")
MOVED = place("n1", AT_S - 1)

PLANS: dict[str, moves.Plan] = {
    # Its confirms are over, its keep-alives are not.
    "keep-alive": plan(cut(NO_WORD, 9, AT_S + 0.5), place("n1", AT_S - 0.5)),
    # The answer to the last confirm comes late.
    "receipt": plan(Move(AT_S - 1, "late answer", 0, "confirm", 4.5), cut(NO_WORD, 9), MOVED),
    "no-VL": plan(cut(NO_WORD, 9), MOVED),
    # Its last request stays in the kernel as long as it can.
    "no-G": plan(cut(NO_WORD, 9), MOVED, Move(AT_S + 3.6, "tail", 0, "visit", 2.2, SITE)),
    "no-D": plan(place("n1", AT_S - 0.4)),
    # The site goes to n1, which never gets it, and from there to n2: n1 is past at once, n0 is not.
    "previous-owner-only": plan(cut(NO_WORD, 9), MOVED, place("n2", AT_S + 0.4)),
    "gone-at-once": plan(cut(ALL, 9), REVOKED),
    # n0 has a request in its kernel while it reads the view that takes the site.
    "ack-before-stop": plan(Move(AT_S - 0.9, "tail", 0, "visit", 2.2, SITE), MOVED),
    "no-elders": plan(cut(ALL, 9), REVOKED),
    # n1 has the site while n0 is away, and hands it back just before n0 returns, who cannot read what was between,
    # and whom the store does not stop: it has forgotten n1's tenure.
    "missed-kept": plan(
        cut(NO_WORD, 10.2),
        MOVED,
        place("n0", AT_S + 8.8),
        Move(AT_S + 10, "compact"),
        Move(AT_S + 10, "amnesia", 0, "claim", site=SITE),
    ),
    # The next view, about another site, finds n1 still waiting.
    "waiting-ready": plan(cut(NO_WORD, 9), MOVED, place("n1", AT_S + 0.8, OTHER)),
    # A second process of n0's id joins as soon as the key of the first is gone.
    "beats-by-id": plan(cut(ALL, 9), REVOKED, place("n1", AT_S), more=(moves.Actor("n0", starts_s=AT_S + 0.2),)),
    "overrides-outside": plan(cut(NO_WORD, 9), place("n1", AT_S + 0.5)),
    # What n1 waits for seems to be over when its wall clock is set.
    "wall-clock": plan(cut(NO_WORD, 9), MOVED, Move(AT_S + 1.2, "wall", 1, seconds=8)),
    "no-silence": plan(cut(NO_WORD, 9), MOVED),
    # Its machine sleeps for 12 s and does not know.
    "no-wall-deadline": plan(cut(ALL, 14), MOVED, Move(AT_S + 0.3, "suspend", 0, seconds=9.5)),
    # Its request is still in the kernel when the site is let go, and another asks for room at once.
    "let-go-early": crowded(Move(AT_S - 2, "tail", 0, "visit", 2.2, SITE)),
    # Two sites have their turns out of step, so that one is back within its delay.
    "taken-up-at-once": crowded(Move(AT_S - 2, "long", 0, "visit", 0.3, OTHER)),
    # Everybody but n0 finds an empty etcd.
    "no-unknown-elder": plan(cut(ALL, 9), Move(AT_S, "restore", call="empty")),
}
