"""Helpers that return the error with which a profile, a part of it or a session is refused, and what it shows."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from payasync.errors import ConfigurationError


def refused(make: Callable[..., object], *arguments: Any, **parts: Any) -> ConfigurationError:
    """Return the `ConfigurationError` of a call; it must have no other error as its context."""
    with pytest.raises(ConfigurationError) as caught:
        make(*arguments, **parts)
    assert caught.value.__context__ is None
    return caught.value


def refusal(make: Callable[..., object], *arguments: Any, **parts: Any) -> tuple[str | None, str]:
    """Return the field and the text of the `ConfigurationError` of a call."""
    error = refused(make, *arguments, **parts)
    return error.field, str(error)


def shown(error: BaseException) -> str:
    """Return a traceback with the local variables of every frame below the test's own."""
    below = error.__traceback__ and error.__traceback__.tb_next
    return "".join(traceback.TracebackException(type(error), error, below, capture_locals=True).format())
