"""What a sandbox says of itself at its start, for people and for scripts."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import asdict, frozen

from payasync.credentials import Credentials
from payasync.sandbox import Sandbox

if TYPE_CHECKING:
    from payasync.secret import Secret

MEMORY: Final = ":memory:"


@frozen(kw_only=True)
class Welcome:
    """Where a sandbox is, and how it is used.

    Attributes:
        url: Where it listens.
        dashboard: The dashboard, with the token that opens it.
        admin_token: The same for scripts, as `Authorization: Bearer`.
        openapi: The description of its endpoints.
        profile: The name of the profile in force.
        clock: Its clock.
        refunds: How refunds end.
        db: Its database; empty where it keeps nothing.
        environment: The variables by which `Session.from_env` finds it.
    """

    url: str
    dashboard: str
    admin_token: str
    openapi: str
    profile: str
    clock: str
    refunds: str
    db: str
    environment: dict[str, str]

    @classmethod
    def of(
        cls, sandbox: Sandbox, profile: Path | None, *, clock: str, db: str, refunds: str = "succeed", **_others: Any
    ) -> Self:
        """Return what a sandbox that runs says.

        Args:
            sandbox: It.
            profile: The TOML file that it was given.
            clock: Its clock.
            db: Its database.
            refunds: How refunds end.
        """
        token = sandbox.admin_token.reveal()
        return cls(
            url=sandbox.url,
            dashboard=f"{sandbox.url}/?token={token}",
            admin_token=token,
            openapi=f"{sandbox.url}/openapi.json",
            profile=sandbox.profile.name,
            clock=clock,
            refunds=refunds,
            db="" if db == MEMORY else str(Path(db).absolute()),
            environment={
                "PAYASYNC_BASE_URL": sandbox.url,
                "PAYASYNC_PROFILE": str(profile.absolute()) if profile else "sandbox",
                **_keys(sandbox.credentials),
            },
        )

    def lines(self) -> list[str]:
        """Return the environment as lines for a shell."""
        return [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]

    def json(self) -> str:
        """Return all of it as one line."""
        return json.dumps(asdict(self))


def _keys(credentials: Credentials) -> dict[str, str]:
    shared = credentials.service_keys == (credentials.signing_key,)
    held: dict[str, tuple[Secret | None, ...]] = {
        "SECRET_KEY": (credentials.secret_key,),
        "PUBLIC_KEY": (credentials.public_key,),
        "SIGNING_KEY": (credentials.signing_key,),
        "SERVICE_KEYS": () if shared else credentials.service_keys,
        "NOTIFICATION_KEYS": credentials.notification_keys,
    }
    texts = {name: "\n".join(key.reveal() for key in keys if key) for name, keys in held.items()}
    return {
        "PAYASYNC_MERCHANT_ID": credentials.merchant_id,
        **{f"PAYASYNC_{name}": text.strip() for name, text in texts.items() if text},
    }
