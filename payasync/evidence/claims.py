"""What a response or a notification claims about a write, and on which grounds the claim is believed.

The failure matrix (`middleware/outcome.py`) decides about believed claims only.
"""

import enum
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from payasync.endpoints import CLOSE_ORDER, CREATE_PAYMENT, CREATE_REFUND, PLACE_ORDER

if TYPE_CHECKING:
    from payasync.profile import Profile


class Claim(enum.Enum):
    """What a message says about a write. The values are the words that the documentation uses."""

    DONE = "done"
    UNDER_WAY = "under way"
    ENDED = "ended"
    """It ended, and no money moved."""
    REFUSED = "refused"
    ABSENT = "absent"
    """The service does not know it; of a close: the order is not closed yet."""
    DUPLICATE = "duplicate"
    BUSY = "busy"
    """A 429, a failure of the service, or no response of the service at all."""
    UNCLEAR = "unclear"
    """All else, and each claim that lacks a ground other than *in time*."""


class Ground(enum.Enum):
    """What must hold for a claim to count."""

    OWN = "own"
    """The service wrote it (`origin.py`)."""
    OURS = "ours"
    """It is about this merchant and this environment (`comparison.py`)."""
    THIS = "this"
    """It is about this number and these amounts (`comparison.py`)."""
    IN_TIME = "in time"
    """It is of the last send, and not of an earlier one (`counts_after`)."""
    SIGNED = "signed"
    """The service signed it, where the service signs responses (`middleware/verify.py`)."""


COLUMNS: Final = (Claim.DONE, Claim.UNDER_WAY, Claim.ENDED, Claim.REFUSED, Claim.ABSENT, Claim.DUPLICATE)
"""The claims that can be believed."""

_AMOUNT: Final = "number, amount"
_SAID: Final = "`refusals_signed`"
# fmt: off
GROUNDS: Final[dict[Ground, tuple[str, ...]]] = {
    # by claim:     done        under way ended   refused   absent              duplicate
    Ground.OWN:     ("yes",      "yes",   "yes",  "yes",    "by a listed code", "yes"),
    Ground.OURS:    ("yes",      "yes",   "yes",  "yes",    "yes",              "yes"),
    Ground.THIS:    (_AMOUNT,    _AMOUNT, _AMOUNT, "number", "number",          "number"),
    Ground.IN_TIME: ("if a close", "yes", "yes",  "no",     "yes",              "no"),
    Ground.SIGNED:  ("yes",      "yes",   "yes",  _SAID,    _SAID,              _SAID),
}
# fmt: on
"""By ground, what each claim needs. Nothing else is asked of a claim, and a busy or unclear one is never believed."""

_TIMED: Final = frozenset(claim for claim, word in zip(COLUMNS, GROUNDS[Ground.IN_TIME], strict=True) if word != "no")

_OF_ORDER: Final = {
    "paid": Claim.DONE,
    "refunded": Claim.DONE,
    "pending": Claim.UNDER_WAY,
    "closed": Claim.ENDED,
    "expired": Claim.ENDED,
    "failed": Claim.ENDED,
}
STATE_CLAIMS: Final[Mapping[str, Mapping[str, Claim]]] = {
    CREATE_PAYMENT.name: _OF_ORDER,
    PLACE_ORDER.name: _OF_ORDER,
    # An order that cannot be paid any more is as good as closed; one that was paid never will be.
    CLOSE_ORDER.name: {
        "closed": Claim.DONE,
        "expired": Claim.DONE,
        "failed": Claim.DONE,
        "paid": Claim.REFUSED,
        "refunded": Claim.REFUSED,
        "pending": Claim.ABSENT,
    },
    CREATE_REFUND.name: {"succeeded": Claim.DONE, "processing": Claim.UNDER_WAY, "failed": Claim.ENDED},
}
"""By write, and by our name of the state of its order or refund, what that state claims about the write."""


def maps_states(profile: "Profile", thing: str) -> bool:
    """Return whether a profile locates and names the states of an order, a payment or a refund."""
    return bool(getattr(profile.answer, f"{thing}_status", "") and getattr(profile.states, thing, None))


def claim_of_success(profile: "Profile", write: str, thing: str, state: str | None, *, asked: bool) -> Claim:
    """Return what a recognised success claims about a write.

    Args:
        profile: Says whether the states of the thing are known.
        write: The name of the write.
        thing: What the response is about: `order`, `payment`, `refund` or `subscription`.
        state: Our name of its state, or `None`.
        asked: It is the response to a query about the write, and not to the write itself.
    """
    states = STATE_CLAIMS.get(write, {})
    if state is not None and state in states:
        return states[state]
    if not states or not (asked or maps_states(profile, thing)):
        return Claim.DONE
    if not asked:
        return Claim.UNDER_WAY
    # That there is such an order says nothing about a close of it.
    return Claim.UNCLEAR if maps_states(profile, thing) or write == CLOSE_ORDER.name else Claim.DONE


def counts_after(
    claim: Claim | None,
    write: str,
    quarantine: float | None,
    *,
    sends: int = 1,
    recorded: bool = True,
    used_before: bool = False,
) -> float:
    """Return how many seconds after the last send a query must have been asked for its claim to be in time.

    A response says what the service, one of its replicas or a cache knew some time before. About a number that was sent
    more than once, it may be of an earlier send.

    Args:
        claim: What the response claims; `None`: nothing.
        write: The name of the write.
        quarantine: `recovery.quarantine` of the profile: the service may carry out a write as late as that.
        sends: How often the number was sent, apart from sends that had certainly no effect. Of a close: how often its
            order was placed.
        recorded: A journal counts the sends. If not, an earlier call may have sent the number, too.
        used_before: The service said that the number was used before, which "not found" does not take back.

    Returns:
        `inf`: it never counts. `-inf`: time is no ground of it.
    """
    final = inf if quarantine is None else quarantine
    if claim is Claim.ABSENT:
        return inf if used_before else final
    if claim not in _TIMED or (claim is Claim.DONE and write != CLOSE_ORDER.name):
        return -inf
    if sends > 1:
        return final
    if claim is Claim.ENDED and not recorded:
        return inf
    return -inf if claim is Claim.UNDER_WAY else 0.0
