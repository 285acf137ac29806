"""What a service calls the arguments of each endpoint, and where they stand."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal

from attrs import evolve

from payasync.endpoints import (
    ARGUMENTS,
    BY_NAME,
    CLOSE_ORDER,
    CREATE_PAYMENT,
    CREATE_REFUND,
    FURTHER,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    Argument,
    Operation,
)
from payasync.errors import NotConfiguredError

if TYPE_CHECKING:
    from payasync.profile.profile import Profile
    from payasync.profile.schema import Parameter

NONCE: Final = "nonceStr"
SIGN: Final = "sign"
MERCHANT: Final = "merchantId"
SIGNING: Final = (NONCE, SIGN)
OURS: Final[Mapping[str, str]] = {"nonce": NONCE, "sign": SIGN, "merchant_id": MERCHANT}
"""The fields that payasync itself sets, with the document's names for them."""
FIRST: Final = "0"
"""The step of a dotted name that is the one entry of a list."""
UNSENT: Final = frozenset(
    {("refunds.create", "total_amt"), ("orders.place", "currency"), ("payments.create", "currency")}
)
"""Operations with an argument that every call gives, and that some services do not take."""
IDENTIFIER_OF: Final[Mapping[str, str]] = {QUERY_PAYMENT.name: "payment_status", QUERY_REFUND.name: "refund_status"}
"""By query, the key of the profile that gives the name and the place of its identifier."""
IDENTIFIER: Final = "the name and the place of its identifier"
"""What answers a key of `IDENTIFIER_OF`."""
COMPARED: Final = ("out_trade_no", "out_refund_no", "total_amt", "refund_amt", "currency", "merchant_id")
"""The keys of `[answer]` that locate what is compared with the request, by the arguments that name it there."""
NUMBER_OF: Final[Mapping[str, tuple[str, str]]] = {
    QUERY_PAYMENT.name: (PLACE_ORDER.name, "out_trade_no"),
    QUERY_REFUND.name: (CREATE_REFUND.name, "out_refund_no"),
}
"""By query, a write and the number that it gives: in braces in the path of the query, it is the identifier."""
ASKED_BY: Final[Mapping[str, str]] = {
    PLACE_ORDER.name: QUERY_ORDER.name,
    CLOSE_ORDER.name: QUERY_ORDER.name,
    CREATE_REFUND.name: QUERY_REFUND.name,
}
"""By write, the query by which recovery finds it."""
SOUGHT: Final[Mapping[str, tuple[str, str]]] = {
    QUERY_ORDER.name: (PLACE_ORDER.name, "out_trade_no"),
    QUERY_REFUND.name: NUMBER_OF[QUERY_REFUND.name],
}
"""By query of recovery, the write that it finds, and the merchant's number by which recovery asks."""
_BY_SERVICE: Final = "queries by the service's number"
"""The key of these in the cache of `names_of`."""
_MADE_BY: Final[Mapping[str, tuple[Operation, ...]]] = {
    QUERY_ORDER.name: (PLACE_ORDER,),
    CLOSE_ORDER.name: (PLACE_ORDER,),
    QUERY_PAYMENT.name: (CREATE_PAYMENT, PLACE_ORDER),
    QUERY_REFUND.name: (CREATE_REFUND,),
}
"""By operation, the writes that made what its responses are about."""


def operation_of(profile: "Profile", name: str) -> Operation:
    """Return an operation with the method, the path and the place that the profile gives it."""
    usual, given, parameter = BY_NAME[name], profile.endpoints.get(name), parameter_of(profile, name)
    method, path, place = (given.method, given.path, given.place) if given else ("", "", "")
    path = path or usual.path
    if name in NUMBER_OF:
        path = path.replace(f"{{{NUMBER_OF[name][1]}}}", "{identifier}")
    return evolve(usual, method=method or usual.method, path=path, place=(parameter and parameter.place) or place)


def arguments_of(profile: "Profile", operation: str) -> tuple[Argument, ...]:
    """Return the arguments of an operation, with those that the service wants besides."""
    endpoint = profile.endpoints.get(operation)
    further = [each for each in FURTHER.get(operation, ()) if endpoint and each.name in endpoint.with_]
    return (*ARGUMENTS.get(operation, ()), *further)


def parameter_of(profile: "Profile", operation: str) -> "Parameter | None":
    """Return how endpoint 6 or 7 takes its identifier, or `None` if the profile leaves that open."""
    key = IDENTIFIER_OF.get(operation)
    parameter: Parameter | None = getattr(profile, key) if key else None
    return parameter


def number_taken(profile: "Profile", query: str) -> Literal["merchant", "service"]:
    """Return whose number a query of `SOUGHT` takes, as the profile says; else the merchant's, if it is named alike."""
    given, (write, number) = profile.endpoints.get(query), SOUGHT[query]
    if given and given.number:
        return given.number
    in_path = given is not None and f"{{{number}}}" in given.path
    alike = wire_name(profile, query, BY_NAME[query].reference or "") in {"", wire_name(profile, write, number)}
    return "merchant" if in_path or alike else "service"


def unaskable(profile: "Profile", operation: str) -> NotConfiguredError | None:
    """Return why recovery cannot ask about a write, or by a query: that takes the service's number. `None`: it can."""
    query, known = ASKED_BY.get(operation, operation), profile._names  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # as below
    if (by_service := known.get(_BY_SERVICE)) is None:
        by_service = known[_BY_SERVICE] = frozenset(each for each in SOUGHT if number_taken(profile, each) == "service")
    if query not in by_service:
        return None
    words = (
        f'endpoints."{query}".number is "service", as given or assumed: the query takes the service\'s own number, '
        f'so payasync cannot ask about {SOUGHT[query][0]} by yours. If the query takes yours, set it to "merchant"'
    )
    return NotConfiguredError(words, field=f"endpoints.{query}.number")


def wire_name(profile: "Profile", operation: str, argument: Argument | str) -> str:
    """Return the wire name of an argument, or an empty text if it is open.

    Args:
        profile: The service's.
        operation: Its name.
        argument: The argument; or the name of one, or of a field that payasync sets (`OURS`).
    """
    if isinstance(argument, str):
        found = (each for each in arguments_of(profile, operation) if each.name == argument)
        argument = next(found, Argument(argument))
    if argument.name == "identifier":
        parameter = parameter_of(profile, operation)
        return parameter.name if parameter else ""
    if is_unsent(profile, operation, argument.name):
        return ""
    return (
        given_name(profile, operation, argument.name)
        or given_name(profile, "", argument.point)
        or given_name(profile, "", argument.name)
        or OURS.get(argument.name, argument.wire)
    )


def is_unsent(profile: "Profile", operation: str, argument: str) -> bool:
    """Return whether a service does not take an argument that every call gives: the profile gives an empty name."""
    table = profile.fields.get(operation) if (operation, argument) in UNSENT else None
    return isinstance(table, Mapping) and table.get(argument) == ""


def has_another(profile: "Profile", operation: str, argument: str) -> bool:
    """Return whether an operation sends another of its arguments under a name that is elsewhere that of this one."""
    if operation not in ARGUMENTS or _has(profile, operation, argument):
        return False
    return wire_name(profile, operation, argument) in (
        name for each, name in wire_names(profile, operation).items() if each != "identifier"
    )


def shown_names(profile: "Profile", operation: str, argument: str) -> tuple[str, ...]:
    """Return the wire names that an argument may have in responses to an operation; none if they are open.

    A response may name it as the write does that it is about, or as all do. What the operation takes itself is first.
    """
    made_by = [each.name for each in _MADE_BY.get(operation, ()) if argument not in OURS]
    first = next((each for each in made_by if _has(profile, each, argument)), operation)
    takers = (operation, first) if _has(profile, operation, argument) else (first, operation)
    return tuple(dict.fromkeys(filter(None, (wire_name(profile, each, argument) for each in takers))))


def given_name(profile: "Profile", operation: str, name: str) -> str:
    """Return what the profile calls an argument for one operation, or for all (empty); empty if it says nothing."""
    table = profile.fields.get(operation, {}) if operation else profile.fields
    found = table.get(name, "") if isinstance(table, Mapping) else ""
    return found if isinstance(found, str) else ""


def wire_names(profile: "Profile", operation: str) -> dict[str, str]:
    """Return the wire names of the arguments of an operation, without those that are open."""
    names = {each.name: wire_name(profile, operation, each) for each in arguments_of(profile, operation)}
    return {argument: name for argument, name in names.items() if name}


def names_of(profile: "Profile", argument: str) -> frozenset[str]:
    """Return all wire names of an argument, or of a field that payasync sets."""
    known = profile._names  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # the cache of this function
    if (names := known.get(argument)) is None:
        several = (each for each in ARGUMENTS if argument in OURS or _has(profile, each, argument))
        names = frozenset(filter(None, (wire_name(profile, operation, argument) for operation in several)))
        known[argument] = names
    return names


def guarded_names(profile: "Profile") -> frozenset[str]:
    """Return the wire names of numbers, in which a delimiter could pass for another field."""
    return frozenset(
        name for each in ("merchant_id", "nonce", "out_trade_no", "out_refund_no") for name in names_of(profile, each)
    )


def reserved_names(profile: "Profile", operation: str) -> frozenset[str]:
    """Return the wire names of an operation that only payasync itself may set."""
    return frozenset(wire_name(profile, operation, name) for name in OURS)


def all_names(profile: "Profile") -> Iterator[str]:
    """Yield the wire names of all arguments of all operations, and of the fields that payasync sets."""
    for operation in ARGUMENTS:
        yield from wire_names(profile, operation).values()
        yield from reserved_names(profile, operation)


def _has(profile: "Profile", operation: str, argument: str) -> bool:
    return any(each.name == argument for each in arguments_of(profile, operation))
