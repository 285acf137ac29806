"""Wire names: each argument of a request under the name that the service gives it, once."""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final, get_args

from attrs import Attribute, fields, frozen
from cattrs import Converter
from cattrs.fns import identity
from cattrs.gen import make_dict_unstructure_fn, override

from payasync.absent import ABSENT
from payasync.errors import ConfigurationError
from payasync.profile import Profile, not_configured
from payasync.requests import Request
from payasync.responses import Response

OPEN: Final = "open"
"""Metadata of an argument whose wire name the document does not show: its key in the profile's `fields`."""


def camel(name: str) -> str:
    """Return the wire name of an argument that the document shows: `total_amt` is `totalAmt`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@frozen
class Writer:
    """Writes one kind of request.

    Attributes:
        names: By argument, its wire name; the identifier of endpoints 6 and 7 keeps its own.
        open_points: By argument, the key in the profile's `fields` that does not answer it.
        write: Returns the arguments that were given, under their wire names.
    """

    names: Mapping[str, str]
    open_points: Mapping[str, str]
    write: Callable[[Any], dict[str, Any]]

    def fields(self, request: Request[Response], profile: Profile) -> dict[str, Any]:
        """Return the arguments that were given, under their wire names.

        Raises:
            NotConfiguredError: The profile does not answer the wire name of one, or how a date is written.
        """
        for argument, point in self.open_points.items():
            if getattr(request, argument) is not ABSENT:
                profile.wire_name(point)
        return self.write(request)


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
    renames: dict[str, Any] = {argument: override(rename=name) for argument, name in names.items()}
    return Writer(
        names,
        {argument: point for argument, point in points.items() if not profile.fields.get(point)},
        make_dict_unstructure_fn(
            kind, _converter(profile), _cattrs_omit_if_default=True, extra=override(omit=True), **renames
        ),
    )


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
