"""The wheel alone, in a clean environment outside the checkout, is the whole program."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import local

ROOT = Path(__file__).parent.parent
TINY_WEB = """
import http.server, sys
class Tiny(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'<a href="/two">two</a>' if self.path == '/' else b'the end'
        self.send_response(404 if self.path == '/robots.txt' else 200)
        self.send_header('Content-Type', 'text/html')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        print(self.headers['Host'], self.path, flush=True)
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Tiny).serve_forever()
"""


def call(*command: str | Path, cwd: Path, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run to the end; the checkout is not on the path."""
    environ = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel and what it depends on, at the locked versions."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    call(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("crawlring-*.whl")
    pins = re.findall(r"^[a-z0-9-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (folder / "constraints.txt").write_text("\n".join(pins))
    call(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    call(*pip, "--python", python, "install", "-c", folder / "constraints.txt", wheel, cwd=folder, timeout_s=240)
    return folder


def test_the_command_is_there_and_says_its_version(installed: Path):
    said = call(installed / "venv" / "bin" / "crawlring", "--version", cwd=installed).stdout
    assert re.fullmatch(r"crawlring \d+\.\d+\.\d+\n", said)


def test_nothing_of_the_checkout_is_seen(installed: Path):
    said = call(
        installed / "venv" / "bin" / "python", "-c", "import coordinator; print(coordinator.__file__)", cwd=installed
    )
    assert said.stdout.startswith(str(installed))


def test_all_that_is_not_python_is_shipped(installed: Path):
    (site,) = (installed / "venv" / "lib").glob("python3.*/site-packages")
    for folder in ("lua", "data"):
        ours = {path.name for path in (ROOT / "shared" / folder).iterdir() if path.is_file()}
        assert {path.name for path in (site / "shared" / folder).iterdir() if path.is_file()} == ours
    assert all((site / room / "py.typed").exists() for room in ("coordinator", "node", "shared"))


def test_the_etcd_stubs_load_beside_a_current_protobuf(installed: Path):
    """etcd3's own stubs are too old for protobuf 4 and later; ours must not be."""
    code = "import google.protobuf, shared.etcd; print(google.protobuf.__version__)"
    version = call(installed / "venv" / "bin" / "python", "-c", code, cwd=installed).stdout
    assert int(version.split(".")[0]) >= 6


def test_it_crawls_a_tiny_web_until_idle(installed: Path):
    port, log = local.free_port(), installed / "web.log"
    web = local.Child([sys.executable, "-c", TINY_WEB, str(port)], log=log)
    seeds = installed / "seeds.txt"
    seeds.write_text("http://tiny.test/\n")
    try:
        done = call(
            installed / "venv" / "bin" / "crawlring",
            *("up", "--nodes", "1", "--until-idle", "--data", installed / "data", "--seeds", seeds, "--delay", "0.2"),
            *("--connect-to", f"127.0.0.1:{port}", "--user-agent", "Test/1.0 (+https://localhost/)"),
            cwd=installed,
        )
    finally:
        web.kill()
    kinds = [line.split()[0] for line in done.stdout.splitlines()]
    assert kinds == ["etcd", "redis", "node"]
    assert log.read_text().splitlines() == ["tiny.test /robots.txt", "tiny.test /", "tiny.test /two"]
