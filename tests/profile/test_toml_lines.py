from typing import Final

import pytest

from payasync.profile.toml import lines_of

QUOTES: Final = ('"""', "'''")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n\n# a = 1\n", {}),
        ("a = 1\nb = 2", {"a": 1, "b": 2}),
        ("a = 1\r\n\r\nb = 2\r\n", {"a": 1, "b": 3}),
        ("  a = 1 # b = 2\n# c = 3\n\td = 4", {"a": 1, "d": 3}),
        ("[t]\na = 1\n[u]\na = 1", {"t": 1, "t.a": 2, "u": 3, "u.a": 4}),
        ("a = 1\n [ t . u ] # [v]\nb = 1", {"a": 1, "t": 2, "t.u": 2, "t.u.b": 3}),
        ("[t.u]\na = 1\n[t]\nb = 1", {"t": 1, "t.u": 1, "t.u.a": 2, "t.b": 4}),
        ("a.b = 1\na . c.d = 2\n[t]\na.b = 3", {"a": 1, "a.b": 1, "a.c": 2, "a.c.d": 2, "t": 3, "t.a": 4, "t.a.b": 4}),
        ("a = {b = 1, c = {d = 2}}", {"a": 1, "a.b": 1, "a.c": 1, "a.c.d": 1}),
        ('\n[t]\na = {"b.c" = [\n1,\n]}\nd = 1', {"t": 2, "t.a": 3, "t.a.b.c": 3, "t.d": 6}),
        (
            '[c."orders.place"]\n\'*\' = 1\n"a # [b]" = 2',
            {"c": 1, "c.orders.place": 1, "c.orders.place.*": 2, "c.orders.place.a # [b]": 3},
        ),
        ('a = [ # ]\n"]",\n\n[1]\n]\nb = 1', {"a": 1, "b": 6}),
        ('a = [\n["x"]\n]', {"a": 1}),
        ('a = "# not \\" a = 2"\nb = \'[t]\'', {"a": 1, "b": 2}),
        ("[[l]]\na = 1\n[[l]]\nb = 2\n[t]\nc = 3", {"l": 1, "l.a": 2, "l.b": 4, "t": 5, "t.c": 6}),
        ("a = [{b = 1}]\nc = 1", {"a": 1, "c": 2}),
    ],
)
def test_first_line_of_each_key(text: str, expected: dict[str, int]) -> None:
    """A key is found by its path, through headers, dots, quotes and inline tables, and in no comment or text."""
    assert expected == lines_of(text)


@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize(
    "lines", [["", ""], ["", "a = 1", "[t]", ""], ["x", "]", "#", "y"], ["", '" ', "b = 2", "'"], ["", "]]"]]
)
def test_texts_of_several_lines(quote: str, lines: list[str]) -> None:
    """What stands in a text of several lines is no key and no header, whatever it looks like."""
    text = "\n".join(lines)
    end = 2 + text.count("\n")

    assert {"t": 1, "t.k": 2, "t.z": end + 1} == lines_of(f"[t]\nk = {quote}{text}{quote}\nz = 1")


def test_the_other_quotes_end_nothing() -> None:
    """A text of several lines ends with the quotes with which it began."""
    first, second = QUOTES

    assert {"a": 1, "b": 5} == lines_of(f"a = {first}\n{second}\n]\n{first}\nb = {second}\nc = 1\n{second}")


@pytest.mark.parametrize("text", ["a = 1\nb = ", "a = 1\nb = [\n", "a = 1\n]\nc = 1", f"a = 1\nb = {'[' * 100_000}"])
def test_what_is_no_toml_has_no_lines(text: str) -> None:
    """From where a text is no TOML, no line is found, and no foreign error raised."""
    assert {"a": 1} == lines_of(text)


def test_a_key_of_very_many_steps() -> None:
    """Only the first steps of an endless key have a line: nothing is exhausted by it."""
    found = lines_of(f"a{'.a' * 5_000} = 1\nb = 1")

    assert {1} == {line for key, line in found.items() if key != "b"}
    assert 2 == found["b"]
    assert 1 == found["a.a.a"]


def test_a_long_list_takes_no_long_time() -> None:
    """A list of very many lines is read once, and not once for each of its lines."""
    entries = "".join(f"{number},\n" for number in range(20_000))

    assert {"a": 1, "b": 20_003} == lines_of(f"a = [\n{entries}]\nb = 1")
