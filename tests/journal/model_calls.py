"""The model of one call: what it meets at the service, and what its caller hears; no code under test is called."""

from typing import Final, Literal

from attrs import field, frozen

from tests.journal.model_service import DUPLICATE, Said, Service, Wanted

Meets = Literal["nothing", "nobody", "refusal", "haste", "loss"]
"""Nothing: the service does what it is asked; nobody: it does not listen; refusal: it does not take the keys; haste:
too many requests, which it does not do; loss: no usable answer comes."""


@frozen
class Fault:
    """What befalls a write.

    Attributes:
        meets: What that comes to.
        name: Of the sandbox's fault, where one has to be armed.
        phase: Of a loss: before the service did it, or after.
        late: It arrives all the same, but after its caller has given up.
    """

    meets: Meets
    name: str = ""
    phase: Literal["before", "after"] = "before"
    late: bool = False


NONE: Final = Fault("nothing")
NOBODY: Final = Fault("nobody")
WRONG_KEY: Final = Fault("refusal")
BUSY: Final = Fault("haste", "rate_limited")
NEVER: Final = Fault("loss", "reset_before")
LATE: Final = Fault("loss", "reset_before", late=True)
UNHEARD: Final = Fault("loss", "reset_after_commit", "after")
STRAY: Final = Fault("loss", "stray", "after")
"""The service does it, and what comes is its answer about another one."""
LOSSES: Final = (
    NEVER,
    LATE,
    UNHEARD,
    STRAY,
    Fault("loss", "server_error"),
    Fault("loss", "server_error", "after"),
    Fault("loss", "truncated_body"),
    Fault("loss", "truncated_body", "after"),
    Fault("loss", "hang"),
    Fault("loss", "hang", "after"),
)
FAULTS: Final = (NONE, NOBODY, WRONG_KEY, BUSY, *LOSSES)
TRIES: Final = 3
"""So often is a write begun at most, by a session that retries."""


@frozen
class Ended:
    """How a call ended.

    Attributes:
        error: The name of its error's class; empty: it was answered.
        state: Our name of the state that the answer tells, where it tells one.
        sends: How often the write was begun.
        thing: What the answer is about, where that is new.
        used: Nobody knows, and the service said that the number was used before.
        recovered: It was answered to a question, after the first answer was lost.
    """

    error: str = ""
    state: str | None = None
    sends: int = 0
    thing: str = ""
    used: bool = False
    recovered: bool = field(default=False, eq=False)


UNKNOWN: Final = "OutcomeUnknownError"


@frozen
class Course:
    """What a write meets on its way.

    Attributes:
        service: Where it goes.
        fault: What befalls it.
        patient: The session retries, and asks after a doubt.
        always: The fault befalls each attempt, and not the first alone.
        denied: Whoever asks is told that there is no such thing.
    """

    service: Service
    fault: Fault = NONE
    patient: bool = False
    always: bool = False
    denied: bool = False

    def run(self, wanted: Wanted, by: int, *, again: bool) -> Ended:
        """Return how the call of a write ends, for an intention of this number.

        Nothing that was lost is sent again, but for closing, which is a state to be reached; what a number names is
        asked about in its place. Absent, it may still arrive: no call has the time to wait until that is sure.

        Args:
            wanted: The write.
            by: The intention.
            again: It was sent before, and nobody knows that nothing came of it: it may have used its number itself.
        """
        meets, patient = self.fault.meets, self.patient
        if meets == "nothing":
            return self._done(wanted, by, again=again)
        if meets == "nobody":
            return Ended("NotSentError", sends=TRIES if patient else 1)
        if meets == "refusal":
            return Ended("AuthenticationError", sends=1)
        if meets == "haste":
            if patient and not self.always:
                return self._done(wanted, by, again=again, sends=2)
            return Ended("RateLimitedError", sends=TRIES if patient else 1)
        return self._lost(wanted, by)

    def _done(self, wanted: Wanted, by: int, *, again: bool, sends: int = 1) -> Ended:
        said = self.service.do(wanted, by)
        if said is DUPLICATE and again:
            return self._asked(wanted, sends=sends, used=True)
        return _answered(said, sends=sends)

    def _lost(self, wanted: Wanted, by: int) -> Ended:
        if self.fault.phase == "after":
            self.service.do(wanted, by)
        if self.fault.late:
            self.service.late.append((wanted, by))
        if self.patient and wanted.kind == "close":
            return self._closed_again(wanted, by)
        return self._asked(wanted, sends=1)

    def _asked(self, wanted: Wanted, *, sends: int, used: bool = False) -> Ended:
        """Return what a call learns that is in doubt: whatever is not about this very write tells it nothing."""
        asks = self.patient and not self.denied and wanted.number is not None
        thing = self.service.about(wanted) if asks else None
        if thing is None or thing.wanted != wanted:
            return Ended(UNKNOWN, sends=sends, used=used)
        return Ended(state=thing.state, sends=sends, thing=wanted.number or "", used=used, recovered=True)

    def _closed_again(self, wanted: Wanted, by: int) -> Ended:
        if self.always:
            return Ended(UNKNOWN, sends=TRIES)
        said = self.service.do(wanted, by)
        return Ended(UNKNOWN, sends=2) if said.refusal else _answered(said, sends=2)


def _answered(said: Said, *, sends: int = 1) -> Ended:
    if said.refusal:
        return Ended(said.refusal, sends=sends)
    return Ended(state=said.state, sends=sends, thing=said.thing)
