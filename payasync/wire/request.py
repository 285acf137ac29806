"""What all requests share: the endpoint that takes them, and fields beyond its own."""

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from attrs import Converter, astuple, field, fields, frozen

from payasync.endpoints import Operation
from payasync.strict_json import ABSENT
from payasync.wire.response import Response
from payasync.wire.validators import NOTHING, copy_extra

R_co = TypeVar("R_co", bound=Response, covariant=True)


@frozen(kw_only=True, slots=False)
class Request(Generic[R_co]):  # noqa: PLW1641 - its `extra` has no hash
    """The arguments of one call, checked when the request is made; `Session.send` sends it.

    Args:
        extra: Fields that the common interface does not have, by their wire names.
    """

    operation: ClassVar[Operation]
    answer: ClassVar[type[Response]]

    extra: Mapping[str, Any] = field(
        default=NOTHING,
        converter=Converter(copy_extra, takes_self=True, takes_field=True),  # type: ignore[misc] # mypy knows functions
    )

    @property
    def reference(self) -> str | None:
        """The number that the call is about, where it has one."""
        name = self.operation.reference
        if not name or (value := getattr(self, name, ABSENT)) is ABSENT:
            return None
        return value if type(value) is str else str.__str__(value)  # of a `str` Enum its value, as it is sent

    # attrs would compile these two again for each of the ten requests, whenever a program starts.

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return astuple(self, recurse=False) == astuple(other, recurse=False)

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(type(self)) if each.repr)
        return f"{type(self).__name__}({', '.join(shown)})"
