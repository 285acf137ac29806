"""The answers to `payasync profile init`, and the commented file that they make."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from attrs import Factory, field, fields, frozen

from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.readiness import Group
from payasync.profile.schema import ORDER_STATES, REFUND_STATES, SUBSCRIPTION_STATES, Code
from payasync.settings import invalid_setting
from payasync.signing.schemes import FREE_TEXT

Value: TypeAlias = str | bool | int | float | tuple[Code, ...]
Key: TypeAlias = tuple[str, ...]
"""The steps of a key: `("accept", "required", "orders.place")`."""

_WHERE: Final = re.compile(r"^profile(, line \d+)?: ")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,9})?")
_ITEM: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^",]*)\s*(?:,|$)')
NONE: Final = "none"
"""What a person types for an empty list; in quotes, it is a text."""
_ALWAYS: Final[Callable[[Profile], object]] = lambda _: True  # noqa: E731 - the default of a field


def _steps(key: str | Key) -> Key:
    return tuple(key.split(".")) if isinstance(key, str) else key


@frozen
class Prompt:
    """A question about one key of a profile.

    Attributes:
        key: The steps of the key.
        example: An answer; the real one has the same type.
        words: What to answer. Empty: what the audit says.
        fits: Whether the question makes sense, given the answers so far.
    """

    key: Key = field(converter=_steps)
    example: Value
    words: str = ""
    fits: Callable[[Profile], object] = _ALWAYS

    @property
    def name(self) -> str:
        """The key as TOML writes it."""
        return ".".join(step if _BARE_KEY.fullmatch(step) else json.dumps(step) for step in self.key)

    @property
    def asks(self) -> str:
        """What to answer."""
        return self.words or _MEANINGS[self.name]

    @property
    def shown(self) -> str:
        """The example, as a person types it."""
        if isinstance(self.example, bool):
            return json.dumps(self.example)
        if isinstance(self.example, float):
            return f"{self.example:g}"
        return ", ".join(map(str, self.example)) if isinstance(self.example, tuple) else str(self.example)


_MEANINGS: Final = {point.name: point.means for point in Profile().audit()}


def _states(thing: str, examples: Mapping[str, Code], names: tuple[str, ...]) -> Iterator[Prompt]:
    for name in names:
        example: tuple[Code, ...] = (examples.get(name, name.upper()),)
        words = f"the service's values that mean {name}"
        yield Prompt(f"states.{thing}.{name}", example, words, lambda p: getattr(p.answer, f"{thing}_status"))


def _identifier(thing: str, name: str, path: str) -> Iterator[Prompt]:
    yield Prompt(f"status.{thing}.name", name, f"the name of the identifier of GET {path}")
    given: Callable[[Profile], object] = lambda p: getattr(p, f"{thing}_status")  # noqa: E731 - two need it
    yield Prompt(f"status.{thing}.place", "query", "its place: query, path or header", given)


def _coded(profile: Profile) -> object:
    return profile.answer.code or profile.answer.message


def _notified(profile: Profile) -> object:
    return profile.notification.verification


def _after_another(_: Profile) -> object:
    """Ask only if another answer needs this one."""
    return False


def _verified(how: str) -> Callable[[Profile], object]:
    return lambda profile: profile.notification.verification == how


PROMPTS: Final[Mapping[Group, tuple[Prompt, ...]]] = {
    "payments": (
        Prompt("name", "my-gateway", "a name for people"),
        Prompt("amount_unit", "minor"),
        Prompt("bearer", ("payments.create", "payments.status"), "the methods that carry Authorization: Bearer"),
        Prompt("answer.data", "data"),
        Prompt("answer.code_optional", example=False, words="true if only failures have a result code"),
        Prompt("answer.code", "code"),
        Prompt("answer.ok", (0, "SUCCESS"), "the codes that mean success", lambda p: p.answer.code),
        Prompt("answer.message", "msg"),
        Prompt("answer.request_id", "header:X-Request-Id"),
        *_identifier("payment", "outTradeNo", "/payment/status"),
        Prompt("answer.payment_status", "status"),
        *_states("payment", {"paid": "CAPTURED"}, ORDER_STATES),
        Prompt("answer.payment_id", "paymentId"),
    ),
    "orders": (
        Prompt("signed", Profile().signed, "the methods that are signed, or none"),
        Prompt(
            "signature.algorithm",
            "hmac-sha256",
            "one of md5 hmac-md5 hmac-sha256 hmac-sha512 rsa-sha256 rsa-sha512 ed25519",
        ),
        Prompt(
            "signature.key_param",
            "key",
            "if the signed text ends with the key: the name before it",
            lambda p: getattr(p.signature, "algorithm", "") and getattr(p.signature, "symmetric", False),
        ),
        Prompt(
            "signature.encoding",
            "hex",
            "one of hex HEX base64",
            lambda p: getattr(p.signature, "algorithm", ""),
        ),
        Prompt("answer.redirect_url", "payUrl"),
        Prompt("answer.order_status", "tradeStatus"),
        *_states("order", {"pending": "NOTPAY", "paid": "SUCCESS"}, ORDER_STATES),
        Prompt("fields.return_url", "returnUrl"),
        Prompt("accept.currency", ("CAD", "USD"), "the accepted currencies, if not all"),
        Prompt("accept.scene_type", ("JSAPI",), "the accepted scene types, if not all"),
        Prompt("accept.amount", (1, 5000000), "the least and the greatest amount"),
        Prompt(
            ("accept", "required", "orders.place"),
            ("subject", "notify_url"),
            "further arguments that an order must have",
        ),
        Prompt("accept.length.subject", 30, "the most characters of an order's subject"),
    ),
    "refunds": (
        *_identifier("refund", "outRefundNo", "/payment/refund/status"),
        Prompt("answer.refund_status", "refundStatus"),
        *_states("refund", {"succeeded": "SUCCESS"}, REFUND_STATES),
    ),
    "recovery": (
        Prompt("codes.absent", ("ORDER_NOT_FOUND",), fits=_coded),
        Prompt("http.absent", (404,), "the HTTP statuses that mean that there is no such order or refund"),
        Prompt(
            "recovery.quarantine",
            60.0,
            "seconds after which 'not found' is final; without them, nothing is sent twice",
        ),
        Prompt("codes.not_executed", ("PARAM_ERROR",), fits=_coded),
        Prompt("codes.retryable", ("BUSY",), fits=_coded),
        Prompt("codes.duplicate", ("OUT_TRADE_NO_USED",), fits=_coded),
        Prompt("answer.signature", "data.sign"),
        Prompt(
            "answer.refusals_signed",
            example=False,
            words="true or false: whether a failure is signed, too",
            fits=lambda p: p.answer.signature,
        ),
        Prompt(
            "signature.allow_delimiters",
            (*FREE_TEXT, "payUrl"),
            "signed fields that may hold & and =",
            lambda p: p.answer.signature,
        ),
    ),
    "notifications": (
        Prompt("notification.verification", "standard-webhooks"),
        Prompt("notification.signature", "data.sign", fits=_verified("body")),
        Prompt(
            "notification.header.signature",
            "X-Signature",
            "the header of the signature, or Name:v1 if it holds t=…,v1=…",
            _verified("header"),
        ),
        Prompt(
            "notification.header.text",
            "{timestamp}.{body}",
            "the signed text, of {body}, {timestamp} and {nonce}",
            _verified("header"),
        ),
        Prompt("notification.header.timestamp", "X-Timestamp", "the header of {timestamp}", _after_another),
        Prompt("notification.header.nonce", "X-Nonce", "the header of {nonce}", _after_another),
        Prompt("notification.header.prefix", "sha256=", "what stands before the signature", _verified("header")),
        Prompt("notification.ack_status", 200, fits=_notified),
        Prompt("notification.ack_body", '{"return_code":"SUCCESS"}', fits=_notified),
        Prompt("notification.nack_status", 400, fits=_notified),
        Prompt("notification.nack_body", '{"return_code":"FAIL"}', fits=_notified),
        Prompt("notification.data", "data", fits=_notified),
        Prompt("notification.out_trade_no", "outTradeNo", fits=_notified),
        Prompt("notification.out_refund_no", "outRefundNo", fits=_notified),
        Prompt("notification.subscription_id", "subscriptionId", fits=_notified),
        Prompt("notification.kind", "event", fits=_notified),
        *(
            Prompt(
                f"notification.kinds.{kind}",
                (f"{kind}.done",),
                f"the names of a {kind}'s events",
                lambda p: p.notification.kind,
            )
            for kind in ("payment", "refund", "subscription")
        ),
        Prompt("notification.time", "timestamp", fits=_notified),
        *(
            Prompt(f"notification.id.{kind}", example, f"the paths that identify one event of a {kind}", _notified)
            for kind, example in (
                ("payment", ("outTradeNo", "tradeStatus")),
                ("refund", ("outRefundNo", "refundStatus")),
                ("subscription", ("subscriptionId", "period", "status")),
            )
        ),
    ),
    "subscriptions": (
        Prompt("fields.frequency", "billingFrequency"),
        Prompt("fields.subscription_amount", "amount"),
        Prompt("fields.start_date", "startDate"),
        Prompt("formats.start_date", "%Y-%m-%d", fits=lambda p: p.fields.get("start_date")),
        Prompt("fields.customer", "customer"),
        Prompt("fields.subscription_id", "subscriptionId"),
        Prompt("answer.subscription_id", "subscriptionId", "the path of the service's number of a subscription"),
        Prompt("answer.subscription_status", "status"),
        *_states("subscription", {}, SUBSCRIPTION_STATES),
    ),
}
"""The questions, in the order of what they unlock."""

_ALL: Final = {prompt.name: prompt for prompts in PROMPTS.values() for prompt in prompts}


@frozen
class ProfileDraft:
    """The answers so far, which make a valid profile.

    Attributes:
        answers: By key.
        profile: The profile that they make.
    """

    answers: Mapping[Key, Value] = Factory(dict)
    profile: Profile = Factory(Profile)

    def with_answers(self, given: Mapping[Prompt, str]) -> "ProfileDraft":
        """Return the draft with further answers.

        Args:
            given: What was typed, by question. Text needs no quotes, and items have commas between them.

        Raises:
            ConfigurationError: An answer is invalid, or contradicts another one. The error names the key.
        """
        answers = {**self.answers, **{prompt.key: parse_answer(prompt, typed) for prompt, typed in given.items()}}
        text = "".join(f"{_dotted(key)} = {_write(value)}\n" for key, value in answers.items())
        try:
            return ProfileDraft(answers, Profile.from_toml(text))
        except ConfigurationError as error:
            error.args = (_WHERE.sub("", str(error)),)
            raise

    def find_missing(self, given: Mapping[Prompt, str], error: ConfigurationError) -> Prompt | None:
        """Return the question whose answer the given ones need; `None` if they are invalid in themselves."""
        named = (prompt for name, prompt in _ALL.items() if f"{name}.".startswith(f"{error.field}."))
        other = next(named, None)
        return other if other and other not in given and other.key not in self.answers else None

    def to_toml(self) -> str:
        """Return the profile as TOML, with what each key means, and open points and rare tables as comments."""
        tables: dict[Key, list[str]] = {(): []}
        table: Key = ()
        written: set[Key] = set()
        for line in self.profile.to_toml().splitlines():
            if line.startswith("["):
                table = _path_in(tomllib.loads(line))
                tables[table] = []
            elif line:
                key = (*table, *tomllib.loads(line))
                written.add(key)
                tables[table].append(_explain(line, _ALL.get(_dotted(key))))
        active = {key for key, lines in tables.items() if lines}
        for prompt in _ALL.values():
            if prompt.key not in written:
                line = f"# {_dotted(prompt.key[-1:])} = {_write(prompt.example)}"
                tables.setdefault(prompt.key[:-1], []).append(_explain(line, prompt))
        return (
            _HEAD
            + "\n".join(
                "\n".join([*([f"{'' if key in active else '# '}[{_dotted(key)}]"] if key else []), *lines, ""])
                for key, lines in sorted(tables.items(), key=lambda each: _place_of(each[0]))
            )
            + _RARE
        )


_HEAD: Final = """\
# The profile of a service for payasync: docs/profile.md explains each key.
# A line that begins with "#" is an open point with an example. Write the value of your service, and remove the "#".
# If the line of its table begins with "#", remove that one, too.

"""
_RARE: Final = """
## The rest is rarely needed. Remove the "# " before each line of an example whose case is yours.

## If a method or a path differs: docs/profile.md#other-paths-and-methods
# [endpoints."orders.query"]
# method = "GET"
# path = "/v2/orders/{out_trade_no}"

## If a field of a request has another name: docs/profile.md#other-names
# [fields."orders.place"]              # of one operation; names of all operations stand in [fields]
# total_amt = "amount"

## If a key is not sent as "Authorization: Bearer": docs/profile.md#keys-in-other-headers
# [auth]                               # of the methods in bearer
# value = "Basic {basic}"

## If each write carries a key under which it is done once: docs/profile.md#idempotency-keys
# [idempotency]
# header = "Idempotency-Key"
# lifetime = 86400                     # seconds that the service keeps a key

## If a header signs a text of the request: docs/profile.md#a-signature-in-a-header
# [signature]                          # in place of the one above, and of answer.signature
# family = "template"
# algorithm = "hmac-sha256"
# encoding = "hex"
# text = "{method}\\n{path}\\n{body}"
# header = "X-Signature"

## If a notification's kind follows from a field: docs/profile.md#kinds-without-event-names
# [notification.tells]
# refund = "refundStatus"
"""
"""What no question is about. "##" stands before words, and "#" before what may be uncommented."""
_ASIDE: Final = 38
"""The column of comments, if the line is no longer."""
_ROOTS: Final = tuple("status" if each.name.endswith("_status") else each.name for each in fields(Profile) if each.init)


def _place_of(table: Key) -> tuple[int, int]:
    """Return the place of a table in the file: that of its part in a profile."""
    return (_ROOTS.index(table[0]), len(table)) if table else (-1, 0)


def _explain(line: str, prompt: Prompt | None) -> str:
    """Return a line with what its key means."""
    return f"{line:<{_ASIDE}}  # {prompt.asks}" if prompt else line


def _path_in(tables: Mapping[str, object]) -> Key:
    """Return the path of the innermost of tables that hold one another."""
    ((name, inner),) = tables.items()
    return (name, *_path_in(inner)) if isinstance(inner, dict) and inner else (name,)


def _dotted(key: Key) -> str:
    return ".".join(step if _BARE_KEY.fullmatch(step) else json.dumps(step) for step in key)


def _write(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def parse_answer(prompt: Prompt, typed: str) -> Value:
    """Return what a person typed as the value of a key.

    Raises:
        ConfigurationError: It has another type than the key, or holds a control character.
    """
    example, text = prompt.example, typed.strip()
    if not text.isprintable():
        raise invalid_setting(prompt.name, "must not hold a control character")
    if isinstance(example, bool):
        if text.lower() not in {"true", "false"}:
            raise invalid_setting(prompt.name, f"must be true or false, not {text!r}")
        return text.lower() == "true"
    if isinstance(example, int | float):
        if not (_INTEGER if isinstance(example, int) else _NUMBER).fullmatch(text):
            raise invalid_setting(prompt.name, f"must be a number, such as {prompt.shown}, not {text!r}")
        return type(example)(text)
    if isinstance(example, tuple):
        return () if text.lower() == NONE else tuple(_parse_items(prompt, text))
    return _unquote(prompt, text) if text[0] == '"' and not prompt.name.endswith("_body") else text


def _unquote(prompt: Prompt, text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        raise invalid_setting(prompt.name, f"must be a text with no quotes or two, not {text}") from None


def _parse_items(prompt: Prompt, text: str) -> Iterator[Code]:
    """Yield the items of a list; digits are a number unless they stand in quotes, if the list may hold numbers."""
    numbers = prompt.key[0] in {"states", "codes", "http"} or prompt.name in {"answer.ok", "accept.amount"}
    place = 0
    while place < len(text):
        found = _ITEM.match(text, place)
        item = found[1].strip() if found else ""
        if not found or not item:
            raise invalid_setting(prompt.name, f"must be values with commas between them, such as {prompt.shown}")
        place = found.end()
        if item[0] == '"':
            yield _unquote(prompt, item)
        else:
            yield int(item) if numbers and _INTEGER.fullmatch(item) else item
