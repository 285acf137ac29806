"""The rules that the parts of a profile have beyond their types."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import fields

from payasync.errors import ConfigurationError
from payasync.profile.schema import AnswerShape, HttpCodes, NotificationShape
from payasync.profile.signed_fields import COMPARED

STEPS: Final = "a dotted path, such as data.sign, without an empty step"
A_PATH: Final = f"{STEPS}; a header cannot stand here"
NO_SUCH_PATHS: Final = {"ok", "request_id", "refusals_signed", "subscription_id", *COMPARED}
ANSWER_PATHS: Final = [each.name for each in fields(AnswerShape) if each.name not in NO_SUCH_PATHS]
REQUEST_ID: Final = f"{STEPS} and without a colon, or header: and the name of a header"
NOTIFICATION_PATHS: Final = ["data", "signature", "kind", "time", "out_trade_no", "out_refund_no", "subscription_id"]
PATHS: Final[list[tuple[Callable[..., Any], str]]] = [
    *((AnswerShape, f"answer.{name}") for name in ANSWER_PATHS),
    *((NotificationShape, f"notification.{name}") for name in NOTIFICATION_PATHS),
]


def refusal(shape: Callable[..., Any], **given: Any) -> tuple[str | None, str]:
    """Return the field and the words of the error that a part is refused with."""
    with pytest.raises(ConfigurationError) as caught:
        shape(**given)
    return caught.value.field, str(caught.value)


@pytest.mark.parametrize(("shape", "field"), PATHS)
@pytest.mark.parametrize("path", ["a..b", "data.", ".a", ".", "a.b..c"])
def test_a_path_has_no_empty_step(shape: Callable[..., Any], field: str, path: str) -> None:
    """No answer has a field without a name where a slip of the pen would look for it: it is open, or whole."""
    expected = (field, f"{field} must be {A_PATH}, not {path!r}")

    assert expected == refusal(shape, **{field.rpartition(".")[2]: path})


@pytest.mark.parametrize(("shape", "field"), PATHS)
@pytest.mark.parametrize("path", ["", "a", "data.sign", "a.0.b", "a b.c:d"])
def test_paths(shape: Callable[..., Any], field: str, path: str) -> None:
    """Names, and numbers into lists, with dots between; an empty path is open."""
    name = field.rpartition(".")[2]
    further = {"ok": ["OK"]} if name == "code" else {}

    assert path == getattr(shape(**{name: path}, **further), name)


@pytest.mark.parametrize(("shape", "field"), PATHS)
@pytest.mark.parametrize("path", ["header:X-Sign", "header:", "Header:X-Sign", "HEADER:data.sign"])
def test_a_path_is_no_header(shape: Callable[..., Any], field: str, path: str) -> None:
    """Only the number of a request is looked for in headers: anywhere else it would silently mean nothing."""
    expected = (field, f"{field} must be {A_PATH}, not {path!r}")

    assert expected == refusal(shape, **{field.rpartition(".")[2]: path})


@pytest.mark.parametrize("name", [*COMPARED, "subscription_id"])
@pytest.mark.parametrize("path", ["a..b", "data.", ".", "header:X-No"])
def test_a_compared_path_has_no_empty_step(name: str, path: str) -> None:
    """It is told that an empty one means something."""
    expected = f"answer.{name} must be {A_PATH}; or empty, to compare nothing, not {path!r}"

    assert (f"answer.{name}", expected) == refusal(AnswerShape, **{name: path})


@pytest.mark.parametrize("paths", [["header:X-Id"], ["a..b"], ["outTradeNo", ""], ["a", ".b"]])
def test_the_paths_of_an_event_have_no_empty_step(paths: list[str]) -> None:
    """What identifies an event stands somewhere: the kind whose paths are wrong is named."""
    expected = f"notification.id.refund must be a list, each of it {A_PATH}, not {paths!r}"

    assert ("notification.id.refund", expected) == refusal(NotificationShape, id={"payment": ["a.b"], "refund": paths})


@pytest.mark.parametrize("place", ["", "id", "meta.id", "header", "header.id", "header:X-Request-Id", "header:x"])
def test_the_number_of_a_request_stands_at_a_path_or_in_a_header(place: str) -> None:
    """The service's number of a request is in the document, or in a header, which is a token."""
    assert place == AnswerShape(request_id=place).request_id


@pytest.mark.parametrize(
    "place",
    [
        *("header:", "header: X-Id", "header:X Id", "header:X:Y", "Header:X-Id", "header :X-Id", "a..b", "id."),
        *("headers:X-Request-Id", "trace:id", "trace:", ":", ":id", "meta.a:b", "a:header:X-Id"),
    ],
)
def test_the_number_of_a_request_stands_nowhere_else(place: str) -> None:
    """What is neither would never be found, and nobody would know why there is no number."""
    expected = f"answer.request_id must be {REQUEST_ID}, not {place!r}"

    assert ("answer.request_id", expected) == refusal(AnswerShape, request_id=place)


STATUSES: Final = "a list of statuses from 400 to 499 without 429: what the others mean is settled"


@pytest.mark.parametrize("name", ["not_executed", "absent", "duplicate"])
@pytest.mark.parametrize("statuses", [[200], [302], [399], [404, 429], [500], [503, 404], [0], [-404], [4040]])
def test_statuses_that_are_looked_at_nowhere(name: str, statuses: list[int]) -> None:
    """2xx, 3xx, 429 and 5xx are judged by themselves: a list that holds them would have no effect."""
    expected = f"http.{name} must be {STATUSES}, not {statuses!r}"

    assert (f"http.{name}", expected) == refusal(HttpCodes, **{name: statuses})


@pytest.mark.parametrize("statuses", [(), (400,), (428, 430, 499), (404, 409, 410)])
def test_statuses_that_mean_something(statuses: tuple[int, ...]) -> None:
    """Any other 4xx may mean that nothing was done, or that there is nothing; one may be in both lists."""
    codes = HttpCodes(not_executed=statuses, absent=statuses)

    assert (statuses, statuses) == (codes.not_executed, codes.absent)


@pytest.mark.parametrize("name", ["ack_status", "nack_status"])
@pytest.mark.parametrize("status", [0, 99, 100, 199, 600, -200])
def test_no_server_can_answer_with_another_status(name: str, status: int) -> None:
    """A notification is acknowledged or refused by the status of a whole answer."""
    expected = f"notification.{name} must be an HTTP status from 200 to 599, not {status}"

    assert (f"notification.{name}", expected) == refusal(NotificationShape, **{name: status})


@pytest.mark.parametrize("status", [None, 200, 204, 400, 503, 599])
def test_statuses_of_an_acknowledgement(status: int | None) -> None:
    """Any status of an answer may acknowledge or refuse, as the service has it; until it is given it is open."""
    shape = NotificationShape(ack_status=status, nack_status=status)

    assert (status, status) == (shape.ack_status, shape.nack_status)


@pytest.mark.parametrize("seconds", [0, -1])
def test_tolerance_lets_something_pass(seconds: int) -> None:
    """Without any tolerance each timestamp would be too old."""
    expected = f"notification.tolerance must be a number of seconds above 0, not {seconds}"

    assert ("notification.tolerance", expected) == refusal(NotificationShape, tolerance=seconds)
