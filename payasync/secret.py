"""A text that never shows itself by accident."""

import hmac
from typing import Any, NoReturn, Self

from payasync.documents import encodable
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
        ConfigurationError: It is not a text, it is empty, or it holds a lone surrogate.
    """

    __slots__ = ("__text", "__weakref__")

    def __init__(self, text: str) -> None:
        if wrong := _wrong(text):
            del text  # a traceback may show what is local, and a key that is not quite one is still nobody's business
            raise ConfigurationError(wrong)
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
        return hmac.compare_digest(self.__text.encode(), other.__text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Secret is never pickled: send the name of the key, and look it up there")


class Hidden:
    """Anything, masked wherever it is printed, until it is known whether it is a secret."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return MASK


def _wrong(text: object) -> str:
    if not isinstance(text, str) or not text:
        kind = "an empty text" if isinstance(text, str) else type(text).__name__
        return f"a secret must be a text that is not empty, not {kind}: give the key itself"
    if not encodable(text):
        return "a secret must be valid Unicode, without lone surrogates: is its source UTF-8?"
    return ""
