"""The page about what payasync believes says the same as the tables of the code."""

import re
from pathlib import Path
from typing import Final

from payasync.evidence.claims import COLUMNS, GROUNDS, STATE_CLAIMS, Claim

PAGE: Final = (Path(__file__).parents[2] / "docs" / "reference" / "evidence.md").read_text(encoding="utf-8")
WRITES: Final = {
    "payment, order": ("payments.create", "orders.place"),
    "refund": ("refunds.create",),
    "close": ("orders.close",),
}


def table(heading: str) -> dict[str, list[str]]:
    """Return the table whose head begins with a word: by its first column, the others."""
    (found,) = re.findall(rf"^(\| {heading} \|(?:.*\|\n)+)", PAGE, re.MULTILINE)
    rows = [re.split(r" *\| *", line)[1:-1] for line in found.splitlines()]
    return {cells[0]: cells[1:] for cells in rows if not cells[0].startswith("---")}


def test_docs_show_claims_and_grounds() -> None:
    """The page explains each claim once, in the order of the code, and each ground in the words of the code."""
    shown = table("Ground")

    assert [each.value for each in Claim] == list(table("Claim"))[1:]
    assert [each.value for each in COLUMNS] == shown.pop("Ground")
    assert {ground.value: list(words) for ground, words in GROUNDS.items()} == shown


def test_docs_show_what_a_state_claims() -> None:
    """Each state stands in the column of the claim that it makes about a write."""
    shown = table("Write")
    claims = shown.pop("Write")
    found = {
        write: {
            state: Claim(claim)
            for claim, states in zip(claims, cells, strict=True)
            for state in filter(None, states.split(", "))
        }
        for row, cells in shown.items()
        for write in WRITES[row]
    }

    assert found == {write: dict(states) for write, states in STATE_CLAIMS.items()}
