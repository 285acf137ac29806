"""The merchant's number and keys (docs/reference/service.md#authentication)."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, Self, TypeAlias

from attrs import fields, frozen

from payasync.errors import ConfigurationError
from payasync.settings import invalid_setting, read_guarded
from payasync.strict_json import encodable

MASK = "Secret('***')"


class Secret:
    """A key or token that is masked wherever it is printed, and that is never serialised.

    `str`, `repr` and `format` return a mask. `pickle`, `json` and `orjson` raise `TypeError`. A copy is the same
    object. Only `reveal` returns the text.

    Args:
        text: The secret itself, not empty.

    Raises:
        ConfigurationError: The secret is not a text, is empty, or holds a lone surrogate.
    """

    __slots__ = ("__text", "__weakref__")

    def __init__(self, text: str) -> None:
        # A traceback may show local variables, so a refused key is deleted before the error is raised.
        if not isinstance(text, str) or not text:
            kind = "an empty text" if isinstance(text, str) else type(text).__name__
            del text
            raise ConfigurationError(f"a secret must be a text that is not empty, not {kind}: give the key itself")
        if not encodable(text):
            del text
            raise ConfigurationError("a secret must be valid Unicode, without lone surrogates: is its source UTF-8?")
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
        from hmac import compare_digest  # noqa: PLC0415 - few programs compare keys

        return compare_digest(self.__text.encode(), other.__text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self.__text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __getstate__(self) -> NoReturn:
        raise TypeError("a Secret is never pickled: send the name of the key, and look it up there")


class Hidden:
    """A value that is masked wherever it is printed, because it may be a secret."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = value

    def __repr__(self) -> str:
        return MASK


_KEY: Final = r"[\s\ufeff]*(-----BEGIN [^-]+-----.*?-----END [^-]+-----|[^,\n]+)"
"""Matches one of several keys: a PEM block, or the text between commas or line ends."""
QUOTES: Final = frozenset("\"'`\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb")


Key: TypeAlias = str | Secret | None
Keys: TypeAlias = str | Secret | Iterable[str | Secret]


@frozen(init=False, repr=False)
class Credentials:
    """The merchant's number and keys. Each key is stored as a `Secret`.

    Args:
        merchant_id: The merchant's number, sent as `merchantId`.
        secret_key: Sent by the operations in the profile's `bearer`, as `Authorization: Bearer` or as the profile's
            `auth` says (docs/reference/service.md#authentication).
        public_key: The account's public key, sent only where the profile's `auth` says so.
        signing_key: Signs requests: a shared secret, or a private key (PEM, or base64 of PKCS #8).
        service_keys: Verify signed responses and notifications, except those of Standard Webhooks; several while keys
            rotate. Default: the signing key, if the algorithm is symmetric.
        notification_keys: Standard Webhooks secrets (`whsec_…`); several while keys rotate.

    Raises:
        ConfigurationError: A value has another type, or is empty.
    """

    merchant_id: str
    secret_key: Secret | None
    public_key: Secret | None
    signing_key: Secret | None
    service_keys: tuple[Secret, ...]
    notification_keys: tuple[Secret, ...]

    def __init__(
        self,
        merchant_id: str,
        *,
        secret_key: Key = None,
        public_key: Key = None,
        signing_key: Key = None,
        service_keys: Keys = (),
        notification_keys: Keys = (),
    ) -> None:
        given = {
            "secret_key": Hidden(secret_key),
            "public_key": Hidden(public_key),
            "signing_key": Hidden(signing_key),
            "service_keys": Hidden(service_keys),
            "notification_keys": Hidden(notification_keys),
        }
        # A traceback may show local variables, and any of the values may be refused.
        del secret_key, public_key, signing_key, service_keys, notification_keys
        if not isinstance(merchant_id, str) or not merchant_id.isprintable() or not merchant_id.strip():
            raise invalid_setting("credentials.merchant_id", f"must be a text that is not empty, not {merchant_id!r}")
        held = {name: to_secrets(f"credentials.{name}", value) for name, value in given.items()}
        self.__attrs_init__(merchant_id, **held)  # pyright: ignore[reportAttributeAccessIssue] # attrs makes it

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name, None)!r}" for each in fields(Credentials))
        return f"Credentials({', '.join(shown)})"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the credentials from the environment, now.

        `PAYASYNC_MERCHANT_ID`, `PAYASYNC_SECRET_KEY`, `PAYASYNC_PUBLIC_KEY`, `PAYASYNC_SIGNING_KEY`,
        `PAYASYNC_SERVICE_KEYS` and `PAYASYNC_NOTIFICATION_KEYS` are read. Each may have `_FILE` behind its name, and
        then holds the path of a file with the value. Several keys are separated by line ends or commas; PEM blocks
        follow each other. White space, line ends and byte order marks at the ends of a value or a key are removed.

        Args:
            environ: The variables. Default: `os.environ`.

        Raises:
            ConfigurationError: The merchant's number is missing; both forms of one variable are set; a value has
                quotes around it, or holds a NUL; or a file cannot be read.
        """
        read = Environment(os.environ if environ is None else environ)
        del environ  # a traceback may show local variables
        return cls(
            read.required("PAYASYNC_MERCHANT_ID"),
            secret_key=read.secret("PAYASYNC_SECRET_KEY"),
            public_key=read.secret("PAYASYNC_PUBLIC_KEY"),
            signing_key=read.secret("PAYASYNC_SIGNING_KEY"),
            service_keys=read.secrets("PAYASYNC_SERVICE_KEYS"),
            notification_keys=read.secrets("PAYASYNC_NOTIFICATION_KEYS"),
        )


SENDER: Final[Mapping[str, tuple[str, ...]]] = {
    "secret_key": ("secret_key",),
    "public_key": ("public_key",),
    "merchant_id": (),
    "basic": ("public_key", "secret_key"),
    "basic_user": ("secret_key",),
}
"""What a header of the profile's `auth` may hold in braces, each with the keys that it needs."""


def to_secrets(name: str, given: Hidden) -> Any:
    """Return a key as a `Secret`, or several if the name ends with `_keys`; an error has the name."""
    try:
        if not name.endswith("_keys"):
            return None if given.value is None else _to_secret(given)
        several = isinstance(given.value, list | tuple | set | frozenset)
        return tuple(map(_to_secret, [Hidden(each) for each in (given.value if several else (given.value,))]))
    except ConfigurationError as error:
        error.args = (f"{name}: {error.args[0]}",)
        error.add(field=name)
        raise


def _to_secret(given: Hidden) -> Secret:
    return given.value if isinstance(given.value, Secret) else Secret(given.value)


def trim(text: str) -> str:
    """Return a text without white space, line ends and byte order marks at its ends."""
    while text != (shorter := text.strip().strip("\ufeff")):
        text = shorter
    return text


def _plain_value(name: str, given: Hidden) -> str:
    """Return the trimmed value of a variable or file; raise as `Environment.optional` does, without the value."""
    given = Hidden(trim(given.value))
    if not given.value:
        why = "is empty: give it a value, or unset it"
    elif "\0" in given.value:
        why = "holds a NUL character: write it again as UTF-8 text"
    elif {given.value[0], given.value[-1]} <= QUOTES:
        why = "has quotes around it, which would be part of the value: remove them"
    else:
        return given.value  # type: ignore[no-any-return] # a text
    raise invalid_setting(name, why)


class Environment:
    """Settings from environment variables, each given as its value or as the path of a file (`…_FILE`)."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables

    def optional(self, name: str) -> str | None:
        """Return a trimmed setting, or `None` if neither form is set.

        Raises:
            ConfigurationError: Both forms are set; a value is empty, has quotes around it, or holds a NUL; or the file
                cannot be read.
        """
        source = self._source(name)
        # No variable holds the text, because a traceback could show it.
        if source == name:
            return _plain_value(source, Hidden(self.variables[source]))
        return _plain_value(source, Hidden(read_guarded(source, self.variables[source]))) if source else None

    def _source(self, name: str) -> str:
        """Return the variable that gives a setting: its name, with `_FILE` for a file; empty if neither is set."""
        given = [each for each in (name, f"{name}_FILE") if each in self.variables]
        if len(given) > 1:
            raise invalid_setting(name, f"and {name}_FILE are both set: keep one")
        return "".join(given)

    def secret(self, name: str) -> Secret | None:
        """Return a setting that is a key; raise as `optional` does."""
        return None if (hidden := Hidden(self.optional(name))).value is None else _to_secret(hidden)

    def secrets(self, name: str) -> tuple[Secret, ...]:
        """Return a setting that holds several keys: PEM blocks, or texts between commas or line ends."""
        several = map(Hidden, filter(trim, re.findall(_KEY, self.optional(name) or "", re.DOTALL)))
        return tuple(_to_secret(Hidden(_plain_value(self._source(name), each))) for each in several)

    def required(self, name: str) -> str:
        """Return a setting that is required.

        Raises:
            ConfigurationError: The setting is missing, or `optional` raises.
        """
        value = self.optional(name)
        if value is None:
            raise invalid_setting(name, f"is not set: set it, or {name}_FILE")
        return value
