import copy
import pickle
from collections.abc import Callable
from typing import Any, Final

import pytest

from payasync import errors
from payasync.credentials import Secret

TREE: Final[dict[type[errors.PayasyncError], tuple[bool | None, tuple[type[BaseException], ...]]]] = {
    errors.PayasyncError: (False, (Exception,)),
    errors.ConfigurationError: (False, (errors.PayasyncError,)),
    errors.NotConfiguredError: (False, (errors.ConfigurationError,)),
    errors.InvalidArgumentError: (False, (errors.PayasyncError,)),
    errors.NotSentError: (False, (errors.PayasyncError,)),
    errors.NotSentTimeoutError: (False, (errors.NotSentError, TimeoutError)),
    errors.OutcomeUnknownError: (None, (errors.PayasyncError,)),
    errors.NoAnswerError: (None, (errors.PayasyncError,)),
    errors.NoAnswerTimeoutError: (None, (errors.NoAnswerError, TimeoutError)),
    errors.WaitTimeoutError: (None, (errors.NoAnswerError, TimeoutError)),
    errors.ServiceError: (True, (errors.PayasyncError,)),
    errors.AuthenticationError: (True, (errors.ServiceError,)),
    errors.DuplicateError: (True, (errors.ServiceError,)),
    errors.RateLimitedError: (True, (errors.ServiceError,)),
    errors.InvalidSignatureError: (None, (errors.PayasyncError,)),
    errors.IntentConflictError: (False, (errors.PayasyncError,)),
    errors.SessionClosedError: (False, (errors.PayasyncError,)),
    errors.StorageError: (False, (errors.PayasyncError,)),
}
"""By class, what `sent` is by default, and its bases."""
each_kind = pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
COMMON: Final = {
    "operation": "refunds.create",
    "reference": "R1",
    "attempts": 3,
    "sent": None,
    "retry_after": 1.5,
    "response": {"stands": "for a response"},
}
OWN: Final[dict[type[errors.PayasyncError], dict[str, Any]]] = {
    errors.ConfigurationError: {"field": "signature.algorithm", "line": 7},
    errors.InvalidArgumentError: {"field": "total_amt", "rule": "an integer", "value": 1.5},
    errors.InvalidSignatureError: {"field": "webhook-signature"},
    errors.NotSentError: {"permanent": True},
    errors.ServiceError: {"code": "BUSY", "message": "later", "http_status": 429},
}
COPIES: Final[dict[str, Callable[[errors.PayasyncError], errors.PayasyncError]]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),  # noqa: S301 - made in the same line
}


def facts_of(kind: type[errors.PayasyncError]) -> dict[str, Any]:
    """Return every attribute that errors of a class can carry."""
    own = {name: value for parent, facts in OWN.items() if issubclass(kind, parent) for name, value in facts.items()}
    return COMMON | own


def test_tree_is_the_documented_one() -> None:
    """Classes, bases and the default of `sent` are documented. Only harmless errors are a `TimeoutError`."""
    found = {
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.PayasyncError)
    }

    assert TREE == {kind: (kind("why").sent, kind.__bases__) for kind in found}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"operation": "orders.place"}, "orders.place: why"),
        ({"reference": "T1"}, "T1: why"),
        ({"operation": "orders.query", "reference": "T1", "attempts": 1}, "orders.query T1: why"),
        ({"attempts": 1}, "why"),
        ({"attempts": 2}, "why (after 2 attempts)"),
    ],
)
def test_message_begins_with_what_it_is_about(facts: dict[str, Any], expected: str) -> None:
    """The text begins with the call and, after several attempts, ends with their number."""
    assert expected == str(errors.PayasyncError("why", **facts))


@each_kind
def test_facts_are_none_until_known(kind: type[errors.PayasyncError]) -> None:
    """Every error has all attributes of its class, and an unknown one is `None` or empty."""
    error = kind("why")
    unknown = {name: getattr(error, name) for name in {*facts_of(kind), "reason"} - {"sent"}}

    assert set() == {name for name, value in unknown.items() if value}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@each_kind
def test_copies_with_every_fact(
    kind: type[errors.PayasyncError], copied: Callable[[errors.PayasyncError], errors.PayasyncError]
) -> None:
    """A copied or pickled error loses nothing, such as between the processes of a task queue."""
    facts = facts_of(kind)
    error = kind("why", **facts, reason=errors.NotSentError("refused", permanent=True))
    error.add_note("seen in a worker")
    twin = copied(error)

    assert type(twin) is kind
    assert error.args == twin.args
    assert str(error) == str(twin)
    assert facts == {name: getattr(twin, name) for name in facts}
    assert isinstance(twin.reason, errors.NotSentError)
    assert twin.reason.permanent
    assert ["seen in a worker"] == twin.__notes__


class Unpicklable:
    """Any value that a caller may give by mistake and that does not pickle."""

    def __repr__(self) -> str:
        return "<unpicklable>"

    def __reduce__(self) -> str:
        raise TypeError


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Unpicklable(), "<unpicklable>"),
        (Secret("sk_canary"), "Secret('***')"),
        ([1], "[1]"),
        (None, None),
        (True, True),
    ],
)
def test_refused_value_pickles_whatever_it_is(value: object, shown: object) -> None:
    """A refused value that does not pickle is replaced by its repr; a secret stays masked."""
    twin = pickle.loads(pickle.dumps(errors.InvalidArgumentError("no", value=value)))  # noqa: S301 - made in the same line

    assert shown == twin.value


@each_kind
def test_unknown_fact_is_refused(kind: type[errors.PayasyncError]) -> None:
    """An attribute that the class does not have is refused."""
    with pytest.raises(TypeError, match=f"{kind.__name__} has no 'attempt'"):
        kind("why", attempt=1)


def test_add_tells_what_was_learnt_later() -> None:
    """`add` sets attributes of one error, and does not change the defaults of the class."""
    error = errors.NoAnswerError("reset", attempts=1)
    error.add(attempts=2, reference="T1")

    assert (2, "T1") == (error.attempts, error.reference)
    assert 0 == errors.NoAnswerError.attempts
