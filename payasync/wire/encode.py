"""A request becomes a call by the profile, and a call becomes bytes."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from attrs import asdict, evolve, fields_dict

import payasync.profile
from payasync import signing, strict_json
from payasync.clocks import boot_time
from payasync.credentials import Credentials
from payasync.endpoints import ARGUMENTS, FURTHER, Operation, camel_case
from payasync.errors import InvalidArgumentError, PayasyncError
from payasync.evidence.comparison import comparison_of
from payasync.profile.signed_fields import response_only_names, response_only_paths
from payasync.profile.wire_names import (
    FIRST,
    IDENTIFIER,
    IDENTIFIER_OF,
    UNSENT,
    operation_of,
    parameter_of,
    wire_name,
    wire_names,
)
from payasync.settings import Timeouts, is_header, not_configured
from payasync.strict_json import ABSENT
from payasync.wire.call import (
    Call,
    Encoded,
    Layout,
    Lease,
    Progress,
    derive_idempotency_key,
    draw_idempotency_key,
    number_key,
)
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import NOTHING, check_accepted, check_object, invalid_argument

if TYPE_CHECKING:
    from payasync.profile import Profile
    from payasync.signing.schemes import Scheme

_ZONE: Final = re.compile("%:?[zZ]")
IDENTIFIERS: Final = ("out_trade_no", "out_refund_no", "subscription_id", "identifier")

Kind: TypeAlias = type[Request[Response]]
Refused: TypeAlias = tuple[tuple[frozenset[str], str], ...]
Writer: TypeAlias = Callable[[Request[Response]], dict[str, Any]]

_ARGUMENT: Final = "is an argument: give it as such"
_SET: Final = "is set by payasync itself"
_OWN_KEY: Final = "give a key of the service's own as credentials.service_keys if the service has one"
_RESERVED: Final = (
    f"no request may say, because a response or a notification is recognised by it: leave it out, or {_OWN_KEY}"
)


def make_writer(kind: Kind, profile: "Profile") -> Writer:
    """Return a function that writes the arguments of a request that were given, under their wire names.

    It raises `NotConfiguredError` if the profile does not give the name of one, or how a date is written.
    """
    operation = kind.operation.name
    names = wire_names(profile, operation)
    arguments = [(name, names[name]) for name in fields_dict(kind) if name in names]
    points = {each.name: each.point for each in ARGUMENTS.get(operation, ()) if each.point and each.name not in names}
    unnamed = [(name, points[name]) for name in fields_dict(kind) if name in points]
    # A merchant's own subclass may have slots.
    slotted = any(vars(each).get("__slots__") for each in kind.__mro__)
    read: Callable[[Any], dict[str, Any]] = partial(asdict, recurse=False) if slotted else vars

    dated = names.get("start_date")

    def write(request: Request[Response]) -> dict[str, Any]:
        given, written = read(request), {}
        for argument, name in arguments:  # up to Python 3.11 a comprehension takes longer
            value = given[argument]
            if value is not ABSENT:
                written[name] = value
        if dated in written:
            written[dated] = _write_date(profile, written[dated])
        for argument, point in unnamed:
            if given[argument] is not ABSENT:
                profile.wire_name(point)  # it raises: the profile gives no name
        return written

    nested = [name for name in names.values() if "." in name]
    constants = {**profile.constants.get("*", {}), **profile.constants.get(operation, {})}
    shared = {top: constants[top] for top in (name.partition(".")[0] for name in nested) if top in constants}
    return partial(_write_nested, write, nested, shared) if nested else write


def _write_nested(
    write: Writer, nested: Iterable[str], shared: Mapping[str, Any], request: Request[Response]
) -> dict[str, Any]:
    """Return the fields of a request, with those whose names are dotted inside objects, beside the constants there.

    The number 0 in a name is the one entry of a list.
    """
    written = write(request)
    if shared:
        written |= strict_json.copy_plain(shared)
    for name in nested:
        if name in written:
            value, steps = written.pop(name), name.split(".")
            inner: Any = written
            for step, following in pairwise(steps):
                inner = _enter(inner, step, [] if following == FIRST else {})
            _enter(inner, steps[-1], value)
    return written


def _enter(holder: Any, step: str, empty: Any) -> Any:
    """Return what an object, or a list of one entry, holds at a step; if it holds nothing, put something there."""
    if step != FIRST:
        return holder.setdefault(step, empty)
    holder[:] = holder or [empty]
    return holder[0]


def _write_date(profile: "Profile", value: date) -> str:
    """Return a date in the profile's format. A zone is written, or converted to UTC, and never lost."""
    form = profile.formats.get("start_date")
    if not form:
        raise not_configured("formats.start_date", "how the date is written, such as %Y-%m-%d")
    if not isinstance(value, datetime) or value.utcoffset() is None or _ZONE.search(form.replace("%%", "")):
        return value.strftime(form)
    if form == "%s" or form.endswith("Z"):  # `strftime("%s")` would take it for the machine's local time
        return str(int(value.timestamp())) if form == "%s" else value.astimezone(UTC).strftime(form)
    rule = f"a date, or a datetime without a zone, because {form!r}, the profile's formats.start_date, writes no zone"
    raise invalid_argument("start_date", rule, value)


def make_text_check(scheme: "Scheme | None", forbidden: frozenset[str]) -> Callable[[Mapping[str, Any]], None] | None:
    """Return a function that refuses texts that could be read as a field by which the service is recognised.

    It looks where the scheme lets the separator and `=` stand.

    Args:
        scheme: The scheme.
        forbidden: Such fields, of responses and notifications. Without any, a request that is sent back cannot pass
            for one.
    """
    if not forbidden or not isinstance(scheme, signing.SortedPairs):
        return None
    names = [name for name in scheme.allow_delimiters if name not in scheme.exclude]
    search = re.compile("|".join(re.escape(f"{scheme.separator}{name}=") for name in sorted(forbidden))).search

    def check(fields: Mapping[str, Any]) -> None:
        for name in names:
            value = fields.get(name, "")
            nested = isinstance(value, dict | list)
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":")) if nested else value
            if isinstance(text, str) and "=" in text and (found := search(text)):
                rule = f"free of {found[0]!r}"
                words = (
                    f"{name} must be {rule}, because a response or a notification is recognised by such a field, and a "
                    f"request that is sent back must not pass for one. Change the text, or {_OWN_KEY}"
                )
                raise InvalidArgumentError(words, field=name, rule=rule, value=found[0])

    return check


class Template(NamedTuple):
    """What all requests of one kind have in common, for one merchant: worked out once.

    Attributes:
        write: Gives the arguments their wire names.
        identifiers: The numbers among the arguments, which must match the profile's pattern.
        blank: The call, with those fields only that every call of the kind carries.
        in_body: All fields stand in the body.
        plain: Moreover nothing is added to them, or compared besides.
        further: The arguments that the document does not give the endpoint, and that the service wants there.
        unsent: Those that it does not want, and arguments that it does not take. A response must match them all the
            same where it is compared in them.
        refused: The names that `extra` may not hold, with why.
    """

    write: Writer
    identifiers: tuple[str, ...]
    blank: Call
    in_body: bool
    plain: bool
    further: tuple[str, ...]
    unsent: tuple[str, ...]
    refused: Refused


class Codec:
    """Turns requests into calls, for one merchant of one service.

    Args:
        profile: Gives the names that the document does not show.
        credentials: Give the merchant's number.
        writers: Made already for this profile, and shared.

    Raises:
        ConfigurationError: A request that is sent back would pass for a signed response.
    """

    def __init__(self, profile: "Profile", credentials: Credentials, writers: dict[Kind, Writer] | None = None) -> None:
        self._profile = profile
        self._is_identifier = re.compile(profile.identifier).fullmatch
        self._accepts_anything = profile.accept == payasync.profile.Accept()
        self._merchant_id = credentials.merchant_id
        self._response_only = response_only_paths(profile, credentials)
        self._reserved = response_only_names(profile, credentials)
        self._key_name = frozenset(filter(None, [profile.idempotency.field]))
        self._check_texts = make_text_check(profile.scheme, self._reserved)
        constants = (value for table in profile.constants.values() for value in table.values())
        self._nested = any(isinstance(value, dict | list) for value in constants)
        self._writers: dict[Kind, Writer] = {} if writers is None else writers
        self._templates: dict[Kind, Template] = {}

    def for_merchant(self, credentials: Credentials) -> "Codec":
        """Return the codec of another merchant; it writes in the same way."""
        return Codec(self._profile, credentials, self._writers)

    def call(
        self,
        request: Request[Response],
        timeouts: Timeouts = Timeouts(),
        deadline: float = inf,
        intent: str | None = None,
    ) -> Call:
        """Return the call that a request stands for: wire names, constants and `extra` in place.

        What the caller gives goes before the profile's constants.

        Raises:
            InvalidArgumentError: The profile says that the service does not take it, or `extra` holds what is set
                otherwise.
            NotConfiguredError: It needs a point that the profile leaves open.
        """
        kind, profile = type(request), self._profile
        try:
            template = self._templates.get(kind) or self._make_template(kind)
            for name in template.identifiers:
                value = getattr(request, name)
                if value is not ABSENT and not self._is_identifier(value):
                    rule = f"an identifier that matches {profile.identifier} (the profile's `identifier`)"
                    raise invalid_argument(name, rule, value)
            if not self._accepts_anything:
                check_accepted(request, profile.accept)
            blank, fields = template.blank, template.write(request)
            if request.extra is not NOTHING:
                _check_unused("extra", request.extra, template.refused)
                fields |= request.extra
            call = blank.derived(
                fields=self._complete(blank, fields),
                reference=request.reference,
                timeouts=timeouts,
                deadline=deadline,
                intent=intent,
                progress=Progress(),
            )
            if not template.plain:
                call = self._adapt(call, request, template)
        except PayasyncError as error:
            error.add(operation=request.operation.name, reference=request.reference)
            raise
        return call

    def _adapt(self, call: Call, request: Request[Response], template: Template) -> Call:
        """Return a call as its service wants it, where that differs from the document."""
        for name in template.further:
            if getattr(request, name) is ABSENT:
                raise _missing_argument(name, request.operation)
        unsent = {camel_case(name): getattr(request, name) for name in template.unsent}
        call = call.expect_match({name: value for name, value in unsent.items() if value is not ABSENT})
        call = self.with_idempotency_key(call)
        if not template.in_body:
            encode(call)  # refuses what can be placed neither in the path, in the query, nor in a header
        return call

    def with_idempotency_key(self, call: Call) -> Call:
        """Return a write with the idempotency key that all its attempts carry, if the service takes one.

        A write that no number names is not repeated after the lifetime of its key. If the profile gives none, that is
        the time of the call. The deadline alone would not count while the machine is suspended.
        """
        shape, number = self._profile.idempotency, number_key(call.operation, call.reference)
        if call.read or not shape.used:
            return call
        name = number or call.intent
        merchant, operation = self._merchant_id, call.operation.name
        key = draw_idempotency_key() if name is None else derive_idempotency_key(merchant, operation, name)
        if number is None:
            total = call.timeouts.total
            seconds = total if shape.lifetime is None else min(total, shape.lifetime)
            call = call.derived(lease=Lease(boot_time(), inf, boot_time, repeat_seconds=seconds))
        return call.with_idempotency_key(key)

    def custom(self, operation: Operation, given: Mapping[str, Any], *, bearer: bool, signed: bool) -> Call:
        """Return a call to an endpoint that the document does not show, with wire names as they are given.

        Raises:
            InvalidArgumentError: A field that cannot be sent, or that only the session may set.
        """
        check_object("fields", given, operation)
        blank = self._blank(operation, bearer=bearer, signed=signed)
        _check_unused("fields", given, self._refused(blank))
        call = blank.derived(fields=self._complete(blank, strict_json.copy_plain(given)))
        if not operation.has_body:
            encode(call)
        return call

    def _complete(self, blank: Call, fields: dict[str, Any]) -> dict[str, Any]:
        """Add the fields that every such call carries to those that a caller gives."""
        for name, value in blank.fields.items():  # in place: a dict of all would double the cost
            if name not in fields:
                fields[name] = strict_json.copy_plain(value) if self._nested else value
        if self._check_texts and blank.signed:
            self._check_texts(fields)
        return fields

    def _blank(self, operation: Operation, *, bearer: bool, signed: bool) -> Call:
        """Return a call with those fields only that every call to an endpoint carries."""
        profile, name, constants = self._profile, operation.name, self._profile.constants
        merchant = name in profile.merchant or "merchant_id" in operation.in_path
        given = {wire_name(profile, name, "merchant_id"): self._merchant_id} if merchant else {}
        return Call(
            operation=operation,
            profile=profile,
            fields={**given, **constants.get("*", {}), **constants.get(name, {})},
            layout=layout_of(profile, operation),
            bearer=bearer,
            signed=signed,
            comparison=evolve(
                comparison_of(operation, profile),
                response_only=self._response_only,
                merchant=None if merchant else self._merchant_id,
            ),
        )

    def _refused(self, blank: Call) -> Refused:
        """Return the names that no caller may give a call, with why."""
        profile, operation, layout = self._profile, blank.operation.name, blank.layout
        ours = frozenset() if blank.read else self._key_name
        if (merchant := wire_name(profile, operation, "merchant_id")) in blank.fields:
            ours |= {merchant}
        if not blank.signed:
            return ((ours, _SET),)
        return (ours | {layout.nonce, layout.signature}, _SET), (self._reserved, _RESERVED)

    def _make_template(self, kind: Kind) -> Template:
        profile, name = self._profile, kind.operation.name
        key = IDENTIFIER_OF.get(name)
        if key and parameter_of(profile, name) is None:
            raise not_configured(key, IDENTIFIER)
        operation = operation_of(profile, name)
        if kind not in self._writers:
            self._writers[kind] = make_writer(kind, profile)
        bearer, signed = name in profile.bearer, name in profile.signed
        blank = self._blank(operation, bearer=bearer, signed=signed)
        names = blank.layout.names
        arguments = frozenset(each.partition(".")[0] for each in names.values())
        in_body = operation.has_body and not blank.layout.elsewhere
        keyed = profile.idempotency.used and not operation.read
        others = tuple(each.name for each in FURTHER.get(name, ()))
        unsent = [argument for each, argument in UNSENT if each == name and argument not in names]
        template = self._templates[kind] = Template(
            write=self._writers[kind],
            identifiers=tuple(each for each in IDENTIFIERS if each in fields_dict(kind)),
            blank=blank,
            in_body=in_body,
            plain=in_body and not (keyed or others or unsent),
            further=tuple(each for each in others if each in names),
            unsent=(*(each for each in others if each not in names), *unsent),
            refused=((arguments, _ARGUMENT), *self._refused(blank)),
        )
        return template


def _missing_argument(name: str, operation: Operation) -> InvalidArgumentError:
    rule = f'given, because the profile\'s endpoints."{operation.name}" names it'
    return InvalidArgumentError(f"{name} must be {rule}", field=name, rule=rule, operation=operation.name)


def layout_of(profile: "Profile", operation: Operation) -> Layout:
    """Return what a service calls the fields of an operation, and where they stand.

    Args:
        profile: The service's.
        operation: With the path and the place that the profile gives it.
    """
    names = wire_names(profile, operation.name)
    braces = {each: names.get(each) or wire_name(profile, operation.name, each) for each in operation.in_path}
    others = tuple(name for argument, name in names.items() if argument not in braces)
    return Layout(
        names=names,
        nonce=wire_name(profile, operation.name, "nonce"),
        signature=wire_name(profile, operation.name, "sign"),
        in_path=tuple(braces.items()),
        at_end=names[operation.reference or ""] if operation.place == "path" else "",
        in_headers=others if operation.place == "header" else (),
    )


def _check_unused(argument: str, given: Mapping[str, Any], refused: Refused) -> None:
    for names, why in refused:
        if clash := sorted(given.keys() & names):
            listed = ", ".join(clash)
            words, rule = f"{argument} must not hold {listed}, which {why}", f"without {listed}"
            raise InvalidArgumentError(words, field=argument, rule=rule, value=clash)


def encode(call: Call) -> Encoded:
    """Return a call as it is on the wire: a JSON body, or for a GET its query (docs/reference/service.md#overview).

    Other fields go where the profile's `endpoints` and `status` say.

    Raises:
        InvalidArgumentError: A nested value outside the body, or a value that its place cannot hold.
    """
    layout, operation = call.layout, call.operation
    if not layout.elsewhere:
        if operation.has_body:
            return Encoded(operation.path, NOTHING, NOTHING, strict_json.dumps(call.fields))
        return _encode_rest(call, operation.path, call.fields, NOTHING)
    fields, path = dict(call.fields), path_of(call)
    if layout.at_end:
        path = f"{path}/{_path_step(call, layout.at_end, fields[layout.at_end])}"
    headers = {}
    for name in layout.in_headers:
        if name in fields:
            headers[name] = text = _text_outside(call, name, fields.pop(name))
            if not is_header(name, text):
                rule = "of visible ASCII characters: it travels in a header"
                raise invalid_argument(_argument_of(call, name), rule, text, call.operation)
    for name in (layout.at_end, *(name for _, name in layout.in_path)):
        fields.pop(name, None)
    return _encode_rest(call, path, fields, headers)


def path_of(call: Call) -> str:
    """Return the path of a call below the base URL, with its arguments in the place of their braces."""
    path = call.operation.path
    for argument, name in call.layout.in_path:
        path = path.replace(f"{{{argument}}}", _path_step(call, name, call.fields.get(name)))
    return path


def _encode_rest(call: Call, path: str, fields: Mapping[str, Any], headers: Mapping[str, str]) -> Encoded:
    if call.operation.has_body:
        return Encoded(path, NOTHING, headers, strict_json.dumps(fields))
    return Encoded(path, {name: _text_outside(call, name, value) for name, value in fields.items()}, headers, b"")


def _path_step(call: Call, name: str, value: object) -> str:
    if value is None or value == "":
        raise _missing_argument(_argument_of(call, name), call.operation)
    if (text := _text_outside(call, name, value)) in {".", ".."}:
        rule = "no step between folders: it travels in the path"
        raise invalid_argument(_argument_of(call, name), rule, value, call.operation)
    return quote(text, safe="")


def _argument_of(call: Call, name: str) -> str:
    """Return the argument with a wire name, or the wire name if it is no argument."""
    return next((argument for argument, its in call.layout.names.items() if its == name), name)


def _text_outside(call: Call, name: str, value: object) -> str:
    """Return the text of a value that stands outside the body."""
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    rule = "a text or an integer"
    words = f"{name} must be {rule}: it travels outside the body"
    raise InvalidArgumentError(words, field=name, rule=rule, operation=call.operation.name)
