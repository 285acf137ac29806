"""Texts with names in braces, such as `{timestamp}.{body}`, the parts of header values, and times in them."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final

from multidict import CIMultiDict

from payasync.settings import invalid_setting, is_number
from payasync.strict_json import dumps, encodable

MILLISECONDS_FROM: Final = 10**11
"""In seconds since 1970, this is the year 5138. A number from here on is in milliseconds."""
_NUMBER: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,9})?", re.ASCII)
_NAMES: Final = re.compile(r"\{(\w*)\}")
_PAIRS: Final = re.compile(r"[,;]")
_BEGIN: Final = r'(?<![^,;\s"])'
_SIGNATURE: Final = re.compile(rf'{_BEGIN}[^,;\s"=]+=*(?![^,;\s"])')
_PLACE: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(:[A-Za-z0-9_.-]+)?")


def check_template(key: str, template: str, allowed: Iterable[str], needed: Iterable[str] = ()) -> None:
    """Refuse a template with an unknown name, or without one that it needs.

    Args:
        key: Its key in the profile.
        template: The text.
        allowed: The names that it may hold.
        needed: Those that it must hold.

    Raises:
        ConfigurationError: The error lists the allowed names.
    """
    names, listed = names_in(template), _list(allowed)
    if not encodable(template):
        raise invalid_setting(key, "must be a text of valid Unicode")
    for name in names:
        if name not in allowed:
            raise invalid_setting(key, f"has {{{name}}}, which is unknown; allowed are {listed}")
    if re.search("[{}]", _NAMES.sub("", template)):
        raise invalid_setting(key, f"has a brace without a name; allowed are {listed}")
    if missing := [name for name in needed if name not in names]:
        raise invalid_setting(key, f"must hold {_list(missing)}")


def _list(names: Iterable[str]) -> str:
    return " ".join(f"{{{name}}}" for name in names)


def names_in(template: str) -> list[str]:
    """Return the names in a template, in their order."""
    return _NAMES.findall(template)


def fill(template: str, values: Mapping[str, str | bytes]) -> bytes:
    """Return a template with values in the place of its names, as bytes, because a received body may be any bytes.

    Args:
        template: The text, as `check_template` accepts it.
        values: By name; further ones do not count.
    """
    parts = (values[part] if odd else part for part, odd in _parts(template))
    return b"".join(part.encode() if isinstance(part, str) else part for part in parts)


@lru_cache(maxsize=64)
def _parts(template: str) -> tuple[tuple[str, bool], ...]:
    return tuple((part, bool(number % 2)) for number, part in enumerate(_NAMES.split(template)))


_PART: Final = re.compile(r"\{([^{}]*)\}")


@lru_cache(maxsize=64)
def parts_of(template: str) -> tuple[str, ...]:
    """Return the names in braces of the template of an address; these are dotted paths."""
    return tuple(_PART.findall(template))


def fill_parts(template: str, values: Mapping[str, str]) -> str:
    """Return the template of an address with values in the place of its names."""
    return _PART.sub(lambda part: values[part[1]], template)


def is_place(place: str) -> bool:
    """Return whether a text is the name of a header, or `Name:key` for one value among `key=value` pairs in it."""
    return bool(_PLACE.fullmatch(place))


def values_at(headers: Mapping[str, str], place: str) -> list[str]:
    """Return the values at a place in headers.

    Args:
        headers: By names in any case; a name may be there several times.
        place: The name of a header. `Name:key` is the value of `key` in a header such as `t=1,v1=abc`.
    """
    name, _, key = place.partition(":")
    lines = CIMultiDict(headers).getall(name, [])
    if not key:
        return lines
    pairs = (pair.partition("=") for line in lines for pair in _PAIRS.split(line))
    # A scheme's name may stand before the first key, as in `Scheme t=1, v1="abc"`.
    return [value.strip().strip('"') for found, _, value in pairs if found.strip().rpartition(" ")[2] == key]


def signatures_at(headers: Mapping[str, str], place: str, prefix: str = "") -> list[str]:
    """Return the signatures at a place in headers, without the prefix.

    A service sends several while it rotates its keys, and a server may join the lines of a header. Hexadecimal and
    base64 have neither a comma nor a blank, so these separate the signatures.

    Args:
        headers: As for `values_at`.
        place: As for `values_at`.
        prefix: The text before each signature, or before several.
    """
    name, _, key = place.partition(":")
    texts = CIMultiDict(headers).getall(name, [])
    for mark in (rf"{re.escape(key)}\s*=\s*" if key else "", re.escape(prefix)):
        texts = [part for text in texts for part in re.split(_BEGIN + mark, text)[1:]] if mark else texts
    return [each for text in texts for each in _SIGNATURE.findall(text)]


@lru_cache(maxsize=1)
def write_time(seconds: int) -> str:
    """Return a time, in seconds since 1970, in ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


TIMES: Final = re.compile(r"\{(timestamp|milliseconds)\}")
"""What a constant of the profile may hold for the time of an attempt."""
_BRACED: Final = re.compile(r"\{ *[A-Za-z_][A-Za-z_.-]{0,63} *\}")
"""A name in braces, and neither JSON nor a number of any kind. Spaces beside the name are a slip."""


def fill_times(text: str, now: float) -> str:
    """Return a constant of the profile with the time of an attempt, in Unix seconds or milliseconds."""
    said = {"timestamp": int(now), "milliseconds": int(now * 1000)}
    return TIMES.sub(lambda found: str(said[found[1]]), text)


def unfilled(constants: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str, str]]:
    """Yield each constant of the profile that has a name in braces, which is sent as it is.

    Yields:
        The operation, or `*`; the key of the constant; what it has, and what payasync fills in.
    """
    for operation, table in constants.items():
        for name, value in table.items():
            text = TIMES.sub("", value) if isinstance(value, str) else dumps(value).decode()
            if found := _BRACED.search(text):
                only = "Only {timestamp} and {milliseconds} are replaced, and not in an object or a list"
                yield operation, f"constants.{operation}.{name}", f"has {found[0]}, which is sent as it is. {only}"


def parse_time(value: object, zone: tzinfo | None = None) -> float | None:
    """Return a time in seconds since 1970; `None` if the value is not a time.

    Args:
        value: ISO 8601, or seconds or milliseconds since 1970, as a number or as its digits.
        zone: That of a time without an offset. If its clocks skip or repeat the time, the offset is that from before
            the change. `None`: a time without an offset is not a time.
    """
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            return None
        if instant.utcoffset() is None and zone is not None:
            instant = instant.replace(tzinfo=zone)
        return None if instant.utcoffset() is None else instant.timestamp()
    if not isinstance(value, str) and not (is_number(value) and abs(value) <= sys.float_info.max):
        return None
    number = float(value)
    return number / 1000 if number >= MILLISECONDS_FROM else number
