import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, NoneType
from typing import Any, Final, Literal, Protocol

import pytest
from attrs import Attribute, Factory, field, frozen

from payasync.errors import ConfigurationError
from payasync.secret import Secret
from payasync.typed import MOST_SHOWN, described, fits, listed, named, named_lists, rule, rule_of_each, shown, typed


class Word(str):
    """A caller's own kind of text."""

    __slots__ = ()


class Place(enum.StrEnum):
    """A caller's own words, which are texts."""

    PATH = "path"
    BODY = "body"


class Level(enum.IntEnum):
    """A caller's own numbers, which compare as integers and are written in another way."""

    ONE = 1


class Signs(Protocol):
    """What has these two methods."""

    def sign(self) -> str:
        """Return a text."""
        ...

    def verify(self) -> bool:
        """Return whether."""
        ...


class Scheme:
    """Has both methods, and says nothing of the protocol."""

    def sign(self) -> str:
        """Return a text."""
        return ""

    def verify(self) -> bool:
        """Return whether."""
        return True


class Heir(Scheme, Signs):
    """Says that it is of the protocol."""


class Half:
    """Has one method, and the other's name for a value."""

    verify = True

    def sign(self) -> str:
        """Return a text."""
        return ""


class Odd:
    """Cannot be written."""

    def __repr__(self) -> str:
        raise LookupError


class Nameless:
    """Is of no known kind."""


Lists = Mapping[str, tuple[str | int, ...]]
Tables = Mapping[str, Mapping[str, Any]]
SCHEME: Final = Scheme()

FITTING: Final[list[tuple[Any, Any]]] = [
    (str, "a"),
    (str, ""),
    (str, Word("a")),
    (str, Place.PATH),
    (int, 0),
    (int, -(2**70)),
    (float, 1.5),
    (float, 1),
    (float, float("nan")),
    (bool, False),
    (NoneType, None),
    (Literal["path", "body"], "path"),
    (Literal["path", "body"], Place.PATH),
    (Literal["", "path"], ""),
    (Literal[0, 1], 0),
    (Literal[False], False),
    (str | None, None),
    (str | None, "a"),
    (str | int, 1),
    (Literal["a"] | Literal["b"], "b"),  # noqa: PYI030 - as an alias and an empty text are joined
    (tuple[str, ...], ()),
    (tuple[str, ...], ("a", Word("b"))),
    (tuple[str | int, ...], ("a", 1)),
    (Mapping[str, int], {}),
    (Mapping[str, int], {"a": 1}),
    (Mapping[str, int], MappingProxyType({"a": 1})),
    (Lists, {"a": ("b", 1), "c": ()}),
    (Tables, {"a": {"b": [object()]}}),
    (Signs, SCHEME),
    (Signs, Heir()),
    (Signs | None, None),
    (Scheme, SCHEME),
    (Scheme, Heir()),
    (Any, None),
    (Any, object()),
]
OTHER: Final[list[tuple[Any, Any]]] = [
    (str, 1),
    (str, None),
    (str, b"a"),
    (str, Secret("a")),
    (int, True),
    (int, 1.0),
    (int, "1"),
    (int, Level.ONE),
    (float, True),
    (float, "1.5"),
    (float, 1j),
    (bool, 1),
    (bool, "true"),
    (bool, None),
    (NoneType, False),
    (NoneType, ""),
    (Literal["path", "body"], "PATH"),
    (Literal["path", "body"], ["path"]),
    (Literal["path", "body"], None),
    (Literal["path"], Place.BODY),
    (Literal[0, 1], False),
    (Literal[0, 1], True),
    (Literal[0, 1], 0.0),
    (Literal[False], 0),
    (str | None, 0),
    (str | int, True),
    (str | int, 1.0),
    (tuple[str, ...], "ab"),
    (tuple[str, ...], ["a"]),
    (tuple[str, ...], ("a", 1)),
    (tuple[str, ...], None),
    (tuple[str | int, ...], (1, False)),
    (Mapping[str, int], {"a": "1"}),
    (Mapping[str, int], {1: 1}),
    (Mapping[str, int], [("a", 1)]),
    (Lists, {"a": "b"}),
    (Lists, {"a": (True,)}),
    (Tables, {"a": "b"}),
    (Tables, {"a": {1: "b"}}),
    (Signs, Half()),
    (Signs, Scheme),
    (Signs, "sign"),
    (Signs | None, 0),
    (Scheme, Half()),
    (Scheme, Scheme),
]


@pytest.mark.parametrize(("kind", "value"), FITTING)
def test_a_value_of_the_type_fits(kind: Any, value: object) -> None:
    """What a type checker would take is taken, whoever made it."""
    assert fits(value, kind) is True


@pytest.mark.parametrize(("kind", "value"), OTHER)
def test_a_value_of_another_type_does_not(kind: Any, value: object) -> None:
    """A boolean is no integer, a text no list, a class no object of it, and zero is not false."""
    assert fits(value, kind) is False


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (str, "a text"),
        (int, "an integer"),
        (float, "a number"),
        (bool, "true or false"),
        (NoneType, "nothing"),
        (Any, "anything"),
        (Literal["hex", "HEX"], "one of 'hex', 'HEX'"),
        (Literal["", "minor"], "one of 'minor'"),
        (Literal[0, 1], "one of 0, 1"),
        (Literal["hex", "HEX"] | Literal[""], "one of 'hex', 'HEX'"),  # noqa: PYI030 - as an alias and an empty text
        (str | int, "a text or an integer"),
        (float | None, "a number"),
        (tuple[str | int, ...], "a list, each of it a text or an integer"),
        (Mapping[str, int], "a table of names, each with an integer"),
        (Mapping[str, Any], "a table"),
        (Lists, "a table of names, each with a list, each of it a text or an integer"),
        (Tables, "a table of names, each with a table"),
        (Signs | None, "a Signs"),
        (Odd, "an Odd"),
        (enum.Enum, "an Enum"),
        (bytes, "a bytes"),
        (type("", (), {}), "an "),
    ],
)
def test_a_type_in_words(kind: Any, expected: str) -> None:
    """A type is said in the words of who writes a profile; what may be left out is not said."""
    assert expected == described(kind)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("SUCCESS", "'SUCCESS'"),
        (None, "None"),
        (("a", 1), "['a', 1]"),
        (Secret("sk_live"), "Secret('***')"),
        (Odd(), "an Odd"),
        ([Odd()], "a list"),
        (10**5_000, "an integer"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_is_shown_as_it_is_written(value: object, expected: str) -> None:
    """What was given stands in the error; what cannot be written is told by its type; a tuple was a list."""
    assert expected == shown(value)


@pytest.mark.parametrize("size", [MOST_SHOWN - 2, MOST_SHOWN - 1, 1_000_000])
def test_a_shown_value_is_cut(size: int) -> None:
    """A huge value does not make a huge error."""
    text = f"'{'x' * size}'"

    assert (text if size == MOST_SHOWN - 2 else f"{text[: MOST_SHOWN - 3]}...") == shown("x" * size)


def test_a_value_nested_without_end_is_shown() -> None:
    """An error about a value never fails on the value."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert "a list" == shown(deep)


def numbers() -> Iterator[int]:
    """Yield two numbers, once."""
    yield from (1, 2)


@pytest.mark.parametrize(
    "several",
    [[1, 2], (1, 2), {1, 2}, frozenset({1, 2}), range(1, 3), deque([1, 2]), {1: "a", 2: "b"}.keys()],
    ids=lambda several: type(several).__name__,
)
def test_lists_and_sets_are_listed(several: Any) -> None:
    """Every list and set of a caller becomes a tuple of one's own."""
    assert (1, 2) == listed(several)


@pytest.mark.parametrize(
    "one",
    ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab"), 5, None, {"a": 1}, numbers()],
    ids=lambda one: str(one)[:12],
)
def test_what_is_no_list_is_left_as_it_is(one: Any) -> None:
    """A text is not a list of its letters, nor bytes one of numbers: the check of the type refuses them."""
    assert one is listed(one)
    assert not fits(listed(one), tuple[Any, ...])


def test_tables_are_ones_own() -> None:
    """What becomes of a table, or of the lists in it, afterwards changes nothing."""
    table, lists = {"a": 1}, {"a": [1]}
    own, own_lists = named(MappingProxyType(table)), named_lists(MappingProxyType(lists))
    table["b"] = 2
    lists["a"].append(2)

    assert ({"a": 1}, dict) == (own, type(own))
    assert {"a": (1,)} == own_lists


@pytest.mark.parametrize("convert", [named, named_lists])
@pytest.mark.parametrize("other", ["ab", None, 5, [("a", 1)]])
def test_what_is_no_table_is_left_as_it_is(convert: Callable[[Any], Any], other: Any) -> None:
    """Pairs are no table, and are not read as one: the check of the type refuses them."""
    assert other is convert(other)


def test_what_is_no_list_in_a_table_is_left_as_it_is() -> None:
    """A text where a list belongs stays one, so that it can be refused."""
    assert {"a": "bc", "d": None} == named_lists({"a": "bc", "d": None})  # type: ignore[dict-item] # the mistake


def _even(_: object, attribute: "Attribute[int]", value: int) -> None:
    if value % 2:
        raise ConfigurationError(f"{attribute.name} must be even", field="own")


@frozen(kw_only=True, field_transformer=typed("part"))
class Part:
    """One field for each thing that errors say in a way of its own."""

    even: int = field(default=0, validator=_even)
    word: str = ""
    codes: tuple[str | int, ...] = field(default=(), converter=listed)
    lengths: Mapping[str, int] = Factory(dict)
    states: Lists = field(default=Factory(dict), converter=named_lists)
    headers: Mapping[str, str] = Factory(dict)
    constants: Tables = Factory(dict)
    scheme: Signs | None = None


@frozen(field_transformer=typed(""))
class Whole:
    """Has no name to stand before its fields'."""

    part: Part = Part()
    unit: Literal["", "minor", "major"] = ""


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"word": 5}, "part.word", "part.word must be a text, not 5"),
        ({"even": "2"}, "part.even", "part.even must be an integer, not '2'"),
        (
            {"codes": "SUCCESS"},
            "part.codes",
            "part.codes must be a list, each of it a text or an integer, not 'SUCCESS'",
        ),
        (
            {"codes": [0, True]},
            "part.codes",
            "part.codes must be a list, each of it a text or an integer, not [0, True]",
        ),
        ({"lengths": 5}, "part.lengths", "part.lengths must be a table of names, each with an integer, not 5"),
        (
            {"lengths": {"a": 1, "b": "2"}},
            "part.lengths.b",
            "part.lengths must be a table of names, each with an integer, not 'b' with '2'",
        ),
        (
            {"lengths": {1: 2}},
            "part.lengths",
            "part.lengths must be a table of names, each with an integer, not 1 with 2",
        ),
        ({"scheme": Scheme}, "part.scheme", f"part.scheme must be a Signs, not {Scheme!r}"),
        ({"word": 10**5_000}, "part.word", "part.word must be a text, not an integer"),
        (
            {"states": {"paid": ["A"], "closed": "B"}},
            "part.states.closed",
            f"part.states must be {described(Lists)}, not 'closed' with 'B'",
        ),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_wrong_field_is_named(given: dict[str, Any], field: str, expected: str) -> None:
    """The error says the field with the name of its whole, what it must be and what was given, and has the entry."""
    with pytest.raises(ConfigurationError) as caught:
        Part(**given)

    assert expected == str(caught.value)
    assert field == caught.value.field
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"headers": "sk_live"}, "part.headers", "headers must be a table of names, each with a text, not a text"),
        ({"headers": ["sk_live"]}, "part.headers", "headers must be a table of names, each with a text, not a list"),
        (
            {"headers": {"A": "sk_live", "B": b"sk_live"}},
            "part.headers.B",
            "headers must be a table of names, each with a text, not 'B' with a bytes",
        ),
        (
            {"headers": {"A": "sk_live", 5: "sk_live"}},
            "part.headers",
            "headers must be a table of names, each with a text, not 5 with a text",
        ),
        (
            {"constants": {"key": "sk_live"}},
            "part.constants.key",
            "constants must be a table of names, each with a table, not 'key' with a text",
        ),
        (
            {"constants": "sk_live"},
            "part.constants",
            "constants must be a table of names, each with a table, not a text",
        ),
    ],
)
def test_what_is_sent_as_it_stands_is_not_shown(given: dict[str, Any], field: str, expected: str) -> None:
    """A header or a constant may be a secret: the error says its name, and its type only."""
    with pytest.raises(ConfigurationError) as caught:
        Part(**given)

    assert f"part.{expected}" == str(caught.value)
    assert field == caught.value.field


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"unit": "cents"}, "unit must be one of 'minor', 'major', not 'cents'"),
        ({"unit": None}, "unit must be one of 'minor', 'major', not None"),
        ({"part": {"even": 2}}, "part must be a Part, not {'even': 2}"),
    ],
)
def test_a_field_of_the_whole_is_named_alone(given: dict[str, Any], expected: str) -> None:
    """Without a name of the whole, the field's own name is its path."""
    with pytest.raises(ConfigurationError) as caught:
        Whole(**given)

    assert expected == str(caught.value)
    assert next(iter(given)) == caught.value.field


def test_a_fields_own_check_runs_after_that_of_its_type() -> None:
    """What a field checks itself can rely on the type, and is still checked."""
    wrong: Any = "x"
    with pytest.raises(ConfigurationError, match=r"^even must be even$") as own:
        Part(even=1)
    with pytest.raises(ConfigurationError, match=r"^part.even must be an integer, not 'x'$") as type_first:
        Part(even=wrong)

    assert ("own", "part.even") == (own.value.field, type_first.value.field)
    assert 2 == Part(even=2).even


def test_what_fits_is_kept_as_it_is() -> None:
    """The check converts nothing."""
    part = Part(word=Word("a"), codes=[0, "0"], scheme=SCHEME)

    assert (Word, (0, "0"), SCHEME) == (type(part.word), part.codes, part.scheme)
    assert Part() == Whole().part


@frozen(kw_only=True, field_transformer=typed("part"))
class Ruled:
    """Two fields with a rule beyond their type."""

    even: tuple[int, ...] = field(
        default=(), converter=listed, validator=rule("part", "even", lambda value: not sum(value) % 2)
    )
    short: Mapping[str, str] = field(
        default=Factory(dict), converter=named, validator=rule_of_each("part", "short", lambda value: len(value) < 3)
    )


@pytest.mark.parametrize(
    ("given", "where", "expected"),
    [
        ({"even": [1, 2]}, "part.even", "part.even must be even, not [1, 2]"),
        ({"short": {"a": "b", "c.d": "long"}}, "part.short.c.d", "part.short.c.d must be short, not 'long'"),
        ({"even": ["a"]}, "part.even", "part.even must be a list, each of it an integer, not ['a']"),
    ],
)
def test_a_rule_beyond_the_type(given: dict[str, Any], where: str, expected: str) -> None:
    """A rule is asked after the type, and its error says the field, the entry of a table, the rule and the value."""
    with pytest.raises(ConfigurationError) as caught:
        Ruled(**given)

    assert expected == str(caught.value)
    assert where == caught.value.field


def test_what_keeps_a_rule_is_taken() -> None:
    """A rule changes nothing."""
    made = Ruled(even=[1, 1], short={"a": "b"})

    assert ((1, 1), {"a": "b"}) == (made.even, made.short)
