"""A local implementation of the whole service, for tests and demonstrations.

What the service's document leaves open is the sandbox's own choice, unless a profile says otherwise.
"""

from payasync.sandbox.sandbox import Sandbox
from payasync.sandbox_profile import PROFILE

__all__ = ["PROFILE", "Sandbox"]
