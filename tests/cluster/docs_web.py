"""Two sites of real pages behind nginx: its configuration, its own log as values, and what wget reaches of them.

Each site is Debian's HTML of one manual. Part of the pages live on the site's other host name, and each host
redirects there what it does not hold, so that links lead to and fro within a site. It knows no crawler.
"""

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
WGET_S = 300.0
WGET_AGENT = "Wget/"
HTML = "text/html"
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class Site:
    """A manual as a site; `aside` is a pattern of the paths that live on the host `www`."""

    name: str
    root: Path
    package: str
    aside: str

    @property
    def docs(self) -> str:
        return f"docs.{self.name}"

    @property
    def www(self) -> str:
        return f"www.{self.name}"

    @property
    def start(self) -> str:
        return f"http://{self.docs}/"


SITES = (
    Site("python.example", Path("/usr/share/doc/python3.11/html"), "python3.11-doc", "^/(library|reference)/"),
    Site("postgresql.example", Path("/usr/share/doc/postgresql-doc-15/html"), "postgresql-doc-15", "^/(sql|app)-"),
)
HOSTS = {host: site for site in SITES for host in (site.docs, site.www)}


def file_of(url: str) -> Path:
    """Where the text of a page of the sites stands."""
    _, _, host, path = url.split("/", 3)
    return HOSTS[host].root / (path or "index.html")


class Request(msgspec.Struct, frozen=True):
    """One request in nginx's own log; both times have a resolution of 1 ms."""

    end_s: float
    took_s: float
    host: str
    uri: str
    status: int
    type: str
    agent: str

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
    def site(self) -> str:
        return HOSTS[self.host].name

    @property
    def url(self) -> str:
        return f"http://{self.host}{unescaped(self.uri)}"


class Answers(list[Request]):
    """Requests to the two sites, in the order of their start."""

    @cached_property
    def pages(self) -> set[str]:
        """What was answered as a page of HTML, at least once."""
        return {one.url for one in self if one.is_page}

    @cached_property
    def others(self) -> set[str]:
        """Answers of 200 that are no HTML."""
        return {one.url for one in self if one.status == 200 and not one.type.startswith(HTML)}


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
        '"type":"$sent_http_content_type","agent":"$http_user_agent"}'
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
    return f"""  server {{
    {listen} server_name {site.docs}; root {site.root}; {robots}
    location ~ "{site.aside}" {{ return 301 http://{site.www}$request_uri; }}
  }}
  server {{
    {listen} server_name {site.www}; root {site.root}; {robots}
    location ~ "{site.aside}" {{ }}
    location / {{ return 301 http://{site.docs}$request_uri; }}
  }}"""


def answers(log: Path, agents: str) -> Answers:
    """What the log says of the two sites and of user agents that begin so."""
    return Answers(sorted(_ours(log, agents), key=lambda one: one.start_ms))


def _ours(log: Path, agents: str) -> Iterator[Request]:
    decoder = msgspec.json.Decoder(Request)
    for raw in log.read_bytes().splitlines(keepends=True):
        if raw.endswith(b"\n"):
            one = decoder.decode(raw)
            if one.host in HOSTS and one.agent.startswith(agents):
                yield one


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


def by_site(requests: Iterable[Request]) -> dict[str, list[Request]]:
    """The requests of each site, in order."""
    found: dict[str, list[Request]] = {site.name: [] for site in SITES}
    for one in requests:
        found[one.site].append(one)
    return found


def rooms(folder: Path) -> Path:
    """An empty folder for a mirror."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
