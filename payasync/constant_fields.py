"""The constants of a profile that no call could carry, or sign: refused when the profile is made."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from payasync.documents import flaw
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.signing import SignatureScheme, SortedPairs

Tables = Mapping[str, Mapping[str, Any]]

_ALL: Final = "*"
"""Where the constants of every operation stand."""


def check(
    constants: Tables, *, given: Mapping[str, Mapping[str, str]], scheme: SignatureScheme | None, signed: Iterable[str]
) -> None:
    """Refuse a constant that has no effect, or that every call would be refused for.

    Args:
        constants: By operation, or for all.
        given: By operation, the wire names that every call gives, with their arguments.
        scheme: What signs; one of the merchant's own says only as it signs what it refuses.
        signed: The operations that it signs.

    Raises:
        ConfigurationError: It names the constant.
    """
    for operation, table in constants.items():
        for name, value in table.items():
            _check_json(f"constants.{operation}.{name}", name, value)
            _check_sent(f"constants.{operation}.{name}", given.get(operation, {}).get(name))
    if type(scheme) is SortedPairs:
        for operation in signed:
            for key, name, value in _sent(constants, operation, given[operation]):
                _check_signable(key, {name: value}, scheme, operation)


def _check_json(key: str, name: str, value: object) -> None:
    if found := flaw({name: value}):
        raise ConfigurationError(f"{key} must be JSON, without {found}", field=key)


def _check_sent(key: str, argument: str | None) -> None:
    if argument:
        raise ConfigurationError(
            f"{key} is the argument {argument}, which every call gives: the constant would never be sent", field=key
        )


def _sent(constants: Tables, operation: str, given: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the key, the name and the value of what an operation carries: its own word goes before that for all."""
    own = constants.get(operation, {})
    for name, value in constants.get(_ALL, {}).items():
        if name not in own and name not in given:
            yield f"constants.{_ALL}.{name}", name, value
    yield from ((f"constants.{operation}.{name}", name, value) for name, value in own.items())


def _check_signable(key: str, field: Mapping[str, Any], scheme: SortedPairs, operation: str) -> None:
    try:
        scheme.text(field, path="")
    except InvalidArgumentError as error:
        why = str(error)
    else:
        return
    raise ConfigurationError(f"{key} cannot be sent with {operation}, which is signed: {why}", field=key)
