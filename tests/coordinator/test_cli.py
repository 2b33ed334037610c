"""The command line: what it is told goes into the configuration, and what goes wrong becomes an exit status."""

import json
import os
import resource
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

from coordinator import cli
from shared import config, errors

ROOT = Path(__file__).parent.parent.parent
AGENT = "--user-agent=Test/1.0 (+https://example.org/bot)"


def started(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coordinator.cli", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        **more,
    )


def test_version_and_help_answer_with_0(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("crawlring ")
    assert cli.main(["--help"]) == 0


def test_every_command_has_help_with_an_example_that_names_it(capsys):
    action = next(one for one in cli.build_parser()._actions if one.dest == "==SUPPRESS==" or one.choices)
    names = list(action.choices)
    for wanted in ("node", "up", "seed", "status", "ring", "owner", "site", "handoffs", "audit", "kill-lease", "drain"):
        assert wanted in names
    for name in names:
        assert cli.main([name, "--help"]) == 0
        assert f"crawlring {name}" in capsys.readouterr().out.split("examples:")[1], name


def test_help_for_a_node_costs_less_than_a_third_of_a_second():
    def cost_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert started("node", "--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Time on the processor: a busy machine must not fail it, a heavy import must.
    assert min(cost_s() for _ in range(3)) < 0.3


def test_help_for_a_node_needs_no_store_and_no_node():
    heavy = {"grpc", "redis", "aiohttp", "tldextract", "node.agent"}
    code = f"import sys; from coordinator import cli; cli.build_parser(); print(sorted({heavy} & set(sys.modules)))"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-command"],
        ["node", "--id"],
        ["node", "--no-such-option"],
        ["node", "--id=n1"],  # no user agent
        ["node", "--id=n1", "--user-agent=NoContact/1.0"],
        ["node", AGENT],  # no id
        ["node", AGENT, "--id=n1", "--delay=soon"],
        ["node", AGENT, "--id=n1", "--lease-ttl=2"],
        ["node", AGENT, "--id=a b"],
        ["node", AGENT, "--id=n1", "--config=/no/such/file"],
        ["seed"],
        ["seed", "/no/such/file"],
        ["seed", "-", "--from-list=x"],
        ["seed", "-", "--priority=10"],
        ["audit"],
        ["audit", "/no/such/folder"],
        ["kill-lease", "n1", "--rejoin=-1"],
    ],
)
def test_wrong_usage_is_2_and_says_why(arguments, capsys, monkeypatch):
    monkeypatch.setenv("CRAWLRING_ETCD", "127.0.0.1:1")
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err


def test_a_store_that_is_not_there_is_3(capsys):
    away = ["--etcd=127.0.0.1:1", "--redis=redis://127.0.0.1:1/0"]
    for command in (
        ["status"],
        ["ring"],
        ["owner", "a.test"],
        ["site", "a.test"],
        ["kill-lease", "n1"],
        ["drain", "n1"],
    ):
        assert cli.main([*command, *away]) == 3, command
    assert cli.main(["handoffs", *away]) == 3
    assert "crawlring:" in capsys.readouterr().err


def test_options_win_over_variables_and_those_over_the_file(tmp_path, monkeypatch):
    file = tmp_path / "crawl.toml"
    file.write_text("cluster = 'filed'\n[politeness]\ndelay_min_s = 7\n[node]\nweight = 3\nid = 'f1'\n")
    monkeypatch.setenv("CRAWLRING_NODE__WEIGHT", "4")
    monkeypatch.setenv("CRAWLRING_ETCD", "10.0.0.1:2379")
    parser = cli.build_parser()
    args = parser.parse_args(["node", "--config", str(file), "--id=o1", "--recrawl", "--redis=redis://r:1/2"])
    chosen = cli.settings(args)
    assert (chosen.cluster, chosen.politeness.delay_min_s) == ("filed", 7.0)
    assert (chosen.node.weight, chosen.etcd) == (4.0, "10.0.0.1:2379")
    assert (chosen.node.id, chosen.redis, chosen.recrawl.enabled) == ("o1", "redis://r:1/2", True)


def test_every_option_of_a_node_reaches_its_setting_and_can_be_handed_on():
    given = {
        "--id": "n7",
        "--user-agent": "A/1 (+https://a.test/)",
        "--delay": "3.5",
        "--weight": "2",
        "--lease-ttl": "12",
        "--concurrency": "9",
        "--out": "o",
        "--listen": "127.0.0.1:9",
        "--connect-to": "127.0.0.1:8",
    }
    line = [f"{flag}={value}" for flag, value in given.items()] + ["--allow-private", "--recrawl"]
    args = cli.build_parser().parse_args(["node", *line])
    chosen = cli.settings(args)
    node = chosen.node
    assert (node.id, node.weight, node.concurrency, node.out) == ("n7", 2.0, 9, "o")
    assert (node.listen, node.connect_to, node.allow_private) == ("127.0.0.1:9", "127.0.0.1:8", True)
    assert (chosen.identity.user_agent, chosen.politeness.delay_min_s) == ("A/1 (+https://a.test/)", 3.5)
    assert (chosen.membership.lease_ttl_s, chosen.recrawl.enabled) == (12, True)
    again = cli.build_parser().parse_args(["node", *cli.node_arguments(args)])
    assert cli.settings(again) == chosen


def test_check_config_prints_a_file_that_reads_back(capsys, tmp_path):
    agent = 'Ünï"q\\uote/1'
    assert cli.main(["node", "--id=n1", f"--user-agent={agent}", "--check-config"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["identity"]["user_agent"] == agent
    file = tmp_path / "again.toml"
    file.write_text(text)
    assert config.load(file, environ={}).node.id == "n1"
    assert cli.main(["node", f"--config={file}", "--check-config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["node"]["id"] == "n1"


def test_a_password_is_never_printed(capsys):
    assert cli.main(["node", "--redis=rediss://me:s3cret@r.test:6380/0", "--check-config"]) == 0
    out = capsys.readouterr().out
    assert "s3cret" not in out
    assert "rediss://me:***@r.test:6380/0" in out


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (errors.ConfigError("no"), 2),
        (errors.FingerprintMismatch("no"), 2),
        (errors.StoreUnavailable("no"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_a_command_raises_becomes_its_status(raised, status, monkeypatch):
    def run(_args):
        raise raised

    def register(commands):
        cli.add_command(commands, "raise", summary="raise", epilog="").set_defaults(run=run)

    module = types.ModuleType("a_command_of_this_test")
    module.register = register
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert cli.main(["raise"], modules=[module.__name__]) == status


def test_a_reader_that_has_gone_ends_a_command_quietly():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        ended = subprocess.run(
            [sys.executable, "-m", "coordinator.cli", "node", "--check-config"],
            cwd=ROOT,
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_lists_are_given_once_a_value_and_travel_on_to_the_nodes_of_up():
    parser = cli.build_parser()
    given = ["--allow=e.org", "--allow=~x{1,2}", "--deny=f.org", "--depth=3", "--pages-per-site=9", "--warc"]
    args = parser.parse_args(["node", "--id=n1", *given, "--handler=pages:keep"])
    chosen = cli.settings(args)
    assert chosen.scope == config.Scope(allow=("e.org", "~x{1,2}"), deny=("f.org",), depth_max=3, pages_per_site=9)
    assert (chosen.archive.warc, chosen.archive.handler) == (True, "pages:keep")
    line = cli.node_arguments(parser.parse_args(["up", *given]))
    assert [one for one in line if one in given] == given
    again = cli.settings(parser.parse_args(["node", "--id=n1", *line]))
    assert again.scope == chosen.scope


@pytest.mark.parametrize("command", ["node", "up"])
def test_a_scope_that_cannot_be_read_is_told_before_anything_is_started(command, capsys, tmp_path):
    more = ["--id=n1"] if command == "node" else [f"--data={tmp_path / 'data'}"]
    assert cli.main([command, AGENT, *more, "--deny=~("]) == 2
    assert cli.main([command, AGENT, *more, "--deny=*.e.org", "--check-config"]) == 2
    assert "scope.deny" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_check_config_prints_what_is_not_set_as_nothing_and_tables_within_tables(tmp_path, capsys):
    file = tmp_path / "crawl.toml"
    file.write_text('[scope]\ndepth_max = 2\n[sites.aliases]\n"www.e.org" = "e.org"\n')
    assert cli.main(["node", "--config", str(file), "--check-config"]) == 0
    printed = tomllib.loads(capsys.readouterr().out)
    assert printed["scope"]["depth_max"] == 2
    assert "pages_per_site" not in printed["scope"]
    assert printed["sites"]["aliases"] == {"www.e.org": "e.org"}
