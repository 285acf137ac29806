"""The audit of a profile: which open points of the common interface it answers, and which stay open.

What the audit says of a point stands with its field in `schema.py`. Here stands what depends on other points.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import evolve, fields, frozen, has

from payasync.endpoints import ARGUMENTS, OPERATIONS, Argument, AuthKind, camel_case, names_with
from payasync.profile.schema import ALL, OPEN_FIELDS, QUESTION, WRITES, AnswerShape, Question, ResultCodes
from payasync.profile.signed_fields import key_owner, merchant_paths
from payasync.profile.wire_names import (
    COMPARED,
    IDENTIFIER_OF,
    SOUGHT,
    names_of,
    number_taken,
    operation_of,
    parameter_of,
    unaskable,
    wire_name,
)
from payasync.signing.schemes import SortedPairs, Template
from payasync.signing.templates import TIMES, unfilled

if TYPE_CHECKING:
    from payasync.profile.profile import Profile

_IN_PLACE_OF: Final = {"signature": "header", "redirect_template": "redirect_url"}
"""Keys of `answer`, each with the one that it is not asked for beside."""

Status = Literal["answered", "assumed", "open"]


@frozen
class Point:
    """One point that the common interface leaves open.

    Attributes:
        name: The profile's field, such as `fields.return_url`.
        status: `answered` by the profile, `assumed` by a convention of HTTP or of payasync, or `open`.
        needed_by: The methods that fail without the point, or are less safe, or return less.
        value: The answer, the assumption, or `None`.
        means: The value to give, or what is assumed.
    """

    name: str
    status: Status
    needed_by: tuple[str, ...]
    value: Any
    means: str


_SIGNATURE: Final = {
    "algorithm": Question("the algorithm that requests are signed with"),
    "encoding": Question("the encoding that requests are signed with"),
    "min_rsa_bits": Question(
        "the fewest bits of an RSA key; below 2048 bits, a key could be broken, so set it only if the service needs it",
        changed=True,
    ),
    "skip_null": Question("whether null is left out of what is signed; else it is the text null", assumed=True),
    "booleans": Question("what true and false do to the signature: refuse, or json", assumed=True),
    "numbers": Question("what a received number with a fraction does to the signature: refuse, or text", assumed=True),
}


_FOLLOWS: Final = {
    "shared": "; a notification whose signed part names no merchant is only a hint",
    "merchant": "; a signature alone binds a notification to this merchant",
}
"""By value of `signature.service_key`, what follows."""


def _point(name: str, value: Any, default: Any, question: Question) -> Point:
    """Return a point; a value that is its default answers nothing."""
    status: Status = "answered" if value != default else "assumed" if question.assumed else "open"
    return Point(name, status, question.needed_by, None if status == "open" else value, question.means)


def _authentication_points(profile: "Profile") -> Iterator[Point]:
    given = profile.bearer != names_with(AuthKind.BEARER) or profile.signed != names_with(AuthKind.SIGNED)
    for name in names_with(AuthKind.NOT_SHOWN):
        carried = [table for table in ("bearer", "signed") if name in getattr(profile, table)]
        means = "how it is authenticated: list it in bearer, in signed, or in neither"
        status: Status = "answered" if given else "assumed"
        yield Point(f"authentication of {name}", status, (name,), " and ".join(carried) or "none", means)


def list_points(profile: "Profile") -> Iterator[Point]:
    """Yield the points that the document leaves open, in the order of a profile's TOML form."""
    apart = {"signature": _signature_points, "fields": _field_points, "idempotency": _idempotency_points}
    yield from _authentication_points(profile)
    for each in filter(lambda one: one.init, fields(type(profile))):
        value = getattr(profile, each.name)
        if QUESTION in each.metadata:
            yield _point(each.name, value, each.default, each.metadata[QUESTION])
        elif each.name in apart:
            yield from apart[each.name](profile)
        elif each.name == "endpoints":
            for name, endpoint in value.items():
                yield Point(f"endpoints.{name}", "answered", (name,), endpoint, "how the endpoint differs")
            yield from _number_points(profile)
        elif each.name == "constants":
            yield from _constant_points(profile)
        elif each.name == "auth":
            given = (point for point in _part_points(profile, "auth", value) if point.status == "answered")
            yield from (evolve(point, needed_by=profile.bearer or ALL) for point in given)
        elif each.name == "formats":
            question = Question("how the date is written, such as %Y-%m-%d", tuple(takers_of("start_date")))
            yield _point("formats.start_date", value.get("start_date", ""), "", question)
        elif has(type(value)):
            yield from _part_points(profile, each.name, value)


def _number_points(profile: "Profile") -> Iterator[Point]:
    """Yield whose numbers the queries of recovery take, and what follows."""
    for query, (write, _) in SOUGHT.items():
        status: Status = "answered" if getattr(profile.endpoints.get(query), "number", "") else "assumed"
        verb = "cannot ask" if unaskable(profile, query) else "asks"
        means = f"merchant or service: whose number the query takes; recovery {verb} about {write}"
        yield Point(f"endpoints.{query}.number", status, (query, write), number_taken(profile, query), means)


def _constant_points(profile: "Profile") -> Iterator[Point]:
    """Yield each query that a cache could repeat, because it lacks a time, and each constant with an unknown name."""
    for operation, key, why in unfilled(profile.constants):
        yield Point(key, "assumed", ALL if operation == "*" else (operation,), why, why)
    means = (
        'a cache that hides its age could repeat a response: sign the query, or send it a time: t = "{milliseconds}"'
    )
    for name in (each.name for each in OPERATIONS if each.read):
        sent = {**profile.constants.get("*", {}), **profile.constants.get(name, {})}.values()
        timed = any(isinstance(value, str) and TIMES.search(value) for value in sent)
        known = name not in IDENTIFIER_OF or parameter_of(profile, name)
        if known and operation_of(profile, name).method == "GET" and name not in profile.signed and not timed:
            yield Point(f"constants.{name}", "assumed", (name,), "one address for all queries", means)


def _field_points(profile: "Profile") -> Iterator[Point]:
    """Yield the open wire names, and then each name that differs from the document's."""
    for name, means in OPEN_FIELDS.items():
        takers = takers_of(name)
        names = sorted({wire_name(profile, method, argument) for method, argument in takers.items()})
        yield _point(f"fields.{name}", ", ".join(names) if all(names) else "", "", Question(means, tuple(takers)))
    for name, given in profile.fields.items():
        table = given if isinstance(given, Mapping) else {"": given}
        for argument, wire in table.items():
            if wire and name not in OPEN_FIELDS:
                key = ".".join(filter(None, ("fields", name, argument)))
                yield Point(key, "answered", (name,) if argument else ALL, wire, "the wire name")


def takers_of(point: str) -> dict[str, Argument]:
    """Return the argument whose wire name is an open point, by each operation that takes it."""
    return {name: each for name, arguments in ARGUMENTS.items() for each in arguments if each.point == point}


def _idempotency_points(profile: "Profile") -> Iterator[Point]:
    """Yield what the service is trusted with, if it takes a key."""
    given = profile.idempotency
    if given.used:
        name = "header" if given.header else "field"
        means = "the service's word: under one key it carries out no second write within the key's lifetime"
        yield Point(f"idempotency.{name}", "answered", WRITES, given.header or given.field, means)
        yield from _part_points(profile, "idempotency", given)


def _signature_points(profile: "Profile") -> Iterator[Point]:
    scheme, usual = profile.scheme or SortedPairs(), SortedPairs()
    needed_by = ALL if profile.answer.signed else profile.signed
    if not isinstance(scheme, SortedPairs | Template):
        yield Point("signature", "answered", needed_by, type(scheme).__name__, "a scheme of your own")
        return
    for option, question in _SIGNATURE.items():
        if hasattr(scheme, option) and not (question.changed and getattr(scheme, option) == getattr(usual, option)):
            point = _point(f"signature.{option}", getattr(scheme, option), getattr(usual, option), question)
            yield evolve(point, needed_by=needed_by)
    whose, is_given = key_owner(profile)
    means = f"shared or merchant: whose the key that verifies is{_FOLLOWS.get(whose, '')}"
    yield Point("signature.service_key", "answered" if is_given else "assumed", (), whose or None, means)
    if isinstance(scheme, Template):
        yield Point("signature.text", "answered", needed_by, scheme.text, "the text that is signed")


def _part_points(profile: "Profile", section: str, part: Any) -> Iterator[Point]:
    default = type(part)()
    for each in fields(type(part)):
        value, usual = getattr(part, each.name), getattr(default, each.name)
        replaced = part is profile.answer and getattr(part, _IN_PLACE_OF.get(each.name, ""), None)
        question = None if replaced else each.metadata.get(QUESTION)
        if question and not (question.changed and value == usual):
            yield from _effective(profile, _point(f"{section}.{each.name}", value, usual, question))
    for operation, table in part.by_operation.items() if isinstance(part, ResultCodes) else ():
        for key, codes in table.items():
            means = f"result codes of {operation}, which go before codes.{key}"
            yield from _effective(profile, Point(f"codes.{operation}.{key}", "answered", (operation,), codes, means))


def _effective(profile: "Profile", point: Point) -> Iterator[Point]:
    """Yield a point with what follows from its value; as open, if it has no effect without another."""
    missing = _find_missing(profile.answer, point.name)
    if not missing:
        yield (_explain_notification if point.name.startswith("notification.") else _explain)(profile, point)
    elif point.status == "answered":
        means = f"{point.means}; the value that is given has no effect without {missing}"
        yield evolve(point, status="open", value=None, means=means)
    elif point.name != "answer.refusals_signed":  # no question, if responses are not signed
        yield point


def _find_missing(answer: AnswerShape, name: str) -> str:
    """Return the point without which another has no effect; empty if it has."""
    match name.split("."):
        case ["states", thing] if not getattr(answer, f"{thing}_status"):
            return f"answer.{thing}_status"
        case ["codes", *_] if not (answer.code or answer.message):
            return "answer.code or answer.message"
        case ["answer", "refusals_signed"] if not answer.signed:
            return "answer.signature or answer.header"
        case ["recovery", "quarantine"] if answer.signed and answer.refusals_signed is None:
            return "answer.refusals_signed"
        case _:
            return ""


def _explain(profile: "Profile", point: Point) -> Point:
    """Return a point with what follows from its value, and from its neighbours."""
    answer, path, means = profile.answer, point.value, point.means
    section, _, name = point.name.partition(".")
    if point.name == "answer.code" and not path:
        path = None
        means += ", and answer.ok has no effect" if answer.ok else ""
    elif point.name == "answer.redirect_url" and (template := answer.redirect_template):
        return evolve(point, status="assumed", value=template, means="answer.redirect_template gives it")
    elif point.name == "answer.refusals_signed" and path is None:
        means += '; until then an unsigned "not found" is never final, and recovery.quarantine has no effect'
    elif point.name == "answer.subscription_id":
        means += "; in subscriptions.update and subscriptions.cancel "
        if path:
            means += "a success that lacks it, or names another number, is unrecognised"
        else:
            means += "it is compared under its wire name, if it is there" if path is None else "it is not compared"
    elif section == "answer" and name in COMPARED:
        used = sorted(names_of(profile, name)) or [camel_case(name)]
        wire, total = " or ".join(used), name == "total_amt"
        if path is None:
            path, means = ", ".join(used), means.replace(camel_case(name), wire)
        elif path == "":
            means = f"{wire} and amount are not compared" if total else f"{wire} is not compared"
        else:
            means = f"a success that lacks it, or names another {wire}, is refused"
            means += "; of payments.create, one that names another amount, here or as amount" if total else ""
    return evolve(point, value=path, means=means)


def _explain_notification(profile: "Profile", point: Point) -> Point:
    """Return a point of `[notification]` with the value of `[answer]` or `[fields]` that counts if none is given."""
    if point.name == "notification.merchant_id":
        means = "the merchant's number is not compared" if point.value == "" else point.means
        return evolve(point, value=" or ".join(merchant_paths(profile)), means=means)
    return evolve(point, value=profile.answer.amounts) if point.value == "" else point
