"""Metrics are named and labelled so that a thousand sites cost no more series than one."""

import re

from shared import metrics


def series(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_every_metric_is_named_after_the_project_and_none_has_a_site_label() -> None:
    text = metrics.Metrics().render().decode()
    assert all(line.startswith("crawlring_") for line in series(text))
    labels = set(re.findall(r'[{,](\w+)="', text))
    assert labels <= {"le", "state", "store", "outcome", "status", "answer", "settled_by"}


def test_a_request_is_counted_by_outcome_and_class_of_status() -> None:
    found = metrics.Metrics()
    for status in (200, 204, 404, None, 999):
        found.request("fetched", status=status)
    lines = series(found.render().decode())
    assert 'crawlring_requests_total{outcome="fetched",status="2xx"} 2.0' in lines
    assert 'crawlring_requests_total{outcome="fetched",status="4xx"} 1.0' in lines
    assert 'crawlring_requests_total{outcome="fetched",status="none"} 2.0' in lines


def test_two_instances_share_nothing() -> None:
    one, other = metrics.Metrics(), metrics.Metrics()
    one.pages.inc()
    assert "crawlring_pages_total 1.0" in series(one.render().decode())
    assert "crawlring_pages_total 0.0" in series(other.render().decode())


def test_a_gap_below_what_was_required_is_told_from_one_that_just_met_it() -> None:
    found = metrics.Metrics()
    found.gap_ratio.observe(0.995)
    found.gap_ratio.observe(1.001)
    lines = series(found.render().decode())
    assert 'crawlring_gap_ratio_bucket{le="1.0"} 1.0' in lines
    assert 'crawlring_gap_ratio_bucket{le="1.01"} 2.0' in lines


def test_store_errors_read_zero_from_the_start() -> None:
    lines = series(metrics.Metrics().render().decode())
    assert 'crawlring_store_errors_total{store="etcd"} 0.0' in lines
    assert 'crawlring_store_errors_total{store="redis"} 0.0' in lines
