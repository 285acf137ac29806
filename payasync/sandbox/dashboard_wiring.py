"""The dashboard's own parts, put together for a sandbox that runs."""

from attrs import frozen
from yarl import URL

from payasync.sandbox.admin import Admin
from payasync.sandbox.admin_actions import Actions
from payasync.sandbox.admin_door import AdminDoor, hosts
from payasync.sandbox.clock import Clock
from payasync.sandbox.dashboard import View
from payasync.sandbox.dashboard_tables import Lists
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.keys import Keys
from payasync.sandbox.overview import overview
from payasync.sandbox.pace import Pace
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.timeline import Entry, Timeline
from payasync.sandbox.vocabulary import Vocabulary


@frozen(kw_only=True)
class Shown:
    """What the dashboard shows, and works.

    Attributes:
        url: Where the sandbox listens.
        keys: With the admin token.
        words: The profile's.
        store: Holds all of it.
        timeline: Tells what happened.
        service: Does what is asked.
        faults: Those that are armed.
        clock: Tells and advances the time.
        pace: How the time goes.
    """

    url: str
    keys: Keys
    words: Vocabulary
    store: Store
    timeline: Timeline
    service: Service
    faults: Faults
    clock: Clock
    pace: Pace

    def admin(self) -> Admin:
        """Return the dashboard with its controls."""
        return Admin(self._door(), self._actions(), self.timeline, self._view)

    def _door(self) -> AdminDoor:
        address = URL(self.url)
        port = address.port or 0
        return AdminDoor(token=self.keys.admin, hosts=hosts(address.host or "", port), port=port)

    def _actions(self) -> Actions:
        return Actions(
            service=self.service,
            store=self.store,
            faults=self.faults,
            advance=self.clock.advance,
            resend=self.service.telling.resend,
        )

    def _view(self, notice: Entry | None) -> View:
        profile = self.words.profile
        return View(
            url=self.url,
            merchant_id=self.keys.merchant.merchant_id,
            profile=self.words.title,
            now=self.clock.now(),
            clock=_going(self.pace),
            lists=Lists(profile.amount_unit, self.words.state),
            told=overview(self.store, self.timeline),
            armed=[str(fault) for fault in self.faults.armed()],
            notice=notice,
        )


def _going(pace: Pace) -> str:
    if not pace.rate:
        return "standing still"
    return "real" if pace.rate == 1 else f"{pace.rate:g} times as fast"
