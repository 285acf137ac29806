"""What a receiver is made of: checked as it is made, and not with the first money."""

from typing import Final

from payasync.credentials import Credentials
from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.session import Session

_TYPES: Final = {
    "profile": "a payasync.Profile, such as Profile.from_file(path) gives",
    "credentials": "payasync.Credentials",
    "inbox": "an Inbox, such as SqliteInbox(path)",
    "session": "a payasync.Session",
}


def service_of(
    session: Session | None, profile: Profile | None, credentials: Credentials | None
) -> tuple[Profile, Credentials]:
    """Return what the service does and who the merchant is: as given, else as the session has it.

    Raises:
        ConfigurationError: One is missing, or of another type.
    """
    if session is not None:
        check("session", session, right=isinstance(session, Session))
        profile = session.profile if profile is None else profile
        credentials = session.credentials if credentials is None else credentials
    if profile is None or credentials is None:
        name = "credentials" if profile else "profile"
        raise ConfigurationError(
            f"{name} is missing: give Receiver(session=...), whose profile and credentials are taken, or both of them",
            field=name,
        )
    check("profile", profile, right=isinstance(profile, Profile))
    check("credentials", credentials, right=isinstance(credentials, Credentials))
    return profile, credentials


def check(name: str, value: object, *, right: bool) -> None:
    """Refuse what is of another type.

    Raises:
        ConfigurationError: It names the argument.
    """
    if not right:
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"
        raise ConfigurationError(f"{name} must be {_TYPES[name]}, not {what}", field=name)


def check_session(session: Session | None, *, needed: bool) -> None:
    """Refuse to have nobody to ask, where that is needed.

    Raises:
        ConfigurationError: It says why it is.
    """
    if session is None and needed:
        raise ConfigurationError(
            "session is missing: the profile says that notifications are not signed, so each must be confirmed with "
            "the service. Give Receiver(session=...)",
            field="session",
        )
