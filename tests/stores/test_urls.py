"""Which store a URL means, and that nothing said about a URL tells its secrets."""

from pathlib import Path

import pytest

from shared import errors, stores


def place(url: str) -> stores.Place:
    return stores.place(url, call_s=1.0, strict=False)


@pytest.mark.parametrize(
    ("url", "addresses", "user", "password"),
    [
        ("redis-cluster://a", [("a", 6379)], None, None),
        ("redis-cluster://a:1,b:2,c", [("a", 1), ("b", 2), ("c", 6379)], None, None),
        ("redis-cluster://u:p%40w%2F@a:1,[::1]:2/0", [("a", 1), ("::1", 2)], "u", "p@w/"),
        ("redis-cluster://:pw@a:1/?socket_timeout=3", [("a", 1)], None, "pw"),
        ("rediss-cluster://u@a:1?ssl_check_hostname=no", [("a", 1)], "u", None),
    ],
)
def test_a_cluster_is_named_by_some_of_its_servers(
    url: str, addresses: list[tuple[str, int]], user: str | None, password: str | None
) -> None:
    found = place(url)
    assert found.clustered
    assert [(one.host, one.port) for one in found.addresses] == addresses
    assert (found.options.get("username"), found.options.get("password")) == (user, password)
    assert "host" not in found.options


@pytest.mark.parametrize("url", ["redis://a:1/2", "rediss://u:p@a", "unix:///run/redis.sock?db=1"])
def test_other_urls_are_one_server(url: str) -> None:
    found = place(url)
    assert not found.clustered
    assert found.options["max_connections"] == stores.CONNECTIONS_MAX


REFUSED = [
    ("http://u:s3cret@a/", "redis-cluster://"),
    ("s3cret", "redis-cluster://"),
    ("redis-cluster://", "redis-cluster://"),
    ("redis-cluster://u:s3cret@a:1,,b", "redis-cluster://"),
    ("redis-cluster://u:s3cret@a:1/1", "database 0 only"),
    ("redis-cluster://u:s3cret@a:b", "redis-cluster://"),
    ("redis://u:s3cret/pw@a:1/0", "redis-cluster://"),
    ("redis://u:s3cret#pw@a:1/0", "redis-cluster://"),
    ("redis-cluster://u:s3cret/pw@a:1", "redis-cluster://"),
    ("redis://a:1/0?nonsense=1&password=s3cret", "nonsense"),
    ("redis://u:s3cret@a:1/0?socket_timeout=soon", "socket_timeout"),
    ("rediss://u:s3cret@a:1/0?ssl_ca_certs=/no/such.pem", "/no/such.pem"),
]


@pytest.mark.parametrize(("url", "said"), REFUSED)
def test_what_cannot_be_is_refused_in_words_without_its_secrets(url: str, said: str) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        place(url)
    text = f"{refused.value!r} {refused.value}"
    assert said in text
    assert "s3cret" not in text or url == "s3cret"


def test_a_place_shows_no_secret(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch()
    found = place(f"rediss-cluster://u:s3cret@a:1,b:2?ssl_ca_certs={ca}")
    assert "s3cret" not in repr(found)
    assert "a:1,b:2" in found.url
