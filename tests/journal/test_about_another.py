"""A genuine response about another refund says nothing of this one: the journal, in every state, waits for its own."""

import json
import logging
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import AnswerShape, OutcomeUnknownError, PayasyncError, Profile, RefundResponse
from payasync.journal import Journal, Reconciler, Result
from payasync.journal.intents import State
from payasync.settings import Pace
from tests.foreign.recorder import Answer, Recorder, answer
from tests.journal.building import MERCHANT, PAYMENT, Clock
from tests.journal.service import BROKEN, DAY, LOST, MINE, QUARANTINE, QUICK, REFUND, SAYS, Service, said, serving
from tests.matrix.cells import session

HOUR: Final = 3600.0

ANOTHER: Final[dict[str, Any]] = {
    "number": {"outRefundNo": "R999"},
    "digits": {"outRefundNo": 999},
    "case": {"outRefundNo": "r1"},
    "order": {"outTradeNo": "T999"},
    "merchant": {"merchantId": "M999"},
    "amount": {"refundAmt": 201},
    "amount as text": {"refundAmt": "201"},
    "total": {"totalAmt": 451},
}
NUMBERS: Final = [name for name in ANOTHER if name not in {"amount", "amount as text", "total"}]
"""Of these the next response may be the right one; another amount stands there for good."""

pytestmark = pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)


def both_values(name: str) -> str:
    """Return what a person reads of it."""
    ((field, theirs),) = ANOTHER[name].items()
    mine = {"outRefundNo": "R1", "outTradeNo": "T1", "merchantId": "M1", "refundAmt": 200, "totalAmt": 450}[field]
    return f"{field} is {theirs} in the response, and {mine} in the request"


@pytest.mark.parametrize("name", ANOTHER)
@pytest.mark.parametrize("state", ["SUCCEEDED", "PROCESSING", "REFUND_FAILED"])
async def test_response_to_the_write(store: Journal, clock: Clock, name: str, state: str) -> None:
    """Whatever it says, the refund is unknown by it, until a response that is about it comes."""
    async with serving(store, clock, said(state, **ANOTHER[name]), BROKEN) as service:
        told = await service.called()
        before = await service.kept()
        service.say(query=said("SUCCEEDED"))
        found, sends = await service.reconciled(HOUR), service.sends

    assert isinstance(told, OutcomeUnknownError)
    assert ("unknown", "succeeded", 1) == (before.state, found.state, sends)


REFUSALS: Final[dict[str, Any]] = {
    "400": {"status": 400, "code": "SBX_INVALID"},
    "200": {"code": "SBX_INVALID"},
    "404": {"status": 404, "code": "SBX_NOT_FOUND"},
    "409": {"status": 409, "code": "SBX_DUPLICATE"},
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_refusal_of_another(store: Journal, clock: Clock, name: str, refusal: str) -> None:
    """It rejects nothing: the refund may have been done, and is asked about."""
    refused = said("REFUND_FAILED", **REFUSALS[refusal], **ANOTHER[name])
    async with serving(store, clock, refused, BROKEN) as service:
        told = await service.called()
        found = await service.kept()

    assert ("unknown", OutcomeUnknownError) == (found.state, type(told))


@pytest.mark.parametrize("name", ["amount", "total"])
async def test_refusal_may_name_another_amount(store: Journal, clock: Clock, name: str) -> None:
    """Such as the amount that is left: the refund was not done."""
    refused = said("REFUND_FAILED", status=400, code="SBX_INVALID", **ANOTHER[name])
    async with serving(store, clock, refused, BROKEN) as service:
        told = await service.called()
        found = await service.kept()

    assert "rejected" == found.state
    assert isinstance(told, PayasyncError)
    assert not isinstance(told, OutcomeUnknownError)


@pytest.mark.parametrize("state", ["SUCCEEDED", "PROCESSING", "REFUND_FAILED"])
@pytest.mark.parametrize("name", NUMBERS)
async def test_unknown_is_asked_about_again(store: Journal, clock: Clock, name: str, state: str) -> None:
    """The next response may be its own; until then it is neither rejected nor sent, however long that is."""
    async with serving(store, clock, LOST, BROKEN) as service:
        await service.called(queued=True)
        service.say(query=said(state, **ANOTHER[name]))
        between = [await service.reconciled(after) for after in (0.0, QUARANTINE, HOUR)]
        service.say(query=said("PROCESSING"))
        found, sends = await service.reconciled(HOUR), service.sends

    assert [("unknown", True)] * 3 == [(each.state, both_values(name) in each.reason) for each in between]
    assert ("accepted", 1) == (found.state, sends)


@pytest.mark.parametrize("name", ANOTHER)
async def test_unknown_that_stays_another_s_is_for_a_person(store: Journal, clock: Clock, name: str) -> None:
    """Who answers about something else for ever leaves it to a person, who reads both values; nothing is sent again."""
    async with serving(store, clock, LOST, said("SUCCEEDED", **ANOTHER[name])) as service:
        await service.called(queued=True)
        asked = [(await service.reconciled(HOUR)).state for _ in range(10)]
        found, sends = await service.kept(), service.sends

    assert ("manual", 1) == (found.state, sends)
    assert both_values(name) in found.reason
    assert (name in NUMBERS) is (asked[0] == "unknown")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (said("SUCCEEDED", outRefundNo="R999"), ("waiting", False)),
        (said("SUCCEEDED", refundAmt=201), ("manual", True)),
        (said("SUCCEEDED"), ("resolved", True)),
    ],
)
async def test_run_says_whether_it_had_a_usable_answer(
    store: Journal, clock: Clock, query: Answer, expected: tuple[str, bool]
) -> None:
    """A run whose responses are all about something else has found out nothing, as one without any."""
    found = list[Result]()
    async with serving(store, clock, LOST, BROKEN) as service:
        await service.called()
        service.say(query=query)
        await Reconciler(service.pay, store, pace=Pace(clock=clock)).run_once(found.append)

    assert [expected] == [(each.end, each.answered) for each in found]


@pytest.mark.parametrize("state", ["SUCCEEDED", "REFUND_FAILED"])
@pytest.mark.parametrize("name", ANOTHER)
async def test_accepted_stays_accepted(store: Journal, clock: Clock, name: str, state: str) -> None:
    """It is asked about for a day, and ends with the first response that is its own."""
    async with serving(store, clock, said("PROCESSING"), said(state, **ANOTHER[name])) as service:
        await service.called()
        between = [await service.reconciled(after) for after in (0.0, HOUR, DAY - HOUR - 1)]
        service.say(query=said("SUCCEEDED"))
        found, sends = await service.reconciled(HOUR), service.sends

    assert [("accepted", True)] * 3 == [(each.state, both_values(name) in each.reason) for each in between]
    assert [1, 2, 3] == [each.asked for each in between]
    assert ("succeeded", None, 1) == (found.state, found.silent_since, sends)


@pytest.mark.parametrize("name", ANOTHER)
async def test_accepted_that_is_another_s_for_a_day_is_for_a_person(store: Journal, clock: Clock, name: str) -> None:
    """A person reads since when, and both values; it is not sent again, nor asked about."""
    async with serving(store, clock, said("PROCESSING"), said("SUCCEEDED", **ANOTHER[name])) as service:
        await service.called()
        await service.reconciled()
        found = await service.reconciled(DAY)
        after = await service.reconciled(DAY)
        again, sends = await service.called(), service.sends
        resolved = await store.resolve(found.id, as_="succeeded", reason="on the bank's list")
        done = await service.called()

    assert ("manual", found, 1) == (found.state, after, sends)
    assert found.reason.startswith("no usable response since 2027-01-01: ")
    assert found.reason.endswith(both_values(name))
    assert isinstance(again, OutcomeUnknownError)
    assert ("succeeded", RefundResponse) == (resolved.state, type(done))


def payment(number: str, state: str, amount: int = 1000) -> Answer:
    """Return a response about a payment."""
    told = {"code": "SBX_OK", "paymentId": number, "amount": amount, "status": f"SBX_{state}"}
    return answer(200, json.dumps(told).encode())


@pytest.mark.parametrize("another", [payment("P9", "PAID"), payment("P1", "PAID", 1)], ids=["number", "amount"])
async def test_accepted_payment_waits_for_its_own(store: Journal, clock: Clock, another: Answer) -> None:
    """A payment of endpoint 1 is asked about by the service's own number: another payment's end is not its end."""
    says, states = {"/v1/payments": payment("P1", "PENDING")}, list[str]()
    with Recorder(by_path=says) as recorder:
        async with session(recorder, SAYS, journal=store, retry=QUICK) as pay:
            await pay.send(PAYMENT)
            for response in (another, payment("P1", "PAID")):
                says["/payment/status"] = response
                clock.advance(HOUR)
                await Reconciler(pay, store, pace=Pace(clock=clock)).run_once()
                states += [each.state for each in await store.list()]

    assert ["accepted", "succeeded"] == states


async def test_payment_of_another_amount(store: Journal) -> None:
    """A response to endpoint 1 about another amount ends nothing: the payment is unknown."""
    with Recorder(otherwise=payment("P1", "PAID", 1)) as recorder:
        async with session(recorder, SAYS, journal=store, retry=QUICK) as pay:
            with pytest.raises(OutcomeUnknownError, match="amount is 1 in the response, and 1000 in the request"):
                await pay.send(PAYMENT)
            (found,) = await store.list()

    assert ("unknown", 1) == (found.state, len(recorder.requests))


async def in_state(service: Service, state: State) -> None:
    """Send the refund, and bring it there; what is new was sent before."""
    await service.called(queued=state == "new")
    if state in {"rejected", "new"}:
        await service.journal.resolve((await service.kept()).id, as_="rejected", reason="not on the bank's list")
    if state == "new":
        await service.journal.add(REFUND, merchant=MERCHANT)

    assert state == (await service.kept()).state


async def told(journal: Journal, state: str, data: object, profile: Any = None) -> list[State]:
    """Tell the journal how the refund stands, and return the states that this brings."""
    found = await journal.told("refunds.create", "R1", state, data, merchant=MERCHANT, profile=profile)
    return [each.state for each in found]


@pytest.mark.parametrize("name", ANOTHER)
@pytest.mark.parametrize("state", ["unknown", "accepted", "rejected", "new"])
async def test_notification_about_another(
    store: Journal, clock: Clock, caplog: pytest.LogCaptureFixture, name: str, state: State
) -> None:
    """In every state it changes nothing, and a warning has both values; one about the refund itself does."""
    write = LOST if state in {"unknown", "new"} else said("PROCESSING")
    async with serving(store, clock, write, BROKEN) as service:
        await in_state(service, state)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "payasync"):
            ends = [await told(store, end, {**MINE, **ANOTHER[name]}) for end in ("succeeded", "failed")]
        found = await service.kept()

    assert ([[], []], state) == (ends, found.state)
    assert caplog.messages
    assert all(message.endswith(both_values(name)) for message in caplog.messages)
    assert ["manual" if state == "rejected" else "succeeded"] == await told(store, "succeeded", MINE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"refund": {"no": "R1"}, "refundAmt": 1, "outRefundNo": "R9"}, ["succeeded"]),
        ({"refund": {"no": "R9"}, "outRefundNo": "R1"}, []),
        ({"outRefundNo": "R1"}, ["succeeded"]),
        ({"refund": {"no": "R1"}, "totalAmt": 451}, []),
    ],
)
async def test_notification_is_read_by_the_profile(
    store: Journal, clock: Clock, data: object, expected: list[State]
) -> None:
    """Its paths say where a notification names what it is about; unlike a response, it need not name all of it."""
    placed = Profile(answer=AnswerShape(out_refund_no="refund.no", refund_amt=""))
    async with serving(store, clock, said("PROCESSING")) as service:
        await service.called()

    assert expected == await told(store, "succeeded", data, profile=placed)


@pytest.mark.parametrize(("merchants", "expected"), [(("refunds.create",), []), ((), ["succeeded"])])
async def test_notification_is_compared_in_what_was_sent(
    store: Journal, clock: Clock, merchants: tuple[str, ...], expected: list[State]
) -> None:
    """A refund that is sent without a merchant is compared in none, whatever the service calls so."""
    async with serving(store, clock, said("PROCESSING"), says=evolve(SAYS, merchant=merchants)) as service:
        await service.called()

    assert expected == await told(store, "succeeded", {"merchantId": "M999"})
