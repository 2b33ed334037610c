"""Field cases of URLs that point inside: refused before any packet, whoever names the address."""

import pytest

from node import dns
from shared import records
from tests.field.stage import OK, Names, Scene, case, linking, moved, outcomes
from tests.node import name_server, origins
from tests.node.test_ssrf import listening

METADATA = "169.254.169.254"


@pytest.fixture
async def zones():
    made = name_server.NameServer()
    made.address = await made.start()
    yield made
    made.stop()


@case("ssrf-redirect-metadata")
async def test_a_redirect_to_the_metadata_address_is_refused_and_counted(scene: Scene) -> None:
    scene.put("/p", moved(f"http://{METADATA}/latest/meta-data/iam/security-credentials/", "302 Found"))
    scene.put("/after", OK)
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/p", "/after")
        await crawl.run()
        assert await scene.aside(crawl, METADATA) == {"private_address": 1}
        assert METADATA not in {line.site for line in crawl.lines()}, "nothing was sent"
        assert outcomes(crawl, scene.url("/after")) == ["fetched"]
    assert scene.stage.paths == ["/p", "/after"]


@case("ssrf-dns-name")
async def test_a_name_is_judged_by_every_address_it_has(scene: Scene, zones: name_server.NameServer) -> None:
    public = "93.184.216.34"
    zones.records |= {
        "7f000001.nip.io": ["127.0.0.1"],
        "127.0.0.1.nip.io": ["127.0.0.1"],
        "localtest.me": ["127.0.0.1"],
    }
    zones.records |= {"mixed.example": ["127.0.0.1", "10.0.0.1", public], "inside.example": ["127.0.0.1", "10.0.0.1"]}
    names = ["7f000001.nip.io", "127.0.0.1.nip.io", "localtest.me", "inside.example"]
    with listening() as (port, accepted):
        scene.put("/p", linking(*(f"http://{name}:{port}/" for name in names)))
        async with scene.crawl(resolver=Names(scene.stage, nameservers=[zones.address])) as crawl:
            await scene.seed(crawl, "/p")
            await crawl.run()
            assert await scene.aside(crawl, "nip.io") == {"private_address": 2}
            assert await scene.aside(crawl, "localtest.me") == {"private_address": 1}
            assert await scene.aside(crawl, "inside.example") == {"private_address": 1}
        assert accepted() == 0
    assert set(names) <= set(zones.asked), "refused after the look-up"
    resolver = dns.Resolver(nameservers=[zones.address])
    for _ in range(3):
        assert (await resolver.lookup("mixed.example", 80)).ip == public
    await resolver.close()


@case("ssrf-rebinding")
async def test_the_address_that_is_judged_is_the_one_that_is_asked(scene: Scene, zones: name_server.NameServer) -> None:
    name = "make-rebind.1u.ms"
    port = scene.stage.origin.port
    url = f"http://{name}:{port}/p"
    scene.put(url, OK)
    zones.ttl_s = 0
    zones.records[name] = ["127.0.0.1"]

    def changed(data: bytes, addr: tuple[str, int]) -> None:
        answered(data, addr)
        zones.records[name] = ["127.0.0.2"]

    answered, zones.datagram_received = zones.datagram_received, changed  # type: ignore[method-assign]
    # Whoever looks twice for one connection would ask 127.0.0.2, where nobody listens.
    async with scene.crawl(resolver=dns.Resolver(allow_private=True, nameservers=[zones.address])) as crawl:
        answer = await crawl.fetcher.fetch(url, permit=origins.Gate().permit("1u.ms"))
    assert isinstance(answer.outcome, records.Fetched)
    assert answer.address == "127.0.0.1"
    assert [one.header("host") for one in scene.stage.log] == [f"{name}:{port}"]
    assert zones.asked == [name], "one look-up for one connection"
    strict = dns.Resolver(nameservers=[zones.address])
    async with scene.crawl(resolver=strict, node="n2", epoch=20) as crawl:
        answer = await crawl.fetcher.fetch(url, permit=origins.Gate().permit("1u.ms"))
    assert answer.outcome == records.Refused(reason="private_address")
    assert len(scene.stage.log) == 1


@case("ssrf-own-parts")
async def test_the_clusters_own_stores_are_refused_even_in_an_intranet(scene: Scene) -> None:
    other = f"http://robots-{scene.site}"
    with listening() as (store, reached), listening() as (intranet, asked):
        scene.put("/a", moved(f"http://127.0.0.1:{store}/"))
        scene.put("/b", linking(f"http://localhost:{store}/", f"http://127.0.0.1:{intranet}/"))
        scene.put(f"{other}/robots.txt", moved(f"http://127.0.0.1:{store}/robots.txt"))
        scene.put(f"{other}/p", OK)
        resolver = Names(scene.stage, hosts=[], allow_private=True, stores=lambda: [("127.0.0.1", store)])
        limits = {"first_byte_s": 0.2, "total_s": 0.3}
        async with scene.crawl(resolver=resolver, limits=limits) as crawl:
            await scene.seed(crawl, "/a", "/b", f"{other}/p")
            await crawl.run(lambda: len(scene.stage.log) >= 4 and asked() > 0 and not crawl.late)
            await crawl.run(lambda: "127.0.0.1" in {record.site for record in crawl.records})
            assert (await scene.aside(crawl, "127.0.0.1")).get("store", 0) >= 1
        assert reached() == 0
        assert asked() >= 1, "other private addresses are open"
    assert f"{other}/p" not in {one.url for one in scene.stage.log}
