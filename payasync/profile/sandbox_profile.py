"""The profile of the sandbox, read from `sandbox.toml`."""

from pathlib import Path
from typing import Final

from payasync.profile.profile import Profile

PROFILE: Final = Profile.from_toml(Path(__file__).with_name("sandbox.toml").read_text("utf-8"))
