"""What the service does: one field for each point that its document leaves open."""

from payasync.profile.profile import Profile

__all__ = ["Profile"]
