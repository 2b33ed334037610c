"""The node: session -> ownership -> schedule -> visits, in one TaskGroup; started, watched and ended here."""

import asyncio
import contextlib
import gc
import heapq
import signal
from pathlib import Path
from typing import Any

import msgspec
import tenacity

from node import addresses, connections, dns, fetch, runner, status, traps, turn
from node.sinks import chosen
from shared import (
    agreement,
    clock,
    config,
    errors,
    etcd,
    etcd_access,
    frontier,
    keys,
    logs,
    membership,
    metrics,
    records,
    ring,
    sites,
    stores,
    urls,
)

REPORT_S = 1.0  # a node's own figures, for `status`
RETRY_MIN_S, RETRY_MAX_S = 0.2, 5.0  # between tries to reach a store at the start
YOUNG_OBJECTS = 20_000  # made and not freed before the garbage collector looks: visits free theirs without it

log = logs.get("node.agent")


def run(settings: config.Config) -> int:
    """Run a node until it has drained; returns the exit status. Raises ConfigError where it may not start."""
    config.require_user_agent(settings)
    if not settings.node.id:
        raise errors.ConfigError("a node needs an --id that no other node has")
    logs.configure(node=settings.node.id)
    gc.freeze()  # what is loaded by now stays: it is not looked through again
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    return asyncio.run(Agent(settings).run())


class Agent:
    """One node process."""

    def __init__(self, settings: config.Config) -> None:
        self.settings = settings
        self.me = settings.node.id
        self.counts = metrics.Metrics()
        self.places = sites.Sites(settings.sites.private_suffixes)
        self.session: membership.Session | None = None
        self.runner: runner.Runner | None = None
        self.store: frontier.Frontier | None = None
        self.trouble = "starting"
        self._signals = 0
        self._run_id = ""
        self._drained = False

    async def run(self) -> int:
        server = status.StatusServer(
            self.settings.node.listen,
            metrics=self.counts,
            ready=self.not_ready,
            state=self.state,
            names=self.settings.node.listen_names,
        )
        host, port = await server.start()
        address = f"{host}:{port}"
        log.info("node.started", listen=address, cluster=self.settings.cluster)
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        assert main is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, main)
        try:
            await self._crawl(address)
        except asyncio.CancelledError:
            log.warning("node.stopped", drained=False)
            return 0 if self.session is None else 1  # before it had joined there was nothing to drain
        finally:
            await server.close()
        log.info("node.left", drained=self._drained)
        return 0 if self._drained else 1

    def _signalled(self, main: "asyncio.Task[Any]") -> None:
        """The first signal drains, a second one stops at once; so does the first before there is anything to drain."""
        self._signals += 1
        if self._signals == 1 and self.session is not None:
            self.session.feed(agreement.Drain())
        else:
            main.cancel()

    async def _crawl(self, address: str) -> None:
        """Open the stores, join, work until the session ends."""
        async with contextlib.AsyncExitStack() as stack:
            self.store = store = await self._open_store()
            stack.push_async_callback(store.close)
            keeper = etcd.Etcd.of(self.settings)
            stack.callback(keeper.close)
            await self._reach_etcd(keeper)
            fetcher = self._fetcher()
            await fetcher.start()
            stack.push_async_callback(fetcher.close)
            self.session = session = self._session(keeper, address)
            self.runner = work = runner.Runner(
                self.settings, store=store, fetcher=fetcher, session=lambda: session, counts=self.counts
            )
            work.tools = self._tools(work, fetcher, stack)
            self.trouble = ""
            await self._until_left(session, work)

    async def _until_left(self, session: membership.Session, work: runner.Runner) -> None:
        """One TaskGroup: when the session ends, by drain or by refusal, everything else ends with it."""

        async def lead() -> None:
            try:
                self._drained = await session.run()
            finally:
                work.over = True
            raise _Left

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(work.run())
                group.create_task(self._report_forever(work))
                group.create_task(lead())
        except* _Left:
            pass
        except* errors.StoreUnavailable:
            pass  # what was tried again until the session ended
        except* errors.CrawlError as refusals:
            raise _first(refusals) from None
        with contextlib.suppress(errors.StoreUnavailable):
            await work.chronicle.write(work.store)
            await self._report(work, "left")

    # -- parts

    def _session(self, keeper: etcd.Etcd, address: str) -> membership.Session:
        member = self.settings.membership
        value = records.MemberValue(
            weight=self.settings.node.weight,
            address=address,
            fingerprint=membership.fingerprint(self.settings, sites_digest=self.places.digest),
        )
        loop = asyncio.get_running_loop()

        def proposed(view: records.View, epoch: int) -> None:
            loop.call_soon_threadsafe(self._proposed, view, epoch)

        return membership.Session(
            keeper,
            self.settings.cluster,
            node=self.me,
            value=value,
            settings=membership.settings_of(member),
            on_effect=lambda effect, now_s: self.runner.on_effect(effect, now_s) if self.runner else None,
            on_proposed=proposed,
            on_lost=self.counts.store_errors.labels("etcd").inc,
            drain_s=member.drain_s,
            log=logs.get("shared.membership"),
        )

    def _fetcher(self) -> fetch.Fetcher:
        node, polite = self.settings.node, self.settings.politeness
        named, store = _store_addresses(self.settings), self.store
        resolver = dns.Resolver(
            allow_private=node.allow_private,
            connect_to=node.connect_to,
            stores=lambda: [*named, *(store.servers() if store else ())],
        )
        return fetch.Fetcher(
            user_agent=self.settings.identity.user_agent,
            limits=self.settings.limits,
            resolver=resolver,
            idle_max=connections.room(),
            tls_faults=node.tls_faults,
            crowd=addresses.Addresses(polite.address_delay_s, (*addresses.LOOPBACK, *polite.address_exempt)),
        )

    def _tools(self, work: runner.Runner, fetcher: fetch.Fetcher, stack: contextlib.AsyncExitStack) -> turn.Tools:
        out = Path(self.settings.node.out)
        crawl_log = logs.CrawlLog(out / f"crawl-{self.me}.jsonl")
        stack.callback(crawl_log.close)
        sinks = chosen.open_sinks(self.settings, self.me, counts=self.counts, kept=work.disk.kept)
        stack.callback(sinks.close)
        assert self.store is not None
        return turn.Tools(
            settings=self.settings,
            node=self.me,
            fetcher=fetcher,
            store=self.store,
            places=self.places,
            score_of=self._score,
            owner_of=work.owned.owner_of,
            epoch=lambda: work.owned.placement.epoch if work.owned.placement else 0,
            crawl_log=crawl_log,
            sinks=sinks,
            form=urls.Form.of(self.settings.sites),
            steering=work.steering,
            watch=traps.Watch(alike_max=self.settings.limits.alike_max),
            counts=self.counts,
            clock_error_ms=work.clock_error_ms,
            answered=work.answered,
            store_ms=lambda: work.store_ms_at(clock.boot_s()),
            persist=work.persist,
            on_request=work.on_request,
            kept=work.disk.kept,
        )

    def _score(self, site: str) -> int:
        return ring.score_of(self.settings.ring.algorithm, site)

    # -- stores at the start

    async def _open_store(self) -> frontier.Frontier:
        settings = self.settings
        opened: frontier.Frontier = await self._reach(
            "redis",
            config.without_password(settings.redis),
            lambda: frontier.Frontier.open(settings.redis, settings.cluster, durability=settings.durability),
        )
        return opened

    async def _reach_etcd(self, keeper: etcd.Etcd) -> None:
        names = keys.EtcdKeys(self.settings.cluster)
        await self._reach("etcd", self.settings.etcd, lambda: asyncio.to_thread(keeper.reach, names))

    async def _reach(self, name: str, address: str, ask: Any) -> Any:
        """Try until it answers, saying what is tried: a store may start after its nodes.

        Not where it answers that it does not let us in: that is for the operator.
        """
        async for attempt in tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential_jitter(multiplier=RETRY_MIN_S, max=RETRY_MAX_S),
            retry=tenacity.retry_if_exception(_may_pass),
            reraise=True,
        ):
            with attempt:
                try:
                    return await ask()
                except errors.StoreUnavailable as error:
                    self.trouble = f"{name} at {address} does not answer: {error}"
                    log.warning(
                        "store.unreachable",
                        store=name,
                        address=address,
                        error=str(error),
                        again="with growing pauses, until it answers",
                    )
                    raise
        raise AssertionError("tenacity ends only by an answer")

    # -- what others may ask

    def not_ready(self) -> str | None:
        """Why this node is not at work; None while it is."""
        if self.session is None or self.runner is None:
            return self.trouble
        if self.session.trouble:
            return self.session.trouble
        if self.runner.trouble:
            return self.runner.trouble
        if self.runner.disk.trouble:
            return self.runner.disk.trouble
        return None if self.session.joined else f"not a member yet ({self.session.state.phase})"

    def state(self) -> dict[str, Any]:
        """For /state: the report, and the sites that come next."""
        if self.runner is None:
            return {"id": self.me, "state": self.trouble}
        held = heapq.nsmallest(status.SITES_MAX, self.runner.owned.sites.values(), key=lambda one: one.ready_s)
        now_s = clock.boot_s()
        rows = [
            {
                "site": one.site,
                "phase": str(one.phase),
                "tenure": one.tenure,
                "due_in_s": round(one.ready_s - now_s, 3) if one.record else None,
                "pending": one.record.pending if one.record else None,
            }
            for one in held
        ]
        return {
            **msgspec.to_builtins(self._figures(self.runner, self._standing())),
            "not_ready": self.not_ready(),
            "sites_held": rows,
        }

    def _standing(self) -> str:
        if self.session is None or not self.session.joined:
            return "joining"
        if self.session.state.draining:
            return "draining"
        return "paused" if self.not_ready() else "member"

    async def _report_forever(self, work: runner.Runner) -> None:
        while not work.over:
            try:
                await work.steer()
                await work.measure_clock()
                run_id = await self.store.run_id() if self.store else ""
                if self._run_id and run_id != self._run_id and work.tools is not None:
                    # Another life of the store may have forgotten what it answered, index entries included: P2.
                    work.tools.offered.clear()
                    work.steering.forget()
                    await work.store.enter({site: self._score(site) for site in work.owned.holding.known()})
                self._run_id = run_id
                await work.store.tell_owners(work.owned.owner_of)
                await self._report(work, self._standing())
            except errors.StoreUnavailable as error:
                work.lose_store(error)
            await asyncio.sleep(REPORT_S)

    async def _report(self, work: runner.Runner, standing: str) -> None:
        figures = self._figures(work, standing)
        counts = self.counts
        counts.in_flight.set(figures.in_flight)
        counts.pending.set(figures.pending)
        counts.confirm_age_seconds.set(figures.confirm_age_s)
        for name, count in work.owned.phases().items():
            counts.sites.labels(name).set(count)
        if self.store is not None:
            await self.store.report(figures)

    def _figures(self, work: runner.Runner, standing: str) -> records.NodeReport:
        session = self.session
        assert session is not None
        held = work.owned.holding
        return records.NodeReport(
            id=self.me,
            incarnation=session.state.incarnation,
            epoch=session.state.epoch,
            weight=self.settings.node.weight,
            address=session.state.value.address,
            time_ms=work.store_ms_at(clock.boot_s()),
            state=standing,
            sites=held.owned(),
            held=len(held.sites),
            unlooked=held.unlooked(),
            pending=held.pending,
            later=held.later,
            in_flight=len(work.visits),
            pages=work.pages,
            requests=work.requests,
            unclaimed=work.owned.unclaimed(),
            confirm_age_s=round(min(clock.boot_s() - session.state.confirmed_s, 1e9), 3),
            fenced=work.fenced,
            late_contacts=work.late,
            smallest_gap_ratio=work.smallest_gap_ratio,
            later_in_s=held.later_in_s(),
            scope=work.steering.scope.digest,
            scope_version=work.steering.scope_version,
            pause_version=work.steering.pauses.version,
        )

    # -- epoch summaries: written by the node whose proposal became the view

    def _proposed(self, view: records.View, epoch: int) -> None:
        if self.runner is not None:
            self.runner.note_epoch(view, epoch)


def _store_addresses(settings: config.Config) -> list[tuple[str, int]]:
    """Where this node's own stores listen, as far as its configuration says."""
    found = [(one.host.strip("[]"), one.port) for one in etcd_access.endpoints(settings.etcd)]
    place = stores.place(settings.redis, call_s=1.0, strict=False)
    found += [(one.host, one.port) for one in place.addresses]
    if not place.clustered and "path" not in place.options:
        found.append((place.options.get("host", "localhost"), place.options.get("port", stores.PORT)))
    return found


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, errors.StoreUnavailable) and not isinstance(error, errors.StoreForbidden)


def _first(group: BaseExceptionGroup[errors.CrawlError]) -> BaseException:
    """The first error itself, however deep the groups are nested."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


class _Left(Exception):  # not an error: the way one task of a group ends the others
    """The session has ended: drained."""
