"""The answers to `payasync profile init`, and the commented file that they make."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from attrs import Factory, field, fields, frozen

from payasync import DOCUMENTATION
from payasync.endpoints import ORDER_STATES, REFUND_STATES, SUBSCRIPTION_STATES
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.readiness import Group
from payasync.profile.schema import KINDS, Code
from payasync.settings import invalid_setting
from payasync.signing.algorithms import ALGORITHMS
from payasync.signing.schemes import FREE_TEXT

Section: TypeAlias = Literal["general"] | Group
"""Questions that a person answers, or skips, together."""
Value: TypeAlias = str | bool | int | float | tuple[Code, ...]

_WHERE: Final = re.compile(r"^profile(, line \d+)?: ")
_LAST_STEP: Final = re.compile(r'\.?("[^"]+"|[^."]+)$')
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,9})?")
_ITEM: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^",]*)\s*(?:,|$)')
NONE: Final = "none"
"""What a person types for an empty list; in quotes, it is a text."""

_MEANINGS: Final = {point.name: point.means for point in Profile().audit()}
_ASKED_IF: Final[Mapping[str, Callable[[Profile], object]]] = {
    "answer.ok": lambda p: p.answer.code,
    "answer.refusals_signed": lambda p: p.answer.signature,
    "codes": lambda p: p.answer.code or p.answer.message,
    "formats.start_date": lambda p: p.fields.get("start_date"),
    "notification.header.nonce": lambda _: False,  # only if another answer needs it
    "notification.header.timestamp": lambda _: False,
    "notification.header": lambda p: p.notification.verification == "header",
    "notification.kinds": lambda p: p.notification.kind,
    "notification.signature": lambda p: p.notification.verification == "body",
    "notification.verification": lambda _: True,
    "notification": lambda p: p.notification.verification,
    "signature.allow_delimiters": lambda p: p.answer.signature,
    "signature.encoding": lambda p: getattr(p.signature, "algorithm", ""),
    "signature.service_key": lambda p: p.notification.verification in {"body", "header"},
    "signature.key_param": lambda p: getattr(p.signature, "algorithm", "") and getattr(p.signature, "symmetric", False),
    **{f"states.{thing}": attrgetter(f"answer.{thing}_status") for thing in ("order", *KINDS)},
    "status.payment.place": lambda p: p.payment_status,
    "status.refund.place": lambda p: p.refund_status,
}
"""Whether a question, or each one about a table, makes sense after the answers so far; the first entry counts."""


@frozen
class Prompt:
    """A question about one key of a profile.

    Attributes:
        name: The key as TOML writes it.
        example: An answer; the real one has the same type.
        asks: What to answer. Default: what the audit says.
    """

    name: str
    example: Value
    asks: str = field(default=Factory(lambda self: _MEANINGS[self.name], takes_self=True))

    @property
    def shown(self) -> str:
        """The example, as a person types it."""
        if isinstance(self.example, bool):
            return json.dumps(self.example)
        if isinstance(self.example, float):
            return f"{self.example:g}"
        return ", ".join(map(str, self.example)) if isinstance(self.example, tuple) else str(self.example)

    def fits(self, profile: Profile) -> bool:
        """Return whether the question makes sense, given the answers so far."""
        answers = (rule(profile) for key, rule in _ASKED_IF.items() if f"{self.name}.".startswith(f"{key}."))
        return bool(next(answers, True))


def _states(thing: str, names: tuple[str, ...], **examples: str) -> Iterator[Prompt]:
    for name in names:
        example = examples.get(name, name.upper())
        yield Prompt(f"states.{thing}.{name}", (example,), f"the service's values that mean {name}")


PROMPTS: Final[Mapping[Section, tuple[Prompt, ...]]] = {
    "general": (
        Prompt("name", "my-gateway", "a name for people"),
        Prompt("amount_unit", "minor"),
        Prompt("bearer", ("payments.create", "payments.status"), "the methods that carry Authorization: Bearer"),
        Prompt("answer.data", "data"),
        Prompt("answer.code_optional", example=False, asks="true if only failures have a result code"),
        Prompt("answer.code", "code"),
        Prompt("answer.ok", (0, "SUCCESS"), "the codes that mean success"),
        Prompt("answer.message", "msg"),
        Prompt("answer.request_id", "header:X-Request-Id"),
    ),
    "payments": (
        Prompt("status.payment.name", "outTradeNo", "the name of the identifier of GET /payment/status"),
        Prompt("status.payment.place", "query", "its place: query, path or header"),
        Prompt("answer.payment_status", "status"),
        *_states("payment", ORDER_STATES, paid="CAPTURED"),
        Prompt("answer.payment_id", "paymentId"),
    ),
    "orders": (
        Prompt(
            "signed",
            Profile().signed,
            "the methods that are signed, or none; default: all of orders, and refunds.create",
        ),
        Prompt("signature.algorithm", "hmac-sha256", f"one of {' '.join(ALGORITHMS)}"),
        Prompt("signature.key_param", "key", "if the signed text ends with the key: the name before it"),
        Prompt("signature.encoding", "hex", "one of hex HEX base64 base64-percent"),
        Prompt("answer.redirect_url", "payUrl"),
        Prompt("answer.order_status", "tradeStatus"),
        *_states("order", ORDER_STATES, pending="NOTPAY", paid="SUCCESS"),
        Prompt("fields.return_url", "returnUrl"),
        Prompt("accept.currency", ("CAD", "USD"), "the accepted currencies, if not all"),
        Prompt("accept.scene_type", ("JSAPI",), "the accepted scene types, if not all"),
        Prompt("accept.amount", (1, 5000000), "the least and the greatest amount"),
        Prompt(
            'accept.required."orders.place"', ("subject", "notify_url"), "further arguments that an order must have"
        ),
        Prompt("accept.length.subject", 30, "the most characters of an order's subject"),
    ),
    "refunds": (
        Prompt("status.refund.name", "outRefundNo", "the name of the identifier of GET /payment/refund/status"),
        Prompt("status.refund.place", "query", "its place: query, path or header"),
        Prompt("answer.refund_status", "refundStatus"),
        *_states("refund", REFUND_STATES, succeeded="SUCCESS"),
    ),
    "recovery": (
        Prompt("codes.absent", ("ORDER_NOT_FOUND",)),
        Prompt(
            "http.absent", (404,), "HTTP statuses of 'not found'; they never end a doubt, so list codes.absent, too"
        ),
        Prompt(
            "recovery.quarantine", 60.0, "seconds after which 'not found' is final; without them, nothing is sent twice"
        ),
        Prompt("codes.not_executed", ("PARAM_ERROR",)),
        Prompt("codes.unauthenticated", ("SIGN_ERROR",)),
        Prompt("codes.retryable", ("BUSY",)),
        Prompt("codes.duplicate", ("OUT_TRADE_NO_USED",)),
        Prompt("answer.signature", "data.sign"),
        Prompt("answer.refusals_signed", example=False, asks="true or false: whether a failure is signed, too"),
        Prompt("signature.allow_delimiters", (*FREE_TEXT, "payUrl"), "signed fields that may hold & and ="),
    ),
    "notifications": (
        Prompt("notification.verification", "standard-webhooks"),
        Prompt("notification.signature", "data.sign"),
        Prompt(
            "notification.header.signature",
            "X-Signature",
            "the header of the signature, or Name:v1 if it holds t=…,v1=…",
        ),
        Prompt("notification.header.text", "{timestamp}.{body}", "the signed text, of {body}, {timestamp} and {nonce}"),
        Prompt("notification.header.timestamp", "X-Timestamp", "the header of {timestamp}"),
        Prompt("notification.header.nonce", "X-Nonce", "the header of {nonce}"),
        Prompt("notification.header.prefix", "sha256=", "what stands before the signature"),
        Prompt("notification.ack_status", 200),
        Prompt("notification.ack_body", '{"return_code":"SUCCESS"}'),
        Prompt("notification.nack_status", 400),
        Prompt("notification.nack_body", '{"return_code":"FAIL"}'),
        Prompt("notification.data", "data"),
        Prompt("notification.out_trade_no", "outTradeNo"),
        Prompt("notification.out_refund_no", "outRefundNo"),
        Prompt("notification.subscription_id", "subscriptionId"),
        Prompt("notification.kind", "event"),
        *(Prompt(f"notification.kinds.{kind}", (f"{kind}.done",), f"the names of a {kind}'s events") for kind in KINDS),
        Prompt("notification.time", "timestamp"),
        Prompt("notification.event_time", "paidAt"),
        Prompt("notification.merchant_id", "merchantId"),
        Prompt("signature.service_key", "merchant"),
        *(
            Prompt(f"notification.id.{kind}", example, f"the paths that identify one event of a {kind}")
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
        Prompt("formats.start_date", "%Y-%m-%d"),
        Prompt("fields.customer", "customer"),
        Prompt("fields.subscription_id", "subscriptionId"),
        Prompt("answer.subscription_id", "subscriptionId", "the path of the service's number of a subscription"),
        Prompt("answer.subscription_status", "status"),
        *_states("subscription", SUBSCRIPTION_STATES),
    ),
}
"""The questions: first what all groups need, then the groups in the order of what they unlock."""

_ALL: Final = {prompt.name: prompt for prompts in PROMPTS.values() for prompt in prompts}


@frozen
class ProfileDraft:
    """The answers so far, which make a valid profile.

    Attributes:
        answers: By the name of the question.
        profile: The profile that they make.
    """

    answers: Mapping[str, Value] = Factory(dict)
    profile: Profile = Factory(Profile)

    def with_answers(self, given: Mapping[Prompt, str]) -> "ProfileDraft":
        """Return the draft with further answers.

        Args:
            given: What was typed, by question. Text needs no quotes, and items have commas between them.

        Raises:
            ConfigurationError: An answer is invalid, or contradicts another one. The error names the key.
        """
        answers = {**self.answers, **{prompt.name: parse_answer(prompt, typed) for prompt, typed in given.items()}}
        text = "".join(f"{name} = {_write(value)}\n" for name, value in answers.items())
        try:
            return ProfileDraft(answers, Profile.from_toml(text))
        except ConfigurationError as error:
            error.args = (_WHERE.sub("", str(error)),)
            raise

    def find_missing(self, given: Mapping[Prompt, str], error: ConfigurationError) -> Prompt | None:
        """Return the question whose answer the given ones need; `None` if they are invalid in themselves."""
        named = (prompt for name, prompt in _ALL.items() if f"{name}.".startswith(f"{error.field}."))
        other = next(named, None)
        return other if other and other not in given and other.name not in self.answers else None

    def to_toml(self) -> str:
        """Return the profile as TOML, with what each key means, and open points and rare tables as comments."""
        tables: dict[str, list[str]] = {"": []}
        table, left = "", dict(_ALL)
        for line in filter(None, self.profile.to_toml().split("\n")):
            if line.startswith("["):
                table = line[1:-1]
                tables[table] = [line]
            else:
                name = ".".join(filter(None, (table, line.partition(" = ")[0])))
                tables[table].append(_explain(line, left.pop(name, None)))
        for name, prompt in left.items():
            table = _LAST_STEP.sub("", name)
            line = f"# {name.removeprefix(f'{table}.')} = {_write(prompt.example)}"
            tables.setdefault(table, [f"# [{table}]"]).append(_explain(line, prompt))
        ordered = sorted(tables, key=lambda each: (_ROOTS.index(each.partition(".")[0]), each.count(".")))
        keys = "\n\n".join("\n".join(tables[each]) for each in ordered)
        template = resources.files("payasync.cli").joinpath("profile_template.toml").read_text(encoding="utf-8")
        return template.replace("<docs>", DOCUMENTATION).replace("<keys>", keys)


_ASIDE: Final = 38
"""The column of comments, if the line is no longer."""
_ROOTS: Final = (
    "",
    *("status" if each.name.endswith("_status") else each.name for each in fields(Profile) if each.init),
)
"""The first steps of keys, in the order of the file."""


def _explain(line: str, prompt: Prompt | None) -> str:
    """Return a line with what its key means."""
    return f"{line:<{_ASIDE}}  # {prompt.asks}" if prompt else line


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
        raise invalid_setting(prompt.name, f"must be a text without quotes, or with two, not {text}") from None


def _parse_items(prompt: Prompt, text: str) -> Iterator[Code]:
    """Yield the items of a list; digits are a number unless they stand in quotes, if the list may hold numbers."""
    numbers = prompt.name.startswith(("states.", "codes.", "http.", "answer.ok", "accept.amount"))
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
