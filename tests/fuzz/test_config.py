"""Configuration of any text: a tree whose numbers are numbers, or one ConfigError that names what is wrong."""

import math
import tempfile
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from shared import config, errors
from tests.fuzz import budget


def leaves(kind: type = config.Config, before: str = "") -> list[str]:
    """The dotted names of all fields."""
    found: list[str] = []
    for field in msgspec.structs.fields(kind):
        name = f"{before}{field.name}"
        nested = isinstance(field.type, type) and issubclass(field.type, config.Section)
        found += leaves(field.type, f"{name}.") if nested else [name]
    return found


NAMES = leaves()
odd = st.sampled_from(
    [
        "",
        "x",
        "0",
        "-1",
        "1",
        "nan",
        "inf",
        "1e400",
        "1e-400",
        "true",
        "a,b",
        ",",
        "9" * 5_000,
        "\udcff",
        "\x00",
        "[]",
        "{}",
        "é",
    ]
)
TOML = [
    *(
        "a = 1",
        "[politeness]",
        "delay_min_s = inf",
        "delay_min_s = nan",
        "delay_min_s = -0.0",
        "delay_min_s = 1979-05-27",
        "[limits]",
    ),
    *(
        "total_s = 1e309",
        "total_s = +inf",
        "body_bytes_max = 0x7fffffffffffffff",
        "[node]",
        "id = '''x'''",
        'id = "\\ud800"',
        "weight = 1.5",
    ),
    *(
        "cluster = 5",
        "cluster = 'a b'",
        "[[node]]",
        "sites.private_suffixes = ['a.b', 5]",
        "= ",
        "[",
        "]",
        '"',
        "x = [1,",
        "# c",
        "\x00",
    ),
    *(
        "redis = 'redis://:pw@h:1/0'",
        "durability = 'strict'",
        "node.x.y = 1",
        "membership = 5",
        "'' = 1",
        "x = " + "[" * 1_500,
        "x = " + "9" * 5_000,
    ),
]
texts = st.lists(st.sampled_from(TOML) | st.text(max_size=12), max_size=8).map("\n".join)


def loaded(text: str | bytes = b"", *, environ: dict[str, str] | None = None, options: dict[str, object] | None = None):
    """The tree, or None where it was refused; nothing else may happen."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        try:
            return config.load(Path(file.name), environ=environ or {}, options=options)
        except errors.ConfigError:
            return None


def check(tree: config.Config | None) -> None:
    """Every number can be waited for or counted with, and the tree can be said again."""
    if tree is None:
        return
    plain = msgspec.to_builtins(tree)

    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            return [number for one in value.values() for number in numbers(one)]
        return [value] if isinstance(value, float) else []

    assert all(math.isfinite(number) for number in numbers(plain))
    assert msgspec.convert(plain, config.Config) == tree


@budget.tried(texts | st.binary(max_size=60), share=4)
def test_any_file_is_a_tree_or_an_error(text):
    check(loaded(text))


@budget.tried(st.dictionaries(st.sampled_from(NAMES), odd, max_size=4), share=4)
def test_any_variables_are_a_tree_or_an_error(values):
    environ = {f"CRAWLRING_{name.upper().replace('.', '__')}": value for name, value in values.items()}
    check(loaded(environ=environ))


@budget.tried(st.dictionaries(st.text("ABCDEFGHNODE_.é", max_size=12), odd, max_size=3), share=2)
def test_any_names_of_variables_are_a_tree_or_an_error(values):
    check(loaded(environ={f"CRAWLRING_{name}": value for name, value in values.items()}))


@budget.tried(
    st.dictionaries(
        st.sampled_from(NAMES),
        odd | st.floats() | st.integers() | st.none() | st.lists(st.none(), max_size=2),
        max_size=3,
    ),
    share=2,
)
def test_any_options_are_a_tree_or_an_error(values):
    check(loaded(options=values))


@budget.tried(
    st.text(max_size=60)
    | st.sampled_from(["Bot/1.0 (+https://a.example/)", "B", "x\ny (+https://a.b)", "é (a@b.c)", "Bot (a@b.c)\x7f"])
)
def test_a_user_agent_is_fit_for_a_header_or_refused(agent):
    tree = config.Config(identity=config.Identity(user_agent=agent))
    try:
        good = config.require_user_agent(tree)
    except errors.ConfigError:
        return
    assert good.isascii() and good.isprintable()
    assert config.product_token(good)
