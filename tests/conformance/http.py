"""Answers, redirects, dates, codings, conditions and addresses: other projects' rows, asked for over real sockets.

An answer's row fails when the origin's log shows other than one request, when the fetch hangs, when its outcome is none
of the closed list, or when it is not the outcome that the corpus names (where it names one that is a client's duty).
"""

import asyncio
import base64
import email.utils
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from node import decode, dns, fetch, links, politeness, revisit
from shared import errors, records, urls
from tests import corpus
from tests.conformance.corpora import Corpus, Row
from tests.node.origins import Gate, Origin, Visitor, fetcher

REASONS = {"disconnected", "protocol", "headers", "timeout"}
TRUNCATED = {None, "size", "time", "connection", "encoding", "range"}
HANG_S = 10.0
NOW_MS = 1_559_559_600_000  # 2019-06-03T11:00:00Z, the corpus' own now
DAY_S = 86_400.0
HTTP_DATE = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]+day, \d\d-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})"
)

FIELD: dict[str, tuple[str, str]] = {
    "loc-empty-host": ("bad_redirect", "http://"),
    "loc-missing": ("bad_redirect", ""),
    "loc-utf8": ("http://h.example.com/fa/news/1815565/%D8%A7%D8%B9%D8%B2%D8%A7%D9%85", ""),
    "loc-file": ("redirect_to_unsupported_scheme", ""),
    "loc-badport": ("bad_redirect", ""),
    "loc-userinfo": ("bad_redirect", ""),  # PORT stands where the origin's own would: no number, so no URL
    "loc-two": ("bad_redirect", ""),
    "loc-longlabel": ("bad_redirect", ""),
    "loc-quoted": ("http://h.example.com/http%3A//scrapytest.org/a", ""),
    "loc-space": ("http://h.example.com/a%20b/c%20d", ""),
    "cl-short": ("fetched 200", "mor"),
    "cl-negative": ("protocol", ""),
    "cl-two": ("protocol", ""),
    "cl-and-te": ("fetched 200", "body"),
    "chunk-bad": ("cut connection", "short\r\n"),
    "chunk-trunc": ("cut connection", "hello"),
    "te-gzip-chunked": ("mislabelled 200", "hello"),
    "hdr-nul": ("protocol", ""),
    "hdr-ctl": ("fetched 200", "ok"),
    "hdr-8bit": ("fetched 200", "ok"),
    "hdr-nocolon": ("protocol", ""),
    "hdr-space-colon": ("fetched 200", "ok"),
    "hdr-lf-only": ("fetched 200", "ok"),
    "hdr-crcrlf": ("protocol", ""),
    "http10": ("fetched 200", "<html>old</html>"),
    "status-noreason": ("fetched 200", "ok"),
    "status-999": ("fetched 999", "ok"),
    "status-4digits": ("protocol", ""),
    "empty-reply": ("disconnected", ""),
    "headers-only-eof": ("disconnected", ""),
    "100-only": ("disconnected", ""),
    "304-with-body": ("not_modified", ""),
    "204-with-body": ("fetched 204", ""),
    "ce-gzip-plain": ("mislabelled 200", "plain"),
    "ce-gzip-trunc": ("cut encoding", "hello world"),
    "ce-unknown": ("fetched 200", "hello"),
    "ce-double": ("fetched 200", "hello world"),
    "setcookie-bad": ("fetched 200", "ok"),
    "early-close-keepalive": ("fetched 200", "ok"),
}
"""Row -> the outcome in a word, and how its body begins; after A.6 of the survey and cases.json."""

AT_ONCE = 16  # rows: with more at a time, a busy machine comes late to one, and the guard ends it
CURL_FAULTS = {1, 8, 18, 52, 56, 61, 100}  # exit codes that tell of the answer, and not of curl's own options
CURL_OTHERWISE = {
    "curl-test66": "HTTP/0.9, allowed there by an option",
    "curl-test1164": "HTTP/0.9, allowed there by an option",
    "curl-test3025": "another protocol's status line, allowed there by an option",
    "curl-test395": "a Content-Length beyond 64 bits: protocol",
    "curl-test1556": "a header of 100 KB: beyond limits.header_bytes_max",
    "curl-test2306": "the first header line is folded: protocol",
    "curl-test471": "the fault is in a second answer on the connection, and a row is one request",
    "curl-test1479": "the fault is in a second answer on the connection, and a row is one request",
    "curl-test772": "two Locations on a 200, which points nowhere",
    "curl-test2106": "NUL in a trailer: trailers are not looked at",
    "curl-test2119": "Transfer-Encoding: identity, which changes nothing",
    "curl-test387": "more layers than we undo: judged as encoding, its bytes are not there",
}
LLHTTP_OTHERWISE = {
    "llhttp-sample-009": "bare newlines end lines here as in browsers",
    "llhttp-invalid-066": "bare newlines end lines here as in browsers",
    "llhttp-invalid-068": "bare newlines end lines here as in browsers",
    "llhttp-connection-024": "what follows a finished answer is not looked at",
    "llhttp-connection-026": "what follows a finished answer is not looked at",
    "llhttp-connection-028": "101 to one who asked for no other protocol: protocol",
    "llhttp-connection-029": "101 to one who asked for no other protocol: protocol",
    "llhttp-connection-035": "the answer is what follows the 100",
    "llhttp-connection-036": "the answer is what follows the 103",
    "llhttp-lenient-version-071": "a version that only a lenient mode takes: protocol",
    "llhttp-invalid-059": "a line end that only a lenient mode takes: protocol",
    "llhttp-sample-001": "RTSP, which the parser reads as well: protocol",
    "llhttp-sample-002": "ICE, which the parser reads as well: protocol",
    "llhttp-sample-008": "the conversion left a backslash in the data",
    "llhttp-invalid-064": "the conversion cut the head",
    "llhttp-transfer-encoding-050": "a fold that only a lenient mode takes",
}


async def ask_all(answers: Mapping[str, bytes], *, step: int | None = None, **limits: Any) -> dict[str, fetch.Answer]:
    """Row -> what one fetch of it came to; the origin sends the bytes (in pieces of `step`) and hangs up."""
    names = list(answers)

    async def script(visitor: Visitor) -> None:
        data = answers[names[int(origin.requests[visitor.number - 1].split()[1][1:])]]
        for begin in range(0, len(data), step or len(data) or 1):
            await visitor.send(data[begin : begin + (step or len(data))])
        visitor.writer.close()

    got: dict[str, fetch.Answer] = {}
    places = asyncio.Semaphore(AT_ONCE)
    async with Origin(script) as origin, fetcher(origin.port, idle_max=16, **limits) as fetches:

        async def ask(number: int) -> None:
            # A host of its own keeps the rows' connections apart.
            url = f"http://h{number}.example.com/{number}"
            async with places:
                got[names[number]] = await asyncio.wait_for(fetches.fetch(url, permit=Gate().permit()), HANG_S)

        async with asyncio.TaskGroup() as group:
            for number in range(len(names)):
                group.create_task(ask(number))
        asked = Counter(request.split()[1] for request in origin.requests)
    assert set(asked.values()) <= {1}, "one request each"
    assert len(asked) == len(names), [got[name] for at, name in enumerate(names) if f"/{at}" not in asked]
    return got


def answers() -> dict[str, bytes]:
    """Every answer of the corpora by a name of its own."""
    curl, llhttp, field = (
        corpus.load(f"http/{name}_responses.json")["cases"] for name in ("curl_http", "llhttp", "field_raw")
    )
    found = {case["id"]: base64.b64decode(case["raw_b64"]) for case in field}
    found |= {case["id"]: _ended(case) for case in llhttp}
    return found | {f"{case['id']}/{part}": _text(one) for case in curl for part, one in enumerate(case["responses"])}


def listed(answer: fetch.Answer) -> str:
    """Empty, or why this is no outcome that the wire can give."""
    records.encode_json(answer.outcome)
    match answer.outcome:
        case records.Failed(reason=reason) if reason in REASONS:
            return ""
        case records.Fetched(truncated=truncated) if truncated in TRUNCATED:
            return "" if answer.head.startswith(b"HTTP/") else "no head kept"
        case records.NotModified() | records.Redirected():
            return ""
        case other:
            return f"an outcome that the wire cannot give: {other}"


def word(outcome: records.Outcome) -> str:
    """An outcome in a word, as in FIELD."""
    match outcome:
        case records.Failed(reason=reason) | records.Refused(reason=reason):
            return reason
        case records.Fetched(truncated=str(cut)):
            return f"cut {cut}"
        case records.Fetched(status=status, decoding=str(note)):
            return f"{note} {status}"
        case records.Fetched(status=status):
            return f"fetched {status}"
        case records.Redirected(location=location):
            target, reason = fetch.redirect_target("http://h.example.com/", location)
            return target or str(reason)
        case records.NotModified():
            return "not_modified"


def _field() -> Iterator[Row]:
    cases = corpus.load("http/field_raw_responses.json")["cases"]
    got = asyncio.run(ask_all({case["id"]: base64.b64decode(case["raw_b64"]) for case in cases}))
    for name, answer in got.items():
        wanted, body = FIELD[name]
        came = word(answer.outcome)
        begins = not isinstance(answer.outcome, records.Fetched) or answer.outcome.body.startswith(body.encode())
        yield Row(name, not listed(answer) and came == wanted and begins, f"{wanted} {body!r}: {answer.outcome}")


def _curl() -> Iterator[Row]:
    cases = {case["id"]: case for case in corpus.load("http/curl_http_responses.json")["cases"]}
    raw = {
        f"{name}/{part}": data
        for name, case in cases.items()
        for part, data in enumerate(map(_text, case["responses"]))
    }
    got = asyncio.run(ask_all(raw))
    for name, case in cases.items():
        answers = [got[f"{name}/{part}"] for part in range(len(case["responses"]))]
        faults = [fault for answer in answers if (fault := listed(answer))]
        came = [word(answer.outcome) for answer in answers]
        if name not in CURL_OTHERWISE and case["curl_exit"] in CURL_FAULTS and all(map(_clean, answers)):
            faults.append(f"curl exits {case['curl_exit']}, here it is whole")
        if name not in CURL_OTHERWISE and case["curl_exit"] == 0 and all(one in REASONS for one in came):
            faults.append("curl reads it")
        yield Row(name, not faults, f"{case['name']}: {faults} {came}")


def _clean(answer: fetch.Answer) -> bool:
    """A whole answer with nothing to tell of it."""
    outcome = answer.outcome
    if isinstance(outcome, records.Fetched):
        return outcome.truncated is None and outcome.decoding is None
    return isinstance(outcome, records.NotModified) or (
        isinstance(outcome, records.Redirected) and bool(outcome.location)
    )


def _text(part: dict[str, str]) -> bytes:
    """One answer of curl's; its test files write some bytes as words."""
    raw = base64.b64decode(part["b64"]) if "b64" in part else part.get("text", "").encode("utf-8", "surrogateescape")
    return raw.replace(b"%CR", b"\r").replace(b"%TAB", b"\t")


def _llhttp() -> Iterator[Row]:
    cases = {case["id"]: case for case in corpus.load("http/llhttp_responses.json")["cases"]}
    got = asyncio.run(ask_all({name: _ended(case) for name, case in cases.items()}))
    for name, case in cases.items():
        fault = listed(got[name])
        outcome = got[name].outcome
        status = getattr(outcome, "status", None)
        if name not in LLHTTP_OTHERWISE and not fault:
            if case["error"] and not case["lenient"] and _clean(got[name]):
                fault = "refused there"
            elif not case["error"] and status != case["status"]:
                fault = f"status {case['status']} there"
        yield Row(name, not fault, f"{case['name']}: {fault} {outcome}")


def _ended(case: dict[str, Any]) -> bytes:
    """Its bytes; the conversion lost the empty lines at the end of an answer without a body."""
    raw = str(case["raw_latin1"]).encode("latin-1")
    whole = case["error"] is None and not re.search(rb"\r?\n\r?\n", raw)
    return raw + b"\r\n\r\n" if whole else raw


def _redirects() -> Iterator[Row]:
    cases = dict(enumerate(_redirect_cases()))
    raw = {str(number): _redirect(case["response"]) for number, case in cases.items()}
    got = asyncio.run(ask_all(raw))
    for number, case in cases.items():
        outcome, wanted = got[str(number)].outcome, case.get("new_request", {}).get("url")
        location = outcome.location if isinstance(outcome, records.Redirected) else "?"
        target, reason = fetch.redirect_target(urls.canonical(case["request"]["url"]), location)
        if wanted is None:
            said = case["response"]["headers"].get("Location")
            passed = reason == ("redirect_to_unsupported_scheme" if said else "bad_redirect")
        else:
            passed = target == urls.canonical(wanted)
        yield Row(f"{number} {case['test'].partition('::')[2]}", passed, f"{wanted}: {target} {reason}")


def _redirect_cases() -> Iterator[dict[str, Any]]:
    for case in _scrapys("RedirectMiddleware"):
        said = case["response"]["headers"].get("Location")
        web = urlsplit(case["request"]["url"]).scheme in {"http", "https"}
        by_scheme = bool(said) and urlsplit(said[0]).scheme not in {"", "http", "https"}
        if web and (case["outcome"] == "redirect" or not said or by_scheme):
            yield case


def _scrapys(middleware: str) -> list[dict[str, Any]]:
    cases = corpus.load("http/redirect/scrapy_redirect_cases.json")["cases"]
    return [case for case in cases if case["middleware"] == middleware]


def _refreshes() -> Iterator[Row]:
    for number, case in enumerate(_scrapys("MetaRefreshMiddleware")):
        request, response = case["request"], case["response"]
        if case["outcome"] != "redirect" or not request["url"].startswith("http"):
            continue
        url = urls.canonical(response["url"])
        found = links.extract(
            response["body_latin1"].encode("latin-1"), content_type="text/html", url=url, links_max=99
        )
        target = urls.canonical(case["new_request"]["url"])
        yield Row(f"{number} {case['test'].partition('::')[2]}", target in found.links, f"{target}: {found.links}")


def _redirect(response: dict[str, Any]) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, values in response["headers"].items() for value in values]
    return f"HTTP/1.1 {response['status']} X\r\n{''.join(lines)}Content-Length: 0\r\n\r\n".encode("latin-1")


def _retry_after() -> Iterator[Row]:
    for case in corpus.load("http/dates/retry_after_cases.json")["cases"]:
        wanted, came = case["expected_seconds"], politeness.retry_after_s(case["value"], now_ms=NOW_MS)
        capped = isinstance(wanted, str) and came is not None and came >= DAY_S  # the pause's own cap cuts it to a day
        yield Row(repr(case["value"]), capped or came == wanted, f"{wanted}: {came}")


def _dates() -> Iterator[Row]:
    for value, epoch in _date_rows().items():
        if HTTP_DATE.fullmatch(value) and not (epoch is None and " 2044 " in value):
            came = politeness.retry_after_s(value, now_ms=0)
            yield Row(value, came == (epoch if epoch is not None and epoch >= 0 else None), f"{epoch}: {came}")


def _date_rows() -> dict[str, int | None]:
    """What is tried as a date, and the second that it names."""
    found = {case["test"]: case["epoch"] for case in corpus.load("http/dates/curl_getdate_cases.json")["cases"]}
    text = corpus.read("http/dates/http-state-bsd-examples.json").decode()
    for case in json.loads(text[text.index("\n[") :]):
        expected = case["expected"]
        found[case["test"]] = expected and int(email.utils.parsedate_to_datetime(expected).timestamp())
    return found


def _compressed() -> Iterator[Row]:
    folder = "http/scrapy-compressed"
    page = gzip.decompress(corpus.read(f"{folder}/html-gzip.bin"))
    deflated = _decoded(corpus.read(f"{folder}/html-zlibdeflate.bin"), "deflate").data
    whole = {
        "html-br.bin": (("br",), page),
        "html-gzip.bin": (("gzip",), page),
        "html-gzip-deflate.bin": (("gzip", "deflate"), page),
        "html-gzip-deflate-gzip.bin": (("gzip", "deflate", "gzip"), page),
        "html-zstd-static-content-size.bin": (("zstd",), page),
        "html-zstd-static-no-content-size.bin": (("zstd",), page),
        "html-zstd-streaming-no-content-size.bin": (("zstd",), page),
        "html-rawdeflate.bin": (("deflate",), deflated),
        "html-zlibdeflate.bin": (("deflate",), deflated),
    }
    for name, (codings, expected) in whole.items():
        body = _decoded(corpus.read(f"{folder}/{name}"), *codings)
        right = (body.data, body.fault, body.note) == (expected, None, None) and b"<" in expected
        yield Row(name, right, f"{body.fault} {body.note} {len(body.data)} bytes")
    for name in ("truncated-crc-error.gz", "truncated-crc-error-short.gz", "unexpected-eof.gz"):
        body = _decoded(corpus.read(f"{folder}/{name}"), "gzip")
        yield Row(name, body.fault == "encoding" and len(body.data) > 1_000, f"{body.fault} {len(body.data)} bytes")
    for coding in ("br", "deflate", "gzip", "zstd"):
        body = _decoded(corpus.read(f"{folder}/bomb-{coding}.bin"), coding, bytes_max=100_000)
        yield Row(f"bomb-{coding}.bin", (len(body.data), body.fault) == (100_000, "size"), f"{body.fault}")


def _decoded(data: bytes, *codings: str, bytes_max: int = 10_000_000) -> decode.Body:
    body = decode.Body(codings, bytes_max=bytes_max)
    body.feed(data)
    body.finish()
    return body


def _conditions() -> Iterator[Row]:
    for suite in _suites():
        for test in suite["tests"]:
            second = test["requests"][1] if len(test["requests"]) > 1 else {}
            validated = second.get("expected_type") in {"etag_validated", "lm_validated"}
            if suite["id"] != "interim" and validated and "vary" not in test["id"]:
                yield asyncio.run(_condition(test))
            elif suite["id"] == "interim":
                yield _interim(test)


def _suites() -> list[dict[str, Any]]:
    """Those that ask something of a client."""
    names = {"conditional-inm", "conditional-lm", "update304", "interim"}
    return [suite for suite in corpus.load("http/cache/cache-tests.json")["suites"] if suite["id"] in names]


async def _condition(test: dict[str, Any]) -> Row:
    """Fetch, then fetch again with what was stored: the origin must see the validators byte for byte."""
    first, second = test["requests"][:2]
    head = _lines(first.get("response_headers", ()))

    async def script(visitor: Visitor) -> None:
        again = _lines(second.get("response_headers", ()), but="content-length")
        whole = (
            b"HTTP/1.1 200 OK\r\n"
            + _lines(first["response_headers"], but="content-length")
            + b"Content-Length: 2\r\n\r\nok"
        )
        await visitor.send(whole if visitor.number == 1 else b"HTTP/1.1 304 Not Modified\r\n" + again + b"\r\n")

    async with Origin(script) as origin, fetcher(origin.port) as fetches:
        answer = await fetches.fetch("http://h.example.com/", permit=Gate().permit())
        page = revisit.page_after(None, answer.outcome, content=1, now_ms=NOW_MS)
        asked = {"etag": page.etag, "last_modified": page.last_modified}
        outcome = (await fetches.fetch("http://h.example.com/", permit=Gate().permit(), **asked)).outcome
        request = origin.requests[-1]
    validators = re.findall(rb"(?im)^(etag|last-modified): (.*)\r$", head)
    names = {b"etag": b"If-None-Match", b"last-modified": b"If-Modified-Since"}
    seen = all(b"\r\n%s: %s\r\n" % (names[name.lower()], value) in request for name, value in validators)
    passed = bool(validators) and seen and isinstance(outcome, records.NotModified)
    return Row(test["id"], passed, f"{request!r} {outcome}")


def _interim(test: dict[str, Any]) -> Row:
    first = test["requests"][0]
    raw = b"".join(
        b"HTTP/1.1 %d X\r\n%s\r\n" % (status, b"".join(map(_lines, headers)))
        for status, *headers in first["interim_responses"]
    )
    raw += b"HTTP/1.1 200 OK\r\n" + _lines(first["response_headers"]) + b"Content-Length: 2\r\n\r\nok"
    answer = asyncio.run(ask_all({"one": raw}))["one"]
    named = {name.lower() for name, _ in getattr(answer.outcome, "headers", ())}
    alone = answer.head.count(b"HTTP/1.1") == 1 and "x-my-header" not in named
    return Row(test["id"], word(answer.outcome) == "fetched 200" and alone, str(answer.outcome))


def _lines(headers: Any, *, but: str = "") -> bytes:
    found = b""
    for name, value, *_ in headers:
        text = value if isinstance(value, str) else email.utils.formatdate(NOW_MS / 1000 + value, usegmt=True)
        if name.lower() != but:
            found += f"{name}: {text}\r\n".encode()
    return found


ADDRESSES = ("must_refuse", "must_allow", "behaviours")


def _addresses() -> Iterator[Row]:
    cases = corpus.load("ssrf/ssrf_cases.json")
    for kind in ("must_refuse", "must_allow"):
        for case in cases[kind]:
            came = asyncio.run(_led(case["url"]))
            yield Row(f"{kind} {case['url']}", (came == "led") == (kind == "must_allow"), came)


async def _led(url: str) -> str:
    """`led`, or why a URL as it stands in a page leads nowhere."""
    resolver = dns.Resolver(nameservers=["127.0.0.1:9"])
    try:
        parts = urlsplit(urls.canonical(url))
        default = 443 if parts.scheme == "https" else 80
        await resolver.lookup(parts.hostname or "", parts.port or default)
    except (errors.InvalidUrl, dns.ForbiddenError, dns.UnresolvedError) as error:
        return str(error)
    finally:
        await resolver.close()
    return "led"


def _corpus(name: str, source: str, rows: Callable[[], Iterator[Row]], **more: Any) -> Corpus:
    return Corpus(name=name, source=source, rows=rows, **more)


def _why(otherwise: Mapping[str, str]) -> str:
    told = "; ".join(f"{name} ({why})" for name, why in otherwise.items())
    return f"{ONE_REQUEST}. Of these no more than that is judged: {told}"


ONE_REQUEST = (
    "One request each, an outcome of the closed list within 10 s, and no whole page where curl or llhttp see a fault"
)

CORPORA = (
    _corpus(
        "answers from the field",
        "http/field_raw_responses.json",
        _field,
        note="One request each, and the very outcome and body that the survey of these answers asks for",
    ),
    _corpus("answers of curl's tests", "http/curl_http_responses.json", _curl, note=_why(CURL_OTHERWISE)),
    _corpus("answers of llhttp's tests", "http/llhttp_responses.json", _llhttp, note=_why(LLHTTP_OTHERWISE)),
    _corpus(
        "redirects",
        "http/redirect/scrapy_redirect_cases.json",
        _redirects,
        peers="Scrapy: its own rows",
        held=lambda: len(_scrapys("RedirectMiddleware")),
        left_out="requests that are not http(s), and Scrapy's own settings (dont_redirect, handle_httpstatus, a limit of "
        "hops given with the request)",
    ),
    _corpus(
        "redirects by meta refresh",
        "http/redirect/scrapy_redirect_cases.json",
        _refreshes,
        held=lambda: len(_scrapys("MetaRefreshMiddleware")),
        peers="Scrapy: its own rows",
        left_out="rows in which Scrapy follows nothing by a setting of its own (longest delay, tags not looked at, a limit "
        "of hops) or since the scheme of the request is not http(s)",
        note="A refresh is a link of the page here, and no hop of a redirect",
    ),
    _corpus("Retry-After", "http/dates/retry_after_cases.json", _retry_after),
    _corpus(
        "HTTP dates",
        "http/dates",
        _dates,
        held=lambda: len(_date_rows()),
        left_out="all that is none of RFC 9110's three forms: curl and browsers guess at those, a crawler need not; "
        "a date of 2044, which curl refuses where its time has 32 bits",
    ),
    _corpus("compressed bodies", "http/scrapy-compressed", _compressed),
    _corpus(
        "conditions and interim answers",
        "http/cache/cache-tests.json",
        _conditions,
        held=lambda: sum(len(suite["tests"]) for suite in _suites()),
        left_out="rows about a cache between a client and an origin: what it answers by itself, Vary. Not here: the file's "
        "21 other suites, which are of such caches",
        note="An ETag without quotes is sent back as it came",
    ),
    _corpus(
        "addresses",
        "ssrf/ssrf_cases.json",
        _addresses,
        held=lambda: sum(len(corpus.load("ssrf/ssrf_cases.json")[kind]) for kind in ADDRESSES),
        left_out="the 9 behaviours (names, redirects, rebinding and so on), which are tests of their own: "
        "tests/node/test_ssrf.py, tests/node/test_dns.py, tests/field/test_ssrf.py",
    ),
)
