"""What a refund names beyond its arguments, such as a currency of the profile's constants: responses must match it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import IntentConflictError, OutcomeUnknownError, PayasyncError, Profile, RefundResponse
from payasync.journal import Journal
from tests.foreign.recorder import Answer
from tests.journal.building import MERCHANT, Clock
from tests.journal.service import ABSENT, BROKEN, LOST, QUARANTINE, QUICK, REFUND, SAYS, Service, said, serving
from tests.matrix.cells import session

HOUR: Final = 3600.0
A: Final = {"subscription_id": "planNo"}
DIFFERS: Final = "currency is USD in the response, and CAD in the request"


def priced(currency: str) -> Profile:
    """Return a profile whose constants send a currency with each refund."""
    return evolve(SAYS, constants={"refunds.create": {"currency": currency}})


CAD: Final[dict[str, Mapping[str, Any]]] = {
    "constant": {"says": priced("CAD")},
    "extra": {"refund": evolve(REFUND, extra={"currency": "CAD"})},
}
WAYS: Final = pytest.mark.parametrize("way", CAD)


@asynccontextmanager
async def sent_in_cad(
    journal: Journal, clock: Clock, way: str, write: Answer = LOST, *, queued: bool = False
) -> AsyncGenerator[Service]:
    """Open a service to which the refund was sent in CAD, and that is too busy for the questions of that call."""
    async with serving(journal, clock, write, BROKEN, **CAD[way]) as service:
        await service.called(queued=queued)
        yield service


@WAYS
@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(("currency", "state"), [("USD", "manual"), ("CAD", "succeeded"), ("cad", "succeeded")])
async def test_unknown(store: Journal, clock: Clock, way: str, currency: str, state: str, *, queued: bool) -> None:
    """A success in another currency is not this refund's: a person reads both, and nothing is sent again."""
    async with sent_in_cad(store, clock, way, queued=queued) as service:
        service.say(query=said("SUCCEEDED", currency=currency))
        found = await service.reconciled(HOUR)
        sends = service.sends

    assert (state, state == "manual", 1) == (found.state, DIFFERS in found.reason, sends)


@WAYS
async def test_told(store: Journal, clock: Clock, way: str) -> None:
    """A notification in another currency changes nothing."""
    async with sent_in_cad(store, clock, way):
        about = ("refunds.create", "R1", "succeeded")
        words = [await store.told(*about, {"currency": each}, merchant=MERCHANT) for each in ("USD", "CAD")]

    assert [[], ["succeeded"]] == [[each.state for each in changed] for changed in words]


@WAYS
async def test_reconciled_by_a_later_caller(store: Journal, clock: Clock, way: str) -> None:
    """The error that the journal raises in place of a second send knows the currency, too."""
    async with sent_in_cad(store, clock, way) as service:
        error = await service.called()
        service.say(query=said("SUCCEEDED", currency="USD"))

        assert isinstance(error, PayasyncError)
        with pytest.raises(OutcomeUnknownError, match=DIFFERS):
            await service.pay.reconcile(error)


@pytest.mark.parametrize(("currency", "state"), [("USD", "manual"), ("CAD", "succeeded")])
async def test_constant_that_changes(store: Journal, clock: Clock, currency: str, state: str) -> None:
    """What counts is what was sent, and not what the profile says by the time of the question."""
    async with (
        sent_in_cad(store, clock, "constant") as service,
        session(service.recorder, priced("USD"), journal=store, retry=QUICK) as service.pay,
    ):
        service.say(query=said("SUCCEEDED", currency=currency))
        found = await service.reconciled(HOUR)

    assert state == found.state


@pytest.mark.parametrize(("currency", "state"), [("USD", "succeeded"), ("CAD", "manual")])
async def test_sent_again_in_another_currency(store: Journal, clock: Clock, currency: str, state: str) -> None:
    """Of what a worker sends again, the last request counts: the first provably never arrived."""
    async with sent_in_cad(store, clock, "constant") as service:
        service.say(query=ABSENT)
        before = [(await service.reconciled(after)).state for after in (0.0, QUARANTINE)]
        async with session(service.recorder, priced("USD"), journal=store, retry=QUICK) as service.pay:
            service.say(query=BROKEN)
            await service.called(queued=True)
            service.say(query=said("SUCCEEDED", currency=currency))
            found = await service.reconciled(HOUR)
        sends = service.sends

    assert (["unknown", "rejected"], state, 2) == (before, found.state, sends)


@WAYS
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize(("currency", "kind"), [("USD", IntentConflictError), ("cad", RefundResponse)])
async def test_called_again_in_another_currency(
    store: Journal, clock: Clock, way: str, currency: str, kind: type[object], *, done: bool
) -> None:
    """It is another request, whether the first was done or not: it is neither answered nor sent."""
    async with sent_in_cad(store, clock, way, said("PROCESSING") if done else LOST) as service:
        if not done:
            service.say(said("PROCESSING"), ABSENT)
            assert "rejected" == (await service.reconciled(QUARANTINE)).state
        says = priced(currency) if way == "constant" else SAYS
        service.refund = REFUND if way == "constant" else evolve(REFUND, extra={"currency": currency})
        async with session(service.recorder, says, journal=store, retry=QUICK) as service.pay:
            told = await service.called()
        sends = service.sends

    assert (kind, 1 if done or kind is IntentConflictError else 2) == (type(told), sends)


@pytest.mark.parametrize(("first", "then"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("currency", ["USD", "CAD"])
async def test_queued_in_another_currency(
    store: Journal, clock: Clock, currency: str, *, first: bool, then: bool
) -> None:
    """So it is where one of the two is queued: what `extra` names counts before anything is sent."""
    taken = said("PROCESSING", currency="CAD")
    async with serving(store, clock, taken, refund=evolve(REFUND, extra={"currency": "CAD"})) as service:
        if first:
            await store.add(service.refund, merchant=MERCHANT)
        else:
            await service.called()
        service.refund = evolve(REFUND, extra={"currency": currency})
        try:
            told = await service.called(queued=then)
        except PayasyncError as error:
            told = error

    assert isinstance(told, IntentConflictError if currency == "USD" else RefundResponse)


@pytest.mark.parametrize("queued", [False, True])
async def test_currency_of_constants_and_no_extra(store: Journal, clock: Clock, *, queued: bool) -> None:
    """What is queued says nothing of the constants: it is the request that was sent with them."""
    async with serving(store, clock, said("PROCESSING", currency="CAD"), says=priced("CAD")) as service:
        told = [type(await service.called(queued=each)) for each in (queued, not queued)]
        sends = service.sends

    assert ([RefundResponse, RefundResponse], 1) == (told, sends)


async def test_merchant_that_is_sent_from_now_on(store: Journal, clock: Clock) -> None:
    """A deployment may begin to send the merchant's number; another number is another request."""
    async with serving(store, clock, said("PROCESSING"), says=evolve(SAYS, merchant=())) as service:
        await service.called()
        async with session(service.recorder, SAYS, journal=store, retry=QUICK) as service.pay:
            told = await service.called()

    assert isinstance(told, RefundResponse)


async def test_called_again_for_another_merchant(store: Journal, clock: Clock) -> None:
    """Another merchant's number of `extra` under the same key is another request."""
    sent = evolve(REFUND, extra={"merchantId": "M9"})
    async with serving(
        store, clock, said("PROCESSING", merchantId="M9"), says=evolve(SAYS, merchant=()), refund=sent
    ) as service:
        await service.called()
        service.refund = evolve(REFUND, extra={"merchantId": "M8"})
        told = await service.called()

    assert isinstance(told, IntentConflictError)


@pytest.mark.parametrize(("merchant", "expected"), [("M8", ("unknown", [])), ("M9", ("succeeded", ["succeeded"]))])
async def test_merchant_of_extra(store: Journal, clock: Clock, merchant: str, expected: tuple[str, list[str]]) -> None:
    """A merchant that the profile does not send, and `extra` does, is the one that counts."""
    sent = evolve(REFUND, extra={"merchantId": "M9"})
    async with serving(store, clock, LOST, BROKEN, says=evolve(SAYS, merchant=()), refund=sent) as service:
        error = await service.called()
        service.say(query=said("SUCCEEDED", merchantId=merchant))

        assert isinstance(error, PayasyncError)
        if merchant == "M9":
            await service.pay.reconcile(error)
        else:
            with pytest.raises(OutcomeUnknownError, match="merchantId is M8 in the response, and M9 in the request"):
                await service.pay.reconcile(error)
        later = await service.called()
        assert isinstance(later, PayasyncError)
        assert "M9" == (later.asked or {}).get("merchantId")
        data = {"merchantId": merchant}
        told = await store.told(
            "refunds.create", "R1", "succeeded", data, merchant=MERCHANT, profile=service.pay.profile
        )
        found = await service.kept() if told else await service.reconciled()

    assert expected == (found.state, [each.state for each in told])


async def test_nothing_else_is_kept(store: Journal, clock: Clock) -> None:
    """Nothing is compared with other fields of `extra` or of the constants."""
    sent = evolve(REFUND, extra={"currency": "CAD", "phone": "canary"})
    says = evolve(SAYS, constants={"*": {"device": "canary"}})
    async with serving(store, clock, LOST, says=says, refund=sent) as service:
        await service.called()
        found = await service.kept()

    assert {"merchantId": MERCHANT, "currency": "CAD"} == found.named
    assert "canary" not in repr((found.request, found.named, found.reason))


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), "é\u2028\U0001f600", "\x01", {"a": [None, True, {}]}])
async def test_what_is_kept_comes_back(store: Journal, value: object) -> None:
    """Long numbers, other letters and nested values of a request are kept as they were given."""
    intent_id = await store.add(evolve(REFUND, extra={"note": value}), merchant=MERCHANT)
    intent = await store.get(intent_id)

    assert intent is not None
    assert {"note": value} == intent.request["extra"]
