from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any, Final

import pytest
from attrs import asdict, evolve

from payasync.endpoints import ARGUMENTS, OPERATIONS, custom_operation
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.journal.drafts import (
    COUNTED,
    WRITES,
    Keep,
    digest,
    draft_from_call,
    draft_from_request,
    find_contradiction,
    keep_all_but_customer,
    request_from_intent,
)
from payasync.journal.intents import Intent
from payasync.profile.schema import Accept
from payasync.profile.wire_names import wire_name
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription
from payasync.wire.call import Call
from payasync.wire.request import Request
from payasync.wire.response import Response
from tests.building import FULL, PROFILE, codec
from tests.journal.building import PAYMENT, START, refund

WRITTEN: Final = {name: request for name, request in FULL.items() if name in WRITES}
"""One request for each write, with every argument that it takes."""


def whole(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep all."""
    del operation
    return arguments


def called(request: Request[Response], **facts: Any) -> Call:
    """Return the call of a request."""
    return codec().call(request, **facts)


def queued(request: Request[Any], keep: Keep = whole) -> Intent:
    """Return a request as a journal has it."""
    made = draft_from_request(request, "M1", None, keep)
    return Intent(**asdict(made, recurse=False), id=1, state="new", created=START, updated=START)


def test_call_and_request_are_drafted_alike() -> None:
    """A call and a queued request of the same write have the same draft, whatever wire names the profile has.

    A queued request read from the journal equals the request that was added, with all types. Only placing an order,
    closing an order and a refund have a number that names one write.
    """
    for request in WRITTEN.values():
        of_wire = draft_from_call(called(request, intent="a"), "M1", keep_all_but_customer)
        of_arguments = draft_from_request(request, "M1", "a", whole)

        assert evolve(of_arguments, request=of_wire.request, queued=False, named=of_wire.named) == of_wire
        assert request == request_from_intent(queued(request))
    numbers = {draft_from_request(each, "M1", None, whole).number for each in WRITTEN.values()}

    assert {None, "orders.place:T1", "orders.close:T1", "refunds.create:R1"} == numbers


@pytest.mark.parametrize(
    ("name", "argument"),
    [("refunds.create", "total_amt"), ("orders.place", "currency"), ("payments.create", "currency")],
)
def test_argument_that_is_not_sent_counts(name: str, argument: str) -> None:
    """An amount or currency that the service does not take still tells two writes apart, queued or not."""
    request: Any = WRITTEN[name]
    one = Accept(currency=(getattr(request, "currency", "CAD"),))
    call = codec(evolve(PROFILE, fields={**PROFILE.fields, name: {argument: ""}}, accept=one)).call(request)
    of_wire = draft_from_call(call, "M1", keep_all_but_customer)

    assert wire_name(PROFILE, name, argument) not in call.fields
    assert getattr(request, argument) == of_wire.request[argument]
    assert draft_from_request(request, "M1", None, whole).hash == of_wire.hash


def test_argument_in_a_nested_field() -> None:
    """An amount that a service takes in a nested field is recorded from there, and not from a field of that name."""
    nested = evolve(PROFILE, fields={**PROFILE.fields, "refunds.create": {"total_amt": "amount.total"}})
    call = codec(nested).call(evolve(WRITTEN["refunds.create"], extra={"amount.total": 7}))

    assert 7 == call.fields["amount.total"]
    assert 450 == draft_from_call(call, "M1", None).request["total_amt"]


def test_what_responses_are_compared_with_is_stored() -> None:
    """A draft has the merchant and the currency of `extra`, because responses are compared with them."""
    call = called(refund(extra={"currency": "CAD", "phone": "canary"})).with_fields(outTradeNo="T1")
    strange = called(refund(extra={"currency": {"email": "canary"}}))

    assert {"merchantId": "M1", "currency": "CAD"} == draft_from_call(call, "M1", None).named
    assert {"merchantId": "M1"} == draft_from_call(strange, "M1", None).named


def test_named_beyond_the_arguments_under_other_names() -> None:
    """What the service calls otherwise is stored under the document's names, by which responses are compared."""
    fields = {"currency": "ccy", "merchant_id": "shop"}
    theirs = evolve(PROFILE, fields={**PROFILE.fields, **fields}, constants={"refunds.create": {"ccy": "CAD"}})
    made = draft_from_call(codec(theirs).call(refund()), "M1", None)

    assert {"merchantId": "M1", "currency": "CAD"} == made.named


def test_words_and_addresses_of_a_direct_call_are_not_stored() -> None:
    """Without a `keep`, a direct call's draft has only the arguments that its digest counts, without customer."""
    for name, request in WRITTEN.items():
        made, all_of_it = (draft_from_call(called(request), "M1", keep) for keep in (None, whole))
        counted = {*COUNTED[name]} - {"customer"}

        assert made.request == {each: value for each, value in all_of_it.request.items() if each in counted}
        assert made.hash == all_of_it.hash


def test_whom_and_when_tell_two_subscriptions_apart() -> None:
    """Subscriptions of other customers or start dates have other digests. The draft does not reveal the customer."""
    given: dict[str, Any] = {"frequency": "monthly", "amount": 900}
    days = date(2027, 1, 31), date(2027, 2, 28)
    drafts = [
        draft_from_call(called(CreateSubscription(**given, start_date=day, customer={"email": email})), "M1", None)
        for day, email in [(days[0], "alice@a.example"), (days[0], "bob@a.example"), (days[1], "bob@a.example")]
    ]

    assert 3 == len({each.hash for each in drafts})
    assert "a.example" not in str(drafts)


def test_date_that_cannot_be_read_back_counts_as_it_was_written() -> None:
    """If a date's format cannot be read back, the digest uses the date's text."""
    yearly = evolve(PROFILE, formats={"start_date": "%G"})
    days = date(2027, 1, 31), date(2027, 2, 28), date(2028, 1, 31)
    requests = [CreateSubscription(frequency="yearly", amount=900, start_date=day, customer={}) for day in days]
    hashes = [draft_from_call(codec(yearly).call(each), "M1", None).hash for each in requests]

    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("form", ["%d/%m", "%-d.%m.%Y", "%Y%Y"])
def test_dates_in_an_odd_format_are_drafted(form: str) -> None:
    """A date without a year, or in a format that some Pythons cannot read, has a digest, and no Python warns."""
    days = date(2028, 2, 29), date(2029, 3, 1)
    requests = [CreateSubscription(frequency="yearly", amount=900, start_date=day, customer={}) for day in days]
    odd = codec(evolve(PROFILE, formats={"start_date": form}))

    assert 2 == len({draft_from_call(odd.call(each), "M1", None).hash for each in requests})


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S%z"])
def test_date_with_a_zone_is_drafted_alike(form: str) -> None:
    """A subscription that starts at a time with a zone has one digest, queued or not."""
    start = datetime(2027, 1, 31, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    request = CreateSubscription(frequency="monthly", amount=900, start_date=start, customer={})
    of_wire = draft_from_call(codec(evolve(PROFILE, formats={"start_date": form})).call(request), "M1", None)

    assert of_wire.hash == draft_from_request(request, "M1", None, whole).hash


def test_unknown_endpoints_fields_are_not_stored() -> None:
    """A draft of a custom endpoint has no fields, because any of them may be about the customer. Its digest has all."""
    operation = custom_operation("POST", "/payment/transfer", read=False)
    calls = [codec().custom(operation, {"a": {"b": each}}, bearer=False, signed=True) for each in (1, "1", 2)]
    drafts = [draft_from_call(each, "M1", keep_all_but_customer) for each in calls]

    assert [({}, None)] * 3 == [(each.request, each.number) for each in drafts]
    assert 3 == len({each.hash for each in drafts})


def test_keep_decides_on_a_call() -> None:
    """A `keep` function of the operation and its arguments decides which arguments a draft has."""
    asked = list[str]()

    def keep(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(operation)
        return {name: arguments[name] for name in ("customer", "amount")}

    made = draft_from_call(called(WRITTEN["subscriptions.create"]), "M1", keep)

    assert {"customer": {"email": "a@example.com"}, "amount": 900} == made.request
    assert ["subscriptions.create"] == asked


def test_keep_is_held_to_its_promise() -> None:
    """If `keep` returns anything but a mapping of names to JSON values, drafting raises `ConfigurationError`."""
    wrong: list[Any] = [None, ["amount"], {"amount": object()}, {1: 2}]
    for given in wrong:
        with pytest.raises(ConfigurationError, match="keep must return a mapping of names to JSON values") as caught:
            draft_from_call(called(PAYMENT), "M1", lambda *_, given=given: given)

        assert "keep" == caught.value.field


@pytest.mark.parametrize("name", WRITTEN)
def test_change_of_what_moves_money_is_found(name: str) -> None:
    """A change of an argument of a queued row is found if the argument moves money, and otherwise not."""
    stored = queued(WRITTEN[name])
    others = {str: "other", int: 7, dict: {"email": "other"}}
    days: dict[str, Any] = {"start_date": "2031-01-01"}
    changed = {
        each: evolve(stored, request={**stored.request, each: days.get(each, others[type(value)])})
        for each, value in stored.request.items()
    }
    lost = {each: evolve(stored, request={**stored.request, each: None}) for each in COUNTED[name]}

    assert "" == find_contradiction(stored)
    assert {*COUNTED[name]} & {*changed} == {each for each, intent in changed.items() if find_contradiction(intent)}
    assert [] == [each for each, intent in lost.items() if not find_contradiction(intent)]


def test_change_of_a_column_that_names_the_write_is_found() -> None:
    """A change of the operation, merchant, hash or number of a queued row is found."""
    changed: dict[str, Any] = {"operation": "orders.close", "number": "refunds.create:R2", "merchant": "M2"}
    for column, value in {**changed, "hash": "b", "reference": "R2"}.items():
        assert find_contradiction(evolve(queued(refund()), **{column: value})), column


def test_queued_request_stores_extra_and_moments() -> None:
    """A queued request read from the journal has its `extra`, nested values included, and a start's time of day."""
    start = datetime(2027, 1, 31, 12, 30, tzinfo=UTC)
    subscription = CreateSubscription(frequency="monthly", amount=900, start_date=start, customer={})
    for request in (refund(extra={"deviceNo": "7", "nested": {"a": [1, None]}}), subscription):
        assert request == request_from_intent(queued(request))


@pytest.mark.parametrize(
    ("keep", "reason"),
    [
        (keep_all_but_customer, "customer is not"),
        (lambda _, given: {**given, "customer": {}}, "what `keep` changes is not"),
    ],
)
def test_what_is_not_stored_whole_is_not_queued(keep: Keep, reason: str) -> None:
    """If `keep` removes or changes an argument, queueing the request raises `InvalidArgumentError`."""
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        draft_from_request(WRITTEN["subscriptions.create"], "M1", None, keep)

    assert ("request", "subscriptions.create") == (caught.value.field, caught.value.operation)


def test_what_cannot_be_queued_is_refused() -> None:
    """Only a write can be queued. Its merchant and its intent key must be texts."""
    wrong: list[Any] = [FULL["orders.query"], None, "refunds.create", CancelSubscription]
    for request in wrong:
        with pytest.raises(InvalidArgumentError, match="request must be a write"):
            draft_from_request(request, "M1", None, whole)
    keys: list[tuple[Any, Any, str]] = [("", None, "merchant"), (7, None, "merchant"), ("M1", " ", "intent")]
    for merchant, intent, field in keys:
        with pytest.raises(InvalidArgumentError, match=f"{field} must be a text that is not empty"):
            draft_from_request(refund(), merchant, intent, whole)


def test_direct_call_is_not_sent_from_the_journal() -> None:
    """If an intent was a direct call, `request_from_intent` raises `InvalidArgumentError`."""
    with pytest.raises(InvalidArgumentError, match="1 was a direct call, or") as caught:
        request_from_intent(evolve(queued(refund()), queued=False))

    assert "intent_id" == caught.value.field


UNCOUNTED: Final = {"description", "subject", "body", "refund_desc", "notify_url", "return_url", "scene_type"}
REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}


def test_all_counts_but_words_addresses_and_circumstances() -> None:
    """`COUNTED` has each write of the document, with every argument except descriptions, addresses and scene types."""
    writes = [operation.name for operation in OPERATIONS if not operation.read]
    counted = {name: {each.name for each in ARGUMENTS[name]} - UNCOUNTED for name in writes}

    assert counted == {name: set(names) for name, names in COUNTED.items()}


def test_order_and_words_do_not_count() -> None:
    """The order of the arguments, the description and the notification address do not change the digest."""
    other = {"refund_desc": "cold", "notify_url": "https://a.example/", **dict(reversed(REFUND.items()))}

    assert digest("refunds.create", "M1", REFUND) == digest("refunds.create", "M1", other)


def test_digest_never_changes() -> None:
    """The digest of a refund is the SHA-256 of a fixed text, so that old journals still match their requests."""
    text = b'["refunds.create","M1",{"out_refund_no":"R1","out_trade_no":"T1","refund_amt":200,"total_amt":450}]'

    assert sha256(text).hexdigest() == digest("refunds.create", "M1", REFUND)
