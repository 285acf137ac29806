import json
import pickle
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync import (
    Accept,
    AnswerShape,
    ConfigurationError,
    Idempotency,
    NotificationShape,
    Parameter,
    Profile,
    Recovery,
    ResultCodes,
    SortedPairs,
    States,
)
from payasync.endpoints import ARGUMENTS
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.wire_names import OURS
from tests.profile.refusal import refusal, refused

WHOLE: Final = Path(__file__).with_name("whole_profile.toml").read_text(encoding="utf-8")
PROFILE_OF_WHOLE: Final = Profile.from_toml(WHOLE)

CODES: Final = "a list, each of it a text or an integer"
TABLE: Final = "must be a table of names, each with"
OF_ORDERS: Final = "accept.required.orders.place"
REQUIRED: Final = f"accept.required {TABLE} a list, each of it a text, not 'orders.place' with 'x'"


def test_each_key_is_its_argument() -> None:
    """TOML tables and Python arguments agree. The test file has every key, and few that a default goes with."""
    tables = tomllib.loads(WHOLE)
    tables |= {f"{thing}_status": table for thing, table in tables.pop("status").items()}
    bare = Profile(signature=SortedPairs(), payment_status=Parameter("x"), refund_status=Parameter("x", "path"))

    codes = tables["codes"]
    codes["by_operation"] = {key: codes.pop(key) for key in list(codes) if key in ARGUMENTS}

    assert tables == json.loads(as_json(PROFILE_OF_WHOLE).replace('"with_":', '"with":'))
    others = ["min_rsa_bits", "redirect_template", "signature", "field"]
    assert others == list(same(as_given(bare), as_given(PROFILE_OF_WHOLE)))
    assert PROFILE_OF_WHOLE == pickle.loads(pickle.dumps(PROFILE_OF_WHOLE))  # noqa: S301 - made in the same line


def same(bare: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys for which the whole form has the default."""
    for name, default in bare.items():
        if isinstance(default, dict) and default:
            yield from same(default, whole[name])
        elif default == whole[name]:
            yield name


@pytest.mark.parametrize("text", ["", WHOLE, f"# für den Dienst\n{WHOLE}"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_file_says_what_its_text_says(tmp_path: Path, text: str, encoding: str) -> None:
    """`from_file` reads UTF-8, with or without a byte order mark, from a `Path` or a `str`."""
    file = tmp_path / "service.toml"
    file.write_text(text, encoding=encoding)

    assert Profile.from_toml(text) == Profile.from_file(file) == Profile.from_file(str(file))
    assert Profile.from_toml(text) == Profile.from_toml(f"\ufeff{text}")


def line_of(text: str, error: ConfigurationError) -> str:
    """Return the line that an error names."""
    assert error.line

    return text.split("\n")[error.line - 1]


TOP: Final = (
    "name, bearer, signed, merchant, identifier, amount_unit, signature, endpoints, fields, formats, constants, "
    "headers, auth, accept, status, answer, states, codes, http, recovery, idempotency, notification, sandbox"
)


def test_unknown_key() -> None:
    """An unknown key is refused; the error gives its line, suggests a similar key, and lists the allowed ones."""
    for text, key, meant, allowed in [
        ('nam = "x"', "nam", "name", TOP),
        ('[signature]\nencodng = "hex"', "signature.encodng", "encoding", ""),
        ('[status.payment]\nname = "x"\nplaces = "query"', "status.payment.places", "place", "name, place"),
        ('[status.refunds]\nname = "x"', "status.refunds", "refund", "payment, refund"),
        ("[signature]\n9 = 1", "signature.9", None, ""),
        ('[codes."refunds.creat"]\nabsent = []', "codes.refunds.creat", "refunds.create", ""),
        ("[codes]\nby_operation = {}", "codes.by_operation", None, ""),
        ('[payment_status]\nname = "x"', "payment_status", "[status.payment]", TOP),
        ('[refund_status]\nname = "x"', "refund_status", "[status.refund]", ""),
    ]:
        error = refused(Profile.from_toml, text)

        suggestion = f"did you mean {meant}? " if meant else ""
        assert str(error).startswith(f"profile, line {error.line}: {key} is unknown: {suggestion}allowed are ")
        assert str(error).endswith(f" {allowed}" if allowed else "")
        assert key == error.field
        assert key.rpartition(".")[2] in line_of(text, error)


def test_wrong_type() -> None:
    """A value of the wrong type is not converted: the error names the key and its line."""
    for text, field, why in [
        ("name = 1", "name", "must be a text, not 1"),
        ('bearer = "payments.create"', "bearer", "must be a list, each of it a text, not 'payments.create'"),
        ("signature = 'md5'", "signature", "must be a table, not 'md5'"),
        ("[signature]\nskip_null = 1", "signature.skip_null", "must be true or false, not 1"),
        ("constants = 1", "constants", f"{TABLE} a table, not an integer"),
        ('[constants]\nkey = "sk_live"', "constants.key", f"constants {TABLE} a table, not 'key' with a text"),
        ('[headers]\nX-A = "sk_live"\nX-B = 2', "headers.X-B", f"headers {TABLE} a text, not 'X-B' with an integer"),
        ('[accept.required]\n"orders.place" = "x"', OF_ORDERS, REQUIRED),
        ("status = 1", "status", "must be a table, not 1"),
        ('[codes]\nabsent = "A"', "codes.absent", "must be a list, each of it a text or an integer, not 'A'"),
        (
            '[codes."refunds.create"]\nabsent = "A"',
            "codes.refunds.create.absent",
            f"codes {TABLE} a table of names, each with {CODES}, not 'refunds.create' with a dict",
        ),
        ("[status.payment]\nname = 1", "status.payment.name", "must be a text, not 1"),
    ]:
        error = refused(Profile.from_toml, text)

        said = f"{field} {why}" if why.startswith("must") else why
        assert f"profile, line {error.line}: {said}" == str(error)
        assert field == error.field
        assert field.rpartition(".")[2] in line_of(text, error)


HOST: Final = '[status.refund]\nname = "Host"\nplace = "header"'
CLASH: Final = '[answer]\nok = [1]\n[codes."orders.place"]\nabsent = [1]'
ABSENT_ALONE: Final = "codes.\"refunds.create\" must not hold 'absnt'; allowed are absent, duplicate, not_executed"


def test_contradiction() -> None:
    """The error about contradicting values names the TOML key, and the line of the key or its table."""
    for text, field, line, why in [
        ('\n[signature]\nalgorithm = "md5"', "signature.key_param", 2, "signature.key_param must be given with"),
        ('[constants."*"]\nsign = "x"', "constants.*.sign", 2, 'constants."*".sign must not set sign'),
        ('[status.payment]\nplace = "path"', "status.payment.name", 1, "status.payment.name is missing"),
        (HOST, "status.refund.name", 2, "status.refund.name must not be Host, because payasync sets it"),
        (CLASH, "codes.orders.place.absent", 4, 'answer.ok and codes."orders.place".absent both hold 1'),
        ('[codes."refunds.create"]\nabsnt = []', "codes.refunds.create.absnt", 2, ABSENT_ALONE),
    ]:
        error = refused(Profile.from_toml, text)

        assert str(error).startswith(f"profile, line {line}: {why}")
        assert (field, line) == (error.field, error.line)


def test_operation_without_quotes() -> None:
    """If an operation has no quotes in TOML, the error says so, with the key as it must be written and the line."""
    for text, field, written in [
        ('[endpoints.orders.place]\npath = "/x"', "endpoints.orders.place", '[endpoints."orders.place"]'),
        ("[codes.refunds.create]\nabsent = [1]", "codes.refunds.create", '[codes."refunds.create"]'),
        ("[constants.orders.place]\nv = 1", "constants.orders.place", '[constants."orders.place"]'),
        ('[fields.orders.place]\ncurrency = "c"', "fields.orders.place", '[fields."orders.place"]'),
        (
            'accept.required.orders.place = ["subject"]',
            "accept.required.orders.place",
            'accept.required."orders.place" = [...]',
        ),
        ('[sandbox.omits.orders]\nclose = ["*"]', "sandbox.omits.orders.close", 'sandbox.omits."orders.close" = [...]'),
    ]:
        error = refused(Profile.from_toml, f'name = "x"\n{text}')
        operation = ".".join(field.split(".")[-2:])

        assert str(error) == (
            f"profile, line {error.line}: the operation {operation} must stand in quotes, because its name has a dot: "
            f"{written}"
        )
        assert (field, 2 + text.startswith("[sandbox")) == (error.field, error.line)


def test_not_toml() -> None:
    """A text that is not TOML is refused, with the line if the TOML parser gives one."""
    for text, line, why in [
        ('name = "x"\nbearer = ', None, "profile: not TOML: Invalid value"),
        ('name = "x"\nbearer == []', 2, "profile, line 2: not TOML: Invalid value"),
        ("a\x00", 1, "profile, line 1: not TOML: "),
        ('name = "x"\nname = "y"\n', 2, "profile, line 2: not TOML: Cannot overwrite a value"),
        (f"name = {'1' * 5_000}", None, "profile: not TOML: "),
        (f"name = {'[' * 100_000}", None, "profile: not TOML: "),
    ]:
        error = refused(Profile.from_toml, text)

        assert str(error).startswith(why)
        assert ("profile", line) == (error.field, error.line)


def test_open_quote() -> None:
    """The error about a quote that is left open names its line once, and asks about the quote."""
    for quote in ['"', "'"]:
        words = str(refused(Profile.from_toml, f"bearer = []\nname = {quote}x\nmark = {quote}y{quote}\n"))

        assert words.startswith("profile, line 2: not TOML: ")
        assert words.endswith("(at column 10): is a quote left open?")


def test_unreadable_file() -> None:
    """If a file cannot be read, the error names it and the reason. An argument of the wrong type is refused."""
    for path, why in [("/nowhere/service.toml", "No such file or directory"), (5, "not a path"), (b"a", "not a path")]:
        field, words = refusal(Profile.from_toml, path if not isinstance(path, str) else None)

        assert ("profile", f"profile: cannot read {path!r}: {why}") == refusal(Profile.from_file, path)
        assert "profile" == field
        assert words.startswith("profile must be a TOML text, not ")


def test_errors_begin_with_file_and_line(tmp_path: Path) -> None:
    """An error begins with the file's path, or `profile` for a text, and with the line if it is known."""
    file = tmp_path / "live.toml"
    for text, why in [
        ("name = ", ": not TOML: Invalid value"),
        ("[answer]\r\nkode = ''", ", line 2: answer.kode is unknown: did you mean code?"),
        (
            'name = "x"\n\n# signs\n[signature]\n\nencoding = "up"',
            ", line 6: signature.encoding must be one of 'hex', ",
        ),
    ]:
        file.write_bytes(text.encode())

        assert str(refused(Profile.from_file, file)).startswith(f"{file}{why}")
        assert str(refused(Profile.from_toml, text)).startswith(f"profile{why}")


def test_every_key_has_its_line() -> None:
    """For each key of a whole profile, the error about an invalid value names the key's line."""
    expected, found = list[str](), list[str | None]()
    for key in (line for line in WHOLE.split("\n") if " = " in line):
        wrong = f"{key.partition(' = ')[0]} = 2027-01-31"
        text = WHOLE.replace(key, wrong)
        expected.append(wrong)
        found.append(line_of(text, refused(Profile.from_toml, text)))

    assert expected == found


@given(st.text() | st.lists(st.sampled_from(WHOLE.split("\n"))).map("\n".join))
def test_nothing_foreign_escapes(text: str) -> None:
    """Any text gives a profile or a `ConfigurationError`."""
    try:
        profile = Profile.from_toml(text)
    except ConfigurationError:
        return

    assert isinstance(profile, Profile)


def test_line_below_a_value_of_several_lines() -> None:
    """Lines inside a text or list are not taken for keys or headers when the line of an error is counted."""
    for above in [
        'name = """\nbearer = 1\n"""',
        "name = '''\n[signature]\n]\n'''",
        'signed = [ # ]\n"orders.place",\n\n]',
        f"constants.'*'.a{'.a' * 20} = [\n'bearer = 1'\n]",
    ]:
        text = f"# ours\r\n{above}\nbearer = 5"
        error = refused(Profile.from_toml, text)

        assert str(error).startswith(f"profile, line {error.line}: bearer must be a list")
        assert text.count("\n") + 1 == error.line


def round_trip(profile: Profile) -> Profile:
    """Write a profile as TOML, and return what is read back."""
    return Profile.from_toml(profile.to_toml())


def test_what_is_written_reads_back() -> None:
    """A profile survives a TOML round trip. An empty list is written if it is not the default."""
    for profile in [
        Profile(),
        PROFILE,
        PROFILE_OF_WHOLE,
        Profile(bearer=()),
        Profile(signed=(), merchant=()),
        Profile(signature=SortedPairs()),
        Profile(signature=SortedPairs(allow_delimiters=())),
        Profile(accept=Accept(required={"orders.place": ()})),
        Profile(constants={"*": {}, "orders.place": {"outer": {"inner": {}}, "empty": {}}}),
        Profile(constants={"*": {"list": [[], {}, [{"a": {}}]]}}),
        Profile(states=States(order={"paid": ()})),
        Profile(fields={"customer": ""}),
        Profile(answer=AnswerShape(refusals_signed=False)),
        Profile(answer=AnswerShape(code=["error.code", "errors.0.code"], code_optional=True, message=["msg"])),
        Profile(answer=AnswerShape(redirect_template="https://pay.example/p?no={gatewayNo}&a={data.totalAmt}#{x}")),
        Profile(codes=ResultCodes(duplicate=[1], by_operation={"refunds.create": {"absent": [1], "retryable": []}})),
        Profile(answer=AnswerShape(total_amt="", currency="currency")),
        Profile(idempotency=Idempotency(field="idempotency_key", lifetime=0.0)),
    ]:
        assert as_json(profile) == as_json(round_trip(profile))
        assert profile == round_trip(profile)


def as_json(profile: Profile) -> str:
    """Return a profile as JSON, which tells `1`, `1.0` and `true` apart, unlike `==`."""
    return json.dumps(as_given(profile), sort_keys=True)


def as_given(profile: Profile) -> dict[str, Any]:
    """Return the arguments of a profile and of its parts."""
    return attrs.asdict(profile, filter=lambda attribute, _: attribute.init)


class Named(str, Enum):  # noqa: UP042 - the older form, which formats as its name
    """A `str` Enum."""

    ONE = "one"


def test_an_enum_is_written_as_its_value() -> None:
    """A `str` Enum is written as its value, as a key and as a value."""
    profile = Profile(name=Named.ONE, constants={"*": {Named.ONE: [Named.ONE]}})

    assert ("one", {"*": {"one": ["one"]}}) == (round_trip(profile).name, round_trip(profile).constants)


WRITTEN: Final = """\
name = "q \\"u\\" ü"
bearer = []

[signature]
algorithm = "rsa-sha256"
encoding = "base64"

[constants."*"]
signType = "RSA"
ratio = 0.5
tags = ["a", {"b.c" = [1, false]}]

[constants."*".device]
os = "x"

[constants."orders.place"]

[accept.required]
"orders.place" = ["subject"]

[status.refund]
name = "no"
place = "path"
"""


def test_written_text() -> None:
    """`to_toml` writes tables in their order, one line for each key, and no defaults."""
    profile = Profile(
        name='q "u" ü',
        bearer=[],
        signed=["orders.place", "orders.query", "orders.close", "refunds.create"],
        signature=SortedPairs(algorithm="rsa-sha256", encoding="base64", separator="&", exclude=["sign"]),
        constants={
            "*": {"signType": "RSA", "ratio": 0.5, "device": {"os": "x"}, "tags": ["a", {"b.c": [1, False]}]},
            "orders.place": {},
        },
        accept=Accept(amount=[], required={"orders.place": ["subject"]}),
        refund_status=Parameter("no", "path"),
        notification=NotificationShape(tolerance=300),
    )

    assert WRITTEN == profile.to_toml()
    assert WRITTEN == round_trip(profile).to_toml()


OWN_SCHEME: Final[Any] = SimpleNamespace(sign=str, verify=bool)


def test_what_toml_cannot_hold_is_refused() -> None:
    """A value that TOML cannot hold is refused with its key, and not left out."""
    for profile, field in [
        (Profile(signature=OWN_SCHEME), "signature"),
        (Profile(constants={"*": {"note": None}}), "constants.*.note"),
        (Profile(constants={"orders.place": {"a": {"b": [1, None]}}}), "constants.orders.place.a.b"),
        (Profile(constants={"*": {"a": [{"b": None}]}}), "constants.*.a"),
        (Profile(name="\ud800"), "name"),
        (Profile(fields={"customer": "a\udfffb"}), "fields.customer"),
        (Profile(payment_status=Parameter("\ud800")), "status.payment.name"),
        (Profile(codes=ResultCodes(absent=[1, "\ud800"])), "codes.absent"),
        (Profile(accept=Accept(amount=(1, 10**5000))), "accept.amount"),
    ]:
        error = refused(profile.to_toml)

        assert field == error.field
        assert str(error).startswith(field)
        assert "TOML cannot hold" in str(error)
        assert str(error).isprintable()


TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [*'"\\\n\t\x00\x1f\x7f\x85\u2028é🙂#=', "\r\n", "a.b", "[x]", '"' * 3, "'" * 3]
)
WHOLES: Final = st.integers(-(2**63), 2**63 - 1)
TEXTS_OR_WHOLES: Final = TEXTS | WHOLES
JSON: Final[st.SearchStrategy[Any]] = st.recursive(
    st.booleans() | TEXTS_OR_WHOLES | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
TAKEN: Final = {*OURS.values()} | {argument.wire for arguments in ARGUMENTS.values() for argument in arguments}
CONSTANTS: Final = st.dictionaries(TEXTS, JSON, max_size=3).filter(TAKEN.isdisjoint)


@given(
    text=TEXTS,
    constants=CONSTANTS,
    codes=st.lists(TEXTS_OR_WHOLES, unique_by=lambda code: (type(code), code), max_size=6),
    quarantine=st.none() | st.floats(0, 1e300) | st.integers(0, 10**9),
)
def test_any_profile_reads_back(
    text: str, constants: dict[str, Any], codes: list[str | int], quarantine: float | None
) -> None:
    """Any texts, numbers and tables survive a TOML round trip. The file holds no control characters."""
    profile = Profile(
        name=text,
        fields={"customer": f"customer {text}".replace(".", "")},  # a dot nests
        constants={"*": constants},
        states=States(order={"paid": codes[:2], "closed": codes[2:]}),
        codes=ResultCodes(not_executed=codes),
        recovery=Recovery(quarantine=quarantine),
    )
    written = profile.to_toml()

    assert as_json(profile) == as_json(Profile.from_toml(written.encode().decode()))
    assert profile == Profile.from_toml(written)
    assert written == round_trip(profile).to_toml()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", written)
