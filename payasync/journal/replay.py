"""What a caller gets if the journal knows the write already: the recorded response, or why nothing is sent."""

import shlex
from typing import Any, Final

from multidict import CIMultiDict

from payasync.errors import ConfigurationError, IntentConflictError, OutcomeUnknownError, PayasyncError
from payasync.journal.intents import BeginResult, Intent, Outcome, Step, asked_for, format_moment, when_sent
from payasync.middleware.outcome import QUERY_HINT
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.wire.call import Reply

BEING_SENT: Final = "it is being sent, or its sender was interrupted"
TAKEN_OVER: Final = "another process has leased it, or ended it"
"""The reason why a lease no longer counts."""


def recorded_reply(intent: Intent) -> Reply:
    """Return the recorded response. For an intent that a person has ended, it has no body."""
    stored = intent.outcome or Outcome(status=204, recovered=True)
    return Reply(
        status=stored.status,
        headers=CIMultiDict(stored.headers),
        body=stored.body,
        attempts=0,
        recovered=stored.recovered,
        verified=stored.verified,
    )


def conflict_error(intent: Intent) -> IntentConflictError:
    """Return why a request is neither sent nor stored: its key stands for another intent."""
    keys = [f"intent {intent.intent!r}" if intent.intent else "", f"number {intent.reference}" if intent.number else ""]
    why = f"{' and '.join(filter(None, keys))} belongs to another request: intent {intent.id} in the journal"
    advice = "Give this request another number or intent, or repeat the earlier one unchanged"
    reason = "the same key was used before for a different request"
    return IntentConflictError(f"{why}. {advice}", **_about(intent), reason=reason)


def refusal_error(begun: BeginResult) -> PayasyncError:
    """Return why an intent is not sent."""
    intent = begun.intent
    if begun.step is Step.CONFLICT:
        return conflict_error(intent)
    reason = intent.damaged or intent.reason or "an earlier attempt has no recognised response"
    if begun.step is Step.WAIT:
        reason = BEING_SENT if intent.state == "sending" else TAKEN_OVER
    why = f"intent {intent.id} in the journal is {intent.state}: {reason}; {_next_step(intent)}"
    asked = asked_for(intent)
    return OutcomeUnknownError(why, **_about(intent), reason=reason, asked=asked, used_before=intent.answered)


def lost_lease_error(intent: Intent, error: PayasyncError) -> OutcomeUnknownError:
    """Return the error of a call that sent nothing, while another process took its write over.

    Args:
        intent: The intent, as the call held it.
        error: Why nothing was sent.
    """
    return OutcomeUnknownError(
        f"this call sent nothing, but its lease on intent {intent.id} in the journal is over, and another process "
        "may have sent it. Ask for its state, or repeat the call: the journal then decides. Do not use a new number",
        **_about(intent),
        attempts=error.attempts,
        reason=TAKEN_OVER,
        asked=asked_for(intent),
    )


def _about(intent: Intent) -> dict[str, Any]:
    """Return what an error says of the intent that it is about."""
    return {"operation": intent.operation, "reference": intent.reference, "intent_id": intent.id}


def _next_step(intent: Intent) -> str:
    """Return the caller's next step. A write that is being sent, or has no number, cannot be queried."""
    if intent.damaged:
        return f"nothing was sent; payasync journal show {intent.id} shows what is known"
    resolve = f"and record it: payasync journal resolve {intent.id}"
    if intent.state == "manual":
        return f"it may have been done: find out{_when(intent)}, {resolve}"
    if intent.state == "sending" and intent.lease is not None:
        until = format_moment(intent.lease)
        return f"it may have been done: payasync reconcile asks from {until} on; do not repeat it"
    if intent.number is None:
        return f"it may have been done: look for it at the service{_when(intent)}, {resolve}"
    return QUERY_HINT


def _when(intent: Intent) -> str:
    return f" (sent {when})" if (when := when_sent(intent)) else ""


def other_service_error(merchant: str, stored: str, given: str, place: str) -> ConfigurationError:
    """Return why a session of another service may neither send nor ask.

    Args:
        merchant: The merchant's number.
        stored: The service that the journal's writes went to.
        given: The session's.
        place: Where the journal is.
    """
    known, session_service = ("the sandbox" if each == SANDBOX.name else each for each in (stored, given))
    same = "nothing was done there" if stored == SANDBOX.name else "it is the same one at a new address"
    old = "sandbox" if stored == SANDBOX.name else stored
    moved = f"; if {same}, run: payasync journal move {old} {given} --journal {shlex.quote(place)}"
    return ConfigurationError(
        f"journal {place!r} has what merchant {merchant!r} sent to {known}, and this session's service is "
        f"{session_service}: nothing was sent or asked. Give each service a journal of its own"
        f"{'' if given == SANDBOX.name else moved}",
        field="journal",
    )
