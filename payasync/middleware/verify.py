"""The check of signed responses, before anything believes them."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, cast

from attrs import evolve

from payasync.clocks import wall_time
from payasync.credentials import Credentials, Secret
from payasync.errors import InvalidArgumentError, clean
from payasync.evidence.comparison import names_the_same
from payasync.profile.schema import AnswerShape, SignedHeader
from payasync.profile.signed_fields import join_path, names_read
from payasync.settings import invalid_setting, not_configured
from payasync.signing.schemes import IDENTIFIERS, Keyed, Scheme, SignatureScheme, SortedPairs
from payasync.signing.templates import parse_time, values_at
from payasync.strict_json import ABSENT, ExactNumber, at, loads, loads_exact, loads_leniently
from payasync.wire.call import Call, Layer, Reply, Send
from payasync.wire.encode import encode, path_of


def verify_reply(
    call: Call,
    reply: Reply,
    scheme: SignatureScheme,
    keys: Iterable[Secret],
    now: Callable[[], float] = wall_time,
    *,
    base_path: str = "",
    merchant_id: str = "",
) -> Reply:
    """Return a reply that says whether one of the keys verifies it, and which field the scheme refuses.

    Args:
        call: The call, whose profile says where the signature stands.
        reply: The reply, not yet verified.
        scheme: The profile's signature scheme.
        keys: The service's keys; several while they rotate.
        now: Returns Unix seconds.
        base_path: The path of the base URL, before that of each call.
        merchant_id: The merchant's number.
    """
    answer = call.profile.answer
    if answer.header:
        known = {"merchant_id": merchant_id}
        if answer.header.names_request:
            known |= {"method": call.operation.method, "path": base_path + encode(call).path}
        return _verify_header(answer, reply, cast("Keyed", scheme), keys, now, known=known)
    place, _, name = answer.signature.rpartition(".")
    signed = at(reply.document, place)
    if not isinstance(signed, dict) or name not in signed:
        return evolve(reply, verified=None, doubt="")  # even if a user's layer has set it
    # Parsed again, strictly: duplicate names are refused, and numbers keep their text.
    signed = at(loads_exact(reply.body, number=number_type(scheme)), place)
    if not isinstance(signed, dict):
        return evolve(reply, verified=False)
    if isinstance(scheme, SortedPairs):
        scheme = _allow_redirect_address(scheme, call.profile.answer.redirect_url.rpartition(".")[2])
    verified = isinstance(signed[name], str) and is_signed_by_any(scheme, signed, name, path=path_of(call), keys=keys)
    if not verified:
        return evolve(reply, verified=False, doubt=refused_field(scheme, signed, place, name))

    def names() -> frozenset[str]:
        paths = call.comparison.paths
        return names_read(call.profile, paths, reply.document)

    doubt = hidden_field(scheme, signed, place, name, names, is_expected=partial(names_the_same, call))
    return evolve(reply, verified=not doubt, doubt=doubt)


def _verify_header(
    shape: AnswerShape,
    reply: Reply,
    scheme: Keyed,
    keys: Iterable[Secret],
    now: Callable[[], float],
    *,
    known: Mapping[str, str],
) -> Reply:
    """Return a reply that says whether one of the keys verifies a signature in its headers, over its exact bytes."""
    header, tolerance = cast("SignedHeader", shape.header), shape.tolerance
    if not values_at(reply.headers, header.signature):
        return evolve(reply, verified=None, doubt="")
    try:
        timestamp, text = header.read(reply.headers, reply.body, known)
    except ValueError as error:
        return evolve(reply, verified=False, doubt=f"the header {error}, and it is signed")
    pairs = ((key, each) for key in keys for each in header.signatures(reply.headers))
    genuine = any(_is_true(partial(scheme.verify_text, text, each, key=key)) for key, each in pairs)
    # Names that stand twice are refused, as in all signed documents.
    if not genuine or (reply.document is not ABSENT and loads_exact(reply.body) is ABSENT):
        return evolve(reply, verified=False, doubt="")
    sent = parse_time(timestamp) if header.timestamp else now()
    if sent is None or not abs(now() - sent) <= tolerance:
        doubt = f"{header.timestamp} is not within answer.tolerance ({tolerance} seconds) of this machine's clock"
        return evolve(reply, verified=False, doubt=doubt)
    return evolve(reply, verified=True, doubt="")


def hidden_field(
    scheme: SignatureScheme,
    signed: Mapping[str, Any],
    place: str,
    name: str,
    names: Callable[[], Iterable[str]],
    *,
    is_expected: Callable[[str, str], bool] = lambda _name, _value: False,
) -> str:
    """Return a description of a text that may hide a field that payasync reads, or an empty text.

    Args:
        scheme: The profile's signature scheme.
        signed: The signed object.
        place: The path of the object in the document.
        name: The name of the field that holds the signature.
        names: Returns the fields that payasync reads.
        is_expected: Returns whether a name and its value are believed at any place, so that they hide nothing.
    """
    if not isinstance(scheme, SortedPairs):
        return ""
    fields = {each: value for each, value in signed.items() if each != name}
    for field, other, value in scheme.hidden_fields(fields, names):
        if not is_expected(other, value):
            return (
                f"{clean(join_path(place, field))} holds {scheme.separator}{other}=: the same text is signed if "
                f"{other} stands beside it, so anybody could have hidden {other} there"
            )
    field = _written_object(fields, names) if scheme.nested == "json" else ""
    return field and (
        f"{join_path(place, field)} is a text that holds JSON: the same text is signed if the JSON itself stands "
        "there, so anybody could have hidden it"
    )


def _written_object(fields: Mapping[str, Any], names: Callable[[], Iterable[str]]) -> str:
    """Return a field that payasync reads and whose text may have been an object or a list, or an empty text."""
    texts = {name: value for name, value in fields.items() if isinstance(value, str) and value.startswith(("{", "["))}
    read = sorted(texts.keys() & set(names())) if texts else []
    return next((name for name in read if loads(texts[name].encode()) is not ABSENT), "")


def refused_field(scheme: SignatureScheme, signed: Mapping[str, Any], place: str, name: str) -> str:
    """Return a description of the field that the scheme refuses, with the key to set, or an empty text.

    Args:
        scheme: The profile's signature scheme.
        signed: The signed object.
        place: The path of the object in the document.
        name: The name of the field that holds the signature.
    """
    if not isinstance(scheme, SortedPairs):
        return ""
    try:
        scheme.text({each: value for each, value in signed.items() if each != name}, path="")
    except InvalidArgumentError as error:
        field = str(error.field)
    else:
        return ""
    return f"{clean(join_path(place, field))} holds {_describe_refused(scheme, signed.get(field))}"


def _describe_refused(scheme: SortedPairs, value: object) -> str:
    """Describe a refused value without showing it, and the setting that would allow it."""
    if isinstance(value, bool):
        kind, setting = "true or false", 'signature.booleans = "json"'
    elif isinstance(value, float):
        kind, setting = "a number with a fraction", 'signature.numbers = "text"'
    elif isinstance(value, dict | list):
        kind = "an object or a list"
        setting = 'signature.nested = "json" or "omit"' if scheme.nested == "refuse" else 'signature.numbers = "text"'
    else:
        kind, setting = "a delimiter", "its name in signature.allow_delimiters"
    return f"{kind}, which the profile's signature refuses: if the service signs that, set {setting}"


def number_type(scheme: Scheme | None) -> type[float]:
    """Return the type to read numbers with: `ExactNumber`, which keeps the text, if the text is signed."""
    return ExactNumber if isinstance(scheme, SortedPairs) and scheme.numbers == "text" else float


def read_as_signed(body: bytes, document: Any, scheme: Scheme | None) -> Any:
    """Return a document as it was signed: its numbers keep their text if the scheme signs it.

    Args:
        body: The bytes of the document.
        document: The document as it was parsed.
        scheme: The profile's signature scheme.
    """
    number = number_type(scheme)
    return document if number is float or document is ABSENT else loads_leniently(body, number)


def is_signed_by_any(
    scheme: SignatureScheme, signed: Mapping[str, Any], name: str, *, path: str, keys: Iterable[Secret]
) -> bool:
    """Return whether one of the keys verifies the signature inside an object over its other fields.

    Args:
        scheme: The profile's signature scheme, for responses and notifications alike.
        signed: The signed object.
        name: The name of the field that holds the signature, a text.
        path: The endpoint's path; empty for a notification.
        keys: The service's keys; several while they rotate.
    """
    fields = {each: value for each, value in signed.items() if each != name}
    return any(_is_true(partial(scheme.verify, fields, signed[name], path=path, key=key)) for key in keys)


def service_keys(credentials: Credentials, scheme: Scheme, *, signed: str, point: str) -> tuple[Secret, ...]:
    """Return the service's keys, or the merchant's signing key if the scheme is symmetric.

    Args:
        credentials: The merchant's credentials.
        scheme: The profile's signature scheme.
        signed: The kind of document that the service signs, in words, for the error.
        point: The key of the profile that says that it is signed.

    Raises:
        ConfigurationError: There is no such key.
    """
    if credentials.service_keys:
        return credentials.service_keys
    if credentials.signing_key is not None and getattr(scheme, "symmetric", False):
        return (credentials.signing_key,)
    raise invalid_setting(
        "credentials.service_keys",
        f"is empty (PAYASYNC_SERVICE_KEYS in the environment): the profile says that {signed} are signed ({point}), "
        "and they are verified with it",
    )


@lru_cache(maxsize=64)
def _allow_redirect_address(scheme: SortedPairs, address: str) -> SortedPairs:
    """Return a scheme that also allows delimiters in the redirect address, a field that no request has."""
    if not address or address in IDENTIFIERS:
        return scheme
    return evolve(scheme, allow_delimiters=(*scheme.allow_delimiters, address))


def _is_true(verified: Callable[[], bool]) -> bool:
    try:
        return verified() is True
    except Exception:  # noqa: BLE001 - a merchant's own scheme may raise anything, and then it has not verified
        return False


def verify(credentials: Credentials, now: Callable[[], float] = wall_time, base_path: str = "") -> Layer:
    """Return the layer that records on each reply whether the service signed it.

    Args:
        credentials: Those of the merchant, with the service's keys.
        now: Returns Unix seconds.
        base_path: The path of the base URL, before that of each call.
    """

    async def layer(call: Call, send: Send) -> Reply:
        scheme = call.profile.scheme
        if scheme is None:
            raise not_configured("signature", "the scheme that the service signs its responses with")
        point = "answer.header" if call.profile.answer.header else "answer.signature"
        keys = service_keys(credentials, scheme, signed="responses", point=point)
        reply, about = await send(call), {"base_path": base_path, "merchant_id": credentials.merchant_id}
        return verify_reply(call, reply, cast("SignatureScheme", scheme), keys, now, **about)

    return layer
