"""More robots.txt and sitemaps of an odd web, beside the listed cases: what they come to, and what is asked for then."""

import gzip

from tests.field.stage import OK, Scene, moved, reply, sending
from tests.node.crawler import robots_txt

RULES = b"User-agent: *\nDisallow: /no\n"


def answer(body: bytes, *lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines, "", ""]).encode() + body


def chunks(body: bytes, *, end: bool = True) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(body), body) + b"0\r\n\r\n" * end


OBEYED = {
    "html-type": answer(RULES, "Content-Type: text/html"),
    "no-type": answer(RULES),
    "utf16": answer(b"\xff\xfe" + RULES.decode().encode("utf-16-le")),
    "gzip": answer(gzip.compress(RULES), "Content-Encoding: gzip"),
    "says-gzip": answer(RULES, "Content-Encoding: gzip"),
    "chunked": chunks(RULES),
    "203": answer(RULES, status="203 Non-Authoritative"),
    "refresh": answer(RULES, "Refresh: 0; url=/other"),
    "eof": b"HTTP/1.0 200 OK\r\n\r\n" + RULES,
    "huge": answer(RULES + b"#" * 600 * 1024),
    "exact": answer(RULES + b"#" * (500 * 1024 - len(RULES))),
    "moved-later": answer(RULES, "Location: /moved.txt", "Retry-After: 900", status="302 Found"),
    "cookie": answer(RULES, "Set-Cookie: a=b", "Vary: *"),
    "crawl-delay-huge-off": answer(b"User-agent: *\nCrawl-delay: nan\nDisallow: /no\n"),
}
CLOSED = {
    "cut": answer(RULES)[:-5],
    "cut-chunk": chunks(RULES, end=False),
    "cut-gzip": answer(gzip.compress(RULES * 50)[:-9], "Content-Encoding: gzip"),
    "500": answer(RULES, status="500 Error"),
    "511": answer(RULES, status="511 Network Authentication Required"),
    "600": answer(RULES, status="600 Odd"),
    "999": answer(RULES, status="999 Denied"),
    "408": answer(RULES, status="408 Request Timeout"),
    "429": answer(RULES, status="429 Too Many"),
    "206": answer(RULES, "Content-Range: bytes 0-27/90", status="206 Partial Content"),
    "304": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "two-locations": answer(b"", "Location: /a", "Location: /b", status="302 Found"),
    "no-location": answer(b"", status="301 Moved"),
    "file": answer(b"", "Location: file:///robots.txt", status="302 Found"),
    "binary": b"SSH-2.0-OpenSSH\r\n",
    "nothing": b"",
    "101": b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "000": answer(RULES, status="000 None"),
}
OPEN = {
    "soft-404": answer(b"<!DOCTYPE html><html><body>Disallow nothing</body></html>", "Content-Type: text/html"),
    "empty": answer(b""),
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "404": answer(RULES, status="404 Not Found"),
    "418": answer(RULES, status="418 Teapot"),
    "451": answer(RULES, status="451 Legal"),
    "loop": answer(b"", "Location: /robots.txt", status="302 Found"),
}


async def test_what_a_robots_txt_comes_to(scene: Scene) -> None:
    hosts = {}
    for kind, answers in (("obeyed", OBEYED), ("closed", CLOSED), ("open", OPEN)):
        for name, sent in answers.items():
            # Sites of their own, so that none waits for another's pause.
            hosts[kind, name] = f"http://{kind}-{name}-{scene.site}"
            scene.put(f"{hosts[kind, name]}/robots.txt", sending(sent))
            scene.put(f"{hosts[kind, name]}/moved.txt", answer(RULES))
            for path in ("/yes", "/no"):
                scene.put(f"{hosts[kind, name]}{path}", OK)
    async with scene.crawl(politeness={"robots_error_ttl_s": 60.0, "backoff_min_s": 60.0}) as crawl:
        await scene.seed(crawl, *(f"{host}{path}" for host in hosts.values() for path in ("/yes", "/no")))
        expected = {"obeyed": ["/yes"], "closed": [], "open": ["/no", "/yes"]}
        total = sum(len(expected[kind]) for kind, _ in hosts)
        await crawl.run(lambda: {f"http://{one.site}" for one in crawl.records} >= set(hosts.values()))
        await crawl.run(lambda: sum(one.line in {"/yes", "/no"} for one in scene.stage.log) >= total)
    got = {
        key: sorted(
            one.line for one in scene.stage.log if one.url.startswith(host + "/") and one.line in {"/yes", "/no"}
        )
        for key, host in hosts.items()
    }
    assert got == {(kind, name): expected[kind] for kind, name in hosts}


async def test_a_delay_beyond_all_numbers_is_the_longest_and_no_number_is_none(scene: Scene) -> None:
    for name, said in (("over", "1e400"), ("inf", "inf"), ("minus", "-1"), ("unit", "10s"), ("zero", "0")):
        host = f"http://{name}-{scene.site}"
        scene.put(f"{host}/robots.txt", robots_txt(f"Crawl-delay: {said}"))
        scene.put(f"{host}/p", OK)
    async with scene.crawl(politeness={"delay_cap_s": 0.4}) as crawl:
        for name in ("over", "inf", "minus", "unit", "zero"):
            await scene.seed(crawl, f"http://{name}-{scene.site}/p")
        await crawl.run()
        terms = {
            name: (await crawl.look(f"{name}-{scene.site}"))["delay_term"]
            for name in ("over", "inf", "minus", "unit", "zero")
        }
    assert terms.pop("over") == "crawl_delay_capped"
    assert set(terms.values()) == {"minimum"}


def urlset(*entries: str) -> str:
    return "<urlset>" + "".join(f"<url><loc>{entry}</loc></url>" for entry in entries) + "</urlset>"


async def test_sitemaps_as_they_really_are(scene: Scene) -> None:
    url = scene.url
    files = {
        "cdata": urlset(f"<![CDATA[{url('/f-cdata')}]]>"),
        "double": urlset(url("/f-double?a=1&amp;amp;b=2")),
        "upper": urlset(url("/f-upper")).replace("url", "URL").replace("loc", "LOC").replace("URL>", "URL>"),
        "space": urlset(f"\n   {url('/f-space')}\n  "),
        "relative": urlset("/f-relative"),
        "text": f"\ufeff{url('/f-text')}\r\n\r\n{url('/f-text2')}\r\n",
        "rss": f"<rss><channel><item><link>{url('/f-rss')}</link></item></channel></rss>",
        "html": f"<html><body><a href='{url('/f-html')}'>x</a></body></html>",
        "comment": f"<!-- made by --><?xml version='1.0'?>{urlset(url('/f-comment'))}",
        "cut": urlset(url("/f-cut"), url("/f-lost"))[:-25],
        "odd-links": urlset("javascript:1", "mailto:a@b", "http://[::1", "", url("/f-odd#frag")),
        "missing-404": None,
    }
    for name, body in files.items():
        kind = "text/html" if name == "html" else "application/octet-stream"
        scene.put(f"/{name}.xml", reply(body.encode(), kind=kind) if body is not None else reply(status="404 No"))
    packed = gzip.compress(urlset(url("/f-gzip")).encode())
    scene.put("/gzip.xml.gz", reply(packed, kind="application/gzip"))
    scene.put("/both.xml.gz", reply(gzip.compress(packed.replace(b"", b"")), kind="text/xml", content_encoding="gzip"))
    moved_to = f"http://maps-{scene.site}/moved.xml"
    scene.put("/moved.xml", moved(moved_to))
    scene.put(moved_to, reply(urlset(url("/f-moved")).encode(), kind="text/xml"))
    names = [*(f"{name}.xml" for name in files), "gzip.xml.gz", "both.xml.gz", "moved.xml"]
    lines = [f"SITEMAP:{url('/' + name)}" for name in names] + [f"sitemap: {url('/' + names[0])} ", "Sitemap:"]
    scene.put("/robots.txt", reply("\n".join(lines).encode(), kind="text/plain"))
    scene.stage.otherwise = lambda _: OK
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/")
        await crawl.run(within_s=15.0)
    found = sorted(path for path in scene.stage.paths if path.startswith("/f-"))
    wanted = [
        "cdata",
        "double?a=1&amp;b=2",
        "upper",
        "space",
        "relative",
        "text",
        "text2",
        "rss",
        "html",
        "comment",
        "cut",
        "odd",
        "gzip",
        "moved",
    ]
    assert found == sorted(f"/f-{name}" for name in wanted)
