"""What in a profile contradicts itself, or could never have an effect: refused when the profile is made.

What is merely not said yet is an open point, which `audit()` shows and the call that needs it names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from difflib import get_close_matches
from inspect import iscoroutinefunction
from itertools import combinations
from typing import TYPE_CHECKING, Final

from attrs import asdict

from payasync.documents import flaw
from payasync.endpoints import ARGUMENTS, TEXTS
from payasync.errors import ConfigurationError
from payasync.profile.schema import KINDS, REFUSED, Code, HttpCodes, NotificationShape, Parameter, among
from payasync.settings import is_header, is_own
from payasync.validators import shown

if TYPE_CHECKING:
    from payasync.profile.profile import Profile
    from payasync.signing.schemes import SignatureScheme

_FIELDS: Final = frozenset(each.point for arguments in ARGUMENTS.values() for each in arguments if each.point)
_STATUS: Final = {"payments.status": "payment_status", "refunds.status": "refund_status"}
_UNLIKE: Final = date(1999, 12, 31), date(2026, 1, 5)
"""Two days that no directive of a date writes alike."""
_SLIP: Final = 0.88
"""As similar as a slip of the pen: `subjct` is meant for `subject`, and `subjectId` is not."""


def check(profile: "Profile", reserved: frozenset[str]) -> None:
    """Refuse what a profile cannot mean.

    Args:
        profile: Its parts have checked themselves.
        reserved: Wire names that only payasync itself may set.

    Raises:
        ConfigurationError: It names the key, and what is allowed.
    """
    _check_keys(profile)
    if not _compiles(profile.identifier):
        raise ConfigurationError(f"identifier is no regular expression: {profile.identifier!r}", field="identifier")
    _check_formats(profile.formats)
    _check_scheme(profile.signature)
    for key, name in _given_names(profile):
        if name in reserved:
            raise ConfigurationError(f"{key} must not set {name}: payasync does", field=key)
    _check_constants(profile.constants)
    for operation in ARGUMENTS:
        _check_wire_names(profile, operation)
    _check_headers(profile.headers)
    for key in _STATUS.values():
        _check_parameter(key, getattr(profile, key), profile.headers)
    for operation, names in profile.accept.required.items():
        for name in names:
            _check_required(profile, operation, name, reserved)
    _check_codes(
        {"answer.ok": profile.answer.ok, **{f"codes.{name}": codes for name, codes in asdict(profile.codes).items()}}
    )
    _check_statuses(profile.http)
    _check_refusal(profile.notification)


def _check_keys(profile: "Profile") -> None:
    for key in ("bearer", "signed", "merchant"):
        for name in _unknown(getattr(profile, key), ARGUMENTS):
            raise _refused(key, name, ARGUMENTS, field=key)
    for key, given, allowed in (
        ("fields", profile.fields, _FIELDS),
        ("formats", profile.formats, ["start_date"]),
        ("constants", profile.constants, [*ARGUMENTS, "*"]),
        ("accept.required", profile.accept.required, ARGUMENTS),
        ("accept.length", profile.accept.length, TEXTS),
        ("notification.kinds", profile.notification.kinds, KINDS),
        ("notification.id", profile.notification.id, KINDS),
    ):
        for name in _unknown(given, allowed):
            raise _refused(key, name, allowed, field=f"{key}.{name}")


def _unknown(given: Iterable[str], allowed: Iterable[str]) -> list[str]:
    return [name for name in given if name not in allowed]


def _refused(key: str, name: str, allowed: Iterable[str], *, field: str) -> ConfigurationError:
    return ConfigurationError(f"{key} knows no {name!r}; allowed are {', '.join(sorted(allowed))}", field=field)


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, TypeError, OverflowError, RecursionError):
        return False
    return True


def _check_formats(formats: Mapping[str, str]) -> None:
    for name, form in formats.items():
        if form and not _tells_dates_apart(form):
            key = f"formats.{name}"
            raise ConfigurationError(
                f"{key} must write each date in its own way, as %Y-%m-%d does, not {shown(form)}", field=key
            )


def _tells_dates_apart(form: str) -> bool:
    try:
        one, other = (day.strftime(form) for day in _UNLIKE)
    except ValueError:  # it cannot be written at all
        return False
    return one != other


def _check_scheme(scheme: "SignatureScheme | None") -> None:
    if scheme is not None and any(map(iscoroutinefunction, (scheme.verify, type(scheme.verify).__call__))):
        raise ConfigurationError(
            "signature.verify must be a plain function, not a coroutine function: nothing would ever verify. "
            "Only signature.sign may be one",
            field="signature",
        )


def _given_names(profile: "Profile") -> Iterator[tuple[str, str]]:
    """Yield the wire names that a profile gives, each with its key."""
    for operation, constants in profile.constants.items():
        yield from ((f"constants.{operation}.{name}", name) for name in constants)
    yield from ((f"fields.{point}", name) for point, name in profile.fields.items())
    for key in _STATUS.values():
        parameter: Parameter | None = getattr(profile, key)
        if parameter is not None:
            yield f"{key}.name", parameter.name


def _check_constants(constants: Mapping[str, Mapping[str, object]]) -> None:
    for operation, table in constants.items():
        for name, value in table.items():
            if found := flaw({name: value}):
                key = f"constants.{operation}.{name}"
                raise ConfigurationError(f"{key} must be JSON, without {found}", field=key)


def _wire_names(profile: "Profile", operation: str) -> dict[str, str]:
    """Return the wire names of an operation's arguments; of those that are open, none."""
    if operation in _STATUS:
        parameter: Parameter | None = getattr(profile, _STATUS[operation])
        return {"identifier": parameter.name} if parameter else {}
    names = {each.name: each.wire or profile.fields.get(each.point, "") for each in ARGUMENTS[operation]}
    return {argument: name for argument, name in names.items() if name}


def _check_wire_names(profile: "Profile", operation: str) -> None:
    """Refuse two fields of one request under one name: one would replace the other, and money move by what is left."""
    names = _wire_names(profile, operation)
    points = {each.name: each.point for each in ARGUMENTS[operation] if each.point and each.name in names}
    for argument, point in points.items():
        for other, name in names.items():
            if other != argument and name == names[argument]:
                raise ConfigurationError(
                    f"fields.{point} is {name!r}, which is the wire name of {other}, too: one would replace the other",
                    field=f"fields.{point}",
                )
    for each in ARGUMENTS[operation]:
        if each.required and names.get(each.name) in profile.constants.get(operation, {}):
            key = f"constants.{operation}.{names[each.name]}"
            raise ConfigurationError(
                f"{key} is the argument {each.name}, which every call gives: the constant would never be sent",
                field=key,
            )


def _check_headers(headers: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for name, value in headers.items():
        key = f"headers.{name}"
        if not is_header(name, value):
            raise ConfigurationError(f"headers: {name!r} must be of visible ASCII characters", field=key)
        if is_own(name):
            raise ConfigurationError(f"headers must not set {name}: payasync does", field=key)
        if other := seen.get(name.lower()):
            raise ConfigurationError(f"headers: {other} and {name} are one header to a service: keep one", field=key)
        seen[name.lower()] = name


def _check_parameter(key: str, parameter: Parameter | None, headers: Mapping[str, str]) -> None:
    if parameter is None or parameter.place != "header":
        return
    name = parameter.name
    if not is_header(name, "-") or is_own(name):
        raise ConfigurationError(
            f"{key}.name: {name!r} is no header that an identifier can travel in", field=f"{key}.name"
        )
    if name.lower() in map(str.lower, headers):
        raise ConfigurationError(
            f"{key}.name: {name!r} stands in headers, too: one would replace the other", field=f"{key}.name"
        )


def _check_required(profile: "Profile", operation: str, name: str, reserved: frozenset[str]) -> None:
    """Refuse what no call could give: neither an argument, nor a field that goes through `extra`."""
    arguments = [each.name for each in ARGUMENTS[operation]]
    if name in arguments:
        return
    key = f"accept.required.{operation}"
    if name in reserved or any(name in profile.constants.get(where, {}) for where in ("*", operation)):
        raise ConfigurationError(f"{key} must not hold {name!r}: payasync sets it, or a constant does", field=key)
    if meant := _meant(name, arguments, _wire_names(profile, operation)):
        raise ConfigurationError(
            f"{key} knows no {name!r}: did you mean {meant}? Arguments are {', '.join(arguments)}; "
            "another name is that of a field in extra",
            field=key,
        )


def _meant(name: str, arguments: list[str], wire_names: Mapping[str, str]) -> str | None:
    """Return the argument that a name is a slip of, or the wire name of, which `extra` may not hold."""
    known = {_plain(argument): argument for argument in arguments}
    known |= {_plain(wire): argument for argument, wire in wire_names.items()}
    close = get_close_matches(_plain(name), known, n=1, cutoff=_SLIP)
    return known[close[0]] if close else None


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _check_codes(lists: Mapping[str, tuple[Code, ...]]) -> None:
    """Refuse a code that stands in two lists: which of the two it means decides whether money moved."""
    for (one, codes), (other, others) in combinations(lists.items(), 2):
        for code in codes:
            if among(code, others):
                raise ConfigurationError(f"{one} and {other} both hold {code!r}: it means one of them", field=other)


def _check_statuses(http: HttpCodes) -> None:
    """Refuse a status for "used before" that would be read as "nothing was done": the number may have been used."""
    both = [status for status in http.duplicate if status in http.not_executed]
    if both and http.duplicate != HttpCodes().duplicate:
        raise ConfigurationError(
            f"http.duplicate and http.not_executed both hold {both[0]}: it means one of them. Give "
            "http.not_executed without it, or take it out of http.duplicate",
            field="http.duplicate",
        )


def _check_refusal(shape: NotificationShape) -> None:
    """Refuse a refusal that no service could tell from an acknowledgement: what is refused would count as kept."""
    yes, no = shape.ack_status, REFUSED if shape.nack_status is None else shape.nack_status
    alike = yes == no or (yes is not None and _succeeds(yes) and _succeeds(no))
    if alike and shape.ack_body == shape.nack_body:
        raise ConfigurationError(
            f"notification.nack_status is {no}, and the body is that which acknowledges: a service could not tell a "
            f"refusal from ack_status {yes}. Change one of the two, or nack_body",
            field="notification.nack_status",
        )


def _succeeds(status: int) -> bool:
    return status // 100 == 2  # noqa: PLR2004 - as HTTP has it
