"""The metrics of one process: `crawlring_<noun>_<unit>`, bounded labels, never a site."""

from typing import Final

import prometheus_client

STATES: Final = ("waiting", "claiming", "resting", "visiting")
STORES: Final = ("etcd", "redis")
_GAP_BUCKETS: Final = (0.5, 0.9, 0.99, 1.0, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0, 10.0, 100.0)
_TAKEOVER_BUCKETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0, 300.0)
_DURATION_BUCKETS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0)


class Metrics:
    """All metrics of a node; each instance has a registry of its own, so that two never mix."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self._of_requests()
        self._of_ownership()
        # Series that exist from the start read 0 instead of nothing: an alert on a rate needs that.
        for store in STORES:
            self.store_errors.labels(store)
        for state in STATES:
            self.sites.labels(state)

    def _of_requests(self) -> None:
        registry = self.registry
        self.requests = prometheus_client.Counter(
            "crawlring_requests",
            "Requests sent, by what they came to.",
            ["outcome", "status"],
            registry=registry,
        )
        self.pages = prometheus_client.Counter("crawlring_pages", "Page visits committed.", registry=registry)
        self.body_bytes = prometheus_client.Counter(
            "crawlring_body_bytes", "Bytes of bodies as received.", registry=registry
        )
        self.links = prometheus_client.Counter(
            "crawlring_links", "Links found, by what the frontier said.", ["answer"], registry=registry
        )
        self.handler_failures = prometheus_client.Counter(
            "crawlring_handler_failures", "Pages that the handler failed on.", ["kind"], registry=registry
        )
        self.robots = prometheus_client.Counter(
            "crawlring_robots_answers", "Answers to robots.txt, by what they came to.", ["answer"], registry=registry
        )
        self.crawl_delays_capped = prometheus_client.Counter(
            "crawlring_capped_crawl_delays",
            "Answers to robots.txt whose Crawl-delay was cut to politeness.delay_cap_s.",
            registry=registry,
        )
        self.fetch_seconds = prometheus_client.Histogram(
            "crawlring_fetch_seconds", "Time of one request.", buckets=_DURATION_BUCKETS, registry=registry
        )
        self.gap_ratio = prometheus_client.Histogram(
            "crawlring_gap_ratio",
            "Gap between two requests of a site over the gap that was required (P1: never below 1).",
            buckets=_GAP_BUCKETS,
            registry=registry,
        )

    def _of_ownership(self) -> None:
        registry = self.registry
        self.takeover_seconds = prometheus_client.Histogram(
            "crawlring_takeover_seconds",
            "From the view that gave a site to its first request (P5).",
            buckets=_TAKEOVER_BUCKETS,
            registry=registry,
        )
        self.sites = prometheus_client.Gauge("crawlring_sites", "Sites owned, by state.", ["state"], registry=registry)
        self.in_flight = prometheus_client.Gauge("crawlring_in_flight_requests", "Requests now.", registry=registry)
        self.pending = prometheus_client.Gauge("crawlring_pending_urls", "URLs queued.", registry=registry)
        self.fenced = prometheus_client.Counter(
            "crawlring_fenced_writes",
            "Commits refused because a newer tenure holds the site (P4).",
            registry=registry,
        )
        self.damaged = prometheus_client.Counter(
            "crawlring_damaged_sites",
            "Times that a site was left alone because the store's bytes of it cannot be read.",
            registry=registry,
        )
        self.late_contacts = prometheus_client.Counter(
            "crawlring_late_contacts",
            "Contacts reset because the guard was overtaken by time.",
            registry=registry,
        )
        self.confirm_age_seconds = prometheus_client.Gauge(
            "crawlring_confirm_age_seconds", "Since the last answered confirm was sent.", registry=registry
        )
        self.epoch = prometheus_client.Gauge("crawlring_epoch_number", "Epoch in force.", registry=registry)
        self.moves = prometheus_client.Counter(
            "crawlring_moved_sites",
            "Sites gained, by how the move settled.",
            ["settled_by"],
            registry=registry,
        )
        self.store_errors = prometheus_client.Counter(
            "crawlring_store_errors",
            "Times that a store stopped answering.",
            ["store"],
            registry=registry,
        )

    def request(self, outcome: str, *, status: int | None) -> None:
        """Count one request; the status is kept as its class, so that labels stay few."""
        self.requests.labels(outcome, f"{status // 100}xx" if status and 100 <= status < 600 else "none").inc()

    def render(self) -> bytes:
        """The text that /metrics answers."""
        return prometheus_client.generate_latest(self.registry)
