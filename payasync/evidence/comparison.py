"""Whether a response is about what was asked for: decisions only, no I/O.

A response about another order, refund or amount may be genuine, such as one that is replayed or cached. It says nothing
about this request.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from attrs import Factory, evolve, field, frozen

from payasync.endpoints import (
    CANCEL_SUBSCRIPTION,
    CREATE_PAYMENT,
    CREATE_REFUND,
    CREATE_SUBSCRIPTION,
    OPERATIONS,
    ORDER_STATES,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    UPDATE_SUBSCRIPTION,
    Operation,
    camel_case,
)
from payasync.errors import clean
from payasync.evidence.claims import STATE_CLAIMS, Claim
from payasync.profile.signed_fields import (
    OWN_KEYS,
    STATE_KEYS,
    SignedFields,
    join_path,
    merchant_paths,
    notification_coverage,
    service_parts,
)
from payasync.profile.wire_names import SOUGHT, has_another, is_unsent, number_taken, shown_names, wire_name
from payasync.strict_json import ABSENT, at, dumps

if TYPE_CHECKING:
    from payasync.profile import AnswerShape, Profile
    from payasync.wire.call import Call


class _Kind(enum.Enum):
    """How a value in a request and one in a response are compared."""

    NUMBER = "number"
    AMOUNT = "amount"
    CURRENCY = "currency"


_LONGEST: Final = 100
"""Characters of a strange value that an error shows."""

_DECIMAL: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?")
_DIGITS: Final = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
"""How many digits of a currency stand behind the point, by ISO 4217; all others have two."""
_DIGITS_OF_MOST: Final = (0, 2, 3)
_MERCHANT: Final = "merchantId"
_AMOUNT: Final = "amount"
"""The name of the total amount in endpoint 1, and in a response about its payment."""

_KINDS: Final[Mapping[str, _Kind]] = {
    "out_trade_no": _Kind.NUMBER,
    "out_refund_no": _Kind.NUMBER,
    "merchant_id": _Kind.NUMBER,
    "total_amt": _Kind.AMOUNT,
    "refund_amt": _Kind.AMOUNT,
    "currency": _Kind.CURRENCY,
    _AMOUNT: _Kind.AMOUNT,
}
"""By argument, how what a request and its response name is compared."""

COMPARED_NAMES: Final = dict.fromkeys(map(camel_case, _KINDS)).keys()
"""What a write may name that a response to it, or to a query about it, is compared with."""

_OF_PAYMENT: Final = frozenset({CREATE_PAYMENT, QUERY_PAYMENT})
"""The operations that call the total `amount`, and need not find it in a response."""

PAYMENT: Final = "payment_id"
"""The service's own number of a payment, which only the queried write can have named."""

_DONE: Final[Mapping[str, frozenset[str]]] = {
    **{
        write: frozenset(each for each, claim in states.items() if claim in {Claim.DONE, Claim.UNDER_WAY})
        for write, states in STATE_CLAIMS.items()
    },
    PLACE_ORDER.name: frozenset(ORDER_STATES),
    CREATE_SUBSCRIPTION.name: frozenset({"scheduled", "active"}),
    CANCEL_SUBSCRIPTION.name: frozenset({"cancelled"}),
}
"""By write, the states that only a success of the write can lead to."""

_MADE: Final[Mapping[Operation, tuple[str, ...]]] = {
    CREATE_PAYMENT: ("payment_id", "redirect_url"),
    PLACE_ORDER: ("payment_id", "redirect_url"),
    CREATE_SUBSCRIPTION: ("subscription_id",),
}
"""By write, the keys of `[answer]` that locate what the service makes."""

_AMOUNT_OF: Final[Mapping[Operation, str]] = {PLACE_ORDER: "total_amt", CREATE_REFUND: "refund_amt"}
"""By write with a number, its amount."""


@frozen(eq=False)
class _Field:
    """One thing that a request and its response may both name.

    Attributes:
        name: The document's wire name for it in requests; the service's, if the document shows none.
        sent_as: The service's wire name for it in requests.
        path: Where a response names it, below the payload.
        kind: How the two are compared.
        required: The profile gives the path, so that a success must name it.
        strict: The profile gives the path, or what stands there is signed: what is no amount there differs.
        of_success: A refusal has its own number at this path.
        also: Other paths at which the same value may stand instead, such as the service's own number of a payment.
        beside: If nothing stands at this path, the response only acknowledges, and a success need not name the value.
    """

    name: str
    sent_as: str
    path: str
    kind: _Kind
    required: bool = False
    strict: bool = False
    of_success: bool = False
    also: tuple[str, ...] = ()
    beside: str = ""


def _numbers_first(fields: Iterable[_Field]) -> tuple[_Field, ...]:
    """Return fields in their order: another number is a stronger objection than another amount."""
    return tuple(sorted(fields, key=lambda each: each.kind is not _Kind.NUMBER))


def _simple_paths(compared: "Comparison") -> frozenset[str] | None:
    simple = not compared.must and all("." not in each.path and not each.required for each in compared.fields)
    return frozenset(compared.paths) if simple else None


def _is_renamed(compared: "Comparison") -> bool:
    sent = (*((each.name, each.sent_as) for each in compared.fields), *compared.uncompared)
    return any(name != sent_as for name, sent_as in sent)


@frozen(eq=False)
class Comparison:
    """What a response to a call must match.

    Attributes:
        fields: The things that the call and its response may both name.
        uncompared: What a call may name besides, with the name that it is sent as: a query may want it.
        major: Responses have amounts in the major unit of their currency.
        table: The profile's table that says where what is compared stands.
        must: What each success must hold, by paths in the payload.
        response_only: Paths that no request has. A success must hold one of them, unless there are none.
        merchant: The merchant's number, if the call does not carry it: a response must not name another one.
        asked: Of a query: what the write that it asks about named, by wire names.
        names: The paths, if all stand at the top of a payload and nothing is required: most payloads have none of them.
        renamed: The service calls one of them, or of the uncompared, otherwise than the document, or nests it.
        as_sent: The call's own fields can be compared unchanged.
    """

    fields: tuple[_Field, ...] = field(default=(), converter=_numbers_first)
    uncompared: tuple[tuple[str, str], ...] = ()
    major: bool = False
    table: str = "answer"
    must: Mapping[str, object] = field(factory=dict)
    response_only: tuple[str, ...] = ()
    merchant: str | None = None
    asked: Mapping[str, object] | None = None
    names: frozenset[str] | None = field(init=False, default=Factory(_simple_paths, takes_self=True))
    renamed: bool = field(init=False, default=Factory(_is_renamed, takes_self=True))
    as_sent: bool = field(
        init=False, default=Factory(lambda own: not (own.asked or own.merchant or own.renamed), takes_self=True)
    )

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths in a payload that are compared."""
        return tuple(each.path for each in self.fields)

    def digits(self, fields: Mapping[str, object], data: object) -> tuple[int, ...]:
        """Return how many digits behind the point an amount in a payload may have; several if no currency is known."""
        if not self.major:
            return (0,)
        paths = (each.path for each in self.fields if each.kind is _Kind.CURRENCY)
        named = (fields.get("currency"), *(at(data, path, None) for path in paths))
        code = next((each for each in named if isinstance(each, str)), None)
        return _DIGITS_OF_MOST if code is None else (digits_of(code),)


def digits_of(currency: str) -> int:
    """Return how many digits of a currency stand behind the point, by ISO 4217."""
    return next((count for count, codes in _DIGITS.items() if currency.upper() in codes.split()), 2)


class Objection(NamedTuple):
    """Why a response is not believed.

    Attributes:
        words: In one line, with both values.
        about_another: The response names another order, refund or merchant, or none, so that the next response may be
            right. If false, the service has the number with another amount or currency, and asking again is useless.
    """

    words: str
    about_another: bool = True


def comparison_of(operation: Operation, profile: "Profile") -> Comparison:
    """Return what a response to an operation is compared in."""
    must = profile.answer.must
    by_service = operation.name in SOUGHT and number_taken(profile, operation.name) == "service"
    found = [
        each
        for argument in _compared_arguments(operation)
        if operation in _OF_PAYMENT or not has_another(profile, operation.name, argument)
        if not (by_service and argument == SOUGHT[operation.name][1])
        for each in _places(profile, operation, argument, camel_case(argument))
    ]
    if operation in {CREATE_REFUND, QUERY_REFUND}:
        # At the place of both amounts, a refund has its own. A service that takes no total need not show one.
        unsent = is_unsent(profile, CREATE_REFUND.name, "total_amt")
        of_refund = {each.path for each in found if each.name == "refundAmt"}
        found = [each for each in found if each.name != "totalAmt" or not (unsent or each.path in of_refund)]
    if operation not in OPERATIONS:
        # Nobody knows what amounts mean at an endpoint that the document does not show.
        return Comparison([each for each in found if each.kind is _Kind.NUMBER], must=must)
    if operation in {UPDATE_SUBSCRIPTION, CANCEL_SUBSCRIPTION}:
        name = wire_name(profile, operation.name, "subscription_id")
        # The path is for the number of a new subscription. A change may be acknowledged without number and state.
        state = profile.answer.subscription_status
        found += [evolve(each, beside=state) for each in _places(profile, operation, "subscription_id", name)]
    if by_service:
        name = wire_name(profile, operation.name, operation.reference or "")
        alike = name == wire_name(profile, *SOUGHT[operation.name])
        found += () if alike else (_Field(name, name, name, _Kind.NUMBER),)
    elif operation == QUERY_REFUND:
        found += _identifier(profile, operation, "out_refund_no", ())
    if operation == QUERY_PAYMENT:
        # Endpoint 6 may be asked by the merchant's number or by the service's own.
        own = (profile.answer.payment_id,) if profile.answer.payment_id else ()
        found = [evolve(each, also=own) if each.name == "outTradeNo" else each for each in found]
        found += _identifier(profile, operation, "out_trade_no", own)
        found += [_Field(PAYMENT, PAYMENT, path, _Kind.NUMBER) for path in own]
    if (number := profile.answer.request_id) and not number.startswith("header:"):
        found = [evolve(each, of_success=join_path(profile.answer.data, each.path) == number) for each in found]
    uncompared = tuple(_uncompared(profile, operation))
    return Comparison(found, uncompared, major=profile.answer.amounts == "major", must=must)


def comparison_of_report(write: Operation, query: Operation, profile: "Profile") -> Comparison:
    """Return what a report about a write, such as a notification, is compared in.

    It need not name all that a response must name, and may name it as the response to a query does.

    Args:
        write: The write.
        query: The query about the write, or the write itself if there is none.
        profile: Says where a notification has its numbers.
    """
    shape = profile.notification
    found = [
        evolve(each, required=False)
        for one in dict.fromkeys((write, query))
        for each in comparison_of(one, profile).fields
        if each.name != _MERCHANT
    ]
    places = [("outTradeNo", shape.out_trade_no), ("outRefundNo", shape.out_refund_no)]
    places += [(_MERCHANT, path) for path in merchant_paths(profile)]
    found += [_Field(name, name, path, _Kind.NUMBER) for name, path in places if path]
    return Comparison(found, major=(shape.amounts or profile.answer.amounts) == "major", table="notification")


def named_merchants(profile: "Profile", document: object) -> Iterable[tuple[str, object]]:
    """Yield the merchants that the signed part of a notification names, each with its path.

    Args:
        profile: Says where a notification names the merchant.
        document: The notification, as it was received.
    """
    coverage, given = notification_coverage(profile), profile.notification.merchant_id
    read = coverage.read(document) if coverage and isinstance(document, dict) else document
    data, paths = at(read, profile.notification.data, read), merchant_paths(profile)
    for place in (data,) if data is read or given is not None else (data, read):
        for path in paths:
            if not _is_missing(named := at(place, path, None)):
                yield path, named


def find_another(named: Iterable[tuple[str, object]], merchant_id: str) -> tuple[str, str] | None:
    """Return the path of another merchant than this one, and words; `None` if no other one is named.

    The service may write the number of a merchant as an integer.
    """
    words = f"expected {merchant_id!r}: it is another merchant's"
    others = ((path, value) for path, value in named if _is_another(merchant_id, value))
    return next(((path, f"is {clean(repr(value))}, {words}") for path, value in others), None)


def _uncompared(profile: "Profile", operation: Operation) -> Iterable[tuple[str, str]]:
    """Yield the document's wire names of what the profile does not compare, each with the name that it is sent as."""
    for argument in _compared_arguments(operation):
        sent_as = wire_name(profile, operation.name, argument)
        if _path_of(profile, argument) == "" and sent_as:
            yield camel_case(argument), sent_as


def _compared_arguments(operation: Operation) -> list[str]:
    """Return what a response to an operation is compared in, by the arguments of the requests that name it."""
    return [each for each in _KINDS if each != _AMOUNT or operation in _OF_PAYMENT]


def _path_of(profile: "Profile", argument: str) -> str | None:
    """Return the profile's path in `[answer]` of what an argument names; the amount of a payment is a total."""
    path: str | None = getattr(profile.answer, "total_amt" if argument == _AMOUNT else argument)
    return path


def _places(profile: "Profile", operation: Operation, argument: str, name: str) -> Iterable[_Field]:
    """Yield where a response may name what a request names; nothing if the profile switches that off."""
    path, kind = _path_of(profile, argument), _KINDS.get(argument, _Kind.NUMBER)
    named = shown_names(profile, operation.name, argument)
    if path == "" or not named:
        return
    sent_as, places = named[0], (path,) if path else named
    required = path is not None and not (kind is _Kind.AMOUNT and operation in _OF_PAYMENT)
    signed, above = SignedFields.of_answers(profile) if profile.answer.signed else None, profile.answer.data
    for each in places:
        strict = path is not None or (signed is not None and signed.covers(join_path(above, each)))
        yield _Field(name, sent_as, each, kind, required, strict)
    if argument == _AMOUNT:
        # A service may name the amount of a payment as orders do, or as the request does.
        total = wire_name(profile, PLACE_ORDER.name, "total_amt")
        others = dict.fromkeys(each for each in (*named, total) if each not in places)
        yield from (_Field(name, sent_as, each, kind) for each in others)


def _identifier(profile: "Profile", operation: Operation, key: str, own: tuple[str, ...]) -> Iterable[_Field]:
    """Yield where a response to endpoint 6 or 7 may name the identifier, if it has a wire name of its own."""
    sent_as = wire_name(profile, operation.name, "identifier")
    if not sent_as or any(wire_name(profile, operation.name, each) == sent_as for each in _KINDS):
        return
    yield _Field(sent_as, sent_as, sent_as, _Kind.NUMBER)
    path: str | None = getattr(profile.answer, key)
    # An order's response may name the merchant's number alone, and be asked for by the service's own.
    if path != "" and (key == "out_refund_no" or path or own):
        # A path that is given must hold the number, whatever stands under the identifier's own name.
        also = own if path else (*own, sent_as)
        for place in (path,) if path else shown_names(profile, operation.name, key):
            yield _Field(sent_as, sent_as, place, _Kind.NUMBER, required=path is not None, also=also)


def compared_fields(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a write that a response to it, or to a query about it, is compared with.

    Args:
        fields: By the document's wire names.
    """
    return {name: fields[name] for name in COMPARED_NAMES if name in fields}


def by_document_names(call: "Call") -> Mapping[str, object]:
    """Return what a call names of what can be compared, by the document's wire names; others may be among them."""
    compared, fields = call.comparison, call.fields
    if not compared.renamed:
        return fields
    found = {each.name: at(fields, each.sent_as) for each in compared.fields}
    found |= {name: at(fields, sent_as) for name, sent_as in compared.uncompared}
    return {name: value for name, value in found.items() if value is not ABSENT}


def mismatch(
    fields: Mapping[str, object], comparison: Comparison, data: object, *, success: bool = True
) -> Objection | None:
    """Return the first value in which a payload differs from the fields of a request, or from what it must hold.

    Args:
        fields: Of the request, by the document's wire names.
        comparison: In what they are compared.
        data: The payload of a response or of a notification.
        success: It is no refusal; a refusal may name another amount, such as the one that is left.
    """
    if type(data) is dict and comparison.names is not None and comparison.names.isdisjoint(data):
        return None
    if comparison.must and (words := find_breach(comparison.must, data, "answer.must", success=success)):
        return Objection(words)
    for each in comparison.fields:
        mine = fields.get(each.name)
        if mine is None:
            continue
        theirs = at(data, each.path, None)
        if theirs is None and not (each.required or each.also):
            continue
        counts = success or (each.kind is _Kind.NUMBER and not each.of_success and not _is_missing(theirs))
        same = theirs == mine and type(theirs) is type(mine) and not comparison.major
        if counts and not same and (found := _mismatch(each, theirs, data, comparison, fields)):
            return found
    return None


def find_breach(must: Mapping[str, object], data: object, key: str, *, success: bool = True) -> str:
    """Return the first value that a payload must hold and does not, in words. A refusal need not have the path."""
    for path, value in must.items():
        theirs = at(data, path, ABSENT if success else value)
        if theirs != value or isinstance(theirs, bool) is not isinstance(value, bool):
            shown = "missing" if theirs is ABSENT else clean(dumps(theirs).decode(), _LONGEST)
            what = "response" if key.startswith("answer") else "notification"
            return f"{path} is {shown} in the {what}, and must be {dumps(value).decode()} ({key} in the profile)"
    return ""


def _mismatch(
    each: _Field, theirs: object, data: object, comparison: Comparison, fields: Mapping[str, object]
) -> Objection | None:
    mine = fields[each.name]
    others = [at(data, path, None) for path in each.also]
    if any(other is not None and not _is_another(mine, other) for other in others):
        return None
    if _is_missing(theirs):
        what = "a success must have" if each.path == each.sent_as else f"must name {each.sent_as}"
        words = f"the response lacks {each.path}, which {what}"
        required = each.required and not (each.beside and _is_missing(at(data, each.beside, None)))
        return Objection(words) if required else None
    if not _differs(each, mine, theirs, comparison.digits(fields, data)):
        return None
    words = f"{each.sent_as} is {_shown(theirs)} in the response, and {_shown(mine)} in the request"
    if each.name == _MERCHANT:
        words += f"; {comparison.table}.merchant_id in the profile says where yours is named"
    other, unit = ((0,), "as sent") if comparison.major else (_DIGITS_OF_MOST, "major")
    if each.kind is _Kind.AMOUNT and type(mine) is int and _fits(mine, theirs, other):
        words += f'; it would fit with {comparison.table}.amounts = "{unit}" in the profile'
    return Objection(words, about_another=each.kind is _Kind.NUMBER)


def _is_missing(theirs: object) -> bool:
    return theirs is None or theirs == ""


def _differs(each: _Field, mine: object, theirs: object, digits: tuple[int, ...]) -> bool:
    """Return whether two values differ, however they are written."""
    if each.kind is _Kind.AMOUNT:
        fits = _fits(mine, theirs, digits) if type(mine) is int else True
        return each.strict if fits is None else not fits
    if each.kind is _Kind.CURRENCY:
        return isinstance(mine, str) and isinstance(theirs, str) and theirs.casefold() != mine.casefold()
    return _is_another(mine, theirs)


def _is_another(mine: object, theirs: object) -> bool:
    """Return whether two numbers of the merchant or the service differ: a number is a text or an integer."""
    if not isinstance(mine, str | int):
        return False
    if not isinstance(theirs, str | int) or isinstance(theirs, bool):
        return True
    return str(theirs) != (str.__str__(mine) if isinstance(mine, str) else str(mine))


def _fits(mine: int, theirs: object, digits: tuple[int, ...]) -> bool | None:
    """Return whether an amount in a response is ours, in a unit with so many digits; `None` if it is no amount.

    Numbers and texts are compared digit by digit, because a float would be rounded, and `int` reads no long text.
    """
    if isinstance(theirs, int) and not isinstance(theirs, bool):
        return any(theirs * 10**count == mine for count in digits)
    found = _DECIMAL.fullmatch(theirs if isinstance(theirs, str) else repr(theirs) if type(theirs) is float else "")
    if found is None:
        return None
    part = (found[2] or "").rstrip("0")
    return any(len(part) <= count and (found[1] + part.ljust(count, "0")).lstrip("0") == str(mine) for count in digits)


def _shown(value: object) -> str:
    return clean(str.__str__(value) if isinstance(value, str) else value, _LONGEST)


def thing_of(operation: Operation) -> str:
    """Return what an operation creates, ends or asks about; an update has no state that tells its success."""
    if operation == UPDATE_SUBSCRIPTION or operation not in OPERATIONS:
        return ""
    return operation.name.partition("s.")[0]


def state_in(profile: "Profile", thing: str, data: object) -> str | None:
    """Return our name of the state that a payload gives to an order, a payment, a refund or a subscription."""
    path: str = getattr(profile.answer, f"{thing}_status", "")
    return profile.states.name(thing, at(data, path)) if path else None


def contradiction(operation: Operation, profile: "Profile", data: object, *, absent: bool) -> Objection | None:
    """Return that a refusal contradicts itself: what it refuses has a state that only a success leads to.

    Args:
        operation: The write or the query that is refused.
        profile: Locates and names the states.
        data: The payload of the refusal.
        absent: It is "not found". If a query asked, any state contradicts it.
    """
    thing = thing_of(operation)
    state = state_in(profile, thing, data)
    if operation.read and absent and state is not None:
        return Objection(f"it says that there is no such {thing}, and that it is {state}")
    if state in _DONE.get(operation.name, ()):
        return Objection(f"it refuses the request, and says that the {thing} is {state}")
    return None


def may_be_success(
    operation: Operation, profile: "Profile", fields: Mapping[str, object], comparison: Comparison, data: object
) -> bool:
    """Return whether a signed payload may be that of a success, beside a refusal that its signature does not cover.

    Args:
        operation: The write or the query that is refused.
        profile: Says where a state or an address stands.
        fields: What the write, or the query and the write that it asks about, named, by wire names.
        comparison: Where a payload may name these.
        data: The payload.
    """
    thing = thing_of(operation)
    path: str = getattr(profile.answer, f"{thing}_status", "")
    if path and _is_said(state := at(data, path)):
        return profile.states.name(thing, state) is None  # `contradiction` judges the states that are known
    if not path and any(
        _is_said(at(data, _path_of(profile, argument) or place))
        for argument in _compared_arguments(operation)
        for place in shown_names(profile, operation.name, argument)
    ):
        return True
    made = [getattr(profile.answer, key) for key in _MADE.get(operation, ())]
    made += service_parts(profile) if operation in {CREATE_PAYMENT, PLACE_ORDER} else ()
    return any(place and _is_said(at(data, place)) for place in made) or (
        operation in _AMOUNT_OF and names_number_and_amounts(operation, fields, comparison, data)
    )


def names_number_and_amounts(
    operation: Operation, fields: Mapping[str, object], comparison: Comparison, data: object
) -> bool:
    """Return whether a payload names the number of a write, and the amount that it named.

    Args:
        operation: The write.
        fields: What it named, by wire names.
        comparison: Where a payload may name these.
        data: The payload.
    """
    names = camel_case(operation.reference or ""), camel_case(_AMOUNT_OF.get(operation, ""))
    wanted = fields.keys() & names
    found = (each.name for each in comparison.fields if each.name in wanted and _names(each, fields, comparison, data))
    return wanted <= {*found}


def names_only_the_number(query: "Call", data: object) -> bool:
    """Return whether the payload of a "not found" names the number that was asked for, and nothing that exists has.

    What exists has an amount, a state, an address or a number of the service's. A payload that names another thing may
    have been signed for that thing.
    """
    profile, comparison = query.profile, query.comparison
    shape, number = profile.answer, query.layout.names.get(query.operation.reference or "")
    fields = fields_to_match(query)
    if not any(each.sent_as == number and _names(each, fields, comparison, data) for each in comparison.fields):
        return False
    paths = [*service_parts(profile), *(getattr(shape, key) for key in (*STATE_KEYS, *OWN_KEYS))]
    for operation, argument in (*_AMOUNT_OF.items(), (CREATE_PAYMENT, _AMOUNT)):
        named = wire_name(profile, operation.name, argument), *shown_names(profile, query.operation.name, argument)
        paths += (path,) if (path := _path_of(profile, argument)) else named
    if query.operation == QUERY_ORDER:  # a refund of the order names the order, too
        paths.append(shape.out_refund_no or wire_name(profile, CREATE_REFUND.name, "out_refund_no"))
    return all(_is_missing(at(data, path, None)) for path in filter(None, paths))


def fields_to_match(call: "Call") -> Mapping[str, object]:
    """Return what a response must match: the call's fields, those of the write that it asks about, and the merchant."""
    compared, sent = call.comparison, by_document_names(call)
    merchant = {_MERCHANT: compared.merchant} if compared.merchant else {}
    return {**merchant, **sent, **(compared.asked or {})}


def names_the_same(call: "Call", path: str, value: str) -> bool:
    """Return whether a request has a value that is compared with this path of the payload, and this text matches it."""
    fields, compared = fields_to_match(call), call.comparison
    mine = [(each, fields[each.name]) for each in compared.fields if each.path == path and each.name in fields]
    digits = compared.digits(fields, None)
    return bool(mine) and not any(sent is None or _differs(each, sent, value, digits) for each, sent in mine)


def _names(each: _Field, fields: Mapping[str, object], comparison: Comparison, data: object) -> bool:
    """Return whether a payload names what a request names, with the same value."""
    theirs, digits = at(data, each.path, None), comparison.digits(fields, data)
    return each.name in fields and not _is_missing(theirs) and not _differs(each, fields[each.name], theirs, digits)


def is_sent_back(response_only: tuple[str, ...], document: object) -> bool:
    """Return whether a verified success may be a request that was sent back: it says nothing that no request says."""
    return bool(response_only) and not any(_is_said(at(document, path)) for path in response_only)


def _is_said(value: Any) -> bool:
    """Return whether a value is signed by every scheme; nulls, empty texts and nested values leave no trace in some."""
    return value is not ABSENT and value is not None and value != "" and not isinstance(value, dict | list)


def is_empty_envelope(shape: "AnswerShape", document: Any) -> bool:
    """Return whether the profile's envelope is empty: some services respond so to a query about an unknown number."""
    return bool(shape.data) and not at(document, shape.data, None)
