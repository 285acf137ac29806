"""Faults: the service fails as services do, when a test says so, over a real socket."""

from payasync.sandbox.faults.aim import Fault, FaultNeverFiredError
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.faults.effects import KINDS
from payasync.sandbox.faults.notifications import NotificationFaults
from payasync.sandbox.faults.text import options_of

__all__ = ["KINDS", "Fault", "FaultNeverFiredError", "Faults", "NotificationFaults", "options_of"]
