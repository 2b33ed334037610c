"""`crawlring warc check|ls`: are these WARC files whole, and what stands in them."""

import argparse
from pathlib import Path

from coordinator import cli

EPILOG = """examples:
  crawlring warc check out/*.warc.gz                 digests, lengths and the end of each file
  crawlring warc ls out/*.warc.gz                    one line a record
  crawlring warc ls out/*.warc.gz --json | jq -r 'select(.type == "response") | .url'

exit status: 0 done, 1 something is damaged, 2 wrong usage or a file cannot be opened"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    summary = "check or list WARC files"
    parser = commands.add_parser(
        "warc",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("check", "ls"))
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON, one document a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check or list every file; returns the exit status."""
    show = _check if args.what == "check" else _list
    sound = True
    for path in args.files:
        sound = show(path, as_json=args.json) and sound
    return cli.DONE if sound else cli.NO


def _check(path: Path, *, as_json: bool) -> bool:
    from coordinator import warc_files  # noqa: PLC0415 - warcio; --help must not wait for it

    found = warc_files.check(path)
    if as_json:
        cli.print_json(found)
    else:
        print(f"{path}: {found.records} records, {'sound' if not found.problems else 'DAMAGED'}")
        for problem in found.problems:
            print(f"  {problem}")
    return not found.problems


def _list(path: Path, *, as_json: bool) -> bool:
    from coordinator import warc_files  # noqa: PLC0415 - warcio; --help must not wait for it

    sound = True
    for entry in warc_files.entries(path):
        sound = sound and entry.type is not None
        if as_json:
            cli.print_json(entry)
            continue
        about = [f"={entry.profile} {entry.refers_to or ''}".rstrip()] if entry.profile else []
        about += [f"truncated={entry.truncated}"] if entry.truncated and entry.type != "revisit" else []
        about += [*entry.digest_problems, *entry.problems]
        cells = (entry.date, entry.type, entry.status, entry.mime, entry.url)
        print(entry.offset, entry.length, *(cell or "-" for cell in cells), *about)
    return sound
