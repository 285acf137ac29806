"""A text that never shows itself by accident."""

import hmac
from typing import NoReturn, Self

from payasync.errors import ConfigurationError

MASK = "Secret('***')"


class Secret:
    """A key or token: masked wherever it is printed, and refused where it would be written down.

    `str`, `repr` and `format` give a mask; pickling raises `TypeError`, and so does any serialiser
    that knows plain types only (`json`, `orjson`); copies are the same object. `reveal` is the only
    way to the text.

    Args:
        text: The secret itself, not empty.

    Raises:
        ConfigurationError: It is not a text, or it is empty.
    """

    __slots__ = ("__text", "__weakref__")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            kind = "an empty text" if isinstance(text, str) else type(text).__name__
            raise ConfigurationError(f"a secret must be a text that is not empty, not {kind}: give the key itself")
        self.__text = text

    def reveal(self) -> str:
        """Return the text of the secret."""
        return self.__text

    def __repr__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_bytes(self.__text), _bytes(other.__text))

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is never pickled: send the name of the key, and look it up there")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
