"""A local implementation of the whole service, for tests and demonstrations.

What the common interface leaves open is the sandbox's own choice, unless a profile says otherwise.
"""

from payasync.profile.sandbox_profile import PROFILE
from payasync.sandbox.faults.armed_faults import FaultNeverFiredError
from payasync.sandbox.sandbox import Sandbox
from payasync.sandbox.threaded import ThreadedSandbox

__all__ = ["PROFILE", "FaultNeverFiredError", "Sandbox", "ThreadedSandbox"]
