"""Faults: the sandbox fails as services do, when a test says so, over a real socket."""

from payasync.sandbox.faults.armed_faults import Fault, FaultNeverFiredError
from payasync.sandbox.faults.arming import Faults, NotificationFaults
from payasync.sandbox.faults.catalogue import KINDS

__all__ = ["KINDS", "Fault", "FaultNeverFiredError", "Faults", "NotificationFaults"]
