"""What a profile cannot mean: refused when it is made, and not at the first call."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from payasync.endpoints import ARGUMENTS
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.schema import (
    Accept,
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Parameter,
    ResultCodes,
    States,
)


def refusal(**parts: Any) -> tuple[str | None, str]:
    """Return the field and the words of the error that a profile is refused with."""
    with pytest.raises(ConfigurationError) as caught:
        Profile(**parts)
    return caught.value.field, str(caught.value)


@pytest.mark.parametrize(
    ("fields", "point", "other"),
    [
        ({"return_url": "notifyUrl"}, "return_url", "notify_url"),
        ({"return_url": "outTradeNo"}, "return_url", "out_trade_no"),
        ({"frequency": "a", "start_date": "a"}, "frequency", "start_date"),
        ({"subscription_id": "id", "customer": "id"}, "subscription_id", "customer"),
        ({"subscription_amount": "id", "subscription_id": "id"}, "subscription_id", "amount"),
    ],
)
def test_two_arguments_under_one_name(fields: Mapping[str, str], point: str, other: str) -> None:
    """One would replace the other, and money would move by what is left."""
    name = fields[point]
    words = f"fields.{point} is {name!r}, which is the wire name of {other}, too: one would replace the other"

    assert (f"fields.{point}", words) == refusal(fields=fields)


def test_one_name_in_two_operations() -> None:
    """What never stands in the same request may be named alike; names that are open are alike in nothing."""
    fields = {"return_url": "a", "frequency": "a", "start_date": "", "customer": "", "subscription_amount": "amount"}

    assert fields == Profile(fields=fields).fields


DOCUMENTED: Final = [(operation, each) for operation, given in ARGUMENTS.items() for each in given if each.wire]
ALWAYS_GIVEN: Final = [(operation, each.name, each.wire) for operation, each in DOCUMENTED if each.required]
MAY_BE_LEFT_OUT: Final = [(operation, each.wire) for operation, each in DOCUMENTED if not each.required]


def never_sent(operation: str, name: str, argument: str) -> tuple[str, str]:
    """Return what is said of a constant that no call would carry."""
    key = f"constants.{operation}.{name}"
    return key, f"{key} is the argument {argument}, which every call gives: the constant would never be sent"


@pytest.mark.parametrize(("operation", "argument", "wire"), ALWAYS_GIVEN)
def test_a_constant_is_no_required_argument(operation: str, argument: str, wire: str) -> None:
    """A constant under the wire name of what every call gives would have no effect."""
    assert never_sent(operation, wire, argument) == refusal(constants={operation: {"v": 1, wire: "x"}})


@pytest.mark.parametrize(
    ("further", "argument", "operation"),
    [
        ({"fields": {"subscription_id": "back"}}, "subscription_id", "subscriptions.cancel"),
        ({"fields": {"customer": "back"}}, "customer", "subscriptions.create"),
        ({"payment_status": Parameter("back", "path")}, "identifier", "payments.status"),
        ({"refund_status": Parameter("back", "header")}, "identifier", "refunds.status"),
    ],
)
def test_a_constant_has_no_name_that_the_profile_gives_to_one(
    further: Mapping[str, Any], argument: str, operation: str
) -> None:
    """A name that the profile gives to a required argument is as taken as one that the document shows."""
    assert never_sent(operation, "back", argument) == refusal(constants={operation: {"back": 1}}, **further)


@pytest.mark.parametrize(("operation", "wire"), MAY_BE_LEFT_OUT)
def test_a_constant_stands_in_for_an_optional_argument(operation: str, wire: str) -> None:
    """What a call may leave out has the constant's value then, such as the one scene type of a merchant."""
    constants = {operation: {wire: "x"}}

    assert constants == Profile(constants=constants).constants


@pytest.mark.parametrize(
    ("constants", "further"),
    [
        ({"orders.query": {"totalAmt": 1}}, {}),
        ({"*": {"currency": "CAD"}}, {}),
        ({"payments.status": {"outTradeNo": "T1"}}, {"payment_status": Parameter("no")}),
        ({"refunds.status": {"no": 1}}, {"payment_status": Parameter("no")}),
        ({"orders.query": {"back": 1}}, {"fields": {"return_url": "back"}}),
        ({"subscriptions.update": {"back": 1}}, {"fields": {"customer": "back"}}),
    ],
)
def test_a_constant_may_be_named_as_what_is_not_always_there(
    constants: Mapping[str, Mapping[str, Any]], further: Mapping[str, Any]
) -> None:
    """Only the required arguments of its own operation stand in a constant's way, and only under their wire names."""
    assert constants == Profile(constants=constants, **further).constants


@pytest.mark.parametrize("second", ["x-version", "X-VERSION"])
def test_a_header_stands_once(second: str) -> None:
    """Names of headers are the same in any case: one of two would be lost, or both be sent."""
    words = f"headers: X-Version and {second} are one header to a service: keep one"

    assert (f"headers.{second}", words) == refusal(headers={"X-Version": "1", "X-A": "1", second: "2"})


@pytest.mark.parametrize("key", ["payment_status", "refund_status"])
def test_an_identifier_has_a_header_of_its_own(key: str) -> None:
    """A header that every request carries cannot carry an identifier as well."""
    expected = (f"{key}.name", f"{key}.name: 'X-Order' stands in headers, too: one would replace the other")
    in_header, in_query = Parameter("X-Order", "header"), Parameter("X-Order")
    taken: dict[str, Any] = {key: in_query}

    assert expected == refusal(headers={"x-order": "1"}, **{key: in_header})
    assert in_query == getattr(Profile(headers={"x-order": "1"}, **taken), key)


@pytest.mark.parametrize(
    ("operation", "name", "meant"),
    [
        ("orders.place", "subjct", "subject"),
        ("orders.place", "notifyUrl", "notify_url"),
        ("orders.place", "notifyURL", "notify_url"),
        ("orders.place", "notify_ulr", "notify_url"),
        ("orders.place", "backTo", "return_url"),
        ("payments.create", "curency", "currency"),
        ("refunds.create", "refundDesc", "refund_desc"),
        ("payments.status", "orderNo", "identifier"),
        ("subscriptions.create", "startDate", "start_date"),
    ],
)
def test_a_required_name_that_is_nearly_an_argument(operation: str, name: str, meant: str) -> None:
    """A misspelt argument would be missing from every call: what was meant is said, and what else there is."""
    profile = {"fields": {"return_url": "backTo"}, "payment_status": Parameter("orderNo")}
    field, words = refusal(accept=Accept(required={operation: [name]}), **profile)

    assert f"accept.required.{operation}" == field
    assert words.startswith(f"{field} knows no {name!r}: did you mean {meant}? Arguments are ")
    assert words.endswith("; another name is that of a field in extra")


@pytest.mark.parametrize("operation", ARGUMENTS)
@pytest.mark.parametrize("name", ["deviceNo", "device_no", "terminal", "subjectId", "bodyType", "notifyMail", "x"])
def test_a_field_that_goes_through_extra_can_be_required(operation: str, name: str) -> None:
    """What the document does not show, a service may demand all the same."""
    accept = Accept(required={operation: [name]})

    assert accept == Profile(accept=accept).accept


@pytest.mark.parametrize("operation", ARGUMENTS)
def test_every_argument_can_be_required(operation: str) -> None:
    """A service may demand any argument, be it optional by the document or not."""
    accept = Accept(required={operation: [each.name for each in ARGUMENTS[operation]]})

    assert accept == Profile(accept=accept).accept


@pytest.mark.parametrize("name", ["sign", "nonceStr", "merchantId", "version", "tradeType"])
def test_what_no_caller_gives_is_not_required_of_him(name: str) -> None:
    """What payasync sets, or the profile's constants, is there without the caller, whose call would be refused."""
    constants = {"*": {"version": 2}, "orders.place": {"tradeType": "WEB"}}
    words = f"accept.required.orders.place must not hold {name!r}: payasync sets it, or a constant does"

    assert ("accept.required.orders.place", words) == refusal(
        constants=constants, accept=Accept(required={"orders.place": ["subject", name]})
    )


@pytest.mark.parametrize("form", ["hello", "Y-m-d", "%%Y-%%m-%%d", "%H:%M", " ", "\ud800%Y"])
def test_each_date_is_written_in_its_own_way(form: str) -> None:
    """Without a directive of a date, every subscription would start on the same words."""
    words = f"formats.start_date must write each date in its own way, as %Y-%m-%d does, not {form!r}"

    assert ("formats.start_date", words) == refusal(formats={"start_date": form})


@pytest.mark.parametrize("form", ["", "%Y-%m-%d", "%d.%m.%Y", "%x", "on %A", "%j", "%m/%y", "%G", "%Y-%m-%dT00:00:00Z"])
def test_dates_in_any_form(form: str) -> None:
    """How a service writes a date is its own; an empty form is open."""
    assert {"start_date": form} == Profile(formats={"start_date": form}).formats


class Verifies:
    """A scheme whose `verify` is whatever it is given."""

    def __init__(self, verify: Any) -> None:
        self.verify = verify

    async def sign(self, *_: object, **__: object) -> str:
        """Sign anything, in its own time."""
        return "signed"


class Asynchronous:
    """An object that is called as a coroutine function is."""

    async def __call__(self, *_: object, **__: object) -> bool:
        """Verify everything, later."""
        return True


async def later(*_: object, **__: object) -> bool:
    """Verify everything, later."""
    return True


def now(*_: object, **__: object) -> bool:
    """Verify everything."""
    return True


@pytest.mark.parametrize("verify", [later, partial(later, 1), Asynchronous()], ids=["function", "partial", "object"])
def test_a_scheme_verifies_at_once(verify: Any) -> None:
    """A coroutine is not `True`, so that nothing would ever verify; only `sign` may be a coroutine function."""
    field, words = refusal(signature=Verifies(verify))

    assert "signature" == field
    assert words.startswith("signature.verify must be a plain function, not a coroutine function: nothing would ever")


@pytest.mark.parametrize("verify", [now, partial(now, 1)], ids=["function", "partial"])
def test_a_scheme_may_sign_later(verify: Any) -> None:
    """`sign` may be a coroutine function: a key may be kept by another machine."""
    scheme = Verifies(verify)

    assert Profile(signature=scheme).signature is scheme


@pytest.mark.parametrize(
    "parts",
    [
        {"states": States(order={"paid": ("PAID",)})},
        {"codes": ResultCodes(absent=("NONE",))},
        {"answer": AnswerShape(ok=("OK",))},
        {"fields": {"start_date": "from"}},
        {"formats": {"start_date": "%Y"}},
        {"notification": NotificationShape(nack_status=200)},
        {"notification": NotificationShape(ack_body="OK", nack_body="OK")},
    ],
)
def test_what_is_not_said_yet_is_no_contradiction(parts: Mapping[str, Any]) -> None:
    """Half an answer is an open point, which the audit shows: a profile may be made piece by piece."""
    profile = Profile(**parts)

    assert parts == {key: getattr(profile, key) for key in parts}


@pytest.mark.parametrize(
    ("statuses", "bodies"),
    [((200, 200), ("", "")), ((200, 204), ("", "")), ((200, 200), ("OK", "OK")), ((400, None), ("", ""))],
)
def test_a_refusal_is_no_acknowledgement(statuses: Any, bodies: Any) -> None:
    """A service could not tell the two apart: it would take what was refused for kept."""
    (ack_status, nack_status), (ack_body, nack_body) = statuses, bodies
    given = {"ack_status": ack_status, "nack_status": nack_status, "ack_body": ack_body, "nack_body": nack_body}
    field, words = refusal(notification=NotificationShape(**given))

    assert "notification.nack_status" == field
    assert "could not tell" in words


@pytest.mark.parametrize(
    ("statuses", "bodies"), [((200, 200), ("OK", "FAIL")), ((200, None), ("", "")), ((200, 500), ("OK", "OK"))]
)
def test_a_refusal_differs_in_its_status_or_its_body(statuses: Any, bodies: Any) -> None:
    """Some services look at the one alone, and some at the other."""
    (ack_status, nack_status), (ack_body, nack_body) = statuses, bodies
    given = {"ack_status": ack_status, "nack_status": nack_status, "ack_body": ack_body, "nack_body": nack_body}

    assert nack_body == Profile(notification=NotificationShape(**given)).notification.nack_body


def test_a_status_has_one_meaning() -> None:
    """A 422 that means "used before" is refused beside the default, which would take it for "nothing was done"."""
    words = (
        "http.duplicate and http.not_executed both hold 422: it means one of them. Give http.not_executed without it, "
        "or take it out of http.duplicate"
    )

    assert ("http.duplicate", words) == refusal(http=HttpCodes(duplicate=(409, 422)))
    assert (409, 422) == Profile(http=HttpCodes(duplicate=(409, 422), not_executed=(400,))).http.duplicate


def test_conflict_that_means_that_nothing_was_done() -> None:
    """Who lists 409 as "nothing was done", and says nothing of duplicates, is taken at his word."""
    assert 409 in Profile(http=HttpCodes(not_executed=(400, 409))).http.not_executed
