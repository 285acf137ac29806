"""Signature schemes (docs/service.md#authentication)."""

from payasync.signing.algorithms import AlgorithmName
from payasync.signing.schemes import Encoding, Nested, SignatureScheme, SortedPairs

__all__ = ["AlgorithmName", "Encoding", "Nested", "SignatureScheme", "SortedPairs"]
