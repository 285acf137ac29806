"""The profile of the sandbox, read from `sandbox.toml`."""

from importlib import resources
from typing import Final

from payasync.profile.profile import Profile

PROFILE: Final = Profile.from_toml(resources.files("payasync.profile").joinpath("sandbox.toml").read_text("utf-8"))
