"""Refunds and orders under faults and kills, against the sandbox's ledger: `python -m tests.chaos --help`."""
