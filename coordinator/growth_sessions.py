"""A cluster's membership in virtual time: the project's own `views`, run by many sessions against `growth_etcd`.

Pure. A session turns as `shared.membership` turns it: at each answer, and every 0.05 s. Beyond `SESSIONS` nodes a
session stands for several that do the same at the same moment; the node that comes or goes is always its own. The
clocks of all run alike, no call is lost, and nobody is slow: what a membership event costs when nothing is wrong.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator import growth_etcd
from shared import agreement, keys, records, views

SESSIONS = 48  # in full; the 48 phases of their looks are within 1/48 s of those of a thousand nodes
TICK_S = 0.05  # membership.TICK_S
LATENCY_S = 0.0005  # one way; loopback's, and a machine room's
WATCH_S = 0.001

SETTLE_S = 60.0  # the longest that any event may take to settle
QUIET_S = 3.0  # after it, before the next
STEADY_S = 10.0
CAUSES = ("drain", "join", "crash", "kill-lease")


@dataclass
class Session:
    """One node's session, and those that it stands for."""

    nodes: tuple[str, ...]
    state: agreement.State
    running: bool = True
    settled: dict[int, float] = field(default_factory=dict)
    """Epoch -> when all earlier incarnations were past it."""
    heard: list[tuple[float, agreement.Adopt | agreement.Settle | agreement.StopAll]] = field(default_factory=list)
    """What its owner of sites was told, and when."""


@dataclass(frozen=True, slots=True)
class Event:
    """One membership event; calls, bytes and watch events beyond those of a quiet cluster."""

    cause: str
    node: str
    began_s: float
    before: records.View
    after: records.View
    epochs: tuple[int, int]
    settled_s: tuple[tuple[float, int], ...]
    """Seconds from the beginning to the moment from which a session may claim, with how many nodes do so then."""
    cost: "Counter[str]"
    views: int


@dataclass(frozen=True, slots=True)
class Told:
    """One cluster size."""

    nodes: int
    steady: dict[str, float]
    """Per second, with nobody coming or going."""
    start: "Counter[str]"
    """All that the cluster's start took."""
    events: tuple[Event, ...]


class Cluster:
    """`nodes` members and the sessions that run them."""

    def __init__(
        self,
        nodes: int,
        *,
        settings: agreement.Settings,
        fingerprint: dict[str, str],
        fetch_s: float,
        seed: int,
        sessions: int = SESSIONS,
    ) -> None:
        self.settings = settings
        self.fetch_s = fetch_s
        self.rng = random.Random(f"{seed}/{nodes}")
        self.etcd = growth_etcd.Etcd(keys.EtcdKeys("growth"), ttl_s=settings.lease_ttl_s)
        self.etcd.found(fingerprint)
        self.now_s = 0.0
        self.value = records.MemberValue(weight=1.0, address="http://192.0.2.1:8080", fingerprint=fingerprint)
        self.sessions: list[Session] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        names = [f"node-{number:04}" for number in range(nodes)]
        self.subject = names[-1]
        rest = min(nodes - 1, sessions)
        for number in range(rest):
            self.add(tuple(names[number : nodes - 1 : rest]))
        self.add((self.subject,))
        self.first = tuple(self.sessions)

    def add(self, nodes: tuple[str, ...]) -> Session:
        """Start a session now; it joins by itself."""
        state = agreement.State(me=nodes[0], value=self.value, settings=self.settings)
        session = Session(nodes, state)
        self.sessions.append(session)
        self._at(self.now_s + self.rng.random() * TICK_S, lambda: self._tick(session))
        return session

    def of(self, node: str) -> Session:
        return next(session for session in reversed(self.sessions) if session.nodes[0] == node)

    # -- time

    def run(self, until_s: float, *, over: Callable[[], bool] | None = None) -> None:
        """Until that moment, or until `over`."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, turn = heapq.heappop(self._queue)
            turn()
            if over is not None and over():
                return
        self.now_s = until_s

    def _at(self, at_s: float, turn: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at_s, self._count, turn))

    def _tick(self, session: Session) -> None:
        if not session.running:
            return
        self.etcd.expire(self.now_s)
        self._tell_watchers()
        self.feed(session, agreement.Tick())
        self._at(self.now_s + TICK_S, lambda: self._tick(session))

    # -- one session

    def feed(self, session: Session, event: agreement.Event) -> None:
        """One step of the real rules."""
        if not session.running:
            return
        session.state, effects = views.step(session.state, event, self.now_s)
        if session.state.phase is agreement.Phase.LEFT:
            session.running = False
        for effect in effects:
            match effect:
                case agreement.Adopt():
                    session.heard.append((self.now_s, effect))
                    self._acknowledge(session, effect)
                case agreement.Settle():
                    session.heard.append((self.now_s, effect))
                    session.settled[effect.epoch] = self.now_s
                case agreement.StopAll(incarnation=incarnation):
                    session.heard.append((self.now_s, effect))
                    self.feed(session, agreement.Stopped(incarnation))
                case _:
                    self._send(session, effect)

    def _acknowledge(self, session: Session, adopt: agreement.Adopt) -> None:
        """At once where nothing is lost; where something is, when the last of its visits has ended."""
        epoch, view = adopt.views[-1]
        before = session.heard[-2][1] if len(session.heard) > 1 else None
        known = session.settled and before is not None
        gives = known and (view.members.get(session.nodes[0]) is None or self._grown(session, view))
        wait_s = self.fetch_s if gives else 0.0
        self._at(self.now_s + wait_s, lambda: self.feed(session, agreement.Applied(epoch)))

    def _grown(self, session: Session, view: records.View) -> bool:
        """Does this view give somebody sites that this session had?"""
        earlier = [effect.views[-1][1] for _, effect in session.heard[:-1] if isinstance(effect, agreement.Adopt)]
        weight = view.members[session.nodes[0]].weight
        return bool(earlier) and (weight == 0 or bool(view.members.keys() - earlier[-1].members.keys()))

    def _send(self, session: Session, call: agreement.Call) -> None:
        sent = growth_etcd.Crowd(session.state, session.nodes, self.now_s)
        self._at(self.now_s + LATENCY_S, lambda: self._deliver(session, call, sent))

    def _deliver(self, session: Session, call: agreement.Call, sent: growth_etcd.Crowd) -> None:
        if not session.running:
            return
        event = self.etcd.answer(self.now_s, call, sent)
        self._tell_watchers()
        self._at(self.now_s + LATENCY_S, lambda: self._answered(session, event))

    def _answered(self, session: Session, event: agreement.Event) -> None:
        self.feed(session, event)
        self.feed(session, agreement.Tick())  # the session's loop turns at each answer

    def _tell_watchers(self) -> None:
        if not self.etcd.watched:
            return
        self.etcd.watched = False
        for session in self.sessions:
            if session.running:
                self._at(self.now_s + WATCH_S, lambda session=session: self._answered(session, agreement.Hint()))  # type: ignore[misc]

    # -- what happens

    def begin(self) -> "Counter[str]":
        """From nothing to a view that all hold and that everyone earlier is past."""
        self._settle(lambda view: len(view.members) == sum(len(session.nodes) for session in self.sessions))
        return Counter(self.etcd.counts)

    def steady(self) -> dict[str, float]:
        """Calls, bytes and events per second while nothing happens."""
        self.run(self.now_s + QUIET_S)
        before, began_s = Counter(self.etcd.counts), self.now_s
        self.run(self.now_s + STEADY_S)
        return {name: count / (self.now_s - began_s) for name, count in (self.etcd.counts - before).items()}

    def event(self, cause: str, quiet: dict[str, float]) -> Event:
        """The subject drains, joins, crashes or loses its lease, at a moment that falls anywhere between two looks."""
        self.run(self.now_s + QUIET_S + self.rng.random())
        before, began_s, counts = self.etcd.view, self.now_s, Counter(self.etcd.counts)
        assert before is not None
        epoch, views_before = self.etcd.epoch, len(self.etcd.history)
        session = self.of(self.subject)
        match cause:
            case "drain":
                self.feed(session, agreement.Drain())
            case "join":
                self.add((self.subject,))
            case "crash":
                session.running = False
            case _:
                self.etcd.drop(self.subject)
                self._tell_watchers()
        stays = cause == "join"
        light = cause == "drain"
        self._settle(lambda view: _listed(view, self.subject) == stays, first=light)
        first_s = self._settled_s(began_s)
        epochs = (epoch, self.etcd.epoch)
        after = self.etcd.view
        assert after is not None
        if light:  # the view without it comes after the one that gives it nothing, and moves no site
            self._settle(lambda view: self.subject not in view.members)
        if cause == "kill-lease":
            session.running = False  # it would join again after rejoin_s
        spent, seconds = self.etcd.counts - counts, self.now_s - began_s
        others = len(before.members.keys() - {self.subject}) / sum(len(each.nodes) for each in self.first)
        usual = {name: rate * seconds * others for name, rate in quiet.items()}
        cost = Counter({name: max(0, round(count - usual.get(name, 0.0))) for name, count in spent.items()})
        return Event(
            cause, self.subject, began_s, before, after, epochs, first_s, cost, len(self.etcd.history) - views_before
        )

    def _settle(self, wanted: Callable[[records.View], bool], *, first: bool = False) -> None:
        """Until every session holds such a view and is past waiting; raises TimeoutError where that takes too long."""

        def over() -> bool:
            view, epoch = self.etcd.view, self.etcd.epoch
            if view is None or not wanted(view):
                return False
            # A session that drains leaves before it settles.
            return all(epoch in session.settled for session in self.sessions if session.running and _in(view, session))

        self.run(self.now_s + SETTLE_S, over=over)
        if not over():
            raise TimeoutError(f"not settled after {SETTLE_S:g} simulated seconds")
        if not first:
            self.run(self.now_s + 2 * LATENCY_S)

    def _settled_s(self, began_s: float) -> tuple[tuple[float, int], ...]:
        epoch = self.etcd.epoch
        found = [
            (session.settled[epoch] - began_s, len(session.nodes))
            for session in self.sessions
            if epoch in session.settled and session.running
        ]
        return tuple(sorted(found))


def measured(
    nodes: int, *, settings: agreement.Settings, fingerprint: dict[str, str], fetch_s: float, seed: int
) -> Told:
    """Start such a cluster, look at it in peace, then let one node drain, join, crash, join, and lose its lease."""
    cluster = Cluster(nodes, settings=settings, fingerprint=fingerprint, fetch_s=fetch_s, seed=seed)
    start = cluster.begin()
    quiet = cluster.steady()
    events: list[Event] = []
    if nodes > 1:
        for cause in ("drain", "join", "crash", "join", "kill-lease"):
            event = cluster.event(cause, quiet)
            if all(event.cause != other.cause for other in events):
                events.append(event)
    return Told(nodes, quiet, start, tuple(events))


def _listed(view: records.View, node: str) -> bool:
    member = view.members.get(node)
    return member is not None and member.weight > 0


def _in(view: records.View, session: Session) -> bool:
    member = view.members.get(session.nodes[0])
    return member is not None and member.weight > 0
