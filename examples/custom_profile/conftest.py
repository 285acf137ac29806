"""The sandbox of each test plays Fir: once in version 1, and once in version 2."""

import pytest
from fir import PROFILE, PROFILE_2

from payasync import Profile


@pytest.fixture(params=[PROFILE, PROFILE_2], ids=["fir", "fir-2"])
def payasync_profile(request: pytest.FixtureRequest) -> Profile:
    """The profile that the fixtures of payasync use."""
    profile: Profile = request.param
    return profile
