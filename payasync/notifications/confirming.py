"""A hint, confirmed with the service before anybody acts upon it; what follows from its answer is said in `trust`."""

from typing import Final

from attrs import evolve

from payasync.notifications.endings import Ending, bounded
from payasync.notifications.inbox import Claim, Inbox, InboxEvent
from payasync.notifications.notification import Notification
from payasync.notifications.questions import Questions
from payasync.notifications.trust import Confirmed, after_answer, after_error, numbers, question, released
from payasync.profile import Profile
from payasync.requests import Request
from payasync.responses import Response

TWICE: Final = Ending("done", "another event was confirmed as the same")


async def confirmed(
    hint: Notification,
    claim: Claim,
    *,
    inbox: Inbox,
    profile: Profile,
    questions: Questions,
    attempts: int,
    age: float,
) -> Notification | Ending:
    """Return what a hint tells, with the service's answer to whether it is so; or what becomes of it.

    Args:
        hint: Not signed.
        claim: The inbox's, on it.
        inbox: Tells whether the same has been confirmed before, whatever the hint said.
        profile: What the service does.
        questions: When the service may be asked about it.
        attempts: How often it may fail.
        age: Seconds since it was received.
    """
    found = await _asked(hint, claim.event, profile, questions, age)
    if isinstance(found, Ending):
        ending = bounded(found, claim.event.failures + 1, attempts)
    elif await inbox.own(claim, found.key):
        answer = found.response  # what anybody may have said stands in `raw` and `document`, and nowhere else
        told = {"data": answer.data, "event": None, **numbers(hint, answer, profile)}
        return evolve(hint, confirmed=answer, dedup_key=found.key, weak=False, **told)
    else:
        ending = TWICE
    if ending.state != "parked":  # the same words may come again, and be true then
        await inbox.own(claim, released(claim.event.key, claim.event.id))
    return ending


async def _asked(
    hint: Notification, event: InboxEvent, profile: Profile, questions: Questions, age: float
) -> Confirmed | Ending:
    asking = question(hint, profile)
    if isinstance(asking, Ending):
        return asking
    about = asking.operation.name, str(asking.reference)
    if known := questions.known(about, event.id, event.failures + 1):
        return known
    questions.begin(about, event.id)
    end_state: Confirmed | None = None
    try:
        found = await _answered(hint, asking, profile, age)
        end_state = found if isinstance(found, Confirmed) else None
    finally:
        questions.end(about, end_state)
    return found


async def _answered(hint: Notification, asking: Request[Response], profile: Profile, age: float) -> Confirmed | Ending:
    try:
        response = await hint.confirm()
    except Exception as error:  # noqa: BLE001 - whatever it is, it confirms nothing
        return after_error(error, profile, age)
    return after_answer(asking, hint.kind or "", response, profile, age)
