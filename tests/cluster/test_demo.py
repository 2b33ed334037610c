"""The demo, small: a node is lost half way, and the origins' own log says that no promise was broken."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import cli

ROOT = Path(__file__).parents[2]


@pytest.mark.cluster
def test_a_small_demo_keeps_every_promise(tmp_path: Path):
    command = [sys.executable, "-m", "coordinator.cli", "demo", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--sites", "40", "--largest", "12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^the takeover of n[123]: \d+ sites claimed", done.stdout, re.MULTILINE)
    assert "FAIL" not in done.stdout
    for left in ("handoffs.jsonl", "web/requests.jsonl", "out/crawl-n1.jsonl"):
        assert (tmp_path / "data" / left).stat().st_size > 0


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine").write_text("precious")
    assert cli.main(["demo", "--data", str(tmp_path)]) == cli.USAGE
    assert "empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
