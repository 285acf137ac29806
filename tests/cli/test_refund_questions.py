from typing import Any

import pytest
from attrs import evolve

from payasync import Credentials, Session
from payasync.cli.refund_questions import check_askable
from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.sandbox_profile import PROFILE

SIGNED = evolve(PROFILE, bearer=(), signed=("refunds.create", "refunds.status"))
NEITHER = evolve(PROFILE, bearer=("orders.query",), signed=())


def askable(profile: Profile, **keys: Any) -> bool:
    """Return whether a session with these keys could ask."""
    credentials = Credentials(merchant_id="M1", **keys)
    return check_askable(Session("http://127.0.0.1:1", credentials=credentials, profile=profile))


@pytest.mark.parametrize(("profile", "key"), [(PROFILE, "secret_key"), (SIGNED, "signing_key")])
def test_key_that_a_question_needs_must_be_there(profile: Profile, key: str) -> None:
    """It is named, with its variable; with it alone all is well."""
    with pytest.raises(ConfigurationError, match=rf"credentials.{key} .*PAYASYNC_{key.upper()}") as caught:
        askable(profile)

    assert f"credentials.{key}" == caught.value.field
    assert askable(profile, **{key: "a-long-enough-key"})


def test_no_other_key_is_asked_for() -> None:
    """What carries neither needs neither."""
    assert askable(NEITHER)


def test_question_that_the_profile_does_not_map_needs_no_key() -> None:
    """It cannot be asked at all: that is to be said, and stops nothing."""
    assert not askable(evolve(PROFILE, refund_status=None))
