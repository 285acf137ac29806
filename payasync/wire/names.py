"""Wire names: each argument of a request under the name that the service gives it, once."""

from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Any, Final, get_args

from attrs import Attribute, fields, frozen
from cattrs import Converter
from cattrs.fns import identity
from cattrs.gen import make_dict_unstructure_fn, override

from payasync.endpoints import camel
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile, not_configured
from payasync.wire.request import Request
from payasync.wire.response import Response

OPEN: Final = "open"
"""Metadata of an argument whose wire name the document does not show: its key in the profile's `fields`."""


@frozen
class Writer:
    """Writes one kind of request.

    Attributes:
        names: By argument, its wire name; the identifier of endpoints 6 and 7 keeps its own.
        fields: Returns the arguments of a request that were given, under their wire names; it raises
            `NotConfiguredError` where the profile does not answer the name of one, or how a date is written.
    """

    names: Mapping[str, str]
    fields: Callable[[Request[Response]], dict[str, Any]]


def writer(kind: type[Request[Response]], profile: Profile) -> Writer:
    """Return the writer of a kind of request.

    Raises:
        ConfigurationError: The profile gives two arguments the same wire name.
    """
    arguments: tuple[Attribute[Any], ...] = fields(kind)
    points = {each.name: each.metadata[OPEN] for each in arguments if OPEN in each.metadata}
    names = {
        each.name: (profile.fields.get(points[each.name]) or each.name) if each.name in points else camel(each.name)
        for each in arguments
        if each.name != "extra"
    }
    _check_distinct(names, points)
    overrides: dict[str, Any] = {argument: override(rename=name) for argument, name in names.items()}
    for argument, point in points.items():
        if not profile.fields.get(point):
            overrides[argument] = override(unstruct_hook=partial(_without_name, profile, point))
    overrides["extra"] = override(omit=True)
    return Writer(names, make_dict_unstructure_fn(kind, _converter(profile), _cattrs_omit_if_default=True, **overrides))


def _without_name(profile: Profile, point: str, _: object) -> str:
    """Refuse an argument that was given, and that the profile gives no name."""
    return profile.wire_name(point)


def _check_distinct(names: Mapping[str, str], points: Mapping[str, str]) -> None:
    for argument, point in points.items():
        for other, name in names.items():
            if other != argument and name == names[argument]:
                raise ConfigurationError(
                    f"fields.{point} is {name!r}, which is the wire name of {other}, too: one would replace the other",
                    field=f"fields.{point}",
                )


def _converter(profile: Profile) -> Converter:
    converter = Converter()
    converter.register_unstructure_hook_func(lambda _: True, identity)  # checked already: it is JSON
    converter.register_unstructure_hook_func(_is_date, lambda value: _written(value, profile))
    return converter


def _is_date(kind: Any) -> bool:
    return kind is date or date in get_args(kind)


def _written(value: date, profile: Profile) -> str:
    form = profile.formats.get("start_date")
    if not form:
        raise not_configured("formats.start_date", "how the date is written, such as %Y-%m-%d")
    return value.strftime(form)
