"""The catalogue of faults: its methods and its documentation follow from the table."""

import inspect
from pathlib import Path
from typing import Any

from payasync.sandbox.faults import KINDS, Fault, Faults
from payasync.sandbox.faults.catalogue import FaultKind

PAGE = Path(__file__).parents[3].joinpath("docs", "reference", "sandbox.md").read_text(encoding="utf-8")


def find_method(kind: FaultKind) -> Any:
    """Return the method that arms a fault."""
    group, _, name = kind.name.rpartition(".")
    faults = Faults()
    return getattr(faults.notifications if group else faults, name)


def own_options(kind: FaultKind) -> dict[str, Any]:
    """Return the options that only this method takes, with their defaults."""
    parameters = inspect.signature(find_method(kind)).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def test_methods_are_those_of_the_catalogue() -> None:
    """For each fault of the catalogue there is a method of its name, which takes its options."""
    for kind in KINDS.values():
        fault: Fault = find_method(kind)(times=1)

        assert (kind.name, [*kind.options], True) == (fault.kind, [*own_options(kind)], fault.armed)


def test_docs_list_the_catalogue() -> None:
    """docs/reference/sandbox.md has a row for each fault: its method, phases, options with defaults, and summary."""
    rows = [
        f"| `{kind.name.replace('notification', 'notifications')}` | {', '.join(kind.phases) or '-'} | "
        f"{', '.join(f'`{name}={value!r}`' for name, value in own_options(kind).items()) or '-'} | {kind.summary} |"
        for kind in KINDS.values()
    ]

    assert "\n".join(rows) in PAGE
