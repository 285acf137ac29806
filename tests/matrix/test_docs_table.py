"""The failure matrix in the docs says the same as the table that the tests of the calls use."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.matrix.table import ROWS

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "failure-matrix.md"
SHOWN: Final = {
    "nothing sent: DNS": "not sent",
    "nothing sent, and a retry cannot help": "not sendable",
    "no response": "no response",
    "a response about something else": "unrecognised",
    "a missing or invalid signature": "unverified",
    "5xx": "server error",
    "429": "rate limited",
    "a redirect": "redirect",
    "a listed refusal": "not executed",
    '"the number was used before"': "duplicate",
}
"""How the row of each end of an attempt begins in the docs."""
WORDS: Final = {
    "repeat": "retry",
    "wait": "retry later",
    "query": "ask",
    "unknown": "unknown",
    "used": "`DuplicateError`",
}
NUMBERS: Final = ("3", "5", "4", "1", "1k")
"""An endpoint of each column of the docs."""


@pytest.mark.parametrize(("begins", "name"), SHOWN.items())
def test_docs_show_the_matrix(begins: str, name: str) -> None:
    """Each row of the page says what a call does after this end of an attempt."""
    (row,) = re.findall(rf"^\| {re.escape(begins)}.*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]

    words = [ROWS[name].word(number) for number in NUMBERS]
    expected = [WORDS.get(word, f"`{ROWS[name].failure.__name__}`") for word in words]

    assert expected == [cell.replace("ask later", "ask") for cell in cells]


def test_docs_show_every_row() -> None:
    """The page has no row that the table does not have."""
    rows = re.findall(r"^\| (?!The attempt|-)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(SHOWN) == len(rows)
