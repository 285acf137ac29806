"""What a notification is answered with."""

import pytest
from attrs import evolve

from payasync import ConfigurationError
from payasync.notifications.ingest import Answer, acknowledge, refuse
from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE

SHAPE = PROFILE.notification
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


@pytest.mark.parametrize(
    ("shape", "answer"),
    [
        (SHAPE, Answer(200, '{"received":true}', JSON)),
        (evolve(SHAPE, ack_status=202, ack_body="SUCCESS"), Answer(202, "SUCCESS", TEXT)),
        (evolve(SHAPE, ack_status=204, ack_body=""), Answer(204)),
        (evolve(SHAPE, ack_body=""), Answer(200)),
    ],
)
def test_acknowledgement_is_the_profiles(shape: NotificationShape, answer: Answer) -> None:
    """The status and the body are the profile's; the body says itself whether it is JSON."""
    assert answer == acknowledge(shape)


@pytest.mark.parametrize(
    ("shape", "answer"),
    [
        (SHAPE, Answer(400, '{"received":false}', JSON)),
        (evolve(SHAPE, nack_status=200, nack_body="FAIL"), Answer(200, "FAIL", TEXT)),
        (evolve(SHAPE, nack_status=None, nack_body=""), Answer(400)),
    ],
)
def test_refusal_is_the_profiles(shape: NotificationShape, answer: Answer) -> None:
    """Without a word of the profile, a refusal is 400."""
    assert answer == refuse(shape)


@pytest.mark.parametrize(("body", "headers"), [('{"received":false}', JSON), ("FAIL", TEXT), ("", {})])
def test_what_is_not_kept_is_refused_in_the_profiles_words(body: str, headers: dict[str, str]) -> None:
    """A service may look at the body alone: whatever is not an acknowledgement says so there."""
    shape = evolve(SHAPE, nack_status=204, nack_body=body)

    assert Answer(413, body, headers) == refuse(shape, 413)
    assert Answer(503, body, {**headers, "Retry-After": "5"}) == refuse(shape, 503)


@pytest.mark.parametrize("status", [204, 205, 304])
def test_bodiless_status_has_no_body(status: int) -> None:
    """A server would refuse to send it, after the notification was kept."""
    with pytest.raises(ConfigurationError, match="no body goes with"):
        acknowledge(evolve(SHAPE, ack_status=status))
    with pytest.raises(ConfigurationError, match="nack_body"):
        refuse(evolve(SHAPE, nack_status=status))
