"""Signed notifications for your tests, as the service would send them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from inspect import iscoroutinefunction
from secrets import token_hex
from typing import Any, cast

from attrs import field, frozen

from payasync.credentials import Credentials, Hidden, Key, Secret, to_secrets
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.middleware.verify import read_as_signed, service_keys
from payasync.notifications.verification import A_WORD, check_secrets, is_word, sign_webhook
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS
from payasync.settings import invalid_setting, is_number, not_configured
from payasync.signing.schemes import Keyed, Scheme
from payasync.signing.templates import MILLISECONDS_FROM, fill
from payasync.strict_json import ABSENT, at, copy_plain, find_flaw
from payasync.wire.validators import invalid_argument

__all__ = ["Signed", "sign_notification"]


@frozen
class Signed:
    """A notification that a test can post to a receiver.

    Attributes:
        raw: The body.
        headers: The headers, by name.
    """

    raw: bytes
    headers: Mapping[str, str] = field(hash=False)


def sign_notification(
    data: Mapping[str, Any],
    *,
    profile: Profile,
    credentials: Credentials,
    kind: str | None = None,
    event: str | None = None,
    id: str | None = None,  # noqa: A002 - as Standard Webhooks has it
    time: datetime | float | None = None,
    key: Key = None,
) -> Signed:
    """Return a notification as the service would send it: in its envelope, and signed.

    Args:
        data: The payload, by wire names. Its integers must fit into 64 bits, although a receiver reads longer ones.
            Its texts must be valid Unicode, although a receiver reads half a surrogate pair as U+FFFD.
        profile: The profile of the service.
        credentials: The credentials of your receiver. The first of several keys signs.
        kind: `payment`, `refund` or `subscription`; selects the name of the event, if the body has one.
        event: The service's name of the event. Default: the first one in the profile for `kind`.
        id: The header `webhook-id` of Standard Webhooks, or that of `notification.header.nonce`. Default: random.
        time: The time of sending: an aware datetime, or seconds since 1970. Default: the time in `data`, or now.
        key: The key that signs, such as the service's private key. Default: a key of `credentials`.

    Raises:
        InvalidArgumentError: An argument is invalid, or the payload cannot be signed.
        NotConfiguredError: The profile does not say how notifications are signed, or where the event's name is.
        ConfigurationError: There is no key to sign with.
    """
    hidden = Hidden(key)
    del key  # a traceback may show local variables
    secret: Secret | None = to_secrets("key", hidden)
    shape, sent = profile.notification, _to_seconds(time)
    if not shape.verification:
        how = "how they are signed: body, header, standard-webhooks, or none"
        raise not_configured("notification.verification", how)
    wrong = find_flaw(data) if isinstance(data, Mapping) else "anything else"
    if wrong:
        raise invalid_argument("data", f"a mapping of names to JSON values, without {wrong}", data)
    document: dict[str, Any] = {}
    _object_at(document, shape.data).update(copy_plain(data))
    headers = {"Content-Type": "application/json"}
    if (name := _event_name(profile, kind, event)) and shape.kind_header:
        headers[shape.kind_header] = name
    elif name:
        _set(document, shape.kind, name)
    if shape.time and (time is not None or at(document, shape.time) is ABSENT):
        _set(document, shape.time, _write_time(sent, shape.zone))
    if shape.verification == "body":
        _sign(document, profile, credentials, secret)
    raw = _write_body(document)
    if shape.verification in {"header", "standard-webhooks"}:
        headers |= _sign_in_headers(raw, profile, credentials, secret, number=id, sent=int(sent))
    return Signed(raw, headers)


def _sign_in_headers(
    raw: bytes, profile: Profile, credentials: Credentials, secret: Secret | None, *, number: str | None, sent: int
) -> dict[str, str]:
    """Return the headers that sign a body. Without a number of the notification, a random one is signed."""
    number = f"msg_{token_hex(12)}" if number is None else number
    if not is_word(number):
        raise invalid_argument("id", A_WORD, number)
    names = profile.notification.headers
    values = {names.timestamp: str(sent), names.nonce: number}
    if profile.notification.verification == "standard-webhooks":
        keys = credentials.notification_keys if secret is None else (secret,)
        check_secrets(keys)
        return {**values, names.signature: sign_webhook(raw, number=number, sent=sent, key=keys[0])}
    scheme = _scheme_of(profile)
    said = {"timestamp": str(sent), "nonce": number, "merchant_id": credentials.merchant_id}
    text = fill(names.text, {**said, "body": raw})
    signature = cast("Keyed", scheme).text_signer(_signing_key(scheme, credentials, secret))(text)
    return _write_headers({**values, names.signature: names.prefix + signature})


def _write_headers(values: Mapping[str, str]) -> dict[str, str]:
    """Return headers that have values at their places; no place, no value."""
    headers: dict[str, str] = {}
    for place, value in values.items():
        name, _, inner = place.partition(":")
        pair = f"{inner}={value}" if inner else value
        headers[name] = f"{headers[name]},{pair}" if name in headers else pair
    headers.pop("", None)
    return headers


def _write_time(sent: float, zone: tzinfo | None) -> str:
    """Return a time in ISO 8601; without an offset if that is how the service writes it."""
    moment = datetime.fromtimestamp(sent, zone or UTC)
    # A repeated time without an offset would be the first of the two.
    written = moment.replace(tzinfo=None) if zone is not None and not moment.fold else moment
    return written.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_body(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _to_seconds(time: datetime | float | None) -> float:
    moment = datetime.now(UTC) if time is None else time
    if isinstance(moment, datetime) and moment.utcoffset() is not None:
        return moment.timestamp()
    if not is_number(moment) or not 0 <= moment < MILLISECONDS_FROM:
        raise invalid_argument("time", "an aware datetime, or seconds since 1970", time)
    return moment


def _event_name(profile: Profile, kind: str | None, event: str | None) -> str | None:
    """Return the name of the event, or `None` if the body has none."""
    shape = profile.notification
    if kind is not None and kind not in KINDS:
        raise invalid_argument("kind", f"one of {', '.join(KINDS)}", kind)
    if event is not None and not shape.kind:
        raise not_configured("notification.kind", "the path at which an event's name stands")
    if event is not None or kind is None or not shape.kind:
        return event
    if not shape.kinds.get(kind):
        raise not_configured(f"notification.kinds.{kind}", f"the service's names of events about a {kind}")
    return shape.kinds[kind][0]


def _set(document: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path; missing objects on the way are made."""
    above, _, name = path.rpartition(".")
    _object_at(document, above)[name] = value


def _object_at(document: dict[str, Any], path: str) -> dict[str, Any]:
    inner = document
    for step in path.split(".") if path else ():
        inner = inner.setdefault(step, {})
        if not isinstance(inner, dict):
            rule = "an object at each step of the profile's paths"
            why = f"data must have an object at {step!r} of {path!r}, because the profile puts values below it"
            raise InvalidArgumentError(why, field="data", rule=rule)
    return inner


def _scheme_of(profile: Profile) -> Scheme:
    if profile.scheme is None:
        raise not_configured("signature", "the scheme that the service signs notifications with")
    return profile.scheme


def _signing_key(scheme: Scheme, credentials: Credentials, key: Secret | None) -> Secret:
    if key is None and isinstance(scheme, Keyed) and not scheme.symmetric:
        why = f"with {scheme.algorithm} only the service's private key signs, and credentials hold the public one"
        advice = "For tests, make a pair of your own, and give the private key as key=..."
        raise invalid_setting("key", f"is missing: {why}. {advice}")
    return key or service_keys(credentials, scheme, signed="notifications", point="notification.verification")[0]


def _sign(document: dict[str, Any], profile: Profile, credentials: Credentials, key: Secret | None) -> None:
    """Sign the object that the signature stands in."""
    path = profile.notification.signature
    if not path:
        raise not_configured("notification.signature", "the path of the signature, where it stands in the body")
    scheme = _scheme_of(profile)
    above, _, name = path.rpartition(".")
    signed = _object_at(document, above)
    written = at(read_as_signed(_write_body(document), document, scheme), above)
    fields = {each: value for each, value in written.items() if each != name}
    key = _signing_key(scheme, credentials, key)
    sign = cast("Any", scheme).sign  # a profile that signs bodies has one
    made = None if iscoroutinefunction(sign) else sign(fields, path="", key=key)
    if not isinstance(made, str):
        why = "signature.sign must be a plain function that returns a text: nobody awaits it here"
        raise ConfigurationError(why, field="signature")
    signed[name] = made
