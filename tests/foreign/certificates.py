"""Certificates that no other machine trusts, for servers of tests."""

import ssl
from functools import cache

import trustme

from tests.foreign.recorder import HOST


@cache
def authority() -> trustme.CA:
    """Return the one authority of this run."""
    return trustme.CA()


def server_tls(name: str = HOST) -> ssl.SSLContext:
    """Return a server's context, with a certificate of that name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(name).configure_cert(context)
    return context


def trusting_tls() -> ssl.SSLContext:
    """Return a client's context that trusts the authority, and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # not the default of each system's Python
    authority().configure_trust(context)
    return context
