"""Checks of a profile as a whole, and of the keys that its signature scheme uses.

A profile is refused if its parts contradict each other, or if one of them could never have an effect. An open point is
no contradiction: `audit()` shows it, and a call that needs the point names it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from inspect import iscoroutinefunction
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from payasync.credentials import Credentials, Secret
from payasync.endpoints import ARGUMENTS, BRACES, FURTHER, MAY_HAVE_NO_BODY, TEXTS, Argument, is_path
from payasync.errors import ConfigurationError
from payasync.profile.schema import (
    BODY,
    CODE_LISTS,
    KINDS,
    OPEN_FIELDS,
    REFUSALS,
    WRITES,
    Code,
    Endpoint,
    HttpCodes,
    NotificationShape,
    SignedHeader,
)
from payasync.profile.wire_names import (
    FIRST,
    IDENTIFIER_OF,
    NUMBER_OF,
    OURS,
    SOUGHT,
    UNSENT,
    all_names,
    arguments_of,
    given_name,
    guarded_names,
    names_of,
    operation_of,
    parameter_of,
    reserved_names,
    wire_name,
    wire_names,
)
from payasync.settings import describe_value, invalid_setting, is_header, is_reserved_header
from payasync.signing.algorithms import MIN_RSA_BITS, SERVICE_KEYS, SIGNING_KEY, Algorithm
from payasync.signing.schemes import Keyed, Scheme, SortedPairs, Template
from payasync.signing.templates import check_template, names_in
from payasync.strict_json import find_flaw, is_one_of, paths_of

if TYPE_CHECKING:
    from payasync.profile.profile import Profile

_NAMED: Final = sorted({each.name for arguments in ARGUMENTS.values() for each in arguments} - {"identifier"})
"""The arguments whose names a profile may change."""
_NEVER_UNSIGNED: Final = frozenset(
    {"amount", "total_amt", "refund_amt", "currency", "identifier", "out_trade_no", "out_refund_no", "subscription_id"}
)
"""Arguments that say how much is paid, and for what: a signed operation must sign them."""
_DEFAULTS: Final = frozenset({"accept", "user-agent"})
"""Headers of every request that `[headers]` may replace, and that no key may."""
_AUTHORIZATION: Final = frozenset({"authorization"})
_BESIDE: Final = re.compile(r"(?!{timestamp}\w*{nonce})({(?!body|method)\w+})\w*({(?!body|method|path)\w+})")
"""Finds two values of which one could run into the other. A nonce may follow a time, which the window bounds."""
_SLIP: Final = 0.88
"""How similar a mistyped name is: `subjct` is meant for `subject`, and `subjectId` is not."""


def check_profile(profile: "Profile") -> None:
    """Refuse a profile whose parts contradict each other.

    Raises:
        ConfigurationError: The error names the key and the allowed values.
    """
    _check_names(profile)
    for table in ("answer", "notification"):
        if profile.amount_unit == getattr(profile, table).amounts == "major":
            why = 'must be left out where amount_unit is "major": whatever is sent and received has the same unit'
            raise invalid_setting(f"{table}.amounts", why)
    _check_scheme(profile)
    _check_answer_header(profile)
    for operation, endpoint in profile.endpoints.items():
        _check_endpoint(profile, operation, endpoint)
    _check_fields(profile)
    reserved = {name for each in OURS for name in names_of(profile, each)}
    _check_constants(profile, reserved)
    _check_names_in_scheme(profile)
    for operation in ARGUMENTS:
        _check_wire_names(profile, operation, reserved)
    _check_headers(profile)
    for operation, names in profile.accept.required.items():
        for name in names:
            _check_required(profile, operation, name)
    _check_idempotency(profile)
    _check_meanings(profile)
    _check_refusal(profile.notification)
    _check_tells(profile.notification)
    _check_notification_header(profile)
    _check_sandbox(profile)


def _check_names(profile: "Profile") -> None:
    """Refuse the name of an operation, a field or a kind that does not exist."""
    named: tuple[tuple[str, Any, Any], ...] = (
        ("bearer", profile.bearer, ARGUMENTS),
        ("signed", profile.signed, ARGUMENTS),
        ("merchant", profile.merchant, ARGUMENTS),
        ("endpoints", profile.endpoints, ARGUMENTS),
        ("fields", profile.fields, [*OPEN_FIELDS, *OURS, *_NAMED, *ARGUMENTS]),
        ("formats", profile.formats, ["start_date"]),
        ("constants", profile.constants, [*ARGUMENTS, "*"]),
        ("accept.required", profile.accept.required, ARGUMENTS),
        ("accept.length", profile.accept.length, TEXTS),
        ("codes", profile.codes.by_operation, ARGUMENTS),
        *((f"codes.{name}", table, CODE_LISTS) for name, table in profile.codes.by_operation.items()),
        ("notification.kinds", profile.notification.kinds, KINDS),
        ("notification.tells", profile.notification.tells, KINDS),
        ("notification.id", profile.notification.id, KINDS),
        ("sandbox.codes", profile.sandbox.codes, REFUSALS),
        ("sandbox.omits", profile.sandbox.omits, ARGUMENTS),
        ("sandbox.single_use_keys", profile.sandbox.single_use_keys, WRITES),
    )
    for key, given, allowed in named:
        for name in given:
            if name not in allowed:
                message = f"{key} must not hold {name!r}; allowed are {', '.join(sorted({*allowed}))}"
                raise ConfigurationError(message, field=f"{key}.{name}" if isinstance(given, Mapping) else key)


def _check_scheme(profile: "Profile") -> None:
    """Refuse a scheme that cannot verify what the profile wants verified, or whose `verify` nothing would await."""
    scheme, shape = profile.scheme, profile.notification
    if scheme is None:
        return
    if isinstance(scheme, Keyed) and scheme.min_rsa_bits != MIN_RSA_BITS and not scheme.algorithm.startswith("rsa-"):
        raise invalid_setting("signature.min_rsa_bits", "has no effect unless signature.algorithm is RSA: leave it out")
    verify = getattr(scheme, "verify", None)
    in_body = {"answer.signature": profile.answer.signature, "notification.verification": shape.verification == "body"}
    for point, given in in_body.items():
        if given and verify is None:
            why = f"needs a signature that verifies fields; {type(scheme).__name__} signs the text of a whole request"
            raise invalid_setting(point, why)
    if verify is not None and any(map(iscoroutinefunction, (verify, type(verify).__call__))):
        why = "signature.verify must be a plain function, not a coroutine function, because nothing awaits it"
        raise ConfigurationError(f"{why}. Only signature.sign may be one", field="signature")


def _check_names_in_scheme(profile: "Profile") -> None:
    """Refuse a scheme that would sign the signature, lets a number hold a delimiter, or cannot sign a dotted name."""
    scheme = profile.scheme
    for name in ("nonce", "sign") if isinstance(scheme, Template) else ():
        if names_of(profile, name) - {OURS[name]}:
            why = 'has no effect with signature.family "template", which adds no fields: leave it out'
            raise invalid_setting(f"fields.{name}", why)
    if not isinstance(scheme, SortedPairs):
        return
    for operation in profile.signed if scheme.nested != "json" else ():
        _check_dotted_names_are_signed(profile, operation, scheme)
    for name in sorted(names_of(profile, "sign").difference(scheme.exclude)):
        raise invalid_setting("signature.exclude", f'must hold "{name}": a signature cannot sign itself')
    for operation in profile.signed:
        for name in sorted(names_of(profile, "sign").intersection(wire_names(profile, operation).values())):
            key = next((f"fields.{each}.sign" for each in ARGUMENTS if given_name(profile, each, "sign") == name), "")
            why = f"is {name!r}, an argument of {operation}, which the signature would leave out: give another name"
            raise invalid_setting(key or "fields.sign", why)
    if shifting := guarded_names(profile).intersection(scheme.allow_delimiters):
        names = ", ".join(sorted(shifting))
        why = f"must not hold {names}: a delimiter there could pass for another field"
        raise invalid_setting("signature.allow_delimiters", why)


def _check_dotted_names_are_signed(profile: "Profile", operation: str, scheme: SortedPairs) -> None:
    """Refuse a dotted name in an object that sorted pairs refuse, or leave unsigned with an amount or a number."""
    nested = scheme.nested
    effect = "refuses the object around it" if nested == "refuse" else "leaves it unsigned"
    for each in arguments_of(profile, operation):
        name, matters = wire_name(profile, operation, each), each.name in _NEVER_UNSIGNED
        top, dot, _ = name.partition(".")
        if not dot or top in scheme.exclude or (nested == "omit" and not matters):
            continue
        allowed = '"json"' if matters else '"json" or "omit"'
        why = f'is {name!r}, and signature.nested = "{nested}" {effect} in {operation}'
        hint = f"set signature.nested = {allowed}, or give a name without a dot"
        raise invalid_setting(_key_of_name(profile, operation, each), f"{why}: {hint}")


def _check_endpoint(profile: "Profile", operation: str, endpoint: Endpoint) -> None:
    """Refuse further arguments, a path or a place that an operation cannot have."""
    key, arguments = f"endpoints.{operation}", arguments_of(profile, operation)
    further = [each.name for each in FURTHER.get(operation, ())]
    for name in endpoint.with_:
        if name not in further:
            allowed = f"allowed are {', '.join(further)}" if further else "this operation has no further arguments"
            raise invalid_setting(f"{key}.with", f"must not hold {name!r}; {allowed}")
    if endpoint.number and operation not in SOUGHT:
        raise invalid_setting(f"{key}.number", f"has no effect; it is for {' and '.join(SOUGHT)}: leave it out")
    if endpoint.path:
        _check_path(profile, operation, operation_of(profile, operation).path)
    place, parameter = endpoint.place, parameter_of(profile, operation)
    if place and parameter and parameter.place:
        status = f"{IDENTIFIER_OF[operation]}.place"
        raise invalid_setting(f"{key}.place", f"and {status} both give the place: keep one of the two")
    if place == "path" and len(arguments) != 1:
        raise invalid_setting(f"{key}.place", "must not be 'path': write the arguments into endpoints.path, in braces")
    if place == "body" and operation_of(profile, operation).method == "GET":
        raise invalid_setting(f"{key}.place", "must not be 'body' with method GET, which has no body: give a method")


def _check_path(profile: "Profile", operation: str, path: str) -> None:
    """Refuse a text that is no path, or that holds an unknown argument, or one argument twice."""
    key, in_braces = f"endpoints.{operation}", BRACES.findall(path)
    if not is_path(BRACES.sub("x", path)):
        raise invalid_setting(f"{key}.path", f"must be a path below the base URL, such as /v2/orders, not {path!r}")
    arguments = {*(each.name for each in arguments_of(profile, operation)), "merchant_id"}
    arguments.update(NUMBER_OF.get(operation, ())[1:])
    for name in in_braces:
        if name not in arguments:
            why = f"has {{{name}}}, which is no argument; allowed are {', '.join(sorted(arguments))}"
            further = name in (each.name for each in FURTHER.get(operation, ()))
            raise invalid_setting(f"{key}.path", f"{why}. Name it in {key}.with, too" if further else why)
        if in_braces.count(name) > 1:
            raise invalid_setting(f"{key}.path", f"has {{{name}}} twice: write each argument once")
    place, of_status = operation_of(profile, operation).place, not profile.endpoints[operation].place
    if in_braces and (place == "path" or (place and of_status and "identifier" in in_braces)):
        why = f"must not be {place!r} beside {{{in_braces[0]}}} in {key}.path: write every argument in braces there"
        given = IDENTIFIER_OF[operation] if of_status else key
        raise invalid_setting(f"{given}.place", f"{why}, and leave the place out")


def _check_fields(profile: "Profile") -> None:
    """Refuse names for what an operation does not take, and a name that is given in two tables."""
    for operation, table in profile.fields.items():
        if (operation in ARGUMENTS) != isinstance(table, Mapping):
            rule = "a table of wire names, by argument" if operation in ARGUMENTS else "a text"
            raise invalid_setting(f"fields.{operation}", f"must be {rule}")
        if not isinstance(table, Mapping):
            if not table and operation not in OPEN_FIELDS:
                takers = " or ".join(f'[fields."{each}"]' for each, name in sorted(UNSENT) if name == operation)
                raise invalid_setting(f"fields.{operation}", f"must not be empty{takers and f', but in {takers}'}")
            continue
        arguments = {each.name: each for each in arguments_of(profile, operation) if each.name != "identifier"}
        for name in table:
            key, allowed = f"fields.{operation}.{name}", [*arguments, *OURS]
            if name not in allowed:
                raise invalid_setting(key, f"is no argument of {operation}; allowed are {', '.join(allowed)}")
            if not table[name]:
                _check_unsent(profile, operation, name)
            point = arguments[name].point if name in arguments else ""
            if point and point != name and given_name(profile, "", point):
                raise invalid_setting(key, f"and fields.{point} both give the name: keep one of the two")


def _check_unsent(profile: "Profile", operation: str, name: str) -> None:
    """Refuse an empty name of an argument that cannot be left out of a request."""
    key = f"fields.{operation}.{name}"
    if (operation, name) not in UNSENT:
        raise invalid_setting(key, "must not be empty")
    if name in operation_of(profile, operation).in_path:
        raise invalid_setting(key, f"must not be empty, because the path has {{{name}}}")
    if name == "currency" and len(profile.accept.currency) != 1:
        raise invalid_setting(key, "is empty: say in accept.currency which one currency the service has")


def _check_constants(profile: "Profile", reserved: Collection[str]) -> None:
    """Refuse a constant that is no JSON, or that has a name that only payasync itself may set."""
    for operation, table in profile.constants.items():
        for name, value in table.items():
            key = f"constants.{operation}.{name}"
            if found := find_flaw({name: value}):
                raise invalid_setting(key, f"must be JSON, without {found}")
            if name in reserved:
                raise invalid_setting(key, f"must not set {name}, because payasync sets it")


def _check_wire_names(profile: "Profile", operation: str, reserved: Collection[str]) -> None:
    """Refuse two fields of one request under one name: one would replace the other, such as an amount."""
    every = (*arguments_of(profile, operation), *map(Argument, OURS))
    names = {each: name for each in every if (name := wire_name(profile, operation, each))}
    for each, name in names.items():
        key, given = _key_of_name(profile, operation, each), name != OURS.get(each.name, each.wire)
        if given and each.name not in OURS and name in reserved:
            raise invalid_setting(key, f"must not set {name}, because payasync sets it")
        for other, its in names.items() if given else ():
            if other != each and _overlap(name, its):
                also = "also the wire name" if name == its else f"in one object with the wire name {its!r}"
                why = f"is {name!r}, which is {also} of {other.name} in {operation}: one would replace the other"
                keys = {key, _key_of_name(profile, operation, other)}
                for_all = {f"fields.{name}" for one in (each, other) for name in (one.name, one.point)}
                hint = f'. Give {operation} names of its own in [fields."{operation}"]' if keys & for_all else ""
                raise invalid_setting(key, why + hint)
        if "." in name:
            _check_nested_name(profile, operation, each, names)
        _check_constants_beside(profile, operation, each, name)


def _check_nested_name(profile: "Profile", operation: str, argument: Argument, names: Mapping[Argument, str]) -> None:
    """Refuse a dotted name that is no path in the body of a request."""
    name, key = names[argument], _key_of_name(profile, operation, argument)
    found = operation_of(profile, operation)
    in_body = found.has_body and found.place not in {"path", "header"}
    if argument.name in OURS or "" in name.split(".") or name.startswith(f"{FIRST}."):
        allowed = "a name without a dot" if argument.name in OURS else "a name, or several with a dot between them"
        raise invalid_setting(key, f"must be {allowed}, not {name!r}")
    if _parts_lists(names.values()):
        raise invalid_setting(key, f"is {name!r}: in a request, a list has one entry, with the number 0")
    if not in_body or argument.name in found.in_path:
        why = f"is {name!r}, which nests, and stands outside the body in {operation}: give it a name without a dot"
        raise invalid_setting(key, why)


def _check_constants_beside(profile: "Profile", operation: str, argument: Argument, name: str) -> None:
    """Refuse a constant that an argument of every call would replace, or that stands beside its object."""
    top, dot, _ = name.partition(".")
    own = profile.constants.get(operation, {})
    constants = {**(profile.constants.get("*", {}) if dot else {}), **own}
    if (argument.required or dot) and _stands_in(constants, name):
        why = f"is the argument {argument.name}, which every call gives: the constant would never be sent"
        raise invalid_setting(f"constants.{operation if top in own else '*'}.{name}", why)
    for constant in constants if dot else ():
        if constant.startswith(f"{top}."):
            why = f"stands beside {name!r}, which nests: write an object, without quotes around the dotted name"
            raise invalid_setting(f"constants.{operation if constant in own else '*'}.{constant}", why)


def _stands_in(constants: Mapping[str, Any], name: str) -> bool:
    """Return whether constants hold a value where an argument stands: at its name, or in place of what is around it."""
    here: Any = constants
    for step in name.split("."):
        if step == FIRST and here is not constants:
            here = {FIRST: here[0]} if isinstance(here, list) and len(here) == 1 else None
        if not isinstance(here, Mapping):
            return True
        if step not in here:
            return False
        here = here[step]
    return True


def _parts_lists(names: Iterable[str]) -> bool:
    """Return whether something is to be the one entry of a list, and also another entry, or a member of an object."""
    paths = [name.split(".") for name in names]
    inside = {(tuple(steps[:place]), steps[place]) for steps in paths for place in range(1, len(steps))}
    return any(step != FIRST and (step.isdecimal() or (above, FIRST) in inside) for above, step in inside)


def _overlap(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _key_of_name(profile: "Profile", operation: str, argument: Argument) -> str:
    """Return the key of the profile that gives an argument its wire name, or that could."""
    if given_name(profile, operation, argument.name):
        return f"fields.{operation}.{argument.name}"
    if argument.name == "identifier":
        return f"{IDENTIFIER_OF[operation]}.name"
    return f"fields.{argument.point or argument.name}"


def _check_headers(profile: "Profile") -> None:
    """Refuse a name that no header can have, that payasync sets itself, or that two keys give."""
    scheme, auth = profile.signature, profile.auth
    for name, value in profile.headers.items():
        if not is_header(name, value):
            raise ConfigurationError(f"headers: {name!r} must be of visible ASCII characters", field=f"headers.{name}")
    fixed = _claim_headers({}, {f"headers.{name}": name for name in profile.headers}, _DEFAULTS)
    keys = {"auth.header": auth.header} | {f"auth.headers.{name}": name for name in auth.headers}
    with_keys = _claim_headers(fixed, keys, _AUTHORIZATION)
    signing: dict[str, str] = {}
    if isinstance(scheme, Template):
        signing = {"signature.header": scheme.header} | {f"signature.headers.{name}": name for name in scheme.headers}
    both = set(profile.bearer).intersection(profile.signed)
    claimed = with_keys | _claim_headers(with_keys if both else fixed, signing, _AUTHORIZATION | _DEFAULTS)
    arguments: dict[str, str] = {}
    for operation in ARGUMENTS:
        arguments |= _claim_headers(claimed, _arguments_in_headers(profile, operation))
    if profile.idempotency.header:
        _claim_headers(claimed | arguments, {"idempotency.header": profile.idempotency.header})


def _claim_headers(
    claimed: Mapping[str, str], names: Mapping[str, str], allowed: Collection[str] = ()
) -> dict[str, str]:
    """Return the keys of the profile that give headers, by the headers' names in lower case, with further ones.

    Args:
        claimed: The keys by such names.
        names: The names of further headers, by their keys.
        allowed: Names, in lower case, that are not refused although payasync sets such a header.

    Raises:
        ConfigurationError: A name is that of no header, or is claimed already: one header would replace the other.
    """
    found = dict(claimed)
    for key, name in names.items():
        lower = name.lower()
        if not is_header(name, "-"):
            raise invalid_setting(key, f"must be the name of a header, not {describe_value(name)}")
        if lower not in allowed and (lower in _DEFAULTS or is_reserved_header(name)):
            raise invalid_setting(key, f"must not be {name}, because payasync sets it")
        if (other := found.setdefault(lower, key)) != key:
            raise invalid_setting(key, f"and {other} are the same header: keep one")
    return found


def _arguments_in_headers(profile: "Profile", operation: str) -> dict[str, str]:
    """Return the headers that carry arguments of an operation, by the keys that name them."""
    found = operation_of(profile, operation)
    if found.place != "header":
        return {}
    return {
        _key_of_name(profile, operation, each): name
        for each in arguments_of(profile, operation)
        if each.name not in found.in_path and (name := wire_name(profile, operation, each))
    }


def _check_idempotency(profile: "Profile") -> None:
    """Refuse a key in two places, a lifetime of no key, and a field that is something else already."""
    given = profile.idempotency
    header, name = given.header, given.field
    if header and name:
        raise invalid_setting("idempotency.field", "and idempotency.header both carry the key: keep one of the two")
    if given.lifetime is not None and not given.used:
        raise invalid_setting("idempotency.lifetime", "has no effect without idempotency.header or idempotency.field")
    if "." in name:
        raise invalid_setting("idempotency.field", f"must be a name without a dot, not {name!r}")
    constants = (constant for table in profile.constants.values() for constant in table)
    if name and any(_overlap(name, other) for other in (*all_names(profile), *constants)):
        why = f"is {name!r}, which is another field of a request already: one would replace the other"
        raise invalid_setting("idempotency.field", why)


def _check_required(profile: "Profile", operation: str, name: str) -> None:
    """Refuse a required name that no call could give: no argument, and no field that `extra` may hold."""
    arguments = [each.name for each in ARGUMENTS[operation]]
    if name in arguments:
        return
    key = f"accept.required.{operation}"
    constants = {*profile.constants.get("*", {}), *profile.constants.get(operation, {})}
    if name in constants | reserved_names(profile, operation) | {profile.idempotency.field}:
        raise invalid_setting(key, f"must not hold {name!r}: payasync sets it, or a constant does")
    # `extra` may not hold the wire name of an argument.
    known = {_normalize_name(argument): argument for argument in arguments}
    known |= {_normalize_name(wire): argument for argument, wire in wire_names(profile, operation).items()}
    if close := get_close_matches(_normalize_name(name), known, n=1, cutoff=_SLIP):
        meant = f"did you mean {known[close[0]]}? Arguments are {', '.join(arguments)}"
        raise invalid_setting(key, f"must not hold {name!r}: {meant}; any other name is that of a field in extra")


def _normalize_name(name: str) -> str:
    return name.replace("_", "").lower()


def _check_meanings(profile: "Profile") -> None:
    """Refuse a code or a status in two lists: its meaning decides whether money moved."""
    ok, codes, http = {"answer.ok": profile.answer.ok}, profile.codes, profile.http
    tables: list[dict[str, tuple[Code, ...]]] = [ok | {f"codes.{key}": getattr(codes, key) for key in CODE_LISTS}]
    for operation, table in codes.by_operation.items():
        tables.append(ok | {f"codes.{operation}.{key}": values for key, values in table.items()})
    if http.duplicate != HttpCodes().duplicate:
        tables.append({"http.not_executed": http.not_executed, "http.duplicate": http.duplicate})
    for table in tables:
        for (one, values), (other, others) in combinations(table.items(), 2):
            if both := [value for value in values if is_one_of(value, others)]:
                message = f"{one} and {other} both hold {both[0]!r}: keep it in the one that it means"
                raise ConfigurationError(message, field=other)


def _check_refusal(shape: NotificationShape) -> None:
    """Refuse a refusal that the service could not tell from an acknowledgement, and one path for two times."""
    yes, no = shape.ack_status, shape.refusal_status
    alike = yes == no or (yes is not None and yes // 100 == no // 100 == 2)  # noqa: PLR2004 - as HTTP has it
    if alike and shape.ack_body == shape.nack_body:
        why = f"is {no}, and nack_body equals ack_body: the service could not tell a refusal from ack_status {yes}"
        raise invalid_setting("notification.nack_status", f"{why}. Change one of the two, or nack_body")
    if shape.time and shape.time == shape.event_time:
        why = f"is {shape.time!r}, as notification.time is, which is new in each delivery: keep the one that fits"
        raise invalid_setting("notification.event_time", why)


def _check_answer_header(profile: "Profile") -> None:
    """Refuse a signature of responses in a header that could verify nothing, or that is one of two."""
    answer = profile.answer
    if answer.header and answer.signature:
        raise invalid_setting("answer.signature", "and answer.header both say where the signature stands: keep one")
    if answer.header:
        _check_signed_header("answer.header", answer.header, profile.scheme, of_request=("method", "path"))


def _check_signed_header(
    key: str, header: SignedHeader, scheme: Scheme | None, of_request: tuple[str, ...] = ()
) -> None:
    """Refuse a text that does not sign the body, or not all that stands in headers, and one that nobody could sign.

    Args:
        key: The key of the table, such as `answer.header`.
        header: The table.
        scheme: The profile's scheme, whose algorithm signs the text.
        of_request: Further names that the text may hold: what it says of the request.
    """
    if scheme is not None and (not isinstance(scheme, Keyed) or scheme.algorithm == "md5"):
        what = 'algorithm "md5"' if isinstance(scheme, Keyed) else "a scheme of your own"
        why = f"must not be given with {what}, which has no key for a text. Give another signature.algorithm"
        raise invalid_setting(key, f"{why}, or Receiver(verifier=...) in its place" if "notification" in key else why)
    allowed = ("timestamp", "nonce", "merchant_id", "body", *of_request)
    check_template(f"{key}.text", header.text, allowed, needed=("body",))
    for name in ("timestamp", "nonce"):
        if bool(getattr(header, name)) != (name in names_in(header.text)):
            why = f"and {{{name}}} in {key}.text belong together: give both, or neither"
            raise invalid_setting(f"{key}.{name}", why)
    places = [f"{place.lower()}:" for place in (header.signature, header.timestamp, header.nonce) if place]
    # A whole header holds no other value beside it.
    if any(one.startswith(other) or other.startswith(one) for one, other in combinations(places, 2)):
        raise invalid_setting(f"{key}.signature", "and the other places must differ: each value has a place of its own")
    if beside := _BESIDE.search(header.text):
        rule = f"must have a separator, such as a dot, between {beside[1]} and {beside[2]}"
        raise invalid_setting(f"{key}.text", f"{rule}: the end of one could pass for the beginning of the other")


def _check_tells(shape: NotificationShape) -> None:
    """Refuse a field that would tell two kinds, unless their events tell them: then it holds the state of both."""
    for (one, path), (other, its) in combinations(shape.tells.items(), 2):
        told = path == its and shape.kind and shape.kinds.get(one) and shape.kinds.get(other)
        if _overlap(path, its) and not told:
            why = f"is {its!r}, and notification.tells.{one} is {path!r}: give each kind a field of its own"
            if path == its:
                why += ", or the names of its events in notification.kinds"
            raise invalid_setting(f"notification.tells.{other}", why)


def _check_notification_header(profile: "Profile") -> None:
    """Refuse a signature in a header that could verify nothing, or that says what Standard Webhooks fixes."""
    shape, key = profile.notification, "notification.header"
    header = shape.header
    if header is None:
        if shape.verification == "header":
            raise invalid_setting(key, 'must be given where notification.verification is "header"')
    elif shape.verification == "header":
        _check_signed_header(key, header, profile.scheme)
    elif shape.verification == "standard-webhooks":
        for name, usual in (("text", BODY), ("prefix", "")):
            if getattr(header, name) != usual:
                raise invalid_setting(f"{key}.{name}", "must not be given: Standard Webhooks says what it is")
        names = {name: getattr(header, name).lower() for name in ("signature", "timestamp", "nonce")}
        for name, place in names.items():
            if not place or ":" in place or list(names.values()).count(place) > 1:
                raise invalid_setting(f"{key}.{name}", "must be the name of a header of its own, such as svix-id")
    else:
        raise invalid_setting(key, 'has no effect unless notification.verification is "header" or "standard-webhooks"')


def _check_sandbox(profile: "Profile") -> None:
    """Refuse a refusal's code that means success, and a constant that stands where something else is read."""
    answer, shape = profile.answer, profile.notification
    for why, code in profile.sandbox.codes.items():
        if is_one_of(code, answer.ok):
            raise invalid_setting(f"sandbox.codes.{why}", f"must not be {code!r}, which means success in answer.ok")
    read = {
        "answer.code": answer.code,
        "answer.message": answer.message,
        "answer.data": answer.data,
        "answer.signature": answer.signature,
        "notification.data": shape.data,
        "notification.signature": shape.signature,
    }
    for name in profile.sandbox.constants:
        for key, paths in read.items():
            if any(name in path.split(".") for path in paths_of(paths)):
                raise invalid_setting(f"sandbox.constants.{name}", f"stands where {key} is read: keep one of the two")
    for operation, paths in profile.sandbox.omits.items():
        bodiless = [each.name for each in MAY_HAVE_NO_BODY]
        demanded = answer.signature or answer.must or (answer.code and not answer.code_optional)
        if "*" in paths and (operation not in bodiless or demanded or len(paths) > 1):
            rule = f'may be ["*"] only for {", ".join(bodiless)}, where [answer] demands no code, signature or must'
            raise invalid_setting(f"sandbox.omits.{operation}", rule)


def check_keys(profile: "Profile", credentials: Credentials) -> None:
    """Refuse keys that cannot sign or verify.

    Each given key that the profile's scheme uses is tried. A missing key is not refused here, but by the call that
    needs it: a session without keys may queue requests, or be the base of sessions for other merchants. The keys of a
    scheme of your own are not tried.

    Raises:
        ConfigurationError: The error names the key, and its number among several.
    """
    for error in refused_keys(profile, credentials):
        raise error


def refused_keys(profile: "Profile", credentials: Credentials) -> list[ConfigurationError]:
    """Return an error for each key that cannot sign or verify, as `check_keys`."""
    refused = []
    for name, key, algorithm in _list_used_keys(profile, credentials):
        field = name.partition(":")[0]
        try:
            algorithm.check(key, signs=field == SIGNING_KEY)
        except ConfigurationError as error:
            error.args = (str(error).replace(field, name, 1),)
            refused.append(error)
    return refused


def weak_keys(profile: "Profile", credentials: Credentials) -> Iterator[str]:
    """Yield a warning for each key in use that is so short that it could be guessed or broken."""
    for name, key, algorithm in _list_used_keys(profile, credentials):
        if why := algorithm.weakness(key, signs=name == SIGNING_KEY):
            yield f"{name} {why}"


def _list_used_keys(profile: "Profile", credentials: Credentials) -> Iterator[tuple[str, Secret, Algorithm]]:
    """Yield each key that the scheme uses: its field, with its number among several, the key, and the algorithm.

    None of a scheme of your own, or of a subclass, which may use keys in other ways.
    """
    scheme, families = profile.scheme, (SortedPairs, Template)
    if not isinstance(scheme, families) or type(scheme) not in families or not scheme.algorithm:
        return
    algorithm = scheme.chosen_algorithm()
    verifies = profile.answer.signed or profile.notification.verification in {"body", "header"}
    if credentials.signing_key is not None and (profile.signed or (verifies and algorithm.symmetric)):
        yield SIGNING_KEY, credentials.signing_key, algorithm
    if verifies:
        several = len(credentials.service_keys) > 1
        for number, key in enumerate(credentials.service_keys, start=1):
            yield f"{SERVICE_KEYS}: key {number}" if several else SERVICE_KEYS, key, algorithm
