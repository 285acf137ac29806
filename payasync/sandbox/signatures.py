"""The sandbox's own signing code: its keys, the check of requests, and the signatures of what it sends.

The client's signing code is not used, so that each checks the other (docs/reference/service.md#authentication).
"""

import base64
import functools
import hashlib
import hmac
import importlib
import inspect
import json
import re
import secrets
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from urllib.parse import quote, unquote

from attrs import define, evolve, frozen

from payasync.credentials import Credentials, Secret
from payasync.endpoints import CREATE_REFUND, CREATE_SUBSCRIPTION, PLACE_ORDER, QUERY_PAYMENT
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.schema import Kind, SignedHeader
from payasync.profile.signed_fields import join_path
from payasync.profile.wire_names import COMPARED
from payasync.sandbox.dialect import SAMPLES, Dialect, Outgoing, set_at, table_at, write_time
from payasync.sandbox.model import MERCHANT_ID
from payasync.settings import invalid_setting
from payasync.signing.schemes import Keyed, Scheme, SortedPairs, Template

if TYPE_CHECKING:
    from payasync.signing.schemes import SignatureScheme

ASYMMETRIC: Final = frozenset({"rsa-sha256", "rsa-sha512", "ed25519"})

StoredKey: TypeAlias = Callable[[str, Callable[[], str]], str]
"""Returns the key that is stored under a name, or stores the one that is drawn."""


@frozen
class Keys:
    """The sandbox's secrets.

    Attributes:
        merchant: The merchant's credentials; their `service_keys` verify what the service signs.
        service: What the service signs with: the merchant's signing key if the profile's algorithm is symmetric, else a
            private key of its own.
        admin: The token that opens the dashboard.
    """

    merchant: Credentials
    service: Secret
    admin: Secret


def make_keys(profile: Profile, stored: StoredKey = lambda _name, draw: draw()) -> Keys:
    """Return the keys of a sandbox, of the kind that a profile's algorithm needs.

    Args:
        profile: What the service does.
        stored: Returns the keys of an earlier start; left out: all are new.

    Raises:
        ConfigurationError: The algorithm needs a package that is not installed.
    """
    algorithm = profile.scheme.algorithm if isinstance(profile.scheme, Keyed) else ""
    if algorithm in ASYMMETRIC:
        draw = functools.partial(new_private_key, algorithm)
        signing_key, service = (stored(f"{whose}_key {algorithm}", draw) for whose in ("signing", "service"))
        verifying = public_key(service)
    else:
        signing_key = service = verifying = stored("signing_key", lambda: secrets.token_urlsafe(32))
    merchant = Credentials(
        MERCHANT_ID,
        secret_key=stored("secret_key", lambda: f"sk_sandbox_{secrets.token_urlsafe(24)}"),
        public_key=stored("public_key", lambda: f"pk_sandbox_{secrets.token_urlsafe(24)}"),
        signing_key=signing_key,
        service_keys=(verifying,),
        notification_keys=(
            stored("notification_key", lambda: f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"),
        ),
    )
    return Keys(merchant, Secret(service), Secret(stored("admin_token", lambda: secrets.token_urlsafe(24))))


def new_private_key(algorithm: str) -> str:
    """Return a new private key for RSA (PKCS #1 v1.5) or Ed25519, as PEM.

    Raises:
        ConfigurationError: The `cryptography` package is not installed.
    """
    if algorithm == "ed25519":
        key = _cryptography("asymmetric.ed25519").Ed25519PrivateKey.generate()
    else:
        key = _cryptography("asymmetric.rsa").generate_private_key(public_exponent=65537, key_size=2048)
    serial = _cryptography("serialization")
    pem: bytes = key.private_bytes(serial.Encoding.PEM, serial.PrivateFormat.PKCS8, serial.NoEncryption())
    return pem.decode()


def public_key(private_pem: str) -> str:
    """Return the public key of a private one, as PEM."""
    serial, public = _cryptography("serialization"), _private_key(private_pem).public_key()
    pem: bytes = public.public_bytes(serial.Encoding.PEM, serial.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


@functools.lru_cache(maxsize=16)
def _private_key(pem: str) -> Any:
    return _cryptography("serialization").load_pem_private_key(pem.encode(), password=None)


def _padding(algorithm: str) -> tuple[Any, ...]:
    if algorithm == "ed25519":
        return ()
    digest = _cryptography("hashes").SHA256() if algorithm == "rsa-sha256" else _cryptography("hashes").SHA512()
    return _cryptography("asymmetric.padding").PKCS1v15(), digest


def _cryptography(name: str) -> Any:
    """Return a module of the `cryptography` package, which is an extra."""
    try:
        return importlib.import_module(f"cryptography.hazmat.primitives.{name}")
    except ImportError:
        pass
    why = 'the profile\'s signature.algorithm needs the cryptography package: pip install "payasync[rsa]"'
    raise ConfigurationError(why, field="signature.algorithm")


@define
class UnsignableError(Exception):
    """A field has no one form that could be signed.

    Attributes:
        field: Its wire name.
    """

    field: str


def text_to_sign(scheme: Scheme, fields: Mapping[str, Any], *, path: str, key: str = "<signing key>") -> str:
    """Return the text that a signature is made of; empty if only the scheme's owner knows.

    Args:
        scheme: The profile's.
        fields: By their wire names.
        path: The endpoint's path.
        key: The signing key, for a scheme whose text contains it.

    Raises:
        UnsignableError: A field has no one form that could be signed.
    """
    if not isinstance(scheme, SortedPairs):
        return ""
    texts = {name: _field_text(scheme, name, value) for name, value in sorted(fields.items())}
    text = scheme.separator.join(f"{name}={text}" for name, text in texts.items() if text is not None)
    if scheme.key_param:
        text += f"{scheme.separator}{scheme.key_param}={key}"
    return text + path if scheme.append_path else text


def _field_text(scheme: SortedPairs, name: str, value: object) -> str | None:
    """Return the text of a field's value; `None` if the scheme leaves the field out."""
    nested = isinstance(value, dict | list)
    if name in scheme.exclude or (nested and scheme.nested == "omit") or (value is None and scheme.skip_null):
        return None
    if isinstance(value, str):
        return None if scheme.skip_empty and not value else value
    if type(value) is int:
        return str(value)
    plain = (
        value is None
        or (scheme.booleans == "json" and isinstance(value, bool))
        or (scheme.numbers == "text" and isinstance(value, float))
        or (scheme.nested == "json" and nested)
    )
    if plain:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    raise UnsignableError(name)


def _signed_message(scheme: SortedPairs, fields: Mapping[str, Any], path: str, key: Secret) -> bytes:
    message = text_to_sign(scheme, fields, path=path, key=key.reveal()).encode()
    if scheme.prehash == "sha256-hex":
        return hashlib.sha256(message).hexdigest().encode()
    return hashlib.sha256(message).digest() if scheme.prehash else message


def _sign_message(scheme: Keyed, message: bytes, key: Secret) -> str:
    if scheme.algorithm in ASYMMETRIC:
        raw: bytes = _private_key(key.reveal()).sign(message, *_padding(scheme.algorithm))
    elif scheme.algorithm == "md5":
        raw = hashlib.md5(message, usedforsecurity=False).digest()
    else:
        raw = hmac.digest(key.reveal().encode(), message, scheme.algorithm.removeprefix("hmac-"))
    if scheme.encoding.startswith("base64"):
        text = base64.b64encode(raw).decode()
        return quote(text, safe="") if scheme.encoding == "base64-percent" else text
    return raw.hex().upper() if scheme.encoding == "HEX" else raw.hex()


def verify(scheme: Scheme, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
    """Return whether a signature is that of a request's fields.

    Args:
        scheme: The profile's, with no point open. One that is not `SortedPairs` verifies itself.
        fields: By their wire names.
        signature: As it was received.
        path: The endpoint's path, without the base URL's.
        key: The merchant's signing key: the shared secret, or the private key.

    Raises:
        UnsignableError: A field has no one form that could be signed.
    """
    if not isinstance(scheme, SortedPairs):
        try:
            return cast("SignatureScheme", scheme).verify(fields, signature, path=path, key=key)
        except Exception:  # noqa: BLE001 - whatever a scheme of somebody else raises, it has not verified
            return False
    return verify_message(scheme, _signed_message(scheme, fields, path, key), signature, key)


def verify_message(scheme: Keyed, message: bytes, signature: str, key: Secret) -> bool:
    """Return whether a signature is that of a text.

    Args:
        scheme: The profile's, with no point open.
        message: The text.
        signature: As it was received.
        key: The merchant's signing key: the shared secret, or the private key.
    """
    if scheme.algorithm not in ASYMMETRIC:
        return hmac.compare_digest(_sign_message(scheme, message, key).encode(), signature.encode())
    try:
        if scheme.encoding == "base64-percent":
            signature = unquote(signature)
        in_hex = scheme.encoding in {"hex", "HEX"}
        raw = bytes.fromhex(signature) if in_hex else base64.b64decode(signature, validate=True)
        _private_key(key.reveal()).public_key().verify(raw, message, *_padding(scheme.algorithm))
    except (ValueError, importlib.import_module("cryptography.exceptions").InvalidSignature):
        return False
    return True


_BRACES: Final = re.compile(r"\{(\w+)\}")


def read_headers(scheme: Template, headers: Mapping[str, str]) -> dict[str, str]:
    """Return what the headers of a signed request say: the signature, and the nonce, time and number if they are there.

    Args:
        scheme: The profile's.
        headers: The request's, found by names in any case.

    Raises:
        UnsignableError: A header is missing, there twice, or of another form; the error names it.
    """
    found: dict[str, str] = {}
    for name, form in scheme.all_headers.items():
        pattern = ""
        for number, part in enumerate(_BRACES.split(form)):
            again = f"(?P<{part}>" in pattern
            pattern += (f"(?P={part})" if again else f"(?P<{part}>.+?)") if number % 2 else re.escape(part)
        given = [value for each, value in headers.items() if each.lower() == name.lower()]
        match = re.fullmatch(pattern, given[0]) if len(given) == 1 else None
        if match is None or any(found.setdefault(each, text) != text for each, text in match.groupdict().items()):
            raise UnsignableError(name)
    return found


def fill_text(template: str, values: Mapping[str, str]) -> str:
    """Return the text of a request or of a response that is signed."""
    return _BRACES.sub(lambda found: values[found[1]], template)


class ServiceSigner:
    """Signs responses and notifications as the service does, where the profile says so.

    The object that holds the signature is signed.

    Args:
        dialect: The profile's.
        keys: The sandbox's.
        now: Wall time, which verifiers compare with theirs.

    Raises:
        ConfigurationError: The profile's scheme cannot sign what the sandbox sends.
    """

    def __init__(self, dialect: Dialect, keys: Keys, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now: Final = now
        self._names: Final = dialect.names
        self._scheme: Final = dialect.names.signature
        self._answer: Final = dialect.names.answer
        self._notification: Final = dialect.names.notification
        self._keys: Final = keys
        for operation in (PLACE_ORDER, QUERY_PAYMENT, CREATE_REFUND, CREATE_SUBSCRIPTION):
            if self._answer.signature:
                carried = {dialect.names.name(operation.name, name): "" for name in COMPARED}
                payload = dialect.describe_sample(operation.name.partition("s.")[0], "-")
                document = dialect.build_success(operation, payload, carried, "-").document
                self._check("answer.signature", self._answer.signature, document)
        if self._notification.verification == "body":
            for body in filter(None, (dialect.build_notification(event, now()) for event in SAMPLES)):
                self._check("notification.signature", self._notification.signature, json.loads(body))

    def _check(self, point: str, path: str, document: Mapping[str, Any]) -> None:
        above, scheme = path.rpartition(".")[0], self._scheme
        if not isinstance(scheme, SortedPairs):
            return
        for name, value in self._names.profile.sandbox.constants.items():
            signed = isinstance(value, str) and name not in {*scheme.exclude, *scheme.allow_delimiters}
            if signed and any(each in value for each in ("=", scheme.separator)):  # no client would believe it
                why = f"is signed, and holds '=' or {scheme.separator!r}: list {name} in signature.allow_delimiters"
                raise invalid_setting(f"sandbox.constants.{name}", why)
        try:
            text_to_sign(scheme, table_at(dict(document), above), path="")
        except UnsignableError as error:
            constants = dict.fromkeys(self._names.profile.sandbox.constants, "sandbox.constants")
            if table := {**dict.fromkeys(self._answer.must, "answer.must"), **constants}.get(error.field):
                why = "stands in what the service signs, and signature.nested, booleans or numbers refuses its value"
                raise invalid_setting(f"{table}.{error.field}", why) from None
            both = f"{point}: the object that holds {path} holds the object {join_path(above, error.field)}, too"
            why = f"{both}, and signature.nested refuses to sign an object inside it"
            advice = "Set nested to json or omit, or move one of the two"
            raise ConfigurationError(f"{why}. {advice}", field="signature.nested") from None

    async def sign_answer(self, outgoing: Outgoing, path: str, request: Mapping[str, str] | None = None) -> Outgoing:
        """Return a response with its signature, if the profile says that responses have one.

        A refusal has one only if the profile says that refusals are signed, too.

        Args:
            outgoing: The response.
            path: The endpoint's path.
            request: The method and the path of the request, which the text of a response may hold.
        """
        if not self._answer.signed or (outgoing.refused and not self._answer.refusals_signed):
            return outgoing
        if self._answer.header:
            sent = str(int(self._now().timestamp()))
            signed_by = self._sign_bytes(self._answer.header, outgoing.body, sent, request)
            return evolve(outgoing, headers={**outgoing.headers, **signed_by})
        document = deepcopy(dict(outgoing.document))
        above = self._answer.signature.rpartition(".")[0]
        holder, _, message = self._names.message_path.rpartition(".")
        signed = table_at(document, above)
        if holder == above and message in signed and isinstance(self._scheme, SortedPairs):
            # A separator in the message would split the signed text: the client would not believe it.
            signed[message] = str(signed[message]).replace("=", " ").replace(self._scheme.separator, " ")
        await self._sign(document, self._answer.signature, path)
        return evolve(outgoing, document=document)

    def text_of_answer(self, outgoing: Outgoing, path: str, request: Mapping[str, str]) -> str:
        """Return the text that the signature of a response covers; empty if only the scheme's owner knows.

        Args:
            outgoing: The response, with its signature.
            path: The endpoint's path.
            request: The method and the path of the request.
        """
        if places := self._answer.header:
            said = {name: value_at(outgoing.headers, getattr(places, name)) for name in ("timestamp", "nonce")}
            said["merchant_id"] = self._keys.merchant.merchant_id
            return fill_text(places.text, {**request, **said, "body": outgoing.body})
        above, _, name = self._answer.signature.rpartition(".")
        signed = {each: value for each, value in table_at(dict(outgoing.document), above).items() if each != name}
        return text_to_sign(self._scheme, signed, path=path)

    @property
    def timed(self) -> bool:
        """Whether notifications carry a time, in headers or in their body."""
        shape = self._notification
        in_header = shape.verification in {"header", "standard-webhooks"} and shape.headers.timestamp
        return bool(in_header or shape.time)

    async def sign_notification(
        self, notification_id: str, body: str, age: int = 0, event: str = ""
    ) -> tuple[str, dict[str, str]]:
        """Return a notification's body and headers as one attempt sends them: signed, with volatile fields renewed.

        Args:
            notification_id: Its number.
            body: JSON, as the outbox has it.
            age: Seconds by which its time lies back, if a fault wants that.
            event: Its kind and name, such as `payment.paid`, for a service that says it in a header.
        """
        shape, at = self._notification, self._now() - timedelta(seconds=age)
        headers, (kind, _, name) = {"Content-Type": "application/json"}, event.partition(".")
        if shape.kind_header and event:
            headers[shape.kind_header] = self._names.event(cast("Kind", kind), name) or name
        if shape.verification == "standard-webhooks":
            key = self._keys.merchant.notification_keys[0]
            return body, headers | sign_headers(notification_id, body, key, int(at.timestamp()), shape.headers)
        document = json.loads(body)
        if age or (shape.verification != "none" and not (shape.header and shape.header.timestamp)):
            set_at(document, shape.time, write_time(at, shape))
        if shape.verification == "body":
            # There is no endpoint: nothing stands for the path.
            await self._sign(document, shape.signature, "")
        sent = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        if shape.verification == "header":
            headers |= self._sign_bytes(shape.headers, sent, str(int(at.timestamp())))
        return sent, headers

    def _sign_bytes(
        self, places: SignedHeader, body: str, timestamp: str, request: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the headers that sign a body."""
        nonce, lines = secrets.token_hex(16), dict[str, str]()
        said = {"timestamp": timestamp, "nonce": nonce, "merchant_id": self._keys.merchant.merchant_id}
        message = fill_text(places.text, {**(request or {}), **said, "body": body}).encode()
        signature = places.prefix + _sign_message(cast("Keyed", self._scheme), message, self._keys.service)
        for place, value in ((places.timestamp, timestamp), (places.nonce, nonce), (places.signature, signature)):
            name, _, inner = place.partition(":")
            lines[name] = f"{lines[name]}, " if name in lines else ""
            lines[name] += f"{inner}={value}" if inner else value
        return {name: line for name, line in lines.items() if name}

    async def _sign(self, document: dict[str, Any], at: str, path: str) -> None:
        above, _, name = at.rpartition(".")
        signed = table_at(document, above)
        signed[self._names.name(PLACE_ORDER.name, "nonce")] = secrets.token_hex(16)
        signed.pop(name, None)
        scheme, key = self._scheme, self._keys.service
        if isinstance(scheme, SortedPairs):
            signed[name] = _sign_message(scheme, _signed_message(scheme, signed, path, key), key)
        else:
            made = cast("SignatureScheme", scheme).sign(signed, path=path, key=key)
            signed[name] = await made if inspect.isawaitable(made) else made


def value_at(headers: Mapping[str, str], place: str) -> str:
    """Return the value at a place in headers, such as `X-Signature` or `X-Signature:v1`; empty if there is none."""
    name, _, inner = place.partition(":")
    line = headers.get(name, "")
    pairs = (pair.strip().partition("=") for pair in line.split(","))
    return next((value for key, _, value in pairs if key == inner), "") if inner else line


def sign_headers(
    notification_id: str, body: str, secret: Secret, timestamp: int, names: SignedHeader
) -> dict[str, str]:
    """Return a notification's headers by Standard Webhooks.

    Args:
        notification_id: Its number.
        body: As it is sent.
        secret: `whsec_` and the key in base64.
        timestamp: Seconds of wall time.
        names: The names of the headers.
    """
    key = base64.b64decode(secret.reveal().removeprefix("whsec_"))
    text = f"{notification_id}.{timestamp}.{body}"
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return {names.nonce: notification_id, names.timestamp: str(timestamp), names.signature: f"v1,{signature}"}
