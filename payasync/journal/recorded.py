"""What a journal says in place of the service: an answer that was kept, or why nothing is sent."""

import shlex
from datetime import UTC
from typing import Any, Final

import orjson
from multidict import CIMultiDict

from payasync.calls import Reply
from payasync.errors import ConfigurationError, IntentConflictError, OutcomeUnknownError, PayasyncError
from payasync.journal.intents import Begun, Intent, Outcome, Step, asked_for
from payasync.profile import Profile
from payasync.sandbox_profile import PROFILE as SANDBOX

ASK: Final = "it may have been done: ask for its state, do not repeat it"
AT_IT: Final = "it is being sent, or whoever was sending it was cut off"
TAKEN: Final = "somebody else has taken it, or ended it, meanwhile"
"""Of what was held by a claim that counts no more."""


def reply(intent: Intent) -> Reply:
    """Return the answer that was kept; of what a person has ended, one without a body."""
    kept = intent.outcome or Outcome(status=204, recovered=True)
    return Reply(
        status=kept.status,
        headers=CIMultiDict(kept.headers),
        body=kept.body,
        attempts=0,
        recovered=kept.recovered,
        verified=kept.verified,
    )


def conflict(intent: Intent) -> IntentConflictError:
    """Return why a request is neither sent nor kept whose key stands for another intention."""
    return IntentConflictError(
        f"{_shown(intent)} stands for another request: intention {intent.id} in the journal. Take another number "
        "or intent for this one, or make that one again as it was",
        operation=intent.operation,
        reference=intent.reference,
        reason="the same key was used before for a different request",
        intent_id=intent.id,
    )


def refusal(begun: Begun, profile: Profile) -> PayasyncError:
    """Return why an intention is not sent.

    Args:
        begun: What the journal says.
        profile: The session's.
    """
    intent = begun.intent
    if begun.step is Step.CONFLICT:
        return conflict(intent)
    reason = intent.reason or "an earlier attempt has no recognised answer"
    if begun.step is Step.WAIT:
        reason = AT_IT if intent.state == "sending" else TAKEN
    where = f"intention {intent.id} in the journal is {intent.state}"
    return OutcomeUnknownError(
        f"{where}: {reason}; {_next(intent)}",
        operation=intent.operation,
        reference=intent.reference,
        reason=reason,
        intent_id=intent.id,
        asked=asked_for(intent, profile),
        used_before=intent.answered,
    )


def taken(intent: Intent, error: PayasyncError, profile: Profile) -> OutcomeUnknownError:
    """Return what a call ends with that sent nothing, if another process has taken its write over.

    Args:
        intent: The intention, as the call held it.
        error: Why nothing was sent.
        profile: The session's.
    """
    return OutcomeUnknownError(
        f"this call sent nothing, but its lease on intention {intent.id} in the journal is over, and another process "
        "may have sent it. Ask for its state, or make the same call again: the journal answers it. Take no new number",
        operation=intent.operation,
        reference=intent.reference,
        attempts=error.attempts,
        reason=TAKEN,
        intent_id=intent.id,
        asked=asked_for(intent, profile),
    )


def _next(intent: Intent) -> str:
    """Return what to do next: what asking leads nowhere for is a person's, and nobody is asked about what is sent."""
    if intent.state == "manual":
        return f"it may have been done: find out, and say so: payasync journal resolve {intent.id}"
    if intent.state == "sending" and intent.lease is not None:
        until = intent.lease.astimezone(UTC)
        return f"it may have been done: payasync reconcile asks from {until:%Y-%m-%d %H:%M:%S} UTC on; do not repeat it"
    if intent.number is None:
        return f"it may have been done: look for it at the service, and say so: payasync journal resolve {intent.id}"
    return ASK


def _called(service: str) -> str:
    return "the sandbox" if service == SANDBOX.name else service


def _shown(intent: Intent) -> str:
    keys = [f"intent {intent.intent!r}" if intent.intent else "", f"number {intent.reference}" if intent.number else ""]
    return " and ".join(filter(None, keys))


def elsewhere(merchant: str, kept: str, given: str, place: str) -> ConfigurationError:
    """Return why a session of another service may neither send nor ask."""
    same = "nothing was done there" if kept == SANDBOX.name else "it is the same one at a new address"
    old = "sandbox" if kept == SANDBOX.name else kept
    moved = f"; if {same}, tell it: payasync journal move {old} {given} --journal {shlex.quote(place)}"
    return ConfigurationError(
        f"journal {place!r} has what merchant {merchant!r} sent to {_called(kept)}, and this session's service is "
        f"{_called(given)}: nothing was sent or asked. Give each service a journal of its own"
        f"{'' if given == SANDBOX.name else moved}",
        field="journal",
    )


def written(outcome: Outcome) -> str:
    """Return an outcome as JSON; `read` gives it back."""
    facts: dict[str, Any] = {
        "status": outcome.status,
        "headers": dict(outcome.headers),
        "body": outcome.body.decode(errors="backslashreplace"),
        "verified": outcome.verified,
        "recovered": outcome.recovered,
    }
    return orjson.dumps(facts).decode()


def read(text: str) -> Outcome:
    """Return the outcome that was written so."""
    facts: dict[str, Any] = orjson.loads(text)
    return Outcome(**{**facts, "body": facts["body"].encode()})
