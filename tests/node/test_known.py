"""The bounded memory of digests never knows what was not put in, and forgets only what a later one replaced."""

from hypothesis import given
from hypothesis import strategies as st

from node import known

DIGESTS = st.integers(min_value=0, max_value=(1 << 63) - 1) | st.integers(min_value=0, max_value=40)


@given(st.lists(DIGESTS, max_size=60), DIGESTS)
def test_of_each_place_the_last_digest_is_known_and_nothing_else(put: list[int], asked: int) -> None:
    memory = known.Known(places=16)
    last: dict[int, int] = {}
    for digest in put:
        memory.add(digest)
        last[digest % 16] = digest
    assert (asked in memory) == (last.get(asked % 16) == asked)
    assert all(digest in memory for digest in last.values())


def test_a_cleared_memory_knows_nothing() -> None:
    memory = known.Known(places=16)
    for digest in (0, 7, (1 << 63) - 1):
        memory.add(digest)
        assert digest in memory
    memory.clear()
    assert not any(digest in memory for digest in (0, 7, (1 << 63) - 1))
