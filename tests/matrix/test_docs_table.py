"""The failure matrix in the docs says the same as the table that the tests of the calls use."""

import re
from pathlib import Path
from typing import Final

from tests.matrix.table import ROWS

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "failure-matrix.md"
SHOWN: Final = {
    "nothing sent: DNS": "not sent",
    "nothing sent, and a retry cannot help": "not sendable",
    "no response": "no response",
    "a response about something else": "unrecognised",
    "a 4xx that": "unrecognised",
    "a missing or invalid signature": "unverified",
    "5xx, such as 502": "server error",
    "HTTP 429": "rate limited",
    "a redirect": "redirect",
    "a listed refusal": "not executed",
    '409, or another "the number was used before"': "duplicate",
}
"""How the row of each end of an attempt begins in the docs."""
WORDS: Final = {
    "repeat": "retry",
    "wait": "retry later",
    "query": "ask",
    "unknown": "unknown",
    "used": "error",
    "definite": "error",
}
NUMBERS: Final = ("3", "5", "4", "1", "1k")
"""An endpoint of each column of the docs."""


def word_of(name: str, number: str) -> str:
    """Return the page's word for an end of an attempt at an endpoint."""
    return WORDS[ROWS[name].word(number)]


def test_docs_show_the_matrix() -> None:
    """Each row of the page says what a call does after this end of an attempt, and there is no other row."""
    for begins, name in SHOWN.items():
        (row,) = re.findall(rf"^\| {re.escape(begins)}.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        cells = [cell.strip() for cell in row.strip("|").split("|")][1:]

        assert [word_of(name, number) for number in NUMBERS] == [cell.replace("ask later", "ask") for cell in cells]
    assert len(SHOWN) == len(re.findall(r"^\| (?!The attempt|-)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_docs_say_which_error() -> None:
    """The first line of the page's list that fits a cell with "error" names the class of the error."""
    listed = re.findall(r"^  \d\. `(\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    cells = [(name, number) for name in SHOWN.values() for number in NUMBERS]
    errors = {cell: ROWS[cell[0]].error(cell[1]).__name__ for cell in cells if word_of(*cell) == "error"}

    not_sent, unsigned, duplicate, refused = listed
    fits = {("not sendable", number): not_sent for number in NUMBERS}
    fits |= {("unverified", "3"): unsigned}
    fits |= {("duplicate", number): duplicate for number in NUMBERS if number != "3"}
    assert errors == {cell: fits.get(cell, refused) for cell in errors}
