"""Faults written as texts, as the dashboard's form and the command line have them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import fields_dict

from payasync.sandbox.faults.aim import Options
from payasync.sandbox.faults.checking import wrong
from payasync.sandbox.faults.effects import KINDS, Effect, Refuse

_ENDLESS: Final = "always"


def _times(text: str) -> int | None:
    return None if text == _ENDLESS else int(text)


_READ: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "order": (str, "a number"),
    "nth": (int, "an integer"),
    "times": (_times, f"an integer, or {_ENDLESS}"),
    "probability": (float, "a number"),
    "seed": (int, "an integer"),
    "phase": (str, "before or after"),
    "seconds": (float, "a number"),
    "status": (int, "an integer"),
    "retry_after": (str, "a text"),
    "size": (int, "an integer"),
    "location": (str, "a text"),
}
_ON: Final = "on"


def options_of(kind: str) -> tuple[str, ...]:
    """Return the names of the options that a kind of fault takes, in the order of a form.

    Raises:
        InvalidArgumentError: There is no such kind.
    """
    effect = _effect(kind)
    aim = [name for name in Options.__annotations__ if name != "phase" or len(effect.phases) > 1]
    return (_ON, *fields_dict(effect), *aim)


def _effect(kind: str) -> type[Effect]:
    if kind not in KINDS:
        raise wrong("kind", f"one of {', '.join(KINDS)}", kind)
    return KINDS[kind]


def read(kind: str, options: Mapping[str, str]) -> tuple[Effect, str | None, Options]:
    """Return what a fault does, what it is on, if that is said, and how it is aimed.

    Args:
        kind: Its name, such as `reset_after_commit` or `notification.drop`.
        options: By name; an empty text is none.

    Raises:
        InvalidArgumentError: There is no such kind, it has no such option, or the option cannot be that.
    """
    effect, given = _effect(kind), {name: text.strip() for name, text in options.items() if text.strip()}
    allowed = options_of(kind)
    for name in given:
        if name not in allowed and name != "phase":
            raise wrong("option", f"one of {', '.join(allowed)} for {kind}", name)
    read_in = {name: _read(name, text) for name, text in given.items() if name != _ON}
    own = {name: read_in.pop(name) for name in fields_dict(effect) if name in read_in}
    if effect is Refuse and not own:
        raise wrong("seconds", "given: nobody could end it, for the door is shut to all", "")
    aim: Options = read_in  # type: ignore[assignment] # `options_of` has no other names
    return effect(**own), given.get(_ON), aim


def _read(name: str, text: str) -> Any:
    convert, rule = _READ[name]
    try:
        value = convert(text)
    except ValueError:
        pass
    else:
        return int(value) if isinstance(value, float) and value.is_integer() else value
    raise wrong(name, rule, text)
