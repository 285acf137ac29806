"""A process that sends one refund with a journal, until it is killed.

Run with the journal's place, the clock's seconds, the service's address and a profile's path.
"""

import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from payasync import Profile, Session
from payasync.journal import PostgresJournal, SqliteJournal
from tests.journal.service import QUICK, REFUND
from tests.matrix.cells import KEYS


async def main(place: str, seconds: float, url: str, profile: str) -> None:
    """Send it."""
    kind = SqliteJournal if place.startswith("/") else PostgresJournal
    async with (
        kind(place, clock=lambda: seconds) as journal,
        Session(url, credentials=KEYS, profile=Profile.from_file(profile), retry=QUICK, journal=journal) as pay,
    ):
        await pay.send(REFUND)


if __name__ == "__main__":
    place, seconds, url, profile = sys.argv[1:]
    asyncio.run(main(place, float(seconds), url, profile))
