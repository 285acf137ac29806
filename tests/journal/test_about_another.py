"""The journal ignores a genuine response about another refund, and waits for a response about its own."""

from typing import Any, Final

import pytest
from attrs import evolve

from payasync import OutcomeUnknownError, PayasyncError, Profile
from payasync.clocks import Pace
from payasync.journal import Journal, Reconciler, Result
from payasync.journal.intents import State
from tests.journal.building import MERCHANT, Clock
from tests.journal.service import BROKEN, DAY, LOST, QUARANTINE, QUICK, REFUND, SAYS, said, serving
from tests.matrix.cells import session

HOUR: Final = 3600.0

ANOTHER: Final[dict[str, Any]] = {
    "outRefundNo": "R999",
    "outTradeNo": "T999",
    "merchantId": "M999",
    "refundAmt": 201,
    "totalAmt": 451,
}
NUMBERS: Final = frozenset({"outRefundNo", "outTradeNo", "merchantId"})
"""If one of these differs, the next response may be right. Another amount stands there for good."""


@pytest.mark.parametrize("field", ANOTHER)
@pytest.mark.parametrize("first", ["SUCCEEDED", "REFUND_FAILED", "lost"])
async def test_unknown_write(store: Journal, clock: Clock, first: str, field: str) -> None:
    """If a response is about another refund, the write stays unknown or becomes *manual*, and nothing is sent again.

    The error and the journal say so. A call queries another amount once, because it stands there for good.
    """
    lost = first == "lost"
    another = said("SUCCEEDED" if lost else first, **{field: ANOTHER[field]})
    async with serving(store, clock, LOST if lost else another, another) as service:
        ended = await service.called(queued=True)
        before, questions = await service.kept(), service.questions
        between = [await service.reconciled(after) for after in (0.0, QUARANTINE, HOUR)]
        service.say(query=said("SUCCEEDED"))
        found, sends = await service.reconciled(HOUR), service.sends
    expected = ["unknown"] * 3 + ["succeeded"] if field in NUMBERS else ["manual"] * 4

    assert isinstance(ended, OutcomeUnknownError)
    assert ["unknown", *expected] == [each.state for each in (before, *between, found)]
    words = f"{field} is {ANOTHER[field]} in the response, and "
    assert all(words in reason for reason in (str(ended), before.reason, *(each.reason for each in between)))
    assert 1 == sends
    assert not lost or (3 if field in NUMBERS else 1) == questions


@pytest.mark.parametrize("field", ANOTHER)
async def test_accepted_write(store: Journal, clock: Clock, field: str) -> None:
    """If an accepted write gets no response of its own for a day, it becomes *manual*. Nothing is sent again."""
    another = said("REFUND_FAILED", **{field: ANOTHER[field]})
    async with serving(store, clock, said("PROCESSING"), another) as service:
        await service.called()
        found = [await service.reconciled(after) for after in (0.0, HOUR, DAY - HOUR - 1, HOUR, DAY)]
        again, sends = await service.called(), service.sends

    assert [("accepted", 1), ("accepted", 2), ("accepted", 3)] == [(each.state, each.asked) for each in found[:3]]
    assert ("manual", found[3]) == (found[3].state, found[4])
    assert found[3].reason.startswith("no usable response since 2027-01-01: ")
    assert (OutcomeUnknownError, 1) == (type(again), sends)


async def test_run_says_whether_it_got_a_usable_response(store: Journal, clock: Clock) -> None:
    """If a response has another refund's number, a run reports the write as waiting, without a usable response."""
    found = list[Result]()
    async with serving(store, clock, LOST, BROKEN) as service:
        await service.called()
        for query in (said("SUCCEEDED", outRefundNo="R999"), said("SUCCEEDED", refundAmt=201)):
            service.say(query=query)
            clock.advance(HOUR)
            await Reconciler(service.pay, store, pace=Pace(clock=clock)).run_once(found.append)

    assert [("waiting", False), ("manual", True)] == [(each.end, each.answered) for each in found]


def priced(currency: str) -> Profile:
    """Return a profile whose constants send a currency with each refund."""
    return evolve(SAYS, constants={"refunds.create": {"currency": currency}})


NAMED: Final[dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], State]]] = {
    "constant": ({"says": priced("CAD")}, {"currency": "USD"}, {"currency": "cad"}, "manual"),
    "extra": (
        {"request": evolve(REFUND, extra={"currency": "CAD"})},
        {"currency": "USD"},
        {"currency": "CAD"},
        "manual",
    ),
    "merchant of extra": (
        {"says": evolve(SAYS, merchant=()), "request": evolve(REFUND, extra={"merchantId": "M9"})},
        {"merchantId": "M8"},
        {"merchantId": "M9"},
        "unknown",
    ),
}
"""What a refund names beyond its arguments; a response about another, a response about it, and the former's effect."""


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("way", NAMED)
async def test_what_a_write_names_beyond_its_arguments(store: Journal, clock: Clock, way: str, *, queued: bool) -> None:
    """Responses, notifications and `Session.reconcile` must match the currency and the merchant that were sent."""
    sent, wrong, right, expected = NAMED[way]
    async with serving(store, clock, LOST, BROKEN, **sent) as service:
        await service.called(queued=queued)
        error = await service.called(queued=queued)
        # What was sent counts, and not what the profile says by the time of the query.
        async with session(service.recorder, priced("USD"), journal=store, retry=QUICK) as service.pay:
            assert isinstance(error, PayasyncError)
            service.say(query=said("SUCCEEDED", **right))
            assert "succeeded" == (await service.pay.reconcile(error)).state
            service.say(query=said("SUCCEEDED", **wrong))
            with pytest.raises(OutcomeUnknownError, match=r"in the response, and (CAD|M9) in the request"):
                await service.pay.reconcile(error)
            ended = await store.told("refunds.create", "R1", "succeeded", wrong, merchant=MERCHANT)
            found = await service.reconciled(HOUR)
            sends = service.sends

    assert ([], expected, 1) == (ended, found.state, sends)
