from typing import Any

import pytest
from attrs import NOTHING, Attribute, fields

from payasync.documents import Absent
from payasync.endpoints import ARGUMENTS, TEXTS
from payasync.profile.schema import OPEN_FIELDS
from tests.building import FULL


def as_written(attribute: "Attribute[Any]") -> tuple[str, bool, bool]:
    """Return what the class of a request says of one of its arguments: its name, whether it is a text, and needed."""
    return attribute.name, attribute.type in (str, str | Absent), attribute.default is NOTHING


@pytest.mark.parametrize("operation", FULL)
def test_arguments_are_those_of_the_request(operation: str) -> None:
    """The table says of each argument what the class of the request says: name, kind, need."""
    kind: Any = type(FULL[operation])
    expected = {as_written(each) for each in fields(kind) if each.name != "extra"}

    assert expected == {(each.name, each.text, each.required) for each in ARGUMENTS[operation]}


def test_open_arguments_are_the_profiles_fields() -> None:
    """Each wire name that the document does not show has its key in the profile, and each key its argument."""
    points = {each.point for arguments in ARGUMENTS.values() for each in arguments}

    assert {"", *OPEN_FIELDS} == points


def test_texts() -> None:
    """Amounts, dates and objects are no texts: they have no length."""
    others = {each.name for arguments in ARGUMENTS.values() for each in arguments} - TEXTS

    assert {"amount", "total_amt", "refund_amt", "start_date", "customer"} == others
