"""Signature schemes: which text of a request is signed, and how (spec: Authentication, 3 and 4)."""

from payasync.signing.schemes import SignatureScheme, SortedPairs

__all__ = ["SignatureScheme", "SortedPairs"]
