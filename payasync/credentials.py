"""Who the merchant is: the merchant's number and keys (spec: Authentication, 1)."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from attrs import field, frozen

from payasync.errors import ConfigurationError
from payasync.secret import Secret

_KEY: Final = re.compile(r"\s*(-----BEGIN [^-]+-----.*?-----END [^-]+-----|[^,\n]+)", re.DOTALL)
"""One of several keys: a PEM block, or what stands between commas and line ends."""


def _secret(given: str | Secret | None) -> Secret | None:
    return given if given is None or isinstance(given, Secret) else Secret(given)


def _secrets(given: str | Secret | Iterable[str | Secret]) -> tuple[Secret, ...]:
    several = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    return tuple(one if isinstance(one, Secret) else Secret(one) for one in several)


def _check_merchant_id(_: object, __: object, value: Any) -> None:
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        raise ConfigurationError(
            f"credentials.merchant_id must be a text that is not empty, not {value!r}",
            field="credentials.merchant_id",
        )


@frozen
class Credentials:
    """The merchant's number and keys; every key is held as a `Secret`.

    Args:
        merchant_id: The merchant's number, sent as `merchantId`.
        secret_key: Sent as `Authorization: Bearer` where the profile says so (spec: Authentication, 2).
        public_key: The account's; held, and sent only where the profile says so.
        signing_key: Signs requests: a shared secret, or a private key (PEM, or base64 of PKCS #8).
        service_keys: Verify answers and body-signed notifications; several while keys rotate. Empty: the
            signing key, where the algorithm is symmetric.
        notification_keys: Standard Webhooks secrets (`whsec_…`), several while they rotate.

    Raises:
        ConfigurationError: A value of another type, or an empty one.
    """

    merchant_id: str = field(validator=_check_merchant_id)
    secret_key: Secret | None = field(default=None, converter=_secret, kw_only=True)
    public_key: Secret | None = field(default=None, converter=_secret, kw_only=True)
    signing_key: Secret | None = field(default=None, converter=_secret, kw_only=True)
    service_keys: tuple[Secret, ...] = field(default=(), converter=_secrets, kw_only=True)
    notification_keys: tuple[Secret, ...] = field(default=(), converter=_secrets, kw_only=True)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the credentials from the environment, now.

        `PAYASYNC_MERCHANT_ID`, `PAYASYNC_SECRET_KEY`, `PAYASYNC_PUBLIC_KEY`, `PAYASYNC_SIGNING_KEY`,
        `PAYASYNC_SERVICE_KEYS` and `PAYASYNC_NOTIFICATION_KEYS`; or each with `_FILE` behind its name, for
        the path of a file that holds the value. Several keys stand in lines of their own, or between
        commas; PEM blocks follow each other.

        Args:
            environ: Read in place of `os.environ`.

        Raises:
            ConfigurationError: The merchant's number is missing, both forms of one variable are set, or a
                file cannot be read.
        """
        read = Environment(os.environ if environ is None else environ)
        del environ  # a traceback may show what is local: from here on only masked values are
        return cls(
            read.required("PAYASYNC_MERCHANT_ID"),
            secret_key=_secret(read.optional("PAYASYNC_SECRET_KEY")),
            public_key=_secret(read.optional("PAYASYNC_PUBLIC_KEY")),
            signing_key=_secret(read.optional("PAYASYNC_SIGNING_KEY")),
            service_keys=_several(read.optional("PAYASYNC_SERVICE_KEYS")),
            notification_keys=_several(read.optional("PAYASYNC_NOTIFICATION_KEYS")),
        )


@frozen
class Environment:
    """Settings by the name of a variable, each given as it is or as the path of a file (`…_FILE`)."""

    variables: Mapping[str, str] = field(repr=False)

    def optional(self, name: str) -> str | None:
        """Return a setting, or `None` where neither form is set.

        Raises:
            ConfigurationError: Both forms are set, one is empty, or the file cannot be read.
        """
        file = f"{name}_FILE"
        if file not in self.variables:
            return self._filled(name, self.variables.get(name))
        if name in self.variables:
            raise ConfigurationError(f"{name} and {file} are both set: keep one", field=name)
        return self._filled(file, _file_text(file, self.variables[file]).strip())

    @staticmethod
    def _filled(name: str, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ConfigurationError(f"{name} is empty: give it a value, or unset it", field=name)
        return value

    def required(self, name: str) -> str:
        """Return a setting that must be there.

        Raises:
            ConfigurationError: It is not, or `optional` would raise.
        """
        value = self.optional(name)
        if value is None:
            raise ConfigurationError(f"{name} is not set: set it, or {name}_FILE", field=name)
        return value


def _file_text(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
    raise ConfigurationError(f"{name}: cannot read {path!r}: {why}", field=name)


def _several(value: str | None) -> tuple[Secret, ...]:
    keys = map(str.strip, _KEY.findall(value or ""))
    return _secrets(filter(None, keys))
