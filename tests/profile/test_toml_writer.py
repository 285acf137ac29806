import json
import re
import tomllib
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync import (
    Accept,
    AnswerShape,
    ConfigurationError,
    HttpCodes,
    NotificationShape,
    Parameter,
    Profile,
    Recovery,
    ResultCodes,
    SortedPairs,
    States,
)
from payasync.credentials import Secret
from payasync.endpoints import ARGUMENTS
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import RESERVED
from tests.whole_profile import PYTHON


def round_trip(profile: Profile) -> Profile:
    """Return what is read from what was written."""
    return Profile.from_toml(profile.to_toml())


def exactly(profile: Profile) -> str:
    """Return a profile so that `1`, `1.0` and `true` are three things, which `==` takes for one."""
    return json.dumps(attrs.asdict(profile), sort_keys=True)


@pytest.mark.parametrize("profile", [Profile(), PROFILE, PYTHON], ids=["bare", "sandbox", "whole form"])
def test_what_is_written_reads_back(profile: Profile) -> None:
    """A profile is the one that is read from its TOML form."""
    assert exactly(profile) == exactly(round_trip(profile))
    assert profile == round_trip(profile)


def test_a_bare_profile_has_nothing_to_say() -> None:
    """What the document states is not written."""
    assert "" == Profile().to_toml()


def test_what_equals_the_default_is_left_out() -> None:
    """A value that was given, and is the default all the same, is not written."""
    given = Profile(
        bearer=["payments.create"],
        identifier="[A-Za-z0-9_-]{1,64}",
        signature=SortedPairs(algorithm="ed25519", separator="&", exclude=["sign"], skip_empty=True),
        answer=AnswerShape(ok=[]),
        http=HttpCodes(absent=[], rate_limit_precedes_execution=False),
        notification=NotificationShape(tolerance=300),
        payment_status=Parameter("no", "query"),
    )

    assert '[signature]\nalgorithm = "ed25519"\n\n[status.payment]\nname = "no"\n' == given.to_toml()


@pytest.mark.parametrize(
    "profile",
    [
        Profile(bearer=()),
        Profile(signed=(), merchant=()),
        Profile(signature=SortedPairs()),
        Profile(signature=SortedPairs(allow_delimiters=())),
        Profile(http=HttpCodes(not_executed=())),
        Profile(accept=Accept(required={"orders.place": ()})),
        Profile(constants={"*": {}}),
        Profile(constants={"*": {"outer": {"inner": {}}, "empty": {}}}),
        Profile(constants={"*": {"list": [[], {}, [{"a": {}}]]}}),
        Profile(states=States(order={"paid": ()})),
        Profile(fields={"customer": ""}),
        Profile(answer=AnswerShape(refusals_signed=False)),
        Profile(answer=AnswerShape(total_amt="", currency="currency")),
        Profile(http=HttpCodes(duplicate=())),
        Profile(recovery=Recovery(quarantine=0.0)),
        Profile(recovery=Recovery(quarantine=1e-7)),
        Profile(recovery=Recovery(quarantine=1e300)),
    ],
    ids=repr,
)
def test_what_is_empty_or_small_is_something(profile: Profile) -> None:
    """An empty list, table or scheme that differs from the default is written, and so are numbers of any size."""
    assert exactly(profile) == exactly(round_trip(profile))
    assert profile == round_trip(profile)


GOLDEN: Final = """\
name = "q \\"u\\" ü"
bearer = []
merchant = ["orders.place", "payments.status"]
amount_unit = "minor"

[signature]
algorithm = "rsa-sha256"
encoding = "base64"
skip_empty = false

[constants."*"]
signType = "RSA"
version = 2
ratio = 0.5
test = true
tags = ["a", {"b.c" = [1, false]}]

[constants."*".device]
os = "x"

[constants."orders.place"]

[accept]
amount = [1, 500]

[accept.required]
"orders.place" = ["subject"]

[answer]
code = "code"
ok = [0, "0"]

[states.order]
paid = [2, "PAID"]

[recovery]
quarantine = 60.0

[status.refund]
name = "no"
place = "path"
"""


def test_written_text() -> None:
    """It reads as somebody would write it: the tables in their order, one line for each key, nothing twice."""
    profile = Profile(
        name='q "u" ü',
        bearer=[],
        merchant=["orders.place", "payments.status"],
        amount_unit="minor",
        signature=SortedPairs(algorithm="rsa-sha256", encoding="base64", skip_empty=False),
        constants={
            "*": {
                "signType": "RSA",
                "version": 2,
                "ratio": 0.5,
                "test": True,
                "device": {"os": "x"},
                "tags": ["a", {"b.c": [1, False]}],
            },
            "orders.place": {},
        },
        accept=Accept(amount=[1, 500], required={"orders.place": ["subject"]}),
        refund_status=Parameter("no", "path"),
        answer=AnswerShape(code="code", ok=[0, "0"]),
        states=States(order={"paid": [2, "PAID"]}),
        recovery=Recovery(quarantine=60.0),
    )

    assert GOLDEN == profile.to_toml()
    assert GOLDEN == round_trip(profile).to_toml()


class Named(str, Enum):  # noqa: UP042 - one whose name is not its text
    """A text that has a name, too."""

    ONE = "one"
    DOTTED = "o.n.e"


class Numbered(int, Enum):
    """A number that has a name."""

    TWO = 2


def test_a_named_value_is_written_as_what_it_is() -> None:
    """A `str` or an `int` that is an Enum stands there as the text or the number."""
    profile = Profile(
        name=Named.ONE, constants={"*": {Named.ONE: Numbered.TWO, Named.DOTTED: [Named.ONE]}}, fields={"customer": "c"}
    )

    assert {"*": {"one": 2, "o.n.e": ["one"]}} == round_trip(profile).constants
    assert "one" == tomllib.loads(profile.to_toml())["name"]


class Own(SortedPairs):
    """A family that signs in another way."""


class Scheme:
    """A scheme outside the families."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Return the same for all."""
        return f"{len(fields)}{path}{key}"

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Return whether it is that."""
        return signature == self.sign(fields, path=path, key=key)


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        (Profile(signature=Scheme()), "signature"),
        (Profile(signature=Own(algorithm="ed25519")), "signature"),
        (Profile(constants={"*": {"note": None}}), "constants.*.note"),
        (Profile(constants={"orders.place": {"a": {"b": [1, None]}}}), "constants.orders.place.a.b"),
        (Profile(constants={"*": {"a": [{"b": None}]}}), "constants.*.a"),
        (Profile(name="\ud800"), "name"),
        (Profile(fields={"customer": "a\udfffb"}), "fields.customer"),
        (Profile(payment_status=Parameter("\ud800")), "status.payment.name"),
        (Profile(codes=ResultCodes(absent=[1, "\ud800"])), "codes.absent"),
        (Profile(accept=Accept(amount=(1, 10**5000))), "accept.amount"),
    ],
    ids=[
        "scheme",
        "kind of SortedPairs",
        "null",
        "null in a list",
        "null in a table in a list",
        "surrogate",
        "surrogate in a table",
        "surrogate of endpoint 6",
        "surrogate in a list",
        "integer without end",
    ],
)
def test_what_toml_cannot_hold_is_refused(profile: Profile, field: str) -> None:
    """It is said which key holds it; nothing is left out silently, nor written so that no file can hold it."""
    with pytest.raises(ConfigurationError, match="TOML cannot hold") as caught:
        profile.to_toml()

    assert field == caught.value.field
    assert str(caught.value).startswith(field)
    assert str(caught.value).isprintable()


TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        '"',
        "\\",
        "\n",
        "\r\n",
        "\t",
        "\x00",
        "\x1f",
        "\x7f",
        "\x85",
        "\u2028",
        "a.b",
        "é",
        "🙂",
        '"' * 3,
        "'" * 3,
        "#",
        "[x]",
        "=",
    ]
)
WHOLES: Final = st.integers(-(2**63), 2**63 - 1)
CODES: Final = TEXTS | WHOLES
JSON: Final[st.SearchStrategy[Any]] = st.recursive(
    st.booleans() | CODES | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
TAKEN: Final = RESERVED | {argument.wire for arguments in ARGUMENTS.values() for argument in arguments}
CONSTANTS: Final = st.dictionaries(TEXTS, JSON, max_size=3).filter(TAKEN.isdisjoint)


@given(
    text=TEXTS,
    constants=CONSTANTS,
    codes=st.lists(CODES, unique_by=lambda code: (type(code), code), max_size=6),
    quarantine=st.none() | st.floats(0, 1e300) | st.integers(0, 10**9),
)
def test_any_profile_reads_back(
    text: str, constants: dict[str, Any], codes: list[str | int], quarantine: float | None
) -> None:
    """Whatever texts, numbers and tables a profile holds, its TOML form holds them, without a control character."""
    profile = Profile(
        name=text,
        fields={"customer": f"customer {text}"},
        constants={"*": constants},
        states=States(order={"paid": codes[:2], "closed": codes[2:]}),
        codes=ResultCodes(not_executed=codes),
        recovery=Recovery(quarantine=quarantine),
    )
    written = profile.to_toml()

    assert exactly(profile) == exactly(Profile.from_toml(written.encode().decode()))
    assert profile == Profile.from_toml(written)
    assert written == round_trip(profile).to_toml()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", written)
