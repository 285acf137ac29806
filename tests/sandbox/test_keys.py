"""The keys: drawn afresh for a database, and kept with it."""

from pathlib import Path
from typing import Final

import pytest

from payasync import Profile, SortedPairs
from payasync.errors import ConfigurationError
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.signatures import keys_of
from payasync.sandbox.store import Store

PRIVATE: Final = Profile(signature=SortedPairs(algorithm="ed25519", encoding="base64"))


def test_each_algorithm_has_a_key_of_its_kind() -> None:
    """A database that is opened with another profile gets the signing key that this one needs, and keeps the rest."""
    store = Store(":memory:")
    shared, private, again = (keys_of(profile, store.kept).merchant for profile in (PROFILE, PRIVATE, PROFILE))
    store.close()

    assert (shared, shared.secret_key) == (again, private.secret_key)
    assert shared.signing_key != private.signing_key


async def test_file_keeps_the_credentials(tmp_path: Path) -> None:
    """A sandbox that is started again on its file knows its merchant, and so does a session made before."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path) as first:
        credentials = first.credentials
        port = int(first.url.rpartition(":")[2])
        pay = first.session()
    closed = first.credentials
    async with Sandbox(db=path, port=port) as second, pay:
        order = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")

        assert credentials == closed == second.credentials
    assert "pending" == order.state


def test_keys_in_a_file_are_not_known_before() -> None:
    """Before a sandbox on a file runs, nobody knows what stands in it: asking says so, and nothing is made up."""
    with pytest.raises(ConfigurationError, match="does not run: credentials "):
        _ = Sandbox(db="sandbox.db").credentials
