"""Sessions, a journal and the service beside a model of them: whatever is done in whatever order, both say the same."""

import faulthandler
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.journal.model_checks import LAWFUL
from tests.journal.model_machine import JournalMachine
from tests.journal.model_programs import PROGRAMS, Program


@pytest.fixture(autouse=True)
def undurable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a loss of power leaves is asked elsewhere: nobody waits for the disk here."""
    monkeypatch.setattr("payasync.storage.sqlite.journaling", lambda _: ("delete", "OFF"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[JournalMachine]:
    """A machine that has begun, and has seen nothing yet."""
    monkeypatch.setattr(JournalMachine, "seen", set())
    machine = JournalMachine()
    machine.begin()
    yield machine
    machine.teardown()


def play(program: Program, machine: JournalMachine) -> None:
    """Do the steps of a program, and look after each at all that must be so."""
    for _ in program(machine):
        machine.holds()


@pytest.mark.long
def test_whatever_is_done(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is done, in whatever order, and whatever befalls it: what must be so is so, after every step."""
    # Where something goes wrong, Hypothesis looks for the shortest way there for up to five minutes, and prints that.
    faulthandler.cancel_dump_traceback_later()
    caplog.set_level("CRITICAL", "payasync")
    run_state_machine_as_test(
        JournalMachine,
        settings=settings(
            max_examples=settings().max_examples // 4,
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.long
@pytest.mark.parametrize("change", sorted(LAWFUL), ids=" to ".join)
def test_each_change_of_a_state_is_seen(machine: JournalMachine, change: tuple[str, str]) -> None:
    """Every transition that there is happens on the machine, in the journal's file; chance has no part in it."""
    play(PROGRAMS[change], machine)

    assert change in machine.seen
