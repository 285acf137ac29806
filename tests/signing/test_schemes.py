import base64
import enum
import hmac
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from attrs import evolve
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import example, given, settings
from hypothesis import strategies as st

from payasync.credentials import Secret
from payasync.errors import ConfigurationError, InvalidArgumentError, NotConfiguredError
from payasync.signing.algorithms import ALGORITHMS
from payasync.signing.schemes import FREE_TEXT, IDENTIFIERS, SortedPairs, Template, UnsignedRequest
from payasync.strict_json import ExactNumber
from tests.profile.refusal import shown

PATH: Final = "/payment/refund"
KEY: Final = Secret("a signing key of M1")
ENCODINGS: Final = ("hex", "HEX", "base64", "base64-percent")
FIELDS: Final = {"totalAmt": 450, "outTradeNo": "T1", "nonceStr": "n", "body": "", "sign": "old"}
"""In no order, with an empty value and an old signature."""
OPTIONS: Final[dict[str, Any]] = {"algorithm": "hmac-sha256", "encoding": "hex"}

# The example of the WeChat Pay v2 documentation, "Signature algorithm" (pay.weixin.qq.com/wiki/doc/api, chapter 4.3).
WECHAT_FIELDS: Final = {
    "appid": "wxd930ea5d5a258f4f",
    "mch_id": "10000100",
    "device_info": "1000",
    "body": "test",
    "nonce_str": "ibuaiVcKdpRxkhJA",
}
WECHAT_KEY: Final = Secret("192006250b4c09247ec02edce69f6a2d")
WECHAT_TEXT: Final = "appid=wxd930ea5d5a258f4f&body=test&device_info=1000&mch_id=10000100&nonce_str=ibuaiVcKdpRxkhJA"
WECHAT_SIGNS: Final = {
    "md5": "9A0A8659F005D6984697E2CA0A9CF3B7",
    "hmac-sha256": "6A9AE1657590FD6257D693A078E1C3E4BB6BA4DC30B23E0EE2496E54170DACD6",
}


def scheme(**options: Any) -> SortedPairs:
    """Return an HMAC-SHA256 scheme in hex, with these options changed."""
    return SortedPairs(**(OPTIONS | options))


def text(fields: Mapping[str, Any], path: str = PATH, **options: Any) -> str:
    """Return the text that a scheme with these options signs."""
    return scheme(**options).text(fields, path=path)


def pem_pair(private: rsa.RSAPrivateKey | Ed25519PrivateKey) -> tuple[Secret, Secret]:
    """Return a private key and its public key."""
    signing = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    verifying = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Secret(signing.decode()), Secret(verifying.decode())


RSA_PAIR: Final = pem_pair(rsa.generate_private_key(65537, 2048))
PAIRS: Final = dict.fromkeys(ALGORITHMS, (KEY, KEY)) | {
    "rsa-sha256": RSA_PAIR,
    "rsa-sha512": RSA_PAIR,
    "ed25519": pem_pair(Ed25519PrivateKey.generate()),
}


def complete(algorithm: str, **options: Any) -> SortedPairs:
    """Return a scheme of any algorithm; MD5 gets its key in the text, as it requires."""
    return scheme(algorithm=algorithm, **({"key_param": "key"} if algorithm == "md5" else {}), **options)


def often(least: int, *, shared_by: int = 1) -> settings:
    """Run a property at least this often. In the long run, its parameters share the profile's number of examples."""
    return settings(max_examples=max(least, settings().max_examples // shared_by))


class Currency(str, enum.Enum):  # noqa: UP042 - the older form, which formats as its name
    """A caller's own currency codes."""

    CAD = "CAD"


def test_pairs_stand_in_ascii_order() -> None:
    """The text lists `name=value` pairs by the ASCII order of the names: capitals first, `a10` before `a2`."""
    fields = {"b": "1", "a": "2", "B": "3", "a10": "4", "a2": "5", "_": "6"}

    assert "B=3&_=6&a=2&a10=4&a2=5&b=1" == text(fields)


def test_each_option_changes_the_text_so() -> None:
    """Each option changes the text as the profile's TOML form says. The shown text masks the key."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "nonceStr=n&outTradeNo=T1&totalAmt=450"),
        ({"separator": "|"}, "nonceStr=n|outTradeNo=T1|totalAmt=450"),
        ({"exclude": ["sign", "nonceStr"]}, "outTradeNo=T1&totalAmt=450"),
        ({"skip_empty": False}, "body=&nonceStr=n&outTradeNo=T1&totalAmt=450"),
        ({"key_param": "key"}, "nonceStr=n&outTradeNo=T1&totalAmt=450&key=<signing key>"),
        ({"key_param": "key", "separator": "|"}, "nonceStr=n|outTradeNo=T1|totalAmt=450|key=<signing key>"),
        ({"append_path": True}, "nonceStr=n&outTradeNo=T1&totalAmt=450/payment/refund"),
        (
            {"append_path": True, "key_param": "key"},
            "nonceStr=n&outTradeNo=T1&totalAmt=450&key=<signing key>/payment/refund",
        ),
        ({"prehash": "sha256-hex"}, "nonceStr=n&outTradeNo=T1&totalAmt=450"),
    ]
    for options, expected in cases:
        assert expected == text(FIELDS, **options)


def test_nested_values() -> None:
    """Depending on the scheme, the text holds a nested value as compact JSON in its own order, or omits it."""
    for nested, expected in [("json", 'a=[]&b={}&c={"z":1,"a":["é",true,null]}&d=1'), ("omit", "d=1")]:
        fields = {"a": [], "b": {}, "c": {"z": 1, "a": ["é", True, None]}, "d": 1}

        assert expected == text(fields, nested=nested, allow_delimiters=["c"])


def test_values_that_a_profile_lets_sign() -> None:
    """The profile decides how the text shows null, true, false and received numbers."""
    cases: list[tuple[dict[str, Any], Any, str]] = [
        ({}, Currency.CAD, "a=CAD&b=1"),  # JSON carries the value of a `str` Enum, and not its name
        ({}, 0, "a=0&b=1"),
        ({}, -(2**63), "a=-9223372036854775808&b=1"),
        ({}, 2**70, "a=1180591620717411303424&b=1"),
        ({}, None, "b=1"),
        ({"skip_empty": False}, None, "b=1"),
        ({"skip_null": False}, None, "a=null&b=1"),
        ({"booleans": "json"}, True, "a=true&b=1"),
        ({"booleans": "json"}, False, "a=false&b=1"),
        ({"numbers": "text"}, ExactNumber("1.10"), "a=1.10&b=1"),
        ({"numbers": "text"}, ExactNumber("-1E+2"), "a=-1E+2&b=1"),
        ({"numbers": "text", "nested": "json"}, [{"c": ExactNumber("2.0")}], 'a=[{"c":2.0}]&b=1'),
        ({"nested": "json"}, [None, True, {"c": False}], 'a=[null,true,{"c":false}]&b=1'),
    ]
    for options, value, expected in cases:
        assert expected == text({"a": value, "b": 1}, **options)


def sign(fields: Mapping[str, Any], key: Secret = KEY, **options: Any) -> str:
    """Return the signature that a scheme with these options makes."""
    return scheme(**options).sign(fields, path=PATH, key=key)


def test_wechat_vectors() -> None:
    """With an appended key, the scheme makes the signatures of the WeChat Pay v2 documentation."""
    for algorithm, signature in WECHAT_SIGNS.items():
        options: dict[str, Any] = {"algorithm": algorithm, "encoding": "HEX", "key_param": "key"}

        assert f"{WECHAT_TEXT}&key=<signing key>" == text(WECHAT_FIELDS, **options)
        assert signature == sign(WECHAT_FIELDS, WECHAT_KEY, **options)
        assert scheme(**options).verify(WECHAT_FIELDS, signature, path=PATH, key=WECHAT_KEY)


OpenSSL = Callable[..., bytes]


SIGNED_TEXT: Final = "nonceStr=n&outTradeNo=T1&totalAmt=450"


def test_openssl_makes_the_same_hmac(openssl: OpenSSL) -> None:
    """`openssl` makes the same HMAC of the text, for each digest and encoding."""
    for digest in ("md5", "sha256", "sha512"):
        raw = openssl("dgst", f"-{digest}", "-hmac", KEY.reveal(), "-binary", "text", text=SIGNED_TEXT)
        in_base64 = base64.b64encode(raw).decode()
        expected = [raw.hex(), raw.hex().upper(), in_base64, quote(in_base64, safe="")]

        assert expected == [sign(FIELDS, algorithm=f"hmac-{digest}", encoding=each) for each in ENCODINGS]


@pytest.mark.parametrize("prehash", ["", "sha256", "sha256-hex"])
@pytest.mark.parametrize(("algorithm", "digest"), [("rsa-sha256", "-sha256"), ("rsa-sha512", "-sha512")])
def test_openssl_and_we_verify_each_other(
    algorithm: str, digest: str, prehash: str, openssl: OpenSSL, tmp_path: Path
) -> None:
    """With RSA, `openssl` verifies signatures of payasync, and payasync verifies those of `openssl`.

    `prehash` signs the SHA-256 of the whole text, path included, as bytes or as lower-case hex.
    """
    signing, verifying = RSA_PAIR
    (tmp_path / "private.pem").write_text(signing.reveal())
    (tmp_path / "public.pem").write_text(verifying.reveal())
    rsa_scheme = scheme(algorithm=algorithm, encoding="base64", prehash=prehash, append_path=True)
    hashed = openssl("dgst", "-sha256", "-binary", "text", text=f"{SIGNED_TEXT}{PATH}")
    signed = {"": f"{SIGNED_TEXT}{PATH}".encode(), "sha256": hashed, "sha256-hex": hashed.hex().encode()}[prehash]
    (tmp_path / "signed").write_bytes(signed)
    theirs = openssl("dgst", digest, "-sign", "private.pem", "signed")
    ours = rsa_scheme.sign(FIELDS, path=PATH, key=signing)
    (tmp_path / "ours").write_bytes(base64.b64decode(ours))
    said = openssl("dgst", digest, "-verify", "public.pem", "-signature", "ours", "signed")

    assert b"Verified OK\n" == said
    assert rsa_scheme.verify(FIELDS, base64.b64encode(theirs).decode(), path=PATH, key=verifying)


identifiers: Final = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
amounts: Final = st.integers(1, 2**53 - 1)
urls: Final = st.builds(
    "https://{}.example/{}?{}".format,
    st.from_regex(r"[a-z]{1,8}", fullmatch=True),
    st.from_regex(r"[a-z/]{0,8}", fullmatch=True),
    st.from_regex(r"[a-z0-9&=%]{0,12}", fullmatch=True),
)
refunds: Final = st.fixed_dictionaries(
    {
        "merchantId": identifiers,
        "outTradeNo": identifiers,
        "outRefundNo": identifiers,
        "totalAmt": amounts,
        "refundAmt": amounts,
        "nonceStr": identifiers,
    },
    optional={"refundDesc": st.text(), "notifyUrl": urls},
)
"""The fields of a refund as they are accepted: endpoint 5 of the document."""


def plain(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields as texts, without empty ones and without delimiters."""
    texts = {name: str(value).replace("&", "").replace("=", "") for name, value in fields.items()}
    return {name: value for name, value in texts.items() if value}


odd_values: Final = st.one_of(
    st.sampled_from(["", "é", "%s", "a=b", "a&b", "\ud800"]),
    st.text(max_size=3),
    st.sampled_from([0, 1, 2**2048, True, None]),
)


@given(
    first=st.dictionaries(st.sampled_from(["body", "sign", "a", "b", "c", "c%s", "d=", "e&"]), odd_values),
    values=st.lists(odd_values, min_size=8),
    options=st.sampled_from([{}, {"skip_empty": False}, {"append_path": True}, {"separator": "%"}, {"separator": "-"}]),
)
@example(first={"a": "x", "b": "y", "c": 1}, values=["x", "y", 2**2048], options={})
@example(first={"a": "x", "b": "y", "c": "z"}, values=["x", "y=z", "z"], options={})
@example(first={"a": "x", "b": "y", "c": "z"}, values=["x", "", "z"], options={})
@example(first={"a": "x", "b": "y", "c": True}, values=[], options={})
@example(first={"a": "x", "b": "y", "c": "z"}, values=["x", "\ud800", "z"], options={})
@example(first={"a": "x", "b": "y", "c%s": "z"}, values=[], options={})
@example(first={"a": "x", "b": "y", "d=": "z"}, values=[], options={})
@example(first={"a": "x", "b": "y", "c": -1}, values=[], options={"separator": "-"})
@example(first={"a": "x", "b": "y", "c": 210}, values=[], options={"separator": "1"})
@example(first={"a": "x", "b": "y", "body": "z"}, values=["x", "y", "é=&"], options={})
def test_what_is_signed_is_the_text_that_is_shown(
    first: dict[str, Any], values: list[Any], options: dict[str, Any]
) -> None:
    """A signer signs what `text` returns, and refuses what `text` refuses, also for names that it has signed before."""
    signer, outcomes = scheme(**options).signer(KEY), []
    for fields in (first, dict(zip(first, values, strict=False)), first):
        try:
            shown = hmac.digest(KEY.reveal().encode(), text(fields, **options).encode(), "sha256").hex()
        except InvalidArgumentError as error:
            shown = str(error)
        try:
            signed = signer(fields, PATH)
        except InvalidArgumentError as error:
            signed = str(error)
        outcomes.append((shown, signed))

    assert all(shown == signed for shown, signed in outcomes)


def test_no_two_small_requests_share_a_text() -> None:
    """If the free text holds no delimiter, small requests with the same text have the same non-empty fields."""
    # Made for collisions: each value can pass for the end of one field and the start of the next.
    tried = ("", "1", "1&outTradeNo=1", "1&refundDesc=1", "1&totalAmt=1", "=", "&")
    values: dict[str, tuple[Any, ...]] = {"outRefundNo": tried, "outTradeNo": tried, "refundDesc": tried}
    found: dict[str, dict[str, str]] = {}
    accepted = 0
    for chosen in itertools.product(*values.values(), (None, 1, 11)):
        fields = {name: value for name, value in zip((*values, "totalAmt"), chosen, strict=True) if value is not None}
        try:
            signed = text(fields)
        except InvalidArgumentError:
            continue
        if plain(fields).get("refundDesc", "") == fields["refundDesc"]:
            accepted += 1
            assert found.setdefault(signed, plain(fields)) == plain(fields)

    assert 24 == accepted


def small_responses() -> Iterator[dict[str, str]]:
    """Yield responses with two free texts and two other fields; the texts contain the names of other fields."""
    parts = ("", "&a=1", "&b=1", "&b=2", "&c=1", "&d=1", "&x=1")
    texts = [None, *("1" + "".join(several) for several in itertools.product(parts, repeat=2))]
    for values in itertools.product(texts, (None, "1", "2"), texts, (None, "1")):
        yield {name: value for name, value in zip("abcd", values, strict=True) if value is not None}


def test_field_that_another_response_with_this_text_has() -> None:
    """`hidden_fields` finds each field that a changed response, signed by the same text, has lost or altered."""
    scheme = SortedPairs(allow_delimiters=("a", "c"))
    by_text: dict[str, list[dict[str, str]]] = {}
    for response in small_responses():
        same = by_text.setdefault(scheme.text(response, path=""), [])
        if response not in same:
            same.append(response)
    judged = 0
    for genuine, changed in (pair for same in by_text.values() for pair in itertools.permutations(same, 2)):
        hidden = {(name, value) for _, name, value in scheme.hidden_fields(changed, lambda: ("b", "d"))}
        lost = {each for each in genuine.items() if each[0] in {"b", "d"}} - changed.items()
        judged += bool(lost)
        assert lost <= hidden, (genuine, changed)

    assert judged > 1000


def test_field_that_a_text_may_hide() -> None:
    """A text hides a field only if that field could be signed in its place, and is not already signed openly."""
    cases: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, str]]]] = [
        ({"b": "1&m=1"}, {}, [("b", "m", "1")]),
        ({"b": "1&m=1", "c": "1"}, {}, []),
        ({"b": "1&m=1", "n": "1"}, {}, [("b", "m", "1")]),
        ({"n": "1&m=1"}, {}, []),
        ({"b": "1", "n": "1&m=1"}, {}, [("n", "m", "1")]),
        ({"b": "1&m=1", "m": "1"}, {}, []),
        ({"b": "1&m=1&n=1", "m": "2"}, {}, [("b", "m", "1")]),
        ({"b": "1&m=1&m=2"}, {}, [("b", "m", "1"), ("b", "m", "2")]),
        ({"b": "1&m=1&n=1", "m": "1"}, {}, []),
        ({"b": "", "n": "1&m=1"}, {}, []),
        ({"b": "1&mm=1&m&xm=1"}, {}, []),
        ({"b": "1&m=1", "m": ""}, {}, [("b", "m", "1")]),
        ({"b": "1&m=1", "m": ""}, {"skip_empty": False}, []),
        ({"b": "1&m=1", "m": None}, {}, [("b", "m", "1")]),
        ({"b": "1&m=1", "m": None}, {"skip_null": False}, []),
        ({"b": "1&m=1"}, {"exclude": ("sign", "b")}, []),
        ({"b": "1&m=1", "c": "1"}, {"exclude": ("sign", "c")}, [("b", "m", "1")]),
        ({"b": {"x": "1&m=1"}}, {"nested": "json"}, [("b", "m", '1"}')]),
        ({"b": {"x": "1&m=1"}}, {"nested": "omit"}, []),
        ({"b": "1|m=1&m=2"}, {"separator": "|"}, [("b", "m", "1&m=2")]),
        ({"b": "1&&&m=1"}, {"separator": "&&"}, [("b", "m", "1")]),
        ({"b": "1&m=1"}, {"prehash": "sha256", "key_param": "key"}, [("b", "m", "1")]),
    ]
    for fields, options, expected in cases:
        scheme = evolve(SortedPairs(allow_delimiters=("n", "b")), **options)

        assert expected == list(scheme.hidden_fields(fields, lambda: ("m",)))


@given(st.text())
@example("Größe 😀 日本 \u0000 \u2028 e\u0301")
def test_unicode_is_signed_as_utf_8(words: str) -> None:
    """Every valid Unicode text can be signed, and is not normalised."""
    assert (f"refundDesc={words}" if words else "") == text({"refundDesc": words})
    assert scheme().verify({"refundDesc": words}, sign({"refundDesc": words}), path=PATH, key=KEY)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@often(10, shared_by=len(ALGORITHMS) * len(ENCODINGS))
@given(fields=refunds)
def test_what_is_signed_verifies(algorithm: str, encoding: str, fields: dict[str, Any]) -> None:
    """A signature of any algorithm and encoding verifies. An old `sign` among the fields is ignored.

    A prepared signer can sign many requests, and does not mix their fields.
    """
    signing, verifying = PAIRS[algorithm]
    signer = complete(algorithm, encoding=encoding, append_path=True, prehash="sha256")
    signature, prepared = signer.sign(fields, path=PATH, key=signing), signer.signer(signing)
    prepared(FIELDS, PATH)

    assert signer.verify(fields | {"sign": signature}, signature, path=PATH, key=verifying)
    assert signer.verify(fields, prepared(fields, PATH), path=PATH, key=verifying)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@often(10, shared_by=len(ALGORITHMS))
@given(fields=refunds, name=st.sampled_from(["totalAmt", "refundAmt", "outTradeNo", "outRefundNo", "merchantId"]))
def test_flipped_field_fails(algorithm: str, fields: dict[str, Any], name: str) -> None:
    """If an amount, a number or the merchant is changed, or a field added or removed, verification fails."""
    signing, verifying = PAIRS[algorithm]
    signer = complete(algorithm)
    signature = signer.sign(fields, path=PATH, key=signing)
    value = fields[name]
    forged: list[dict[str, Any]] = [
        fields | {name: value + 1 if isinstance(value, int) else value + "x"},
        {key: other for key, other in fields.items() if key != name},
        fields | {"currency": "CAD"},
    ]

    assert [False] * 3 == [signer.verify(fields, signature, path=PATH, key=verifying) for fields in forged]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@often(25, shared_by=len(ALGORITHMS) * len(ENCODINGS))
@given(signature=st.text(st.characters(exclude_categories=())) | st.text("0aF+/= \n\ud800é", max_size=9))
@example("")
@example("00")
@example("===")
@example("é")
@example("\ud800")
@example("A" * 10_000)
def test_hostile_signature_is_none(algorithm: str, encoding: str, signature: str) -> None:
    """Any text that is not the signature fails to verify, without an error."""
    _, verifying = PAIRS[algorithm]

    assert complete(algorithm, encoding=encoding).verify(FIELDS, signature, path=PATH, key=verifying) is False


def test_signature_with_anything_beside_it_is_none() -> None:
    """A signature with any extra character is refused, so that only one text passes as the signature."""
    for change in ["{} ", "\n{}", "{}!", "é{}", "{}=", "{0}{0}"]:
        for encoding in ENCODINGS:
            signature = sign(FIELDS, encoding=encoding)

            assert scheme(encoding=encoding).verify(FIELDS, change.format(signature), path=PATH, key=KEY) is False


def test_hexadecimal_verifies_in_either_case() -> None:
    """A hexadecimal signature verifies in upper and in lower case."""
    for encoding in ["hex", "HEX"]:
        signature = sign(FIELDS)

        assert scheme(encoding=encoding).verify(FIELDS, signature.upper(), path=PATH, key=KEY)
        assert scheme(encoding=encoding).verify(FIELDS, signature.lower(), path=PATH, key=KEY)


json_values: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("nested", ["refuse", "json", "omit"])
@often(50, shared_by=3)
@given(fields=st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=3), json_values, max_size=4))
def test_hostile_fields_let_no_foreign_error_out(nested: str, fields: dict[str, Any]) -> None:
    """Any JSON fields are either signed and verified, or refused with `InvalidArgumentError`."""
    signer = scheme(nested=nested)
    try:
        signature = signer.sign(fields, path=PATH, key=KEY)
    except InvalidArgumentError:
        assert signer.verify(fields, "00", path=PATH, key=KEY) is False
    else:
        assert signer.verify(fields, signature, path=PATH, key=KEY)


FLOAT: Final = 1.5
UNSIGNED: Final[tuple[Any, ...]] = (True, FLOAT, b"x", {"a": 1}, [], 2**2048)
UNSIGNABLE: Final[list[tuple[str, Any]]] = [
    *(("refuse", value) for value in UNSIGNED),
    ("omit", FLOAT),
    ("json", {"a": {"b": [FLOAT]}}),
    ("json", [(FLOAT,)]),
    ("json", {1: "a"}),
    ("json", ["\ud800"]),
]


def test_value_without_one_form_is_refused() -> None:
    """A value that has no single text form is refused. For a list or an object, the error holds only the type."""
    for nested, value in UNSIGNABLE:
        with pytest.raises(InvalidArgumentError, match=r"^the field 'amount' cannot be signed: it must be ") as caught:
            sign({"amount": value}, nested=nested)

        shown = type(value) if isinstance(value, dict | list | tuple) else value
        assert ("amount", shown) == (caught.value.field, caught.value.value)
        assert caught.value.rule
        assert caught.value.rule in str(caught.value)
        assert caught.value.__context__ is None
        assert scheme(nested=nested).verify({"amount": value}, "00", path=PATH, key=KEY) is False


def test_nesting_without_end_is_refused() -> None:
    """A value nested 100,000 levels deep is refused, without a `RecursionError`."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidArgumentError, match=r"^the field 'a' cannot be signed"):
        text({"a": deep}, nested="json")


DELIMITERS: Final = "it must be free of '&' and '='"


FREE_URL: Final = "https://a.example/?b=c&d=e"
UNICODE: Final = "it must be valid Unicode"
ALLOW: Final = "Leave it out, or name it in the profile's signature.allow_delimiters if it holds free text or a URL"
CHANGE: Final = "Leave it out, or change the profile's signature"
NO_TEXT: Final[list[tuple[dict[str, Any], dict[str, Any], str, str]]] = [
    *(({name: "x&totalAmt=1"}, {}, DELIMITERS, CHANGE) for name in sorted(IDENTIFIERS)),
    *(({"customer": value}, {}, DELIMITERS, ALLOW) for value in ("a&b", "a=b", "=", "&")),
    ({"payUrl": FREE_URL}, {}, DELIMITERS, ALLOW),
    # No name holds a delimiter, whatever the profile allows in values.
    *(({name: "x"}, {"allow_delimiters": [name]}, DELIMITERS, CHANGE) for name in ("a&b", "a=b", "=", "&")),
    ({"currency": "a|b"}, {"separator": "|"}, "it must be free of '|' and '='", ALLOW),
    ({"customer": {"mail": "a=b&c"}}, {"nested": "json"}, DELIMITERS, ALLOW),
    # A lone surrogate has no UTF-8 bytes to sign.
    *((fields, {}, UNICODE, CHANGE) for fields in ({"body": "\ud800"}, {"\udfff": "x"}, {"\ud800": "\udc00"})),
    ({"fee": FLOAT}, {}, "it must be ", CHANGE),
]
"""Fields, the options of the scheme, the broken rule, and the advice."""


def test_text_that_cannot_be_signed() -> None:
    """A text that could pass for two fields, or has no bytes, is refused. The error gives advice, and shows no key."""
    for fields, options, rule, advice in NO_TEXT:
        with pytest.raises(InvalidArgumentError) as caught:
            sign(fields, Secret("canary of a key"), **options)

        assert next(iter(fields)) == caught.value.field
        assert str(caught.value).startswith(f"the field {next(iter(fields))!r} cannot be signed: {rule}")
        assert advice == str(caught.value).rpartition(". ")[2]
        assert "canary" not in shown(caught.value)
        assert scheme(**options).verify(fields, "00", path=PATH, key=KEY) is False


def test_lone_surrogate_in_the_path_is_refused() -> None:
    """If the path is signed, a lone surrogate in it is refused, and the error shows no key."""
    signer = scheme(append_path=True, key_param="key")
    with pytest.raises(InvalidArgumentError, match=r"^the field 'path' cannot be signed") as caught:
        signer.sign(FIELDS, path="/\ud800", key=Secret("canary of a key"))

    assert caught.value.__context__ is None
    assert "canary" not in shown(caught.value)
    assert signer.verify(FIELDS, "00", path="/\ud800", key=KEY) is False
    assert scheme().sign(FIELDS, path="/\ud800", key=KEY)


def test_excluded_and_omitted_values_may_be_anything() -> None:
    """A field that the scheme excludes may hold a value that cannot be signed."""
    assert "a=1" == text({"a": 1, "sign": FLOAT, "x": True}, exclude=["sign", "x"])


def test_signed_key_is_not_shown() -> None:
    """If a template signs the key itself, an error shows no key, not even in the local variables of its frames."""
    template = Template(algorithm="hmac-sha256", text="{signing_key}{body}", header="Signature")
    request = UnsignedRequest(
        method="GET", url="", path="", query="", headers={}, body=b"", timestamp=0, nonce="", merchant_id="M1"
    )
    with pytest.raises(NotConfiguredError) as caught:
        template.sign_request(request, key=Secret("canary of a key"))

    assert "canary" not in shown(caught.value)


def test_prepared_signer_shows_no_key() -> None:
    """Neither the repr of a prepared signer nor the frames of its errors show the key."""
    for algorithm in [name for name in ALGORITHMS if PAIRS[name] == (KEY, KEY)]:
        prepared = ALGORITHMS[algorithm].signer(Secret("canary of a key"))
        with pytest.raises(TypeError) as caught:
            prepared("no bytes")  # type: ignore[arg-type] # so that it fails

        assert "canary" not in f"{shown(caught.value)} {prepared!r}"


BAD_OPTIONS: Final[list[tuple[str, Any, dict[str, Any], str]]] = [
    # With nothing or `=` between the pairs, nobody could tell a name from a value: two requests have one text.
    *(("separator", bad, {}, "must not be empty or hold '='") for bad in ("", "=", "&=", "a=b")),
    # A plain digest of what travels in the open can be made by anybody.
    ("key_param", "", {"algorithm": "md5"}, 'must be given with algorithm "md5": without a key in the text anybody'),
    # Who verifies has the public key only, so a text with the private key could never be checked.
    *(
        ("key_param", "key", {"algorithm": name}, f'must be empty with algorithm "{name}"')
        for name in ("rsa-sha256", "rsa-sha512", "ed25519")
    ),
    ("exclude", [], {}, "must hold the name of the signature, which cannot sign itself"),
    # No profile can allow a delimiter where an order, a refund or a merchant is named.
    *(("allow_delimiters", ["body", name], {}, f"must not hold {name}: ") for name in sorted(IDENTIFIERS)),
    ("algorithm", "sha1", {}, "must be one of 'md5', 'hmac-md5', "),
    ("encoding", "Hex", {}, "must be one of 'hex', 'HEX', 'base64'"),
    ("skip_null", None, {}, "must be true or false"),
    ("separator", 5, {}, "must be a text"),
    ("separator", "\ud800", {}, "must be a text of valid Unicode"),
    ("key_param", "\ud800", {}, "must be a text of valid Unicode"),
    ("exclude", "sign", {}, "must be a list, each of it a text"),
]


def test_option_that_signs_nothing_is_refused() -> None:
    """An unknown option value, or one that could give two requests one signature, is refused with its rule."""
    for option, value, others, why in BAD_OPTIONS:
        with pytest.raises(ConfigurationError) as caught:
            scheme(**{option: value, **others})

        assert str(caught.value).startswith(f"signature.{option} {why}")
        assert f"signature.{option}" == caught.value.field


@pytest.mark.parametrize("option", ["algorithm", "encoding"])
def test_open_point_is_named_before_any_signature(option: str) -> None:
    """If the algorithm or encoding is open, signing and verifying fail with its name and the possible values."""
    opened = scheme(**{option: ""})
    for use in (
        lambda: opened.sign(FIELDS, path=PATH, key=KEY),
        lambda: opened.verify(FIELDS, "00", path=PATH, key=KEY),
    ):
        with pytest.raises(NotConfiguredError, match=f"signature.{option} is open: .*(hmac-sha256|hex)") as caught:
            use()

        assert f"signature.{option}" == caught.value.field


def test_delimiters_stand_where_they_are_allowed() -> None:
    """Only the fields that the profile's `allow_delimiters` lists may hold delimiters, which its separator decides."""
    for name in [*FREE_TEXT, "payUrl"]:
        assert f"{name}={FREE_URL}" == text({name: FREE_URL}, allow_delimiters=[*FREE_TEXT, "payUrl"])
        with pytest.raises(InvalidArgumentError, match=f"^the field '{name}' cannot be signed"):
            text({name: FREE_URL}, allow_delimiters=[])

    assert "currency=a&b" == text({"currency": "a&b"}, separator="|")
