from datetime import timedelta
from typing import Any, Final

import pytest

from payasync.errors import InvalidArgumentError
from payasync.journal.intents import (
    ASKED,
    ENDS,
    FOR_A_PERSON,
    STATES,
    TRANSITIONS,
    Begun,
    State,
    Step,
    check_transition,
    follows,
    matched,
    standing,
)
from tests.journal.building import START, draft, kept

DESIGN: Final[dict[str, str]] = {
    "new": "sending succeeded rejected",
    "sending": "new accepted succeeded rejected unknown manual",
    "unknown": "accepted succeeded rejected sending manual",
    "accepted": "succeeded rejected manual",
    "rejected": "sending new manual",
    "manual": "succeeded rejected",
    "succeeded": "",
}
"""Section 3 of the design: `NEW → SENDING → ACCEPTED | SUCCEEDED | REJECTED | UNKNOWN | MANUAL`, and so on."""

LATER: Final = START + timedelta(seconds=60)


def test_transitions_are_the_designs() -> None:
    """No state follows another that the design's table does not have behind it, and each that it has does."""
    assert {state: set(after.split()) for state, after in DESIGN.items()} == TRANSITIONS


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_every_transition_is_checked(before: State, after: State) -> None:
    """What is not in the table is refused, with what would be allowed; a state does not follow itself either."""
    if after in DESIGN[before].split():
        check_transition(before, after)
    else:
        with pytest.raises(InvalidArgumentError, match=f"state must be .*, not '{after}'") as caught:
            check_transition(before, after)

        assert ("state", after) == (caught.value.field, caught.value.value)
        assert all(allowed in str(caught.value) for allowed in DESIGN[before].split())


def test_ends_are_what_nothing_is_learnt_about() -> None:
    """An end is what is neither asked about, nor waits for a sender or a person."""
    assert set(STATES) - ASKED - FOR_A_PERSON - {"sending"} == ENDS


def test_unknown_can_become_whatever_asking_tells() -> None:
    """Each state that is asked about leads to each end, and what a person may end leads there, too."""
    assert all(TRANSITIONS[state] >= ENDS for state in ASKED | FOR_A_PERSON)


@pytest.mark.parametrize(
    ("lease", "expected"),
    [(LATER, "sending"), (START + timedelta(microseconds=1), "sending"), (START, "unknown")],
)
def test_sending_is_unknown_when_its_lease_is_over(lease: Any, expected: State) -> None:
    """Who crashed while it was sending tells nobody: with the end of its lease nobody knows."""
    assert expected == standing(kept(lease=lease), START)


@pytest.mark.parametrize("state", sorted(set(STATES) - {"sending"}))
def test_other_states_do_not_age(state: State) -> None:
    """No other state changes by itself, whoever held it."""
    assert state == standing(kept(state=state, lease=START), LATER)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("new", Step.SEND),
        ("sending", Step.WAIT),
        ("accepted", Step.ANSWER),
        ("succeeded", Step.ANSWER),
        ("rejected", Step.SEND),
        ("unknown", Step.ASK),
        ("manual", Step.ASK),
    ],
)
def test_same_key_again(state: State, expected: Step) -> None:
    """What was done is answered, what was not is sent, and what may have been is neither."""
    assert expected == follows(kept(state=state, lease=LATER), START)


def test_same_key_again_after_a_crash() -> None:
    """What was being sent when its sender died must be asked about."""
    assert Step.ASK == follows(kept(lease=START), LATER)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("fence", [6, 7])
def test_only_who_holds_the_unknown_sends_it_again(state: State, fence: int) -> None:
    """A fence opens nothing but what is unknown, and only the latest one does."""
    expected = Step.SEND if (state, fence) == ("unknown", 7) else Step.WAIT

    assert expected == follows(kept(state=state, lease=LATER, fence=7), START, fence=fence)


def test_same_request_under_its_key_is_no_conflict() -> None:
    """The same hash is the same request, and its state says what follows."""
    again = draft()
    same = kept(hash=again.hash, state="succeeded")

    assert Begun(Step.ANSWER, same) == matched(again, [same], START)


def test_other_request_under_its_key_is_a_conflict() -> None:
    """A number or an intent stands for one request, in whatever state that is."""
    other = kept(hash="b", state="rejected")

    assert Begun(Step.CONFLICT, other) == matched(draft(), [other], START)


def test_number_and_intent_of_two_requests_are_a_conflict() -> None:
    """Where the number is the same request's and the intent another's, the other one is named."""
    again = draft(intent="invoice-42")
    same, other = kept(hash=again.hash), kept(id=2, hash="b", intent="invoice-42")

    assert Begun(Step.CONFLICT, other) == matched(again, [same, other], START)


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ("invoice-42", "invoice-43", Step.CONFLICT),
        ("invoice-42", "invoice-42", Step.ANSWER),
        ("invoice-42", None, Step.ANSWER),
        (None, "invoice-43", Step.ANSWER),
    ],
)
def test_number_stands_for_one_intent(earlier: str | None, later: str | None, expected: Step) -> None:
    """What was done for one invoice is no answer for another, though both took the same number by mistake."""
    again = draft(intent=later)
    same = kept(hash=again.hash, state="succeeded", intent=earlier)

    assert Begun(expected, same) == matched(again, [same], START)


def test_key_is_the_callers_own_where_there_is_one() -> None:
    """People look an intention up by their own word for it, else by the number."""
    keys = [kept().key, kept(intent="a").key, kept(number=None).key]

    assert ["refunds.create:R1", "intent:a", None] == keys
