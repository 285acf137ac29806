"""The profiles of Fir: version 1 from the file, and version 2, whose signature no key of the file describes."""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from payasync import Profile, Secret


class Lengths:
    """Fir's checksum of version 2: each field as `name:length:value;`, sorted by name."""

    symmetric = True  # the merchant's key also verifies what Fir sends

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Return the checksum of fields."""
        del path  # Fir does not sign it
        texts = {
            name: str(value) for name, value in fields.items() if name != "checksum"
        }
        text = "".join(
            f"{name}:{len(value)}:{value};" for name, value in sorted(texts.items())
        )
        return hmac.new(
            key.reveal().encode(), text.encode(), hashlib.sha256
        ).hexdigest()

    def verify(
        self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret
    ) -> bool:
        """Return whether a checksum is genuine."""
        return hmac.compare_digest(
            self.sign(fields, path=path, key=key).encode(), signature.encode()
        )


PROFILE = Profile.from_file(Path(__file__).with_name("fir.toml"))
PROFILE_2 = evolve(PROFILE, name="fir-2", signature=Lengths())
