"""Sites of real pages behind nginx: its configuration, its own log as values, and what wget reaches of them.

Each site is Debian's HTML of one manual. Part of the pages live on the site's other host names, and each host
redirects there what it does not hold, so that links lead to and fro within a site. It knows no crawler.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from coordinator import local

NGINX, WGET = "/usr/sbin/nginx", "/usr/bin/wget"
LOG = "requests.jsonl"
WGET_S = 600.0
WGET_AGENT = "Wget/"
HTML = "text/html"
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class Site:
    """A manual as a site: `docs` is where it begins, `aside` has patterns of the paths that live on other hosts."""

    name: str
    root: Path
    package: str
    aside: tuple[tuple[str, str], ...]
    """(first label of the host, pattern); no path matches two."""

    @property
    def docs(self) -> str:
        return f"docs.{self.name}"

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.docs, *(f"{label}.{self.name}" for label, _ in self.aside))

    @property
    def start(self) -> str:
        return f"http://{self.docs}/"

    @property
    def files(self) -> int:
        """HTML files on the disk; Debian parts one manual over folders that links lead to."""
        walked = os.walk(self.root, followlinks=True)
        return sum(name.endswith(".html") for _, _, names in walked for name in names)


DOC = Path("/usr/share/doc")
SITES = (
    Site("python.example", DOC / "python3.11/html", "python3.11-doc", (("www", "^/(library|reference)/"),)),
    Site("postgresql.example", DOC / "postgresql-doc-15/html", "postgresql-doc-15", (("www", "^/(sql|app)-"),)),
    Site(
        "openjdk.example",
        DOC / "openjdk-17-doc",
        "openjdk-17-doc",
        (("desktop", r"^/api/java\.desktop/"), ("jdk", r"^/api/jdk\.")),
    ),
)
HOSTS = {host: site for site in SITES for host in site.hosts}


def file_of(url: str) -> Path:
    """Where the text of a page of the sites stands."""
    _, _, host, path = url.split("/", 3)
    return HOSTS[host].root / (f"{path}index.html" if path.endswith("/") else path or "index.html")


class Request(msgspec.Struct, frozen=True):
    """One request in nginx's own log; both times have a resolution of 1 ms."""

    end_s: float
    took_s: float
    host: str
    uri: str
    status: int
    type: str
    agent: str
    body_bytes: int = 0

    @property
    def start_ms(self) -> int:
        return round((self.end_s - self.took_s) * 1000)

    @property
    def is_page(self) -> bool:
        """A page of HTML; 304 has no type, and is wget's `/` and `/index.html`, which are one file to it."""
        if self.status == 304:
            return self.uri.endswith((".html", "/"))
        return self.status == 200 and self.type.startswith(HTML)

    @property
    def is_robots(self) -> bool:
        return self.uri == "/robots.txt"

    @property
    def site(self) -> str:
        return HOSTS[self.host].name

    @property
    def url(self) -> str:
        return f"http://{self.host}{unescaped(self.uri)}"


class Answers(list[Request]):
    """Requests to the sites, in the order of their start."""

    @cached_property
    def pages(self) -> set[str]:
        """What was answered as a page of HTML, at least once."""
        return {one.url for one in self if one.is_page}

    @cached_property
    def others(self) -> set[str]:
        """Answers of 200 that are no HTML, robots.txt aside."""
        return {one.url for one in self if one.status == 200 and not one.type.startswith(HTML) and not one.is_robots}

    def between(self, first_ms: float, last_ms: float) -> "Answers":
        """Those that began then."""
        return Answers(one for one in self if first_ms <= one.start_ms < last_ms)


def missing() -> list[str]:
    """Debian packages to install first."""
    wanted = [("nginx-light", Path(NGINX)), ("wget", Path(WGET)), *((site.package, site.root) for site in SITES)]
    return [package for package, path in wanted if not path.exists()]


def server(folder: Path) -> local.Server:
    """nginx on a loopback port, not started; its log is requests.jsonl in the folder."""

    def command(port: int, _peer_port: int) -> list[str]:
        file = folder / "nginx.conf"
        file.write_text(configuration(port, folder))
        return [NGINX, "-p", str(folder), "-c", str(file)]

    return local.Server("nginx", command=command, answers=local.listens, data=folder)


def configuration(port: int, folder: Path) -> str:
    """One worker, so that one clock stamps all requests; a host that is not ours is answered 421."""
    temporary = "\n".join(f"  {kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi"))
    hosts = "\n".join(_hosts(site, port) for site in SITES)
    form = (
        '{"end_s":$msec,"took_s":$request_time,"host":"$host","uri":"$request_uri","status":$status,'
        '"type":"$sent_http_content_type","agent":"$http_user_agent","body_bytes":$body_bytes_sent}'
    )
    return f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/errors.log;
events {{ worker_connections 512; }}
http {{
{temporary}
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  log_format origin escape=json '{form}';
  access_log {folder}/{LOG} origin;
  types {{ text/html html; text/css css; text/javascript js; image/png png; image/svg+xml svg; text/plain txt py; }}
  default_type application/octet-stream;
  index index.html; autoindex off; etag on;
  server {{ listen {local.LOOPBACK}:{port} default_server; return 421; }}
{hosts}
}}
"""


def _hosts(site: Site, port: int) -> str:
    listen = f"listen {local.LOOPBACK}:{port};"
    robots = r'location = /robots.txt { default_type text/plain; return 200 "User-agent: *\nDisallow:\n"; }'
    servers = []
    for host in site.hosts:
        places = [
            f'location ~ "{pattern}" {{ {_held(f"{label}.{site.name}", host)} }}' for label, pattern in site.aside
        ]
        places.append(f"location / {{ {_held(site.docs, host)} }}")
        lines = "\n    ".join([f"{listen} server_name {host}; root {site.root}; {robots}", *places])
        servers.append(f"  server {{\n    {lines}\n  }}")
    return "\n".join(servers)


def _held(owner: str, host: str) -> str:
    """What a host does with the paths of one host: it holds them, or says who does."""
    return "" if owner == host else f"return 301 http://{owner}$request_uri;"


def answers(log: Path, agents: str) -> Answers:
    """What the log says of the sites and of user agents that begin so."""
    ours = (one for one in requests(log) if one.host in HOSTS and one.agent.startswith(agents))
    return Answers(sorted(ours, key=lambda one: one.start_ms))


def requests(log: Path) -> Iterator[Request]:
    """All that the log says; a last line that is being written is left out."""
    decoder = msgspec.json.Decoder(Request)
    with log.open("rb") as opened:
        for raw in opened:
            if raw.endswith(b"\n"):
                yield decoder.decode(raw)


def wget(folder: Path, proxy: str) -> subprocess.CompletedProcess[str]:
    """`wget --mirror` of the start pages; nginx stands in as its proxy, so that no name needs to be known."""
    command = [
        *(WGET, "--no-config", "--mirror", "--no-verbose", "--span-hosts"),
        f"--domains={','.join(site.name for site in SITES)}",
        *("--execute", "use_proxy=yes", "--execute", f"http_proxy=http://{proxy}/"),
        f"--directory-prefix={folder}",
        *(site.start for site in SITES),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=WGET_S, check=False)


def unescaped(uri: str) -> str:
    """Escapes in upper case and none that is not needed (RFC 3986 6.2.2): one spelling for a URL."""

    def plain(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        return character if character in UNRESERVED else f"%{found[1].upper()}"

    return re.sub("%([0-9A-Fa-f]{2})", plain, uri)


def by_site(asked: Iterable[Request]) -> dict[str, list[Request]]:
    """The requests of each site, in order."""
    found: dict[str, list[Request]] = {site.name: [] for site in SITES}
    for one in asked:
        found[one.site].append(one)
    return found


def rooms(folder: Path) -> Path:
    """An empty folder for a mirror."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
