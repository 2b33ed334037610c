"""`rediss://` and `rediss-cluster://`: both sides show certificates, and what is refused is said in one line."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from coordinator import local
from shared import errors, frontier, records
from tests import certificates, servers
from tests import redis_cluster as clusters
from tests.stores import shapes


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> certificates.Authority:
    return certificates.Authority(tmp_path_factory.mktemp("authority"))


def tls(authority: certificates.Authority, port: int) -> tuple[str, ...]:
    """A server's options; it asks its clients for a certificate."""
    pair = authority.sign("server")
    return (
        *("--tls-port", str(port), "--tls-auth-clients", "yes", "--tls-ca-cert-file", str(authority.ca)),
        *("--tls-cert-file", str(pair.cert), "--tls-key-file", str(pair.key)),
    )


@pytest.fixture(scope="module")
def secured(authority: certificates.Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a Redis that speaks TLS there."""
    port = local.free_port()
    folder = tmp_path_factory.mktemp("secured")
    with servers.running(servers.redis7(folder, options=(*servers.UNSYNCED, *tls(authority, port)))):
        yield f"{local.LOOPBACK}:{port}"


def options(authority: certificates.Authority, *, name: str = "node") -> str:
    pair = authority.sign(name)
    return f"?ssl_ca_certs={authority.ca}&ssl_certfile={pair.cert}&ssl_keyfile={pair.key}"


@contextlib.asynccontextmanager
async def opened(url: str, cluster: str) -> AsyncIterator[frontier.Frontier]:
    desk = await frontier.Frontier.open(url, cluster)
    try:
        yield desk
    finally:
        await desk.close()


async def refusal(url: str) -> str:
    with pytest.raises(errors.StoreForbidden) as refused:
        await frontier.Frontier.open(url, "tls")
    said = str(refused.value)
    assert "\n" not in said
    return said


async def test_with_the_authority_and_a_certificate_of_our_own_all_is_served(
    secured: str, authority: certificates.Authority, cluster: str
) -> None:
    async with opened(f"rediss://{secured}/0{options(authority)}", cluster) as desk:
        await shapes.offered(desk, shapes.offer(1))
        record = await shapes.claimed(desk)
        assert (await desk.commit(shapes.SITE, "n1", 1, 1, shapes.done(*record.head))).record.pages == 1


async def test_who_shows_no_certificate_or_trusts_another_authority_is_refused_and_told_so(
    secured: str, authority: certificates.Authority, tmp_path: Path
) -> None:
    stranger = certificates.Authority(tmp_path)
    assert "certificate verify failed" in (await refusal(f"rediss://{secured}/0")).lower()
    assert "certificate verify failed" in (await refusal(f"rediss://{secured}/0{options(stranger)}")).lower()
    # TLS 1.3 looks at the client's after the handshake: what is told of it may be overtaken by the closed connection.
    theirs = options(stranger, name="spy").replace(str(stranger.ca), str(authority.ca))
    for mine in (f"?ssl_ca_certs={authority.ca}", theirs):
        with pytest.raises(errors.StoreUnavailable):
            await frontier.Frontier.open(f"rediss://{secured}/0{mine}", "tls")


async def test_a_name_that_is_not_in_the_certificate_is_refused(
    authority: certificates.Authority, tmp_path: Path
) -> None:
    port = local.free_port()
    elsewhere = certificates.Authority(tmp_path / "elsewhere")
    pair = elsewhere.sign("server", alt="DNS:redis.example.org")
    shown = (
        "--tls-cert-file",
        str(pair.cert),
        "--tls-key-file",
        str(pair.key),
        "--tls-ca-cert-file",
        str(elsewhere.ca),
    )
    with servers.running(servers.redis7(tmp_path, options=(*tls(authority, port), *shown))):
        url = f"rediss://{local.LOOPBACK}:{port}/0{options(elsewhere)}"
        assert "mismatch" in await refusal(url)
        async with opened(f"{url}&ssl_check_hostname=no", "tls") as desk:
            assert await desk.ping()


async def test_a_server_that_is_gone_or_speaks_no_tls_is_no_matter_of_certificates(
    redis7: str, authority: certificates.Authority
) -> None:
    # Redis takes the greeting for a command that has not ended, and waits.
    for url in (f"rediss://127.0.0.1:{local.free_port()}/0", redis7.replace("redis://", "rediss://")):
        with pytest.raises(errors.StoreUnavailable) as away:
            await frontier.Frontier.open(url + options(authority), "tls", call_s=0.5)
        assert not isinstance(away.value, errors.StoreForbidden)


async def test_a_file_that_is_not_there_is_named(secured: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"ssl_certfile.*no-such\.pem"):
        await frontier.Frontier.open(f"rediss://{secured}/0?ssl_certfile=no-such.pem", "tls")


@pytest.fixture(scope="module")
def secured_cluster(
    authority: certificates.Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[clusters.Cluster]:
    """Whose servers speak TLS to each other, too."""
    ports = []

    def own() -> tuple[str, ...]:
        ports.append(local.free_port())
        return (*tls(authority, ports[-1]), "--tls-cluster", "yes", "--tls-replication", "yes")

    with clusters.running(tmp_path_factory.mktemp("secured-cluster"), own=own) as started:
        started.tls_ports = ports
        yield started


@pytest.mark.parametrize("durability", ["default", "strict"])
async def test_a_cluster_is_reached_by_tls_at_every_server(
    secured_cluster: clusters.Cluster,
    authority: certificates.Authority,
    cluster: str,
    durability: frontier.Durability,
) -> None:
    url = f"rediss-cluster://127.0.0.1:{secured_cluster.tls_ports[0]}{options(authority)}"
    desk = await frontier.Frontier.open(url, cluster, durability=durability)
    sites = [f"s{number}.org" for number in range(30)]
    await shapes.offered(desk, *(shapes.offer(1, site) for site in sites))
    for record in await desk.claim(sites, "n1", 1, delay_s=0.0):
        assert isinstance(record, records.SiteRecord)
        await desk.commit(record.site, "n1", 1, 1, shapes.done(*record.head))
    assert await desk.site_count() == 30
    assert {one.port for one in desk._store._map.masters} <= set(secured_cluster.tls_ports)  # type: ignore[attr-defined]
    await desk.close()
