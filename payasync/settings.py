"""Timeouts and retries; which addresses, headers and files are allowed; and the validators of all settings.

A validator is an attrs validator that raises `ConfigurationError` with the field, the rule and the value.
"""

import errno
import importlib
import ipaddress
import os
import re
import shlex
import ssl
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import iscoroutinefunction
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, TypeGuard, Union, get_args, get_origin
from urllib.request import getproxies, proxy_bypass

from attrs import Attribute, field, frozen, validators
from yarl import URL

from payasync.errors import ConfigurationError, NotConfiguredError

if sys.platform != "win32":
    import fcntl

Validator: TypeAlias = Callable[[Any, "Attribute[Any]", Any], None]
Fields: TypeAlias = list["Attribute[Any]"]

MOST_SHOWN: Final = 100
"""The most characters of an invalid value that an error shows."""

_KEY: Final = "key"
_PLAIN: Final[dict[Any, tuple[tuple[type, ...], str]]] = {
    str: ((str,), "a text"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    tuple: ((tuple,), "a list"),
    NoneType: ((NoneType,), "nothing"),
}


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an integer or a float, and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def must_be(wanted: str, holds: Callable[[Any], bool]) -> Validator:
    """Return a validator of a field.

    Args:
        wanted: The rule in words, such as "a number of seconds above 0".
        holds: Returns whether a value keeps the rule.
    """

    def check(instance: object, attribute: "Attribute[Any]", value: Any) -> None:
        if not holds(value):
            raise _invalid_error(_key_of(instance, attribute), wanted, value)

    return check


def each_must_be(wanted: str, holds: Callable[[Any], bool]) -> Validator:
    """Return a validator that checks each entry of a table, as `must_be`; the error names the entry."""

    def check(instance: object, attribute: "Attribute[Any]", table: Mapping[str, Any]) -> None:
        for name, value in table.items():
            if not holds(value):
                raise _invalid_error(f"{_key_of(instance, attribute)}.{name}", wanted, value)

    return check


def a_count(least: int) -> Validator:
    """Return a validator of integers that are not below a limit."""
    return must_be(f"an integer of {least} or more", lambda value: type(value) is int and value >= least)


a_time: Final = must_be(
    "a number of seconds above 0", lambda value: is_number(value) and 0 < value <= sys.float_info.max
)
a_wait: Final = must_be(
    "a number of seconds, 0 or more", lambda value: is_number(value) and 0 <= value <= sys.float_info.max
)


def check_types(section: str) -> Callable[[type, Fields], Fields]:
    """Return an attrs field transformer: each value is checked by its annotation, then by the validator of its field.

    Args:
        section: The part of a field's key in errors that stands before its name, such as `answer`; empty for none.
    """

    def transform(_: type, fields: Fields) -> Fields:
        return [
            each.evolve(
                metadata={**each.metadata, _KEY: ".".join(filter(None, (section, each.name.removesuffix("_"))))},
                validator=validators.and_(_check_type, *([each.validator] if each.validator else [])),
            )
            for each in fields
        ]

    return transform


def check_function(name: str, given: object) -> None:
    """Refuse a setting that is not a plain function.

    Raises:
        ConfigurationError: It cannot be called, or is an `async` function.
    """
    if not callable(given):
        raise invalid_setting(name, f"must be a plain function, not {given!r}")
    if any(map(iscoroutinefunction, (given, type(given).__call__))):
        why = "must be a plain function, not a coroutine function, because nothing awaits it"
        raise invalid_setting(name, f"{why}. Write def instead of async def")


def to_tuple(given: Iterable[Any]) -> tuple[Any, ...]:
    """Return a list or a set as a tuple; any other value unchanged, for the type check to refuse."""
    several = isinstance(given, Sequence | AbstractSet) and not isinstance(given, str | bytes | bytearray | memoryview)
    return tuple(given) if several else given  # type: ignore[return-value] # the check refuses it


def to_dict(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a table and of the tables in it; any other value unchanged, for the type check to refuse."""
    return {name: to_dict(value) for name, value in given.items()} if isinstance(given, Mapping) else given


def to_dict_of_tuples(given: Mapping[str, Iterable[Any]]) -> dict[str, Any]:
    """Return a copy as `to_dict` does, with tuples for lists."""
    if not isinstance(given, Mapping):
        return given
    return {key: to_dict_of_tuples(its) if isinstance(its, Mapping) else to_tuple(its) for key, its in given.items()}


def fits_type(value: object, kind: Any) -> bool:
    """Return whether a value is of a type. Nothing is converted, and a boolean is not an integer."""
    if get_args(kind):
        return _fits_generic(value, get_origin(kind), get_args(kind))
    if kind in _PLAIN:
        return type(value) in _PLAIN[kind][0] or (kind is str and isinstance(value, str))
    if getattr(kind, "_is_protocol", False):
        methods = [name for name in vars(kind) if not name.startswith("_")]
        return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)
    return kind is Any or isinstance(value, kind)


def _fits_generic(value: object, origin: Any, inner: tuple[Any, ...]) -> bool:
    if origin is Literal:
        return any(fits_type(value, type(one)) and value == one for one in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits_type(one, inner[0]) for one in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            fits_type(name, inner[0]) and fits_type(held, inner[1]) for name, held in value.items()
        )
    return any(fits_type(value, one) for one in inner)  # a union


def describe_type(kind: Any) -> str:
    """Return a type in words, such as "a list, each of it a text"."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind][1]
    if origin is Literal:
        return f"one of {', '.join(repr(one) for one in inner if one != '')}"
    if origin in {Union, UnionType}:
        return " or ".join(describe_type(one) for one in inner if one is not NoneType and one != Literal[""])
    if origin is tuple:
        return f"a list, each of it {describe_type(inner[0])}"
    if origin is Mapping:
        return "a table" if inner[1] is Any else f"a table of names, each with {describe_type(inner[1])}"
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def describe_value(value: object) -> str:
    """Return the `repr` of a value, cut to what an error has room for; the type if it has none."""
    try:
        text = repr(list(value) if type(value) is tuple else value)
    except Exception:  # noqa: BLE001 - a `repr` may raise anything
        return describe_type(type(value))
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def _check_type(instance: object, attribute: "Attribute[Any]", value: object) -> None:
    kind, key = attribute.type, _key_of(instance, attribute)
    if fits_type(value, kind):
        return
    if get_origin(kind) is not Mapping:
        raise _invalid_error(key, describe_type(kind), value)
    of_names, of_values = get_args(kind)
    # A table of texts may hold secrets, so an error shows only the type of a value.
    hidden = of_values is str or get_origin(of_values) is Mapping
    show: Callable[[object], str] = (lambda held: describe_type(type(held))) if hidden else describe_value
    if not isinstance(value, Mapping):
        raise invalid_setting(key, f"must be {describe_type(kind)}, not {show(value)}")
    for name, held in value.items():
        if not (fits_type(name, of_names) and fits_type(held, of_values)):
            entry = ".".join((key, *_keys_to(held, of_values, name))) if isinstance(name, str) else key
            wrong = f"{describe_value(name)} with {show(held)}"
            raise ConfigurationError(f"{key} must be {describe_type(kind)}, not {wrong}", field=entry)


def _keys_to(held: object, kind: Any, *names: str) -> tuple[str, ...]:
    """Return the names that lead to a value of the wrong type, which may stand in a table inside a table."""
    table = next((each for each in (kind, *get_args(kind)) if get_origin(each) is Mapping), None)
    if table and isinstance(held, Mapping):
        wrong = (name for name, value in held.items() if not fits_type(value, get_args(table)[1]))
        names = (*names, *(name for name in wrong if isinstance(name, str)))
    return names[:2]


def invalid_setting(key: str, why: str) -> ConfigurationError:
    """Return the error for a setting, with its key and the rule."""
    return ConfigurationError(f"{key} {why}", field=key)


def not_configured(point: str, put: str) -> NotConfiguredError:
    """Return the error for an open point of a profile, with the value to put there."""
    thing = point.removesuffix("_status")
    table = f" (TOML: [status.{thing}])" if point in {"payment_status", "refund_status"} else ""
    return NotConfiguredError(
        f"{point} is open: the common interface does not define it. Put {put} into the profile, as {point!r}{table}",
        field=point,
    )


def _key_of(instance: object, attribute: "Attribute[Any]") -> str:
    return str(attribute.metadata.get(_KEY, f"{type(instance).__name__}.{attribute.name}"))


def _invalid_error(key: str, wanted: str, value: object) -> ConfigurationError:
    return invalid_setting(key, f"must be {wanted}, not {describe_value(value)}")


@frozen
class Timeouts:
    """How long a call may take, in seconds.

    If the event loop is blocked, or the process stopped, for more than a second, this time counts for `total` only.

    Args:
        total: Bounds a call with all its attempts, and the waits between them.
        connect: Bounds DNS, TCP and TLS of a new connection. Waiting for a free connection of the session's pool
            is bounded by `total` only.
        read: From the moment the request is sent until the whole response is read.

    Raises:
        ConfigurationError: A value is not a number above 0.
    """

    total: float = field(default=45.0, validator=a_time)
    connect: float = field(default=5.0, validator=a_time)
    read: float = field(default=20.0, validator=a_time)

    @property
    def least(self) -> float:
        """Seconds that must be left for an attempt to start: two, or a tenth of `total` if that is less."""
        return min(2.0, self.total / 10)


@frozen
class RetryPolicy:
    """How often a call is tried, and how long it waits between attempts.

    Args:
        attempts: How often a call sends its request at most, the first time included. Queries do not count.
        base_delay: The call waits a random time from 0 to this many seconds before the second attempt. The limit
            doubles with each attempt.
        max_delay: The longest wait, in seconds.
        quota: Tokens of the session's retry budget. A retry takes 5, or 10 after a timeout; a success pays back.
            Without tokens a failure is final, so that retries do not overload a failing service.

    Raises:
        ConfigurationError: A value has another type, or is too small.
    """

    attempts: int = field(default=3, validator=a_count(1))
    base_delay: float = field(default=0.5, validator=a_wait)
    max_delay: float = field(default=8.0, validator=a_wait)
    quota: int = field(default=500, validator=a_count(0))


def parse_base_url(given: object, name: str = "base_url") -> URL:
    """Return a base URL, with its path.

    Args:
        given: The text, or a `URL`.
        name: The setting or argument, for errors.

    Raises:
        ConfigurationError: The URL is not absolute, not https (http is for loopback only), or holds a user, a
            query or a fragment.
    """
    url = _parse_http_url(given)
    if url is None:
        raise _base_url_error(name, given, "must be an absolute URL, such as https://pay.example.com")
    if url.user is not None or url.password is not None:
        raise _base_url_error(name, given, "must not hold a user or a password: put keys into Credentials")
    if url.raw_query_string or url.raw_fragment or "?" in str(given) or "#" in str(given):
        raise _base_url_error(name, given, "must not hold a query or a fragment")
    if url.scheme == "http" and not is_loopback(url):
        raise _base_url_error(name, given, "must be https: plain http is for loopback alone")
    return url


def canonical_url(url: URL) -> str:
    """Return the text of a base URL without a slash at its end."""
    return str(url).rstrip("/")


def _parse_http_url(given: object) -> URL | None:
    if not isinstance(given, str | URL):
        return None
    try:
        url = URL(given)
    except ValueError:
        return None
    return url if url.scheme in {"http", "https"} and url.host and url.port else None


def _base_url_error(name: str, given: object, why: str) -> ConfigurationError:
    shown = "" if {"@", "?", "#"}.intersection(str(given)) else f"; it is {given!r}"  # it may contain a key
    return ConfigurationError(f"{name} {why}{shown}", field=name)


def is_loopback(url: URL) -> bool:
    """Return whether a URL names this machine: `localhost`, 127.0.0.0/8 or ::1."""
    host = url.host or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def environment_proxy(url: URL) -> str | None:
    """Return the proxy for a URL from the environment. Nothing else is read from there, nor from netrc."""
    host, proxies = (url.host or "").rstrip("."), getproxies()
    entries = re.split(r"[\s,]+", proxies.get("no", "").lower())
    direct = proxy_bypass(host) or any(_is_direct(entry.removesuffix(f":{url.port}"), host) for entry in entries)
    return None if direct else proxies.get(url.scheme)


def _is_direct(entry: str, host: str) -> bool:
    """Return whether an entry of NO_PROXY names a host: a domain, `*.domain`, an address or a range."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return host.endswith(entry[1:]) if entry.startswith("*") else f".{host}".endswith(f".{entry.lstrip('.')}")


def parse_proxy_url(given: object) -> str:
    """Return a proxy's URL, which may hold a user and a password.

    Raises:
        ConfigurationError: The URL is not an absolute http or https URL.
    """
    url = _parse_http_url(given)
    if url is None:
        rule = 'must be an absolute http or https URL, such as http://proxy.example:3128, or "environment"'
        raise invalid_setting("proxy", f"{rule}; SOCKS is not supported")
    return str(url)


def check_tls(context: object) -> ssl.SSLContext:
    """Return a TLS context, if it verifies.

    Raises:
        ConfigurationError: The context does not check certificates or host names, allows TLS below 1.2, or writes its
            keys to a file that the program chose. A file that `SSLKEYLOGFILE` names is not written.
    """
    if not isinstance(context, ssl.SSLContext):
        raise invalid_setting("tls", f"must be an ssl.SSLContext such as ssl.create_default_context(), not {context!r}")
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise invalid_setting("tls", "must verify: to trust your own certificate, load it with load_verify_locations()")
    if context.minimum_version < ssl.TLSVersion.TLSv1_2:
        raise invalid_setting("tls", "must demand TLS 1.2: set minimum_version to TLSv1_2 or later")
    if log := getattr(context, "keylog_filename", None):
        if log != os.environ.get("SSLKEYLOGFILE"):
            raise invalid_setting("tls", "must not write keys, which decrypt requests: set keylog_filename to None")
        context.keylog_filename = None  # type: ignore[assignment] # `ssl.create_default_context` set it
    return context


def check_ciphers(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return a TLS context, if each of its ciphers encrypts, and none is anonymous.

    Raises:
        ConfigurationError: One does not encrypt, or needs no certificate.
    """
    weak = [each["name"] for each in context.get_ciphers() if not each["strength_bits"] or each["auth"] == "auth-null"]
    if weak:
        raise invalid_setting("tls", f"must not allow {weak[0]}: add !aNULL:!eNULL to its ciphers, by set_ciphers()")
    return context


def make_default_tls() -> ssl.SSLContext:
    """Return a context that trusts the machine's authorities."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return check_tls(context)


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
"""Headers that frame a message. Another value could split the message into two, or delay its body, and then
`OneShotBody` would not prove that nothing was sent."""

_SENDER: Final = frozenset({"authorization", "cookie"})
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def is_header(name: object, value: object) -> bool:
    """Return whether a header is a token and visible ASCII, so that it cannot split the request."""
    texts = isinstance(name, str) and isinstance(value, str)
    return texts and bool(_TOKEN.fullmatch(str(name)) and _VISIBLE.fullmatch(str(value)))


def is_reserved_header(name: str) -> bool:
    """Return whether a header frames the request or names its sender, so that a profile cannot set it."""
    lower = name.lower()
    return lower in FRAMING or lower in _SENDER or lower.startswith("proxy-")


Location: TypeAlias = str | os.PathLike[str]

DATABASE: Final = ("", "-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite keeps for a database."""
_POSIX: Final = hasattr(os, "geteuid")
_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_READ: Final = stat.S_IRGRP | stat.S_IROTH


def new_private(path: Location) -> int:
    """Create a file that only its owner can read and write, and return its descriptor.

    Raises:
        FileExistsError: The name exists, also as a symbolic link.
        PermissionError: Another user can write its folder.
    """
    _check_folder(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def check_private(path: Location) -> None:
    """Refuse a file that this program writes, if another user can write it or its folder, or if it is a symbolic link.

    The file is not opened, because closing it would release the locks that SQLite holds on it. It may be missing.

    Raises:
        PermissionError: The file must not be used. The error says why, and what to do.
    """
    try:
        _check_folder(path)
        found = os.lstat(path)
    except FileNotFoundError:
        return
    name = Path(path).name
    if stat.S_ISLNK(found.st_mode):
        why = f"{name!r} is a symbolic link, and links are not followed"
        raise _not_permitted(f"{why}. Remove the link, or name the file itself")
    if not stat.S_ISREG(found.st_mode):
        raise _not_permitted(f"{name!r} is not a regular file. Name another file")
    if _POSIX and found.st_uid != os.geteuid():
        raise _not_permitted(f"{name!r} belongs to another user. Run this as its owner, or name another file")
    if _POSIX and found.st_mode & _WRITE:
        raise _not_permitted(f"other users can write {name!r}, and only its owner may. Run: chmod 600 {_quote(path)}")


def open_folder(path: Location) -> int:
    """Return a descriptor of the folder of a file. Windows cannot open one, and opens nothing."""
    return os.open(os.devnull if sys.platform == "win32" else Path(path).absolute().parent, os.O_RDONLY)


def lock_file(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder until it is closed, or the process ends; return whether it is locked.

    A file system without locks counts as one that nobody else uses.

    Args:
        descriptor: The file.
        shared: Others can lock it so, too.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
    return True


def _check_folder(path: Location) -> None:
    """Refuse a file that another user could move away, to put another one in its place."""
    # Not the folders above it, too: volumes of containers are often open, and the program cannot change them.
    folder = Path(path).absolute().parent
    found = folder.stat()
    shared = "g" if found.st_mode & stat.S_IWGRP and _POSIX and not _is_own_group(found.st_gid) else ""
    who = shared + ("o" if found.st_mode & stat.S_IWOTH else "")
    if _POSIX and found.st_uid not in {0, os.geteuid()}:
        raise _not_permitted(f"its folder {str(folder)!r} belongs to another user, who could replace it. Use your own")
    if _POSIX and who and not found.st_mode & stat.S_ISVTX:
        why = f"other users can write its folder {str(folder)!r} (mode {stat.S_IMODE(found.st_mode):04o})"
        advice = f"Run: chmod {who}-w {_quote(folder)}, or use a folder that only you can write"
        raise _not_permitted(f"{why}, and could replace it. {advice}")


def _is_own_group(number: int) -> bool:
    """Return whether a group is that of this user alone, which many systems make for each user."""
    grp, pwd = map(importlib.import_module, ("grp", "pwd"))  # Windows has neither
    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and {*group.gr_mem} <= {user}


def read_guarded(name: str, path: object) -> str:
    """Return the text of a file that no other user can write; links are followed.

    Args:
        name: The setting that names the file.
        path: The path of the file.

    Raises:
        ConfigurationError: The file cannot be read, is not UTF-8, or another user can write it.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:  # type: ignore[arg-type] # a TypeError if it is no path
            if not (_POSIX and os.fstat(file.fileno()).st_mode & _WRITE):
                return file.read()
        why = f"other users can write it, and only its owner may. Run: chmod go-w {_quote(str(path))}"
    except OSError as error:
        why = str(error.strerror)
    except UnicodeDecodeError:
        why = "not UTF-8 text"
    except (TypeError, ValueError):
        why = "not a path"
    shown = repr(str(path)) if isinstance(path, str | Path) else describe_value(path)
    raise ConfigurationError(f"{name}: cannot read {shown}: {why}", field=name)


def others_can_read(path: Location) -> bool:
    """Return whether another user can read a file; links are followed."""
    return _POSIX and bool(Path(path).stat().st_mode & _READ)


def _quote(path: Location) -> str:
    return shlex.quote(os.fspath(path))


def _not_permitted(why: str) -> PermissionError:
    return PermissionError(errno.EPERM, why)


def from_extra(extra: str, module: str, name: str) -> Any:
    """Return a name of a module of payasync that needs an extra.

    Args:
        extra: The extra, such as `postgres`.
        module: The module.
        name: The name in the module.

    Raises:
        ConfigurationError: The extra is not installed.
    """
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = error.name
    raise ConfigurationError(f'{name} needs {missing}, an extra: python -m pip install "payasync[{extra}]"')
