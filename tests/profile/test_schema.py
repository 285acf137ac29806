"""The parts of a profile: which values they accept and refuse, and how they compare codes and states."""

import pickle
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import product
from typing import Any, Final, get_args, get_origin

import attrs
import pytest

from payasync.profile.schema import (
    Accept,
    AnswerShape,
    Code,
    HttpCodes,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    SandboxShape,
    SignedHeader,
    States,
    format_amount,
)
from payasync.profile.wire_names import COMPARED
from tests.profile.refusal import refusal

Shape = Callable[..., Any]

SHAPES: Final = {
    "accept": Accept,
    "answer": AnswerShape,
    "states": States,
    "codes": ResultCodes,
    "http": HttpCodes,
    "recovery": Recovery,
    "notification": NotificationShape,
    "sandbox": SandboxShape,
}
CODES: Final = "a list, each of it a text or an integer"
TEXTS: Final = "a list, each of it a text"
INTEGERS: Final = "a list, each of it an integer"
FITTING: Final[dict[str, list[Any]]] = {TEXTS: ["A", "B"], CODES: [0, "0"], INTEGERS: [400, 401]}
IN_WORDS: Final[dict[Any, str]] = {tuple[str, ...]: TEXTS, tuple[Code, ...]: CODES, tuple[int, ...]: INTEGERS}
TYPED: Final = {f"{section}.{each.name}": each for section, shape in SHAPES.items() for each in attrs.fields(shape)}
LISTS: Final = {name: IN_WORDS[each.type] for name, each in TYPED.items() if each.type in IN_WORDS}
KEYS: Final = {"accept.required": "orders.place", "states.refund": "succeeded", "states.subscription": "active"}
TABLES: Final = {
    name: (KEYS.get(name, "paid" if name.startswith("states") else "payment"), IN_WORDS[get_args(each.type)[1]])
    for name, each in TYPED.items()
    if get_origin(each.type) is Mapping and get_args(each.type)[1] in IN_WORDS
}
PATHS: Final = [
    f"{section}.{each.name}"
    for section in ("answer", "notification")
    for each in attrs.fields(SHAPES[section])
    if each.default == ""
    and each.name not in {"code", "message", "redirect_template", "verification", "kind", "timezone", "amounts"}
]
ORDER_STATES: Final = ["pending", "paid", "closed", "failed", "expired", "refunded"]
STATES: Final = {
    "order": ORDER_STATES,
    "payment": ORDER_STATES,
    "refund": ["processing", "succeeded", "failed"],
    "subscription": ["scheduled", "active", "past_due", "cancelled"],
}


def made(field: str, value: Any) -> Any:
    """Make the part of a field with this value, and return what the part stores."""
    section, _, name = field.partition(".")
    return getattr(SHAPES[section](**{name: value}), name)


def test_shapes_are_frozen_values() -> None:
    """A part of a profile is frozen, compares by value and pickles."""
    for shape in SHAPES.values():
        part: Any = shape()
        with pytest.raises(AttributeError):
            setattr(part, attrs.fields(shape)[0].name, "x")

        assert part == pickle.loads(pickle.dumps(part))  # noqa: S301 - made in the same line


def test_a_list_is_its_own() -> None:
    """A list, tuple, set or keys view is accepted as a list, and copied into a tuple."""
    kinds: list[Shape] = [list, tuple, set, frozenset, lambda values: dict.fromkeys(values).keys()]
    for (field, wanted), kind in product(LISTS.items(), kinds):
        values = ["upi", "https"] if field == SCHEMES else FITTING[wanted]
        given = kind(values)
        found = made(field, given)
        if isinstance(given, list):
            given.clear()

        assert set(values) == set(found)
        assert isinstance(found, tuple)


NO_LISTS: Final[tuple[Any, ...]] = (
    *("SUCCESS", 0, None, b"SU", {"SUCCESS": 1}),
    *([True], [1.0], [None], [["A"]], [b"A"]),
)


def test_a_value_is_no_list() -> None:
    """A single value is not accepted as a list: `ok="SUCCESS"` would mean the codes S, U, C and E."""
    for field, wanted in LISTS.items():
        given = [[*FITTING[wanted], *wrong] if isinstance(wrong, list) else wrong for wrong in NO_LISTS]
        expected = [(field, f"{field} must be {wanted}, not {each!r}") for each in given]

        assert expected == [refusal(made, field, each) for each in given]


def test_a_table_of_lists_is_its_own() -> None:
    """A table is copied, together with its lists. In a table, a single value is not accepted as a list."""
    for field, (key, wanted) in TABLES.items():
        given = {key: list(FITTING[wanted])}
        found = made(field, given)
        given[key].append("C")
        given["x"] = []

        assert {key: tuple(FITTING[wanted])} == found
        for wrong in ["PAID", 0, None, [False], ["A", 1.5]]:
            words = f"{field} must be a table of names, each with {wanted}, not {key!r} with {wrong!r}"

            assert (f"{field}.{key}", words) == refusal(made, field, {"x": [], key: wrong})
    for field, wanted in [("accept.length", "an integer"), *((field, wanted) for field, (_, wanted) in TABLES.items())]:
        for wrong in [["paid"], "paid", None, [("paid", ["A"])]]:
            assert (field, f"{field} must be a table of names, each with {wanted}, not {wrong!r}") == refusal(
                made, field, wrong
            )


def test_a_path_or_a_text_is_one() -> None:
    """A path or a body that is not a text is refused."""
    for field, wrong in [*((field, None) for field in PATHS), (PATHS[0], 5), (PATHS[0], b"a")]:
        assert (field, f"{field} must be a text, not {wrong!r}") == refusal(made, field, wrong)


AMOUNT: Final = "accept.amount"
SCHEMES: Final = "accept.redirect_schemes"
QUARANTINE: Final = "recovery.quarantine"
VERIFICATION: Final = "notification.verification"
STEPS: Final = "a dotted path, such as data.sign, without an empty step"
A_PATH: Final = f"{STEPS}; a header cannot stand here"
LOCATED: Final = [field for field in PATHS if field != "answer.request_id" and not field.endswith("_body")]
ADDRESS: Final = "https://pay.example/p?no={gatewayNo}"
A_ZONE: Final = "a time zone, such as America/Toronto (where the system has none: install tzdata)"
BAD_PATHS: Final = ["a..b", "data.", ".", "header:X-Sign", "Header:X-Sign"]
A_SCALAR: Final = (
    'a text, a finite number, true or false; a path of several steps stands in quotes: "meta.mode" = "live"'
)
BAD_REQUEST_IDS: Final = ["header:", "header: X-Id", "header:X:Y", "Header:X-Id", "header :X-Id", "trace:id", ":"]
NO_SCALARS: Final[tuple[Any, ...]] = (None, [1], {"b": 1}, {}, float("nan"), float("inf"), 2**64, "\ud83d")
A_WAIT: Final = "above 0, and at most 31622400 (a year)"
SECONDS: Final = "a number of seconds, 0 or more"
RULES: Final[list[tuple[str, str, list[Any]]]] = [
    ("answer.total_amt", "a text", [5]),
    *((f"answer.{name}", "a text or a list, each of it a text", [None, 5, [1]]) for name in ("code", "message")),
    *(
        (f"answer.{name}", f"{A_PATH}; or a list of such paths", [*BAD_PATHS, ["a", "b..c"], [""], ["header:X"]])
        for name in ("code", "message")
    ),
    (
        "answer.redirect_template",
        f"an http or https URL with at least one path in braces behind its host, such as {ADDRESS}",
        [
            *(
                "https://pay.example/p",
                "/p?no={no}",
                "ftp://pay.example/{no}",
                "https://{host}/p",
                "https://a.example{no}",
            ),
            *(f"https://{rest}" for rest in ("u@a.example/{n}", "a.example/{}", "a.example/{a..b}", "a.example/{a} b")),
            *("https://a.example/{a}{", "https://a.example/{a{b}}"),
        ],
    ),
    ("answer.must", f"a table, with {A_PATH}", [{path: 1} for path in ("", *BAD_PATHS)]),
    ("answer.must", "a table", ["live", 1, None, ["live"]]),
    *((f"{table}.amounts", "one of 'as sent', 'major'", ["minor", 5]) for table in ("answer", "notification")),
    *((f"answer.{name}", "true or false", ["true", 1, 0]) for name in ("code_optional", "refusals_signed")),
    ("http.rate_limit_precedes_execution", "true or false", [1]),
    *((f"notification.{name}_status", "an integer", ["200", False]) for name in ("ack", "nack")),
    ("http.uncoded", "a list of statuses from 400 to 499", [[200], [500]]),
    ("notification.tolerance", "an integer", [True, 1.5]),
    ("notification.tolerance", "a number of seconds above 0", [0, -1]),
    (VERIFICATION, "one of 'body', 'header', 'standard-webhooks', 'none'", ["Body", None]),
    ("notification.kind", f"{STEPS}, or header: and the name of a header", [*BAD_PATHS[:3], "header:", "Header:X-Id"]),
    ("notification.timezone", A_ZONE, ["Toronto", "America", "../etc/passwd", "UTC+1", "EST5EDT "]),
    ("notification.must", f"a table, with {A_PATH}", [{"": 1}]),
    ("notification.merchant_id", f"{A_PATH}; or empty, to compare nothing", BAD_PATHS),
    (SCHEMES, "a list, each of it a text", [5, [1]]),
    (AMOUNT, "[least, greatest], two integers", [[1], [1, 2, 3], [2, 1]]),
    (QUARANTINE, SECONDS, [-1, float("nan"), float("inf")]),
    (QUARANTINE, "a number", [True, "60"]),
    ("sandbox.failures", "one of 'status', '200'", ["202", 200, None]),
    ("sandbox.redelivery", "a list, each of it a number", [5, "5", [True], ["5"], None]),
    ("sandbox.redelivery", f"a list of seconds, each {A_WAIT}", [[0], [5, -1], [float("nan")], [5, 31_622_401]]),
    ("sandbox.order_expiry", "a number", ["1800", True, None]),
    ("sandbox.order_expiry", f"a number of seconds {A_WAIT}", [0, -1, float("inf"), float("nan"), 31_622_401]),
    ("sandbox.codes", "a table of names, each with a text or an integer", ["BUSY", None, ["BUSY"]]),
    ("sandbox.constants", "a table", ["RSA", None, ["RSA"]]),
    *((field, A_PATH, BAD_PATHS) for field in LOCATED if field != "notification.time"),
    ("notification.time", f"{A_PATH} (use notification.header.timestamp)", BAD_PATHS),
    *((f"answer.{name}", f"{A_PATH}; or empty, to compare nothing", BAD_PATHS) for name in COMPARED),
    ("answer.subscription_id", f"{A_PATH}; or empty, to compare nothing", BAD_PATHS),
    ("answer.request_id", f"{STEPS} and without a colon, or header: and the name of a header", BAD_REQUEST_IDS),
    *(
        (
            f"http.{name}",
            "a list of statuses from 400 to 499 without 429: what the others mean is settled",
            [[200], [399], [404, 429], [500], [503, 404], [0], [-404]],
        )
        for name in ("not_executed", "absent", "duplicate")
    ),
    *(
        (f"notification.{name}", "an HTTP status from 200 to 599", [0, 199, 600, -200])
        for name in ("ack_status", "nack_status")
    ),
]


def test_a_value_breaks_a_rule() -> None:
    """A value that would have no effect is refused with the rule, and nothing is converted."""
    for field, wanted, wrong in RULES:
        expected = [(field, f"{field} must be {wanted}, not {each!r}") for each in wrong]

        assert expected == [refusal(made, field, each) for each in wrong]


def test_an_entry_of_a_table_breaks_a_rule() -> None:
    """The error about an entry of a table names the entry."""
    for field, entry, wanted, wrong in [
        ("accept.length", "subject", "1 or more", 0),
        ("sandbox.codes", "absent", "a code that is not empty", ""),
        ("sandbox.constants", "at", "JSON", datetime(2027, 1, 31)),  # noqa: DTZ001 - as TOML has it
        ("sandbox.constants", "nan", "JSON", [float("nan")]),
        *(("answer.must", "live", A_SCALAR, wrong) for wrong in NO_SCALARS),
    ]:
        found, words = refusal(made, field, {"body": 1, entry: wrong})

        assert (f"{field}.{entry}", True) == (found, words.startswith(f"{field}.{entry} must be {wanted}, not "))


def test_parameter() -> None:
    """A parameter must have a name, and a body is no place. `endpoints` may say the place if the parameter does not."""
    assert ["", "query"] == [Parameter("no").place, Parameter("no", "query").place]
    assert "status.name" == refusal(Parameter, "")[0]
    assert "status.place" == refusal(Parameter, "no", "body")[0]


def test_a_code_needs_to_know_success() -> None:
    """If `code` is given without `ok`, the shape is refused, because no response could be a success."""
    field, words = refusal(AnswerShape, code="code")

    assert ("answer.ok", True) == (field, "must list the codes that mean success" in words)


def test_our_names_of_states() -> None:
    """Each state name of payasync can be mapped, and is found by the service's value. Other names are refused."""
    for thing, names in STATES.items():
        states = States(**{thing: {name: [name.upper()] for name in names}})
        field, words = refusal(States, **{thing: {"payed": ["A"], "done": ["B"]}})

        assert names == [states.name(thing, name.upper()) for name in names]
        assert f"states.{thing}.done" == field
        assert words.startswith(f"states.{thing} must not hold done, payed; allowed are ")
        assert all(name in words for name in names)


def test_a_value_has_one_meaning() -> None:
    """A state value listed twice, under one name or two, is refused."""
    for table, second in [
        ({"paid": ["A"], "closed": ["A"]}, "closed"),
        ({"paid": ["A", "A"]}, "paid"),
        ({"paid": ["A", "B"], "pending": [0, "B"]}, "pending"),
    ]:
        field, words = refusal(States, order=table)

        assert (f"states.order.{second}", True) == (field, "two meanings" in words)


def test_states_compare_by_type_and_value() -> None:
    """State values compare by type and value: `0` is neither `False` nor `"0"`."""
    unknown: tuple[Any, ...] = (False, True, 0.0, None, "1", [], {"a": 1})
    cases: list[tuple[Any, str | None]] = [
        *((0, "pending"), ("0", "paid"), (1, "closed"), ("", "failed")),
        *((value, None) for value in unknown),
    ]
    for value, expected in cases:
        states = States(order={"pending": [0], "paid": ["0"], "closed": [1], "failed": [""]}, refund={"failed": ["1"]})

        assert expected == states.name("order", value)
        assert states.name("subscription", value) is None


def test_codes_of_operations_are_tables() -> None:
    """The codes of an operation are a table of lists, which is copied; anything else is refused."""
    for wrong in [["refunds.create"], "absent", {"refunds.create": ["A"]}]:
        given = {"refunds.create": {"absent": ["A"]}}
        codes = ResultCodes(by_operation=given)
        given["refunds.create"]["absent"].append("B")

        assert {"refunds.create": {"absent": ("A",)}} == codes.by_operation
        assert str(refusal(ResultCodes, by_operation=wrong)[0]).startswith("codes.by_operation")


def test_codes_only_in_failures() -> None:
    """With `code_optional`, a code needs no list of successes. It is refused without a path of the code."""
    shape = AnswerShape(code=["error.code", "errors.0.code"], code_optional=True)

    assert (("error.code", "errors.0.code"), ()) == (shape.code, shape.ok)
    assert "answer.code" == refusal(AnswerShape, code_optional=True)[0]


def test_address_is_given_once() -> None:
    """The path of the customer's address and its template are refused together."""
    field, words = refusal(AnswerShape, redirect_url="payUrl", redirect_template="https://pay.example/{no}")

    assert "answer.redirect_template" == field
    assert "answer.redirect_url both give the customer's address" in words


def test_paths() -> None:
    """A path consists of names and list positions, separated by dots; an empty path leaves the point open."""
    for field in LOCATED:
        paths = ["", "a", "data.sign", "a.0.b", "a b.c:d"]

        assert paths == [made(field, path) for path in paths]


def test_the_paths_of_an_event_have_no_empty_step() -> None:
    """An invalid path in `notification.id` is refused; the error names the kind of notification."""
    for paths in [["header:X-Id"], ["a..b"], ["outTradeNo", ""], ["a", ".b"]]:
        expected = f"notification.id.refund must be a list, each of it {A_PATH}, not {paths!r}"

        assert ("notification.id.refund", expected) == refusal(
            NotificationShape, id={"payment": ["a.b"], "refund": paths}
        )


def test_a_value_keeps_the_rules() -> None:
    """Values within the rules are accepted, such as the limits of each range."""
    for field, value in [
        *(("answer.request_id", place) for place in ("", "meta.id", "header", "header.id", "header:X-Request-Id")),
        (AMOUNT, ()),
        (AMOUNT, (1, 1)),
        *(("sandbox.failures", way) for way in ("", "status", "200")),
        *(("sandbox.redelivery", waits) for waits in ((), (0.5,), (5, 31_622_400))),
        *(("sandbox.order_expiry", seconds) for seconds in (0.5, 31_622_400)),
        ("sandbox.codes", {"absent": 0, "busy": "B"}),
        *((QUARANTINE, seconds) for seconds in (None, 0, 60.0)),
        *((VERIFICATION, word) for word in ("", "body", "standard-webhooks", "none")),
        *(("notification.kind", place) for place in ("", "meta.event", "a:b", "header:X-Event")),
        *(("notification.timezone", zone) for zone in ("", "UTC", "America/Toronto")),
        ("notification.header", SignedHeader(signature="X-Signature")),
        *(("notification.merchant_id", path) for path in (None, "", "shop.id")),
        *(("notification.amounts", unit) for unit in ("", "as sent", "major")),
        *(("answer.total_amt", path) for path in (None, "", "a.b")),
        *((f"http.{name}", statuses) for name in ("not_executed", "absent") for statuses in ((), (400,), (428, 499))),
        *((f"notification.{name}", status) for name in ("ack_status", "nack_status") for status in (None, 200, 599)),
    ]:
        assert value == made(field, value)


def test_amount_as_a_customer_reads_it() -> None:
    """An amount is shown with two decimals, or as its currency or the profile's unit requires."""
    for amount, currency, unit, expected in [
        (450, "CAD", "minor", "4.50 CAD"),
        (5, "cad", "", "0.05 CAD"),
        (123_456_789, "USD", "minor", "1,234,567.89 USD"),
        (450, "JPY", "minor", "450 JPY"),
        (1005, "KWD", "minor", "1.005 KWD"),
        (450, "CAD", "major", "450 CAD"),
    ]:
        assert expected == format_amount(amount, currency, unit)
