"""How `pytest -n` shares the tests out: what runs clusters of several nodes goes to one process, and first of all.

Two clusters at once, each judged by its gaps and deadlines, would slow each other down. All other tests go by the file,
so that what a module has set up serves all of it. Each process has servers of its own (tests/conftest.py). Without `-n`
nothing here has any part.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

CLUSTERS = ("tests/cluster/", "tests/torture/")
"""Some nine minutes together, most of them spent waiting; all the rest takes some seven."""


class Lanes(LoadScopeScheduling):
    """A piece of work is a file, or all that is in CLUSTERS."""

    def _split_scope(self, nodeid: str) -> str:
        return "clusters" if nodeid.startswith(CLUSTERS) else nodeid.partition("::")[0]


def clusters_first(items: list[pytest.Item]) -> None:
    """The longest piece of work begins first, or it would end last, with nothing left beside it."""
    items.sort(key=lambda item: not item.nodeid.startswith(CLUSTERS))
