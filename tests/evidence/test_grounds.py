"""Each cell of the table of grounds, over real HTTP: what a claim lacks makes it not believed.

`tests/transport/test_verified.py` has the cells of signatures.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import Factory, evolve, frozen

from payasync import OutcomeUnknownError, PayasyncError, RetryPolicy, Session
from payasync.evidence.claims import COLUMNS, GROUNDS, Claim, Ground
from payasync.journal import SqliteJournal
from tests.evidence.test_age import STATED
from tests.evidence.test_origin import KEYS, REFUND
from tests.evidence.test_origin import refunded as sent
from tests.foreign.recorder import RESET, Answer, Recorder, answer

SAYS: Final = evolve(
    STATED,
    codes=evolve(STATED.codes, not_executed=("PARAM",), duplicate=("USED",)),
    answer=evolve(STATED.answer, must={"live": True}),
)
MINE: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200, "merchantId": "M1"}
FACTS: Final[dict[Claim, dict[str, object]]] = {
    Claim.DONE: {"code": "OK", "state": "DONE"},
    Claim.UNDER_WAY: {"code": "OK", "state": "RUNS"},
    Claim.ENDED: {"code": "OK", "state": "FAILED"},
    Claim.REFUSED: {"code": "PARAM"},
    Claim.ABSENT: {"code": "NONE"},
    Claim.DUPLICATE: {"code": "USED"},
}
"""What a response holds that makes a claim."""
QUERIED: Final = (Claim.DONE, Claim.UNDER_WAY, Claim.ENDED, Claim.ABSENT)
"""The claims of queries. The others answer the write itself."""


@frozen
class Lacking:
    """How a response lacks a ground.

    Attributes:
        facts: What it holds in place of what it should.
        headers: Its headers.
        page: Its body, if it is no JSON of the service.
        sends: How often the refund was sent before.
    """

    facts: Mapping[str, object] = Factory(dict)
    headers: tuple[tuple[str, str], ...] = ()
    page: bytes = b""
    sends: int = 0


LACKS: Final = {
    "another merchant": (Ground.OURS, COLUMNS, Lacking({"merchantId": "M2"})),
    "another environment": (Ground.OURS, COLUMNS, Lacking({"live": False})),
    "a page": (Ground.OWN, COLUMNS, Lacking(page=b"<html>")),
    "another number": (Ground.THIS, COLUMNS, Lacking({"outRefundNo": "R2"})),
    "another amount": (Ground.THIS, COLUMNS[:3], Lacking({"refundAmt": 201})),
    "an earlier send": (Ground.IN_TIME, (Claim.UNDER_WAY, Claim.ENDED), Lacking(sends=1)),
    "a cache": (Ground.IN_TIME, (Claim.ENDED, Claim.ABSENT), Lacking(headers=(("Age", "900"),))),
}
CELLS: Final = [
    pytest.param(claim, lacking, id=f"{name}-{claim.name.lower()}")
    for name, (ground, claims, lacking) in LACKS.items()
    for claim in claims
    if GROUNDS[ground][COLUMNS.index(claim)] not in {"no", "if a close"}
]


def said(claim: Claim, lacking: Lacking = Lacking()) -> Answer:
    """Return a response that makes a claim about the refund, and lacks a ground of it."""
    status = {Claim.REFUSED: 400, Claim.ABSENT: 404, Claim.DUPLICATE: 409}.get(claim, 200)
    facts: dict[str, object] = {**MINE, "live": True, **FACTS[claim], **lacking.facts}
    return answer(status, lacking.page or json.dumps(facts).encode(), *lacking.headers)


async def refunded(path: Path, claim: Claim, response: Answer, earlier: int, profile: Any = SAYS) -> Any:
    """Return what a journalled refund ends as, and its state and sends.

    The response answers the refund itself, or, after the refund's own response was lost, each query about it.
    """
    first = [said(Claim.ENDED)] * earlier
    script = [*first, RESET if claim in QUERIED else response]
    answers = {"/payment/refund/status": response}
    with Recorder(script, otherwise=said(Claim.DONE), by_path=answers) as service:
        async with (
            SqliteJournal(path) as journal,
            Session(
                service.url, credentials=KEYS, profile=profile, journal=journal, retry=RetryPolicy(base_delay=0)
            ) as pay,
        ):
            found: Any = None
            for _ in range(earlier + 1):
                try:
                    found = await pay.refunds.create(**REFUND)
                except PayasyncError as error:
                    found = error
            (intent,) = await journal.list()
    return found, intent.state, sum(each.path == "/payment/refund" for each in service.requests) - earlier


BELIEVED: Final = {
    Claim.DONE: ("succeeded", 1),
    Claim.UNDER_WAY: ("accepted", 1),
    Claim.ENDED: ("rejected", 1),
    Claim.REFUSED: ("rejected", 1),
    Claim.ABSENT: ("succeeded", 2),
    Claim.DUPLICATE: ("unknown", 1),
}
"""By claim, the state of the write if it is believed, and how often the refund is sent."""


@pytest.mark.parametrize("claim", COLUMNS, ids=lambda claim: claim.name.lower())
async def test_claim_with_all_grounds_is_believed(tmp_path: Path, claim: Claim) -> None:
    """A response that lacks no ground is believed."""
    _, state, sends = await refunded(tmp_path / "pay.db", claim, said(claim), 0)

    assert BELIEVED[claim] == (state, sends)


@pytest.mark.parametrize(("claim", "lacking"), CELLS)
async def test_claim_that_lacks_a_ground_changes_nothing(tmp_path: Path, claim: Claim, lacking: Lacking) -> None:
    """A response that lacks one ground of its claim leaves the write unknown, and sends nothing again."""
    profile = SAYS if not lacking.sends else evolve(SAYS, recovery=evolve(SAYS.recovery, quarantine=60.0))
    error, state, sends = await refunded(
        tmp_path / "pay.db", claim, said(claim, lacking), lacking.sends, profile=profile
    )

    assert (OutcomeUnknownError, "unknown", 1) == (type(error), state, sends)


async def test_without_a_journal_an_end_may_be_that_of_an_earlier_call() -> None:
    """A call without a journal knows no earlier calls: "failed" leaves it unknown, and "processing" is believed."""
    ended, _ = await sent(Recorder([RESET], otherwise=said(Claim.ENDED)), SAYS)
    under_way, _ = await sent(Recorder([RESET], otherwise=said(Claim.UNDER_WAY)), SAYS)

    assert (OutcomeUnknownError, "failed") == (type(ended), ended.response.data["state"].lower())
    assert "the refund's state is failed, perhaps of an earlier send" in str(ended)
    assert ("processing", True) == (under_way.state, under_way.recovered)


async def test_order_without_a_state_is_not_closed() -> None:
    """If a query about a close finds the order, and the profile maps no states, the close is unknown."""
    found = {"/payment/orderquery": answer(200, b'{"code": "OK", "live": true}')}
    with Recorder([RESET], otherwise=said(Claim.DUPLICATE), by_path=found) as service:
        async with Session(service.url, credentials=KEYS, profile=SAYS, retry=RetryPolicy(base_delay=0)) as pay:
            with pytest.raises(OutcomeUnknownError, match="does not say what the order's state means"):
                await pay.orders.close("T1")
