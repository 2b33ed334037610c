"""Answers from the field and from other clients' tests: one request each, no hang, an outcome of the closed list."""

import asyncio
import base64
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from node import fetch
from shared import records
from tests.node.origins import Gate, Origin, Visitor, fetcher

CONFORMANCE = Path(os.environ.get("CRAWLRING_CONFORMANCE", Path(__file__).parents[3] / "shared" / "conformance"))
REASONS = {"disconnected", "protocol", "headers", "timeout"}
TRUNCATED = {None, "size", "time", "connection", "encoding"}


def rows(name: str) -> dict[str, bytes]:
    """Case id -> the bytes that the origin sends."""
    path = CONFORMANCE / "http" / f"{name}.json"
    if not path.is_file():
        pytest.skip("the conformance data is not there")
    found: dict[str, bytes] = {}
    for case in json.loads(path.read_text())["cases"]:
        for number, raw in enumerate(answers(case)):
            found[f"{case['id']}.{number}"] = raw
    return found


def answers(case: dict[str, Any]) -> list[bytes]:
    if "raw_b64" in case:
        return [base64.b64decode(case["raw_b64"])]
    if "raw_latin1" in case:
        return [case["raw_latin1"].encode("latin-1")]
    return [
        base64.b64decode(part["b64"]) if "b64" in part else part.get("text", "").encode("utf-8", "surrogateescape")
        for part in case["responses"]
    ]


async def outcomes(corpus: dict[str, bytes], *, close: bool, **limits: Any) -> dict[str, fetch.Answer]:
    """Ask for every row once, a few at a time, and check the origin's own log."""
    names = list(corpus)

    async def script(visitor: Visitor) -> None:
        number = int(origin.requests[visitor.number - 1].split()[1][1:])
        await visitor.send(corpus[names[number]])
        if close:
            visitor.writer.close()

    got: dict[str, fetch.Answer] = {}
    async with Origin(script) as origin, fetcher(origin.port, connections=16, **limits) as fetches:

        async def ask(number: int) -> None:
            # A host of its own keeps the rows' connections apart.
            url = f"http://h{number}.example.com/{number}"
            got[names[number]] = await asyncio.wait_for(fetches.fetch(url, permit=Gate().permit()), 10)

        async with asyncio.TaskGroup() as group:
            for number in range(len(names)):
                group.create_task(ask(number))
        asked = Counter(request.split()[1] for request in origin.requests)
    assert set(asked.values()) == {1}
    assert len(asked) == len(names)
    return got


def check(answer: fetch.Answer) -> None:
    assert answer.sent
    match answer.outcome:
        case records.Failed(reason=reason):
            assert reason in REASONS
        case records.Fetched(truncated=truncated):
            assert truncated in TRUNCATED
        case records.NotModified() | records.Redirected():
            pass
        case other:
            pytest.fail(f"an outcome that the wire cannot give: {other}")
    records.encode_json(answer.outcome)


@pytest.mark.parametrize("name", ["field_raw_responses", "llhttp_responses", "curl_http_responses"])
async def test_every_answer_ends_in_an_outcome(name: str) -> None:
    got = await outcomes(rows(name), close=True)
    for answer in got.values():
        check(answer)
    kinds = Counter(type(answer.outcome).__name__ for answer in got.values())
    assert kinds["Fetched"] > 10, "most of them are answers"


async def test_an_origin_that_goes_silent_instead_ends_in_time() -> None:
    got = await outcomes(rows("llhttp_responses"), close=False, first_byte_s=0.3, total_s=2.0)
    for answer in got.values():
        check(answer)


# Field rows and what they come to; the rest is only required to come to something.
EXPECTED = {
    "cl-short.0": ("Fetched", b"mor"),
    "304-with-body.0": ("NotModified", None),
    "204-with-body.0": ("Fetched", b""),
    "ce-gzip-plain.0": ("Fetched", b"plain"),
    "te-gzip-chunked.0": ("Fetched", b"hello"),
    "ce-unknown.0": ("Fetched", b"hello"),
    "status-999.0": ("Fetched", b"ok"),
    "hdr-lf-only.0": ("Fetched", b"ok"),
    "hdr-8bit.0": ("Fetched", b"ok"),
    "loc-missing.0": ("Fetched", b""),
    "loc-two.0": ("Failed", None),
    "loc-utf8.0": ("Redirected", None),
    "empty-reply.0": ("Failed", None),
    "headers-only-eof.0": ("Failed", None),
    "100-only.0": ("Failed", None),
    "hdr-nul.0": ("Failed", None),
    "status-4digits.0": ("Failed", None),
}


async def test_the_field_rows_come_to_what_they_should() -> None:
    got = await outcomes(rows("field_raw_responses"), close=True)
    for name, (kind, body) in EXPECTED.items():
        outcome = got[name].outcome
        assert type(outcome).__name__ == kind, (name, outcome)
        if isinstance(outcome, records.Fetched) and body is not None:
            assert outcome.body == body, name
    cut = got["ce-gzip-trunc.0"].outcome
    assert isinstance(cut, records.Fetched)
    assert cut.truncated == "encoding"
    twice = got["ce-double.0"].outcome
    assert isinstance(twice, records.Fetched)
    assert twice.truncated is None
