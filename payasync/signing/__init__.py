"""Signature schemes (docs/reference/service.md#authentication)."""

from typing import TYPE_CHECKING

from payasync import load_at_first_use

if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # a checker would take every name for one that is there
    __getattr__, __dir__ = load_at_first_use(__name__, "algorithms schemes")
