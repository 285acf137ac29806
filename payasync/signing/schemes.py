"""Signature schemes: the text that is signed, and the signature (docs/reference/service.md#authentication).

The document does not show the algorithm. `SortedPairs` signs fields, and `Template` a text of the request. For anything
else, give an object with the methods of `SignatureScheme`, or the method of `RequestScheme`.
"""

import base64
import binascii
import hashlib
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args
from urllib.parse import quote, unquote

import orjson
from attrs import field, frozen

from payasync.credentials import Secret
from payasync.errors import InvalidArgumentError, NotConfiguredError
from payasync.settings import check_types, invalid_setting, is_header, must_be, to_dict, to_tuple
from payasync.signing.algorithms import MIN_RSA_BITS, Algorithm, AlgorithmName, algorithm_of, decode_base64
from payasync.signing.templates import check_template, fill, names_in, write_time
from payasync.strict_json import ExactNumber, LongInteger, encodable, with_digits

Encoding = Literal["hex", "HEX", "base64", "base64-percent"]
Nested = Literal["refuse", "json", "omit"]

Signer: TypeAlias = Callable[[Mapping[str, Any], str], str]
"""Returns the signature of wire fields for a path."""

IDENTIFIERS: Final = frozenset({"merchantId", "outTradeNo", "outRefundNo", "nonceStr"})
"""Wire names that `allow_delimiters` cannot hold: a delimiter in an identifier could pass for another field."""

_LAST_NAME: Final = chr(sys.maxunicode)
"""A name behind all names."""

_INTEGER_BITS: Final = 2048
"""Bits of an integer that Python always writes; a `LongInteger` has its text."""

_IN_INTEGERS: Final = frozenset("-0123456789")
"""The characters of an integer's text."""

_CHANGE: Final = "change the profile's signature"
_ALLOW: Final = "name it in the profile's signature.allow_delimiters if it holds free text or a URL"

_UNICODE: Final = "valid Unicode: a lone surrogate cannot be signed"

FREE_TEXT: Final = ("subject", "body", "description", "refundDesc", "notifyUrl", "returnUrl")


class SignatureScheme(Protocol):
    """The methods of a profile's `signature`; `sign` may be a coroutine function."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str | Awaitable[str]:
        """Return the signature of the wire fields of one request."""
        ...

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Return whether the signature is that of the fields."""
        ...


@frozen(kw_only=True)
class UnsignedRequest:
    """One attempt as it is sent, but for its signature: what `sign_request` sees.

    Attributes:
        method: The HTTP method.
        url: The whole address, with the query.
        path: The path in the address, with that of the base URL, percent-encoded.
        query: The query in the address, percent-encoded and without the question mark.
        headers: Those of the profile and of the call. Keys are never among them.
        body: The exact bytes.
        timestamp: Unix seconds at which this attempt is signed.
        nonce: 32 hexadecimal digits, drawn for this attempt.
        merchant_id: The merchant's number.
    """

    method: str
    url: str = field(repr=False)
    path: str = field(repr=False)
    query: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    timestamp: int
    nonce: str
    merchant_id: str


class RequestScheme(Protocol):
    """The method of a profile's `signature` that signs whole requests; it may be a coroutine function."""

    def sign_request(
        self, request: UnsignedRequest, *, key: Secret
    ) -> Mapping[str, str] | Awaitable[Mapping[str, str]]:
        """Return the headers that the signature adds to a request."""
        ...


Scheme: TypeAlias = SignatureScheme | RequestScheme
"""What a profile's `signature` may be."""


@frozen(kw_only=True)
class Keyed:
    """What signs with a key by an algorithm: the part that the families of signatures have in common.

    Args:
        algorithm: md5, hmac-md5, hmac-sha256, hmac-sha512, rsa-sha256, rsa-sha512 or ed25519.
        encoding: The form of the signature: hex, HEX, base64, or base64-percent (base64, percent-encoded).
        min_rsa_bits: The fewest bits of an RSA key. Fewer than 2048 only where a service has nothing better.
        service_key: The key that verifies is `shared` by all merchants, or this `merchant`'s alone.
            Empty: shared if the algorithm is asymmetric.
    """

    algorithm: AlgorithmName | Literal[""] = ""
    encoding: Encoding | Literal[""] = ""
    min_rsa_bits: int = field(
        default=MIN_RSA_BITS,
        validator=must_be("an integer from 1024 to 16384", lambda bits: bits in range(1024, 16_385)),
    )
    service_key: Literal["", "shared", "merchant"] = ""

    @property
    def symmetric(self) -> bool:
        """Whether the key that signs also verifies."""
        return self.chosen_algorithm().symmetric

    @property
    def blocking(self) -> bool:
        """Whether signing takes so long that it belongs off the event loop."""
        return self.chosen_algorithm().blocking

    def text_signer(self, key: Secret) -> Callable[[bytes], str]:
        """Return a function that returns the signature of a text, whatever the text is made of.

        Raises:
            ConfigurationError: The algorithm cannot use the key, or uses none.
            NotConfiguredError: The algorithm or the encoding is open.
        """
        sign, (encode, _) = self._text_algorithm().signer(key), self._encoding()
        return lambda text: encode(sign(text))

    def verify_text(self, text: bytes, signature: str, *, key: Secret) -> bool:
        """Return whether a signature, as it was received, is that of a text.

        Raises:
            ConfigurationError: The algorithm cannot use the key, or uses none.
            NotConfiguredError: The algorithm or the encoding is open.
        """
        algorithm, (_, decode) = self._text_algorithm(), self._encoding()
        try:
            raw = decode(signature)
        except (ValueError, TypeError):
            return False
        return algorithm.verify(text, raw, key)

    def _text_algorithm(self) -> Algorithm:
        if self.algorithm == "md5":
            _refuse("algorithm", 'must not be "md5": it uses no key, so anybody could sign a text')
        return self.chosen_algorithm()

    def chosen_algorithm(self) -> Algorithm:
        """Return the algorithm, with the rule for its keys.

        Raises:
            NotConfiguredError: It is open.
        """
        if not self.algorithm:
            raise _open("algorithm", get_args(AlgorithmName))
        return algorithm_of(self.algorithm, self.min_rsa_bits)

    def _encoding(self) -> tuple[Callable[[bytes], str], Callable[[str], bytes]]:
        if not self.encoding:
            raise _open("encoding", get_args(Encoding))
        return _ENCODINGS[self.encoding]


@frozen(kw_only=True, field_transformer=check_types("signature"))
class SortedPairs(Keyed):
    """Signs `name=value` pairs, joined in the ASCII order of their names.

    Args:
        algorithm: md5, hmac-md5, hmac-sha256, hmac-sha512, rsa-sha256, rsa-sha512 or ed25519.
        encoding: The form of the signature: hex, HEX, base64, or base64-percent (base64, percent-encoded).
        min_rsa_bits: The fewest bits of an RSA key. Fewer than 2048 only where a service has nothing better.
        service_key: The key that verifies is `shared` by all merchants, or this `merchant`'s alone.
            Empty: shared if the algorithm is asymmetric.
        separator: The text between the pairs; not empty.
        exclude: Fields that are not signed.
        skip_empty: Leave out fields whose value is the empty text.
        key_param: The name under which the signing key is appended to the text, such as `&key=…`. Required with md5:
            without a key in the text, anybody could sign.
        append_path: Append the endpoint's path, without the path of the base URL; after `key_param`.
        prehash: `"sha256"` signs the 32 bytes of the text's SHA-256; `"sha256-hex"` its lower-case hexadecimal text.
        skip_null: Leave out fields whose value is null. `False`: sign them as `null`.
        booleans: `refuse` the call, or sign true and false as in `json`.
        numbers: `refuse` a number with a fraction, or verify a received one by its `text`, as it was written. In a
            request it is always refused, because it can be written in several ways.
        nested: `refuse` the call with a nested value, sign the value as compact `json` in the order in which it is
            sent, or `omit` it.
        allow_delimiters: Fields whose values may hold the separator and `=`: free text and URLs, never an identifier.

    Raises:
        ConfigurationError: An option does not exist, or options contradict each other.
    """

    separator: str = "&"
    exclude: tuple[str, ...] = field(default=("sign",), converter=to_tuple)
    skip_empty: bool = True
    key_param: str = ""
    append_path: bool = False
    prehash: Literal["", "sha256", "sha256-hex"] = ""
    skip_null: bool = True
    booleans: Literal["refuse", "json"] = "refuse"
    numbers: Literal["refuse", "text"] = "refuse"
    nested: Nested = "refuse"
    allow_delimiters: tuple[str, ...] = field(default=FREE_TEXT, converter=to_tuple)

    def __attrs_post_init__(self) -> None:
        for option in ("separator", "key_param"):
            if not encodable(getattr(self, option)):
                _refuse(option, "must be a text of valid Unicode")
        if self.algorithm == "md5" and not self.key_param:
            _refuse("key_param", 'must be given with algorithm "md5": without a key in the text anybody could sign')
        if self.key_param and self.algorithm and not self.symmetric:
            _refuse("key_param", f'must be empty with algorithm "{self.algorithm}": nobody else has the private key')
        if not self.separator or "=" in self.separator:
            _refuse("separator", "must not be empty or hold '=': two requests could have one signed text")
        if not self.exclude:
            _refuse("exclude", "must hold the name of the signature, which cannot sign itself")
        if shifting := IDENTIFIERS.intersection(self.allow_delimiters):
            names = ", ".join(sorted(shifting))
            _refuse("allow_delimiters", f"must not hold {names}: a delimiter there could pass for another field")

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Return the signature of the wire fields of one request.

        Args:
            fields: By their wire names; those in `exclude` do not count.
            path: The endpoint's path, such as `/payment/refund`.
            key: A shared secret, or a private key (PEM, or base64 of PKCS #8).

        Raises:
            InvalidArgumentError: A value cannot be signed.
            ConfigurationError: The algorithm cannot use the key.
            NotConfiguredError: The algorithm or the encoding is open.
        """
        return self.signer(key)(fields, path)

    def signer(self, key: Secret) -> Signer:
        """Return a function that signs as `sign` does, with one key that is prepared once.

        Raises:
            NotConfiguredError: The algorithm or the encoding is open.
        """
        sign, (encode, _) = self.chosen_algorithm().signer(key), self._encoding()
        join = self.pair_joiner()
        if not (self.key_param or self.append_path or self.prehash):
            return lambda fields, path: encode(sign(join(fields, path).encode()))
        return lambda fields, path: encode(sign(self._make_message(join(fields, path), path, key)))

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Return whether a text is the signature of the fields.

        Args:
            fields: By their wire names; those in `exclude` do not count.
            signature: The signature as it was received.
            path: The endpoint's path.
            key: A shared secret, or a public key (PEM, or base64 of SubjectPublicKeyInfo).

        Raises:
            ConfigurationError: The algorithm cannot use the key.
            NotConfiguredError: The algorithm or the encoding is open.
        """
        algorithm, (_, decode) = self.chosen_algorithm(), self._encoding()
        try:
            pairs, raw = self._join_pairs(fields, path), decode(signature)
        except (InvalidArgumentError, ValueError, TypeError):
            return False
        return algorithm.verify(self._make_message(pairs, path, key), raw, key)

    def text(self, fields: Mapping[str, Any], *, path: str) -> str:
        """Return the text that is signed, with `<signing key>` in the place of the key.

        Raises:
            InvalidArgumentError: A value cannot be signed.
        """
        return self._complete(self._join_pairs(fields, path), path, "<signing key>")

    def hidden_fields(
        self, fields: Mapping[str, Any], names: Callable[[], Iterable[str]]
    ) -> Iterator[tuple[str, str, str]]:
        """Yield each field whose text may hide another field, with the name and the value of that field.

        The two fields `body=x` and `outTradeNo=T0` have the same signed text as one field `body` that holds both. So
        somebody who repeats a genuine response could hide its number in a text, and the signature would still verify. A
        value that is also a field of its own is not hidden.

        Args:
            fields: The fields of a response or a notification that the signature verifies.
            names: Returns the fields that may be hidden, such as those that a response is recognised by. It is called
                only if a text holds a delimiter.
        """
        texts = [fields.get(name) for name in self.allow_delimiters]
        if not any(
            self.separator in text if isinstance(text, str) else isinstance(text, dict | list) for text in texts
        ):
            return
        pairs = [(name, self._text_of(name, fields[name])) for name in sorted(fields) if name not in self.exclude]
        signed = {name: text for name, text in pairs if text or (text is not None and not self.skip_empty)}
        # Names are signed in their order, so a hidden field would stand behind the first text, and before the next
        # field or before another text that is hidden with it.
        first = next((name for name in signed if name in self.allow_delimiters), _LAST_NAME)
        read = sorted(set(names()))
        for (name, text), (following, _) in pairwise([*signed.items(), (_LAST_NAME, "")]):
            last = max((each for each in self.allow_delimiters if self._mark(each) in text), default="")
            for other in read:
                if first < other and (other < following or other <= last):
                    values = [after.partition(self.separator)[0] for after in text.split(self._mark(other))[1:]]
                    yield from ((name, other, value) for value in values if value != signed.get(other))

    def _mark(self, name: str) -> str:
        """Return what stands before the value of a field that is not the first."""
        return f"{self.separator}{name}="

    def _make_message(self, pairs: str, path: str, key: Secret) -> bytes:
        message = self._complete(pairs, path, key.reveal() if self.key_param else "").encode()
        if self.prehash == "sha256-hex":
            return hashlib.sha256(message).hexdigest().encode()
        return hashlib.sha256(message).digest() if self.prehash else message

    def _complete(self, pairs: str, path: str, key: str) -> str:
        keyed = f"{pairs}{self.separator}{self.key_param}={key}" if self.key_param else pairs
        return keyed + path if self.append_path else keyed

    def pair_joiner(self) -> Callable[[Mapping[str, Any], str], str]:
        """Return a function of fields and a path that joins the pairs as `text` does, without the path and the key.

        It remembers how it joined the same names, and raises what `text` raises. It is for requests only: a merchant
        sends few sets of names, but a response could hold any.
        """
        plan = lru_cache(256)(self._plan_join)

        def join(fields: Mapping[str, Any], path: str) -> str:
            values = tuple(fields.values())
            return plan(tuple(fields), tuple(map(type, values)))(values) or self._join_pairs(fields, path)

        return join

    def _plan_join(self, names: tuple[str, ...], kinds: tuple[type, ...]) -> Callable[[tuple[Any, ...]], str]:
        """Return a function that joins values of these names and types, or returns "" if they need a closer look."""
        order = sorted((name, place) for place, name in enumerate(names) if name not in self.exclude)
        places = [place for _, place in order]
        numbers = [place for place in places if kinds[place] is int]
        strict = [place for name, place in order if kinds[place] is str and name not in self.allow_delimiters]
        # `join` does not look for the separator in integers.
        if not _IN_INTEGERS.isdisjoint(self.separator):
            return lambda _: ""
        if not strict[1:] or self.append_path or not {str, int}.issuperset(kinds) or any(map(self._splits, names)):
            return lambda _: ""
        form = self.separator.join(f"{name}=%s" for name, _ in order)
        if form.count("%") > len(order):
            return lambda _: ""
        pick, pick_strict, separator = itemgetter(*places), itemgetter(*strict), self.separator

        def join(values: tuple[Any, ...]) -> str:
            for place in numbers:
                if values[place].bit_length() > _INTEGER_BITS:
                    return ""
            checked = "\0".join(pick_strict(values))
            if "=" in checked or separator in checked or not all(values):
                return ""
            joined: str = form % pick(values)
            return joined if joined.isascii() or encodable(joined) else ""

        return join

    def _join_pairs(self, fields: Mapping[str, Any], path: str) -> str:
        texts: dict[str, str] = {}
        pairs: list[str] = []
        for name in sorted(fields):  # one loop: three comprehensions took twice as long
            if name in self.exclude:
                continue
            value = fields[name]
            text = value if type(value) is str else self._text_of(name, value)
            texts[name] = text or ""
            if text or (text is not None and not self.skip_empty):
                pairs.append(f"{name}={text}")
        joined = self.separator.join(pairs)
        # If all fields are in it, and only as many delimiters as that needs, no name or text holds one.
        needed = joined.count("=") == len(pairs) and joined.count(self.separator) == len(pairs) - 1
        if not needed or len(pairs) < len(texts) or not encodable(joined):
            self._check_pairs(texts, fields)
        if self.append_path and not encodable(path):
            raise _unsignable("path", path, _UNICODE)
        return joined

    def _text_of(self, name: str, value: object) -> str | None:
        """Return the text of a value, or `None` if the value is left out."""
        if isinstance(value, str):
            return str.__str__(value)  # an f-string would write the name of a `str` Enum, but its value is sent
        if (type(value) is int and value.bit_length() <= _INTEGER_BITS) or type(value) is LongInteger:
            return str(value)
        if value is None:
            return None if self.skip_null else "null"
        if isinstance(value, dict | list) and self.nested != "refuse":
            return None if self.nested == "omit" else self._write_nested(name, value)
        if type(value) is bool and self.booleans == "json":
            return "true" if value else "false"
        if type(value) is ExactNumber and self.numbers == "text":
            return value.text
        rule = f"a text or an integer of {_INTEGER_BITS} bits: nothing else has one form that can be signed"
        raise _unsignable(name, value, rule)

    def _write_nested(self, name: str, value: object) -> str:
        """Return the JSON of a nested value as it is sent, or was received."""
        try:
            if self._is_plain(value):
                return orjson.dumps(with_digits(value)).decode()
        except (TypeError, RecursionError):
            pass
        raise _unsignable(name, value, "JSON of texts, integers, booleans, nulls, lists and objects, without floats")

    def _is_plain(self, value: object) -> bool:
        if isinstance(value, dict):
            return all(map(self._is_plain, value.values()))
        if isinstance(value, list):
            return all(map(self._is_plain, value))
        return value is None or isinstance(value, str | int) or (type(value) is ExactNumber and self.numbers == "text")

    def _check_pairs(self, pairs: Mapping[str, str], fields: Mapping[str, Any]) -> None:
        """Refuse a pair that cannot be encoded, or that could pass for two pairs, or for a part of the next one."""
        for name, text in pairs.items():
            if not encodable(name + text):
                raise _unsignable(name, fields[name], _UNICODE)
            in_name = self._splits(name)
            if in_name or (name not in self.allow_delimiters and self._splits(text)):
                rule = f"free of {self.separator!r} and '=': there they would make the signed text ambiguous"
                raise _unsignable(name, fields[name], rule, _CHANGE if in_name or name in IDENTIFIERS else _ALLOW)

    def _splits(self, text: str) -> bool:
        return "=" in text or self.separator in text


_FRESH: Final = ("timestamp", "nonce", "milliseconds", "datetime")
_IN_TEXT: Final = ("method", "path", "query", "target", "url", "merchant_id", *_FRESH, "body", "signing_key")
_IN_VALUE: Final = ("merchant_id", *_FRESH, "signature")


@frozen(kw_only=True, field_transformer=check_types("signature"))
class Template(Keyed):
    """Signs a text of the request, and sends the signature in a header (TOML: `family = "template"`).

    Args:
        algorithm: hmac-md5, hmac-sha256, hmac-sha512, rsa-sha256, rsa-sha512 or ed25519.
        encoding: The form of the signature: hex, HEX, base64, or base64-percent (base64, percent-encoded).
        min_rsa_bits: The fewest bits of an RSA key. Fewer than 2048 only where a service has nothing better.
        service_key: The key that verifies is `shared` by all merchants, or this `merchant`'s alone.
            Empty: shared if the algorithm is asymmetric.
        text: The text that is signed. It may hold `{method}`, `{path}`, `{query}`, `{url}`, `{merchant_id}`,
            `{timestamp}`, `{milliseconds}`, `{datetime}`, `{nonce}`, `{body}`, `{signing_key}` if the key is a
            shared secret, and `{target}`: the path, and a question mark and the query if there is one.
        header: The name of the header that carries the signature.
        value: The value of that header. It holds `{signature}`, and may hold `{merchant_id}`, `{nonce}` and the
            time.
        headers: Further headers of a signed request, whose values may hold the same names.

    Raises:
        ConfigurationError: An option does not exist, a name in braces is unknown, or a time or a nonce is signed that
            no header carries.
    """

    text: str
    header: str
    value: str = "{signature}"
    headers: Mapping[str, str] = field(factory=dict, converter=to_dict)

    def __attrs_post_init__(self) -> None:
        if self.algorithm:
            self._text_algorithm()  # refuses "md5"
        check_template("signature.text", self.text, _IN_TEXT)
        if "signing_key" in names_in(self.text) and self.algorithm and not self.symmetric:
            rule = f'must not hold {{signing_key}} with algorithm "{self.algorithm}"'
            _refuse("text", f"{rule}: nobody else has that key")
        if not {*names_in(self.text)} - {"signing_key"}:
            _refuse("text", "must hold a name in braces, such as {body}: one signature would be that of all requests")
        values = {"value": self.value} | {f"headers.{name}": value for name, value in self.headers.items()}
        for option, value in values.items():
            check_template(f"signature.{option}", value, _IN_VALUE, ("signature",) if option == "value" else ())
            if not is_header("X", value):
                _refuse(option, "must be of visible ASCII characters")
        sent = names_in("".join(values.values()))
        for name in _FRESH:
            if name in names_in(self.text) and name not in sent:
                why = f"must hold {{{name}}}, which signature.text signs"
                _refuse("value", f"or one of signature.headers {why}: the service needs it, too")

    @property
    def all_headers(self) -> dict[str, str]:
        """The values of all headers of a signed request, by their names."""
        return {self.header: self.value, **self.headers}

    def sign_request(self, request: UnsignedRequest, *, key: Secret) -> dict[str, str]:
        """Return the headers that sign a request.

        Args:
            request: As it is sent.
            key: A shared secret, or a private key (PEM, or base64 of PKCS #8).

        Raises:
            ConfigurationError: The algorithm cannot use the key.
            NotConfiguredError: The algorithm or the encoding is open.
        """
        now = request.timestamp
        said = {"timestamp": str(now), "milliseconds": f"{now}000", "datetime": write_time(now)}
        said |= {"nonce": request.nonce, "merchant_id": request.merchant_id}
        parts = {"method": request.method, "path": request.path, "query": request.query, "url": request.url}
        parts["target"] = f"{request.path}?{request.query}" if request.query else request.path
        sign = self.text_signer(key)
        # No variable holds the key, because a traceback could show it.
        said["signature"] = sign(fill(self.text, {**said, **parts, "signing_key": key.reveal(), "body": request.body}))
        return {name: fill(value, said).decode() for name, value in self.all_headers.items()}


_ENCODINGS: Final[dict[str, tuple[Callable[[bytes], str], Callable[[str], bytes]]]] = {
    "hex": (bytes.hex, binascii.unhexlify),
    "HEX": (lambda raw: raw.hex().upper(), binascii.unhexlify),
    "base64": (lambda raw: base64.b64encode(raw).decode(), decode_base64),
    "base64-percent": (
        lambda raw: quote(base64.b64encode(raw), safe=""),
        lambda text: decode_base64(unquote(text)),
    ),
}
"""How a signature is written and read; reading raises `ValueError` for any other text."""


def _unsignable(name: str, value: object, rule: str, otherwise: str = _CHANGE) -> InvalidArgumentError:
    message = f"the field {name!r} cannot be signed: it must be {rule}. Leave it out, or {otherwise}"
    shown = type(value) if isinstance(value, dict | list | tuple) else value  # the value may hold a customer's details
    return InvalidArgumentError(message, field=name, rule=rule, value=shown)


def _refuse(option: str, why: str) -> None:
    raise invalid_setting(f"signature.{option}", why)


def _open(option: str, allowed: tuple[str, ...]) -> NotConfiguredError:
    return NotConfiguredError(
        f"signature.{option} is open: the common interface does not define it. "
        f"Put what your service uses into the profile's [signature]: {', '.join(allowed)}",
        field=f"signature.{option}",
    )
