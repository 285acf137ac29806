from itertools import combinations
from typing import Any

import pytest

from payasync.errors import NotConfiguredError
from payasync.profile.profile import Profile
from payasync.profile.schema import (
    OPEN_FIELDS,
    AnswerShape,
    Parameter,
    ResultCodes,
)
from payasync.profile.wire_names import OURS
from payasync.signing.schemes import SortedPairs
from tests.profile.refusal import refusal


def test_a_part_is_of_its_class() -> None:
    """A part of the wrong type, such as a dict or a class, is refused when the profile is made."""
    for wrong in [{"name": "x"}, 5, SortedPairs]:
        for key, wanted in [
            ("accept", "an Accept"),
            ("signature", "a SignatureScheme or a RequestScheme"),
            ("payment_status", "a Parameter"),
            ("amount_unit", "one of 'minor', 'major'"),
        ]:
            assert (key, f"{key} must be {wanted}, not {wrong!r}") == refusal(Profile, **{key: wrong})


def test_reserved_name_is_refused() -> None:
    """No constant or argument may have the wire name of a field that payasync sets."""
    for name in OURS.values():
        makes: dict[str, Any] = {
            f"constants.*.{name}": {"constants": {"*": {name: "x"}}},
            f"constants.orders.place.{name}": {"constants": {"orders.place": {"a": 1, name: "x"}}},
            "fields.return_url": {"fields": {"return_url": name}},
            "payment_status.name": {"payment_status": Parameter(name)},
            "refund_status.name": {"refund_status": Parameter(name, "path")},
        }
        for field, parts in makes.items():
            assert (field, f"{field} must not set {name}, because payasync sets it") == refusal(Profile, **parts)


def test_headers_of_visible_ascii_are_accepted() -> None:
    """A header name may be any RFC 9110 token. A value may be visible ASCII with spaces inside."""
    for name, value in [("X-Api-Version", "2024-01-01"), ("X-A!#$%&'*+.^_`|~9", 'a b;c="d"')]:
        assert {name: value} == Profile(headers={name: value}).headers


def test_header_that_breaks_the_request_apart_is_refused() -> None:
    """Control characters and non-ASCII in a header are refused. The error does not show the value."""
    for name, value in [
        *(("X-A", value) for value in ("1\r\nX-B: 2", "1\n", "1\r", "", " 1", "1 ", "\x00", "1\t2", "é")),
        *((name, "1") for name in ("X-A\r\nX-B", "X-A\n", "X-A:", "X A", "", "Ünder")),
    ]:
        words = f"headers: {name!r} must be of visible ASCII characters"

        assert (f"headers.{name}", words) == refusal(Profile, headers={"X-Fine": "1", name: value})


def test_a_code_means_one_thing() -> None:
    """A code must not be in two lists, because it would have two meanings."""
    for one, other in list(
        combinations(("ok", "not_executed", "unauthenticated", "retryable", "duplicate", "absent"), 2)
    ):
        lists: dict[str, Any] = {one: ["A", 7], other: [8, 7]}
        answer = AnswerShape(ok=lists.pop("ok", ()))
        first, field = "answer.ok" if one == "ok" else f"codes.{one}", f"codes.{other}"
        words = f"{first} and {field} both hold 7: keep it in the one that it means"

        assert (field, words) == refusal(Profile, answer=answer, codes=ResultCodes(**lists))


def test_identifier_must_be_a_pattern() -> None:
    """An `identifier` pattern that does not compile is refused when the profile is made."""
    for identifier in ["[", "(", "*", "a{99999999999999999999}", "(" * 5_000]:
        field, words = refusal(Profile, identifier=identifier)

        assert "identifier" == field
        assert words.startswith("identifier must be a regular expression")


def test_open_wire_name_says_what_to_put_there() -> None:
    """If a wire name is missing or empty, the error names its key and says what belongs there."""
    for answered in [{}, dict.fromkeys(OPEN_FIELDS, "")]:
        for argument in OPEN_FIELDS:
            profile = Profile(fields=answered)
            with pytest.raises(
                NotConfiguredError, match=f"fields.{argument} is open: .* as 'fields.{argument}'$"
            ) as caught:
                profile.wire_name(argument)

            assert f"fields.{argument}" == caught.value.field
            assert OPEN_FIELDS[argument] in str(caught.value)
            assert "theirs" == Profile(fields={argument: "theirs"}).wire_name(argument)


def test_constants_are_json() -> None:
    """A constant that is not JSON is refused when the profile is made."""
    for value in [float("nan"), object(), b"text", 2**64]:
        field, words = refusal(Profile, constants={"*": {"fine": 1, "odd": value}})

        assert "constants.*.odd" == field
        assert words.startswith("constants.*.odd must be JSON, without ")


def test_constants_are_the_profiles_own() -> None:
    """A profile copies its constants, so that later changes do not reach it. Tuples become lists."""
    given: dict[str, Any] = {"*": {"goods": [{"id": 1}], "pair": (1, 2)}}

    profile = Profile(constants=given)
    given["*"]["goods"][0]["id"] = 2

    assert {"*": {"goods": [{"id": 1}], "pair": [1, 2]}} == profile.constants
