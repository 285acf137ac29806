"""Signature schemes (docs/reference/service.md#authentication)."""

from payasync.signing.algorithms import AlgorithmName
from payasync.signing.schemes import (
    Encoding,
    Nested,
    RequestScheme,
    SignatureScheme,
    SortedPairs,
    Template,
    UnsignedRequest,
)

__all__ = [
    "AlgorithmName",
    "Encoding",
    "Nested",
    "RequestScheme",
    "SignatureScheme",
    "SortedPairs",
    "Template",
    "UnsignedRequest",
]
