"""An operator who uses the dashboard over HTTP."""

from collections.abc import Mapping
from typing import Any

import aiohttp

from payasync.sandbox import Sandbox
from tests.sandbox.foreign import Answer, Foreign


class Operator:
    """Uses the dashboard as a script does, or as a browser that has opened the link."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.foreign = Foreign(sandbox, http)
        self.token = {"Authorization": f"Bearer {sandbox.admin_token.reveal()}"}

    async def opened(self) -> dict[str, str]:
        """Open the link with the token, and return the headers that a browser sends afterwards."""
        answer = await self.foreign.send("GET", f"/?token={self.sandbox.admin_token.reveal()}")
        return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0], "Origin": self.sandbox.url}

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Get a page."""
        return await self.foreign.send("GET", path, headers=self.token if headers is None else headers)

    async def press(self, action: str, headers: Mapping[str, str], **fields: Any) -> Answer:
        """Send a form."""
        return await self.foreign.send("POST", f"/admin/{action}", data=fields, headers=headers)

    async def do(self, action: str, **fields: Any) -> Answer:
        """Send an action as JSON, as a script does."""
        return await self.foreign.send("POST", f"/admin/{action}", json=fields, headers=self.token)
