import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.profile.schema import Parameter, Recovery
from payasync.signing.schemes import SortedPairs
from tests.whole_profile import PYTHON, WHOLE

CODES: Final = "a list, each of it a text or an integer"
TABLE: Final = "must be a table of names, each with"


def test_whole_form_equals_the_python_form() -> None:
    """Every key has its argument, and TOML says exactly what Python says."""
    bare = Profile(signature=SortedPairs(), payment_status=Parameter("x"), refund_status=Parameter("x"))

    assert PYTHON == Profile.from_toml(WHOLE)
    assert [] == list(same(attrs.asdict(bare), attrs.asdict(PYTHON)))


def same(bare: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys for which the whole form has the default."""
    for name, default in bare.items():
        if isinstance(default, dict) and default:
            yield from same(default, whole[name])
        elif default == whole[name]:
            yield name


def test_file_says_what_its_text_says(tmp_path: Path) -> None:
    """A file is read as UTF-8, by a path or its text."""
    file = tmp_path / "service.toml"
    file.write_text(f"# für den Dienst\n{WHOLE}", encoding="utf-8")

    assert PYTHON == Profile.from_file(file)
    assert PYTHON == Profile.from_file(str(file))


@pytest.mark.parametrize("text", ["", WHOLE, f"\n{WHOLE}"])
def test_a_byte_order_mark_is_nothing(tmp_path: Path, text: str) -> None:
    """Some editors begin a file in UTF-8 with a mark, which is no part of its text."""
    file = tmp_path / "service.toml"
    file.write_text(text, encoding="utf-8-sig")

    assert b"\xef\xbb\xbf" == file.read_bytes()[:3]
    assert Profile.from_toml(text) == Profile.from_file(file)
    assert Profile.from_toml(text) == Profile.from_toml(f"\ufeff{text}")


def test_lines_behind_a_byte_order_mark() -> None:
    """A mark changes no line, and it is one: a second is text that is no TOML."""
    with pytest.raises(ConfigurationError, match=r"^profile, line 1: name must be a text") as first:
        Profile.from_toml("\ufeffname = 1")
    with pytest.raises(ConfigurationError, match="not TOML") as second:
        Profile.from_toml("\ufeff\ufeffname = 'x'")

    assert (1, 1) == (first.value.line, second.value.line)


def test_every_key_is_optional() -> None:
    """What is left out is what the document states, or open."""
    assert Profile() == Profile.from_toml("")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[status.payment]\nname = "no"', Profile(payment_status=Parameter("no", "query"))),
        ('[status.refund]\nname = "no"\nplace = "header"', Profile(refund_status=Parameter("no", "header"))),
        ("[status]", Profile()),
        ("[signature]", Profile(signature=SortedPairs())),
        ("[recovery]\nquarantine = 60", Profile(recovery=Recovery(quarantine=60))),
    ],
)
def test_parts(text: str, expected: Profile) -> None:
    """`[status.payment]` and `[status.refund]` are endpoints 6 and 7; an int is a number of seconds, too."""
    assert expected == Profile.from_toml(text)


def line_of(text: str, error: ConfigurationError) -> str:
    """Return the line that an error names."""
    assert error.line

    return text.split("\n")[error.line - 1]


TOP: Final = (
    "name, bearer, signed, merchant, identifier, amount_unit, signature, fields, formats, constants, headers, "
    "accept, status, answer, states, codes, http, recovery, notification"
)


@pytest.mark.parametrize(
    ("text", "key", "meant", "allowed"),
    [
        ('nam = "x"', "nam", "name", TOP),
        ("[signatures]", "signatures", "signature", ""),
        ("[answer]\ncodes = []", "answer.codes", "code", ""),
        ('[signature]\nencodng = "hex"', "signature.encodng", "encoding", ""),
        ("[accept]\nlengths = {}", "accept.lengths", "length", ""),
        ("[states.orders]", "states.orders", "order", "order, payment, refund, subscription"),
        ("[codes]\nretriable = []", "codes.retriable", "retryable", ""),
        ("[http]\nabsnt = []", "http.absnt", "absent", ""),
        ("[recovery]\nquarantin = 5", "recovery.quarantin", "quarantine", "quarantine"),
        ('[status.payment]\nname = "x"\nplaces = "query"', "status.payment.places", "place", "name, place"),
        ('[status.refunds]\nname = "x"', "status.refunds", "refund", "payment, refund"),
        ("[notification]\nack = 1", "notification.ack", None, ""),
        ("[signature]\n9 = 1", "signature.9", None, ""),
        ("shop = 1", "shop", None, ""),
        ('[payment_status]\nname = "x"', "payment_status", "[status.payment]", TOP),
        ('[refund_status]\nname = "x"', "refund_status", "[status.refund]", ""),
    ],
)
def test_unknown_key(text: str, key: str, meant: str | None, allowed: str) -> None:
    """A misspelt key would leave a point open in silence: it is refused, with what was meant and what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_toml(text)

    suggestion = f"did you mean {meant}? " if meant else ""
    assert str(caught.value).startswith(
        f"profile, line {caught.value.line}: {key} is unknown: {suggestion}allowed are "
    )
    assert str(caught.value).endswith(f" {allowed}" if allowed else "")
    assert key == caught.value.field
    assert key.rpartition(".")[2] in line_of(text, caught.value)


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        ("name = 1", "name", "must be a text, not 1"),
        ('bearer = "payments.create"', "bearer", "must be a list, each of it a text, not 'payments.create'"),
        ('amount_unit = "cents"', "amount_unit", "must be one of 'minor', 'major', not 'cents'"),
        ("signature = 'md5'", "signature", "must be a table, not 'md5'"),
        ("[[signature]]", "signature", "must be a table, not [{}]"),
        ('[signature]\nencoding = "upper"', "signature.encoding", "must be one of 'hex', 'HEX', 'base64', not 'upper'"),
        ('[signature]\nskip_empty = "false"', "signature.skip_empty", "must be true or false, not 'false'"),
        ("[fields]\nreturn_url = 5", "fields.return_url", f"fields {TABLE} a text, not 'return_url' with an integer"),
        ("constants = 1", "constants", f"{TABLE} a table, not an integer"),
        ('[constants]\nkey = "sk_live"', "constants.key", f"constants {TABLE} a table, not 'key' with a text"),
        ('[headers]\nX-A = "sk_live"\nX-B = 2', "headers.X-B", f"headers {TABLE} a text, not 'X-B' with an integer"),
        ("accept = 1", "accept", "must be a table, not 1"),
        ('[accept]\namount = ["1", "2"]', "accept.amount", "must be a list, each of it an integer, not ['1', '2']"),
        (
            '[accept]\nlength = {subject = "30"}',
            "accept.length.subject",
            f"accept.length {TABLE} an integer, not 'subject' with '30'",
        ),
        (
            '[accept.required]\n"orders.place" = "subject"',
            "accept.required.orders.place",
            f"accept.required {TABLE} a list, each of it a text, not 'orders.place' with 'subject'",
        ),
        ("status = 1", "status", "must be a table, not 1"),
        ("[status]\npayment = 'no'", "status.payment", "must be a table, not 'no'"),
        ("[status.payment]\nname = 1", "status.payment.name", "must be a text, not 1"),
        (
            '[status.refund]\nname = "x"\nplace = "body"',
            "status.refund.place",
            "must be one of 'query', 'path', 'header', not 'body'",
        ),
        ('[answer]\nok = "SUCCESS"', "answer.ok", f"must be {CODES}, not 'SUCCESS'"),
        ('[answer]\nrefusals_signed = "no"', "answer.refusals_signed", "must be true or false, not 'no'"),
        ("[answer]\ntotal_amt = false", "answer.total_amt", "must be a text, not False"),
        (
            '[states.order]\npaid = "SUCCESS"',
            "states.order.paid",
            f"states.order {TABLE} {CODES}, not 'paid' with 'SUCCESS'",
        ),
        ('[codes]\nabsent = "NONE"', "codes.absent", f"must be {CODES}, not 'NONE'"),
        ('[http]\nabsent = ["404"]', "http.absent", "must be a list, each of it an integer, not ['404']"),
        ('[recovery]\nquarantine = "60"', "recovery.quarantine", "must be a number, not '60'"),
        ("[notification]\ntolerance = true", "notification.tolerance", "must be an integer, not True"),
    ],
)
def test_wrong_type(text: str, field: str, why: str) -> None:
    """Nothing is converted, no text is a list of its letters, and the error names the key and its line."""
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_toml(text)

    said = f"{field} {why}" if why.startswith("must") else why
    assert f"profile, line {caught.value.line}: {said}" == str(caught.value)
    assert field == caught.value.field
    assert field.rpartition(".")[2] in line_of(text, caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "field", "line", "why"),
    [
        ('bearer = ["payments.creat"]', "bearer", 1, "bearer knows no 'payments.creat'; allowed are"),
        ('identifier = "("', "identifier", 1, "identifier is no regular expression"),
        ('[formats]\nstart_date = "hello"', "formats.start_date", 2, "formats.start_date must write each date"),
        ('[answer]\ncurrency = "a..b"', "answer.currency", 2, "answer.currency must be a dotted path"),
        ("[http]\nduplicate = [409, 422]", "http.duplicate", 2, "http.duplicate and http.not_executed both hold 422"),
        ('\n[signature]\nalgorithm = "md5"', "signature.key_param", 2, "signature.key_param must be given with"),
        ('[signature]\nseparator = "="', "signature.separator", 2, "signature.separator must not be empty"),
        ('[fields]\nnotify_url = "x"', "fields.notify_url", 2, "fields knows no 'notify_url'"),
        ('[constants."*"]\nsign = "x"', "constants.*.sign", 2, "constants.*.sign must not set sign"),
        ('[constants."*"]\nnow = 2027-01-31', "constants.*.now", 2, "constants.*.now must be JSON, without"),
        ('[headers]\n"X Y" = "x"', "headers.X Y", 2, "headers: 'X Y' must be of visible ASCII"),
        ("[accept]\namount = [5, 1]", "accept.amount", 2, "accept.amount must be [least, greatest]"),
        (
            '[accept.required]\n"orders.plac" = []',
            "accept.required.orders.plac",
            2,
            "accept.required knows no 'orders.plac'",
        ),
        ('[status.payment]\nname = ""', "status.payment.name", 2, "status.payment.name is empty: a parameter"),
        ('[status.payment]\nplace = "path"', "status.payment.name", 1, "status.payment.name is missing"),
        ('[status.refund]\nname = "sign"', "status.refund.name", 2, "status.refund.name must not set sign"),
        (
            '[status.payment]\nname = "a"\n[status.refund]\nname = "Host"\nplace = "header"',
            "status.refund.name",
            4,
            "status.refund.name: 'Host' is no header",
        ),
        ('[answer]\ncode = "code"', "answer.ok", 1, "answer.ok must list the codes"),
        ('answer.code = "code"', "answer.ok", 1, "answer.ok must list the codes"),
        (
            '[states.order]\npayed = ["X"]',
            "states.order.payed",
            2,
            "states.order knows no payed; allowed are pending, paid",
        ),
        (
            '[states.order]\npaid = ["X"]\nclosed = ["X"]',
            "states.order.closed",
            3,
            "states.order gives 'X' two meanings",
        ),
        ("[answer]\nok = [0]\n[codes]\nabsent = [0]", "codes.absent", 4, "answer.ok and codes.absent both hold 0"),
        ("[recovery]\nquarantine = -1", "recovery.quarantine", 2, "recovery.quarantine must be a number of seconds, 0"),
        ("[notification.id]\norder = []", "notification.id.order", 2, "notification.id knows no 'order'"),
        ('[notification.id]\nrefund = ["a..b"]', "notification.id.refund", 2, "notification.id.refund must be a list"),
        ('name = "x"\n[headers]\nX-A = "1"\n\nX-B = "é"', "headers.X-B", 5, "headers: 'X-B' must be of visible ASCII"),
        ('[headers]\nX-A = "1"\nhost = "x"', "headers.host", 3, "headers must not set host: payasync does"),
        ('[headers]\nX-A = "1"\nx-a = "2"', "headers.x-a", 3, "headers: X-A and x-a are one header"),
        ('[fields]\ncustomer = "c"\nfrequency = "sign"', "fields.frequency", 3, "fields.frequency must not set sign"),
        (
            '[fields]\nreturn_url = "subject"',
            "fields.return_url",
            2,
            "fields.return_url is 'subject', which is the wire",
        ),
        ('[constants."orders.plce"]\nv = 1', "constants.orders.plce", 1, "constants knows no 'orders.plce'"),
        (
            '[constants."orders.place"]\nv = 1\ntotalAmt = 2',
            "constants.orders.place.totalAmt",
            3,
            "constants.orders.place.totalAmt is the argument total_amt, which every call gives",
        ),
        ('[formats]\ndate = "%Y"', "formats.date", 2, "formats knows no 'date'; allowed are start_date"),
        (
            "[accept.length]\nbody = 5\nsubjct = 30",
            "accept.length.subjct",
            3,
            "accept.length knows no 'subjct'; allowed",
        ),
        ('[accept]\nlength = {"body" = 0}', "accept.length.body", 2, "accept.length.body must be 1 or more, not 0"),
        (
            '[accept.required]\n"orders.query" = []\n"orders.place" = ["subjct"]',
            "accept.required.orders.place",
            3,
            "accept.required.orders.place knows no 'subjct': did you mean subject?",
        ),
        ("[http]\nabsent = [404, 429]", "http.absent", 2, "http.absent must be a list of statuses from 400 to 499 wi"),
        (
            "[notification]\nack_status = 99",
            "notification.ack_status",
            2,
            "notification.ack_status must be an HTTP sta",
        ),
    ],
)
def test_contradiction(text: str, field: str, line: int, why: str) -> None:
    """What a part refuses about itself comes out with its key, as TOML writes it, and the line of key or table."""
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_toml(text)

    assert str(caught.value).startswith(f"profile, line {line}: {why}")
    assert (field, line) == (caught.value.field, caught.value.line)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('name = "x"\nbearer = ', None, "profile: not TOML: Invalid value"),
        ('name = "x"\nbearer == []', 2, "profile, line 2: not TOML: Invalid value"),
        ("a\x00", 1, "profile, line 1: not TOML: "),
        ('name = "x"\nname = "y"\n', 2, "profile, line 2: not TOML: Cannot overwrite a value"),
        (f"name = {'1' * 5_000}", None, "profile: not TOML: "),
        (f"name = {'[' * 100_000}", None, "profile: not TOML: "),
    ],
    ids=["ends", "sign", "invisible", "twice", "long number", "deep"],
)
def test_not_toml(text: str, line: int | None, why: str) -> None:
    """A text that is no TOML, or more than can be read, is told where, as far as TOML says."""
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_toml(text)

    assert str(caught.value).startswith(why)
    assert ("profile", line) == (caught.value.field, caught.value.line)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("text", [b'name = "x"', None, 5, Path("service.toml")], ids=repr)
def test_what_is_no_text(text: Any) -> None:
    """Bytes, or a path, are not read for a text."""
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_toml(text)

    assert f"profile must be a TOML text, not {text!r}" == str(caught.value)
    assert ("profile", None) == (caught.value.field, caught.value.line)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), (b"name = '\xff'", "not UTF-8 text")],
)
@pytest.mark.parametrize("kind", [Path, str])
def test_unreadable_file(tmp_path: Path, content: bytes | None, why: str, kind: type) -> None:
    """A file that cannot be read is named, with what is wrong with it."""
    file = tmp_path / "service.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_file(kind(file))

    assert f"profile: cannot read {str(file)!r}: {why}" == str(caught.value)
    assert ("profile", None) == (caught.value.field, caught.value.line)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("path", [5, None, b"service.toml", "a\x00b", ["a"]], ids=repr)
def test_path_that_is_none(path: Any) -> None:
    """What no file can be called is as unreadable as a file that is not there."""
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_file(path)

    assert f"profile: cannot read {path!r}: it is no path" == str(caught.value)
    assert "profile" == caught.value.field
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\nname == 1", ", line 2: not TOML: Invalid value"),
        ("name = ", ": not TOML: Invalid value"),
        ("# ours\nname = 1", ", line 2: name must be a text, not 1"),
        ("[answer]\nkode = ''", ", line 2: answer.kode is unknown: did you mean code?"),
        (
            'name = "x"\n\n# signs\n[signature]\nalgorithm = "ed25519"\n\nencoding = "upper"',
            ", line 7: signature.encoding must be one of 'hex', 'HEX', 'base64', not 'upper'",
        ),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_errors_begin_with_file_and_line(tmp_path: Path, text: str, why: str, end: str) -> None:
    """Who reads several profiles learns which of them is wrong, and where."""
    file = tmp_path / "live.toml"
    file.write_bytes(text.replace("\n", end).encode())
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_file(file)

    assert str(caught.value).startswith(f"{file}{why}")


def test_errors_pickle() -> None:
    """An error reaches another process with its place."""
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_toml("name = 1")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made in the same line

    assert ("profile, line 1: name must be a text, not 1", "name", 1) == (str(copy), copy.field, copy.line)


@pytest.mark.parametrize("key", [line for line in WHOLE.split("\n") if " = " in line])
def test_every_key_has_its_line(key: str) -> None:
    """Whichever key of a whole profile holds what it cannot, its line is the one that is named."""
    name = key.partition(" = ")[0]
    lines = WHOLE.replace(key, f"{name} = 2027-01-31").split("\n")
    with pytest.raises(ConfigurationError) as caught:
        Profile.from_toml("\n".join(lines))

    assert f"{name} = 2027-01-31" == line_of("\n".join(lines), caught.value)


@given(st.text() | st.lists(st.sampled_from(WHOLE.split("\n"))).map("\n".join))
def test_nothing_foreign_escapes(text: str) -> None:
    """Any text is a profile, or our own error."""
    try:
        profile = Profile.from_toml(text)
    except ConfigurationError:
        return

    assert isinstance(profile, Profile)
