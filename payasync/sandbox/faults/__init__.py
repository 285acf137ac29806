"""Faults: the service fails as services do, when a test says so, over a real socket."""

from payasync.sandbox.faults.arming import Faults, NotificationFaults, options_of
from payasync.sandbox.faults.catalogue import KINDS
from payasync.sandbox.faults.trigger import Fault, FaultNeverFiredError

__all__ = ["KINDS", "Fault", "FaultNeverFiredError", "Faults", "NotificationFaults", "options_of"]
