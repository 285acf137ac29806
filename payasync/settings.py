"""How a session behaves: times and retries; which addresses, headers and files it may use."""

import asyncio
import errno
import importlib
import ipaddress
import os
import re
import shlex
import ssl
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.request import getproxies, proxy_bypass

import backoff
from attrs import Attribute, field, frozen
from yarl import URL

from payasync.errors import ConfigurationError


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(instance: object, attribute: "Attribute[Any]", value: Any) -> None:
    if not _is_number(value) or not 0 < value <= sys.float_info.max:
        raise _wrong(instance, attribute, "a number of seconds above 0", value)


def a_wait(instance: object, attribute: "Attribute[Any]", value: Any) -> None:
    """Check a number of seconds, 0 or more."""
    if not _is_number(value) or not 0 <= value <= sys.float_info.max:
        raise _wrong(instance, attribute, "a number of seconds, 0 or more", value)


def a_count(least: int) -> Any:
    """Return the check of an integer of so many or more."""

    def check(instance: object, attribute: "Attribute[Any]", value: object) -> None:
        if type(value) is not int or value < least:
            raise _wrong(instance, attribute, f"an integer of {least} or more", value)

    return check


def _wrong(instance: object, attribute: "Attribute[Any]", rule: str, value: object) -> ConfigurationError:
    name = f"{type(instance).__name__}.{attribute.name}"
    return ConfigurationError(f"{name} must be {rule}, not {value!r}", field=name)


@frozen
class Timeouts:
    """How long a call may take, in seconds.

    Args:
        total: Bounds a call with all its attempts, and the waits between them.
        connect: Bounds DNS, TCP and TLS of a new connection. Waiting for a free connection of the session's pool
            is bounded by `total` only.
        read: From the moment the request is sent to the whole answer.

    Raises:
        ConfigurationError: A value that is no number above 0.
    """

    total: float = field(default=45.0, validator=_seconds)
    connect: float = field(default=5.0, validator=_seconds)
    read: float = field(default=20.0, validator=_seconds)


@frozen
class RetryPolicy:
    """How often and how patiently a call is tried.

    Args:
        attempts: At most so many, the first included.
        base_delay: Before the second attempt, a random time from 0 to this many seconds; it doubles with
            each further one.
        max_delay: The most that a wait can grow to, in seconds.
        quota: Tokens of the session's retry budget: a retry takes 5, or 10 after a time-out, and a success
            pays back; without tokens a failure is final, so that a dead service is left in peace.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    attempts: int = field(default=3, validator=a_count(1))
    base_delay: float = field(default=0.5, validator=a_wait)
    max_delay: float = field(default=8.0, validator=a_wait)
    quota: int = field(default=500, validator=a_count(0))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@frozen(kw_only=True)
class Pace:
    """Time and chance, so that tests can bring their own."""

    clock: Callable[[], float] = _loop_time
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    jitter: Callable[[float], float] = backoff.full_jitter


_HTTP: Final = frozenset({"http", "https"})


def base_url(given: object) -> URL:
    """Return a base URL; its path is kept.

    Raises:
        ConfigurationError: It is no absolute https URL (http is for loopback only), or it holds a user, a query
            or a fragment.
    """
    url = _parsed(given)
    if url is None or url.scheme not in _HTTP or not url.host:
        raise _refused(given, "must be an absolute URL, such as https://pay.example.com")
    if url.user is not None or url.password is not None:
        raise _refused(given, "must not hold a user or a password: keys belong into Credentials")
    if url.raw_query_string or url.raw_fragment or "?" in str(given) or "#" in str(given):
        raise _refused(given, "must not hold a query or a fragment")
    if url.scheme == "http" and not is_loopback(url):
        raise _refused(given, "must be https: plain http is for loopback alone")
    return url


def shown(url: URL) -> str:
    """Return a base URL as a text, in which each that leads to the same place is the same."""
    return str(url).rstrip("/")


def _parsed(given: object) -> URL | None:
    if not isinstance(given, str | URL):
        return None
    try:
        url = URL(given)
    except ValueError:
        return None
    return url if url.port else None


def _refused(given: object, why: str) -> ConfigurationError:
    shown = "" if {"@", "?", "#"}.intersection(str(given)) else f"; it is {given!r}"  # a key may stand there
    return ConfigurationError(f"base_url {why}{shown}", field="base_url")


def is_loopback(url: URL) -> bool:
    """Return whether an address is this machine's own: `localhost`, 127.0.0.0/8 or ::1."""
    host = url.host or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def environment_proxy(url: URL) -> str | None:
    """Return the proxy that the environment gives for an address; only that is taken from it, and no netrc."""
    if url.host is None or proxy_bypass(url.host):
        return None
    return getproxies().get(url.scheme)


def proxy_url(given: object) -> str:
    """Return a proxy's URL, which may hold a user and a password.

    Raises:
        ConfigurationError: It is no absolute http(s) URL.
    """
    url = _parsed(given)
    if url is None or url.scheme not in _HTTP or not url.host:
        raise ConfigurationError(
            'proxy must be an absolute URL, such as http://proxy.example:3128, or "environment"', field="proxy"
        )
    return str(url)


def verifying(context: object) -> ssl.SSLContext:
    """Return a TLS context that verifies.

    Raises:
        ConfigurationError: It does not check certificates or host names, or allows TLS below 1.2.
    """
    if not isinstance(context, ssl.SSLContext):
        raise ConfigurationError(
            f"tls must be an ssl.SSLContext, such as ssl.create_default_context(), not {context!r}", field="tls"
        )
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise ConfigurationError(
            "tls must verify: to trust a certificate of your own, load it with load_verify_locations()", field="tls"
        )
    if context.minimum_version < ssl.TLSVersion.TLSv1_2:
        raise ConfigurationError("tls must demand TLS 1.2: set minimum_version to TLSv1_2 or later", field="tls")
    return context


FRAMING: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that say where a message begins and ends, and when it is sent: another value could make it two messages,
or put off its body behind the proof that nothing was sent."""

_SENDER: Final = frozenset({"authorization", "cookie"})
_PROXY: Final = "proxy-"
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def is_header(name: object, value: object) -> bool:
    """Return whether a header is of visible ASCII, so that it cannot break the request apart."""
    texts = isinstance(name, str) and isinstance(value, str)
    return texts and bool(_TOKEN.fullmatch(str(name)) and _VISIBLE.fullmatch(str(value)))


def is_own(name: str) -> bool:
    """Return whether a profile cannot set a header: it says how the request is sent, or who sends it."""
    lower = name.lower()
    return lower in FRAMING or lower in _SENDER or lower.startswith(_PROXY)


Location: TypeAlias = str | os.PathLike[str]

DATABASE: Final = ("", "-wal", "-shm", "-journal")
"""What SQLite puts behind the name of a database for the files that belong to it."""
_POSIX: Final = hasattr(os, "geteuid")
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_READ: Final = stat.S_IRGRP | stat.S_IROTH


def new_private(path: Location) -> int:
    """Make a file that only its owner can read and write, and return its descriptor.

    Raises:
        FileExistsError: Something has this name already; a symbolic link is not followed.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def check_private(path: Location) -> None:
    """Refuse a file that this program writes, if another user can write it or if it is a symbolic link.

    The file is not opened, because closing it would release the locks that SQLite holds on it.

    Args:
        path: The file's; it may be missing.

    Raises:
        PermissionError: The file must not be used; it says why, and what to do.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    name = Path(path).name
    if stat.S_ISLNK(found.st_mode):
        raise _refusal(
            f"{name!r} is a symbolic link, and links are not followed. Remove the link, or name the file itself"
        )
    if not stat.S_ISREG(found.st_mode):
        raise _refusal(f"{name!r} is not a regular file. Name another file")
    if _POSIX and found.st_uid != os.geteuid():
        raise _refusal(f"{name!r} belongs to another user. Run this as its owner, or name another file")
    if _POSIX and found.st_mode & _WRITE:
        raise _refusal(f"other users can write {name!r}, and only its owner may. Run: chmod 600 {_quoted(path)}")


def read_guarded(path: Location) -> str:
    """Return the text of a file that this program only reads, and that no other user may write; links are followed.

    Raises:
        PermissionError: Another user can write it; it says what to do.
        OSError: It cannot be read.
        UnicodeDecodeError: It is not UTF-8 text.
    """
    with Path(path).open(encoding="utf-8") as file:
        if _POSIX and os.fstat(file.fileno()).st_mode & _WRITE:
            raise _refusal(f"other users can write it, and only its owner may. Run: chmod go-w {_quoted(path)}")
        return file.read()


def others_can_read(path: Location) -> bool:
    """Return whether another user can read a file; links are followed."""
    return _POSIX and bool(Path(path).stat().st_mode & _READ)


def _quoted(path: Location) -> str:
    return shlex.quote(os.fspath(path))


def _refusal(why: str) -> PermissionError:
    return PermissionError(errno.EPERM, why)


def from_extra(extra: str, module: str, name: str) -> Any:
    """Return what a module of ours defines, which needs an extra.

    Args:
        extra: Its name, such as `postgres`.
        module: Ours.
        name: What is looked for in it.

    Raises:
        ConfigurationError: The extra is not installed.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = error.name
    raise ConfigurationError(f'{name} needs {missing}, an extra: python -m pip install "payasync[{extra}]"')
