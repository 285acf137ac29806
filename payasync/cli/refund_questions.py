"""Whether an import could ask what became of a refund whose answer is lost: looked at before anything is sent."""

from payasync.errors import ConfigurationError
from payasync.operations import QUERY_REFUND
from payasync.session import Session


def check_askable(session: Session) -> bool:
    """Return whether the profile says how to ask; without that, a lost answer needs a person.

    Raises:
        ConfigurationError: It does, and the key is missing that the question carries, or is signed with.
    """
    profile, keys = session.profile, session.credentials
    if profile.refund_status is None:
        return False
    for name, listed in (("secret_key", profile.bearer), ("signing_key", profile.signed)):
        if QUERY_REFUND.name in listed and getattr(keys, name) is None:
            raise ConfigurationError(
                f"credentials.{name} is not set (PAYASYNC_{name.upper()} in the environment): {QUERY_REFUND.name} "
                "needs it, and without that nobody could ask about a lost answer. Nothing was sent",
                field=f"credentials.{name}",
            )
    return True
