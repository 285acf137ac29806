"""The mark of an argument that was not given, which is not the same as `None`."""

import enum
from typing import Final, Literal, TypeAlias


class _Absent(enum.Enum):
    """The type of `ABSENT`: the default of arguments that can be left out, and no value to send."""

    ABSENT = "ABSENT"

    def __repr__(self) -> str:
        return self.value

    def __bool__(self) -> bool:
        return False


Absent: TypeAlias = Literal[_Absent.ABSENT]
ABSENT: Final = _Absent.ABSENT
