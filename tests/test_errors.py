import copy
import pickle
from collections.abc import Callable
from itertools import product
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


def test_message_begins_with_what_it_is_about() -> None:
    """The text begins with the call and, after several attempts, ends with their number."""
    query: dict[str, Any] = {"operation": "orders.query", "reference": "T1", "attempts": 1}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"operation": "orders.place"}, "orders.place: why"),
        ({"reference": "T1"}, "T1: why"),
        (query, "orders.query T1: why"),
        ({"attempts": 1}, "why"),
        ({"attempts": 2}, "why (after 2 attempts)"),
    ]

    assert [text for _, text in cases] == [str(errors.PayasyncError("why", **facts)) for facts, _ in cases]


def test_facts_are_none_until_known() -> None:
    """Every error has all attributes of its class, and an unknown one is `None` or empty. Others are refused."""
    for kind in TREE:
        error = kind("why")
        unknown = {name: getattr(error, name) for name in {*facts_of(kind), "reason"} - {"sent"}}

        assert set() == {name for name, value in unknown.items() if value}
        with pytest.raises(TypeError, match=f"{kind.__name__} has no 'attempt'"):
            kind("why", attempt=1)


def test_copies_with_every_fact() -> None:
    """A copied or pickled error loses nothing, such as between the processes of a task queue."""
    for kind, copied in product(TREE, COPIES.values()):
        facts = facts_of(kind)
        error = kind("why", **facts, reason=errors.NotSentError("refused", permanent=True))
        error.add_note("seen in a worker")
        twin = copied(error)

        assert type(twin) is kind
        assert (error.args, str(error)) == (twin.args, str(twin))
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


def test_refused_value_pickles_whatever_it_is() -> None:
    """A refused value that does not pickle is replaced by its repr; a secret stays masked."""
    values = [Unpicklable(), Secret("sk_canary"), [1], None, True]
    refused = [errors.InvalidArgumentError("no", value=value) for value in values]
    twins = pickle.loads(pickle.dumps(refused))  # noqa: S301 - made in the same line

    assert ["<unpicklable>", "Secret('***')", "[1]", None, True] == [twin.value for twin in twins]
