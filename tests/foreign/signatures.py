"""Signatures recomputed from the bytes received, by the `openssl` program: a second opinion on every algorithm.

The rule for the text is the one that is checked, written down once more: `name=value` in the order of the names,
joined by `&`, without `sign` and without empty values.
"""

import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tests.foreign.recorder import Request

OPENSSL: Final = "openssl"


def fields(request: Request) -> dict[str, Any]:
    """Return the fields of a request: of its JSON body, or else of its query."""
    if request.body:
        document: dict[str, Any] = json.loads(request.body)
        return document
    return dict(parse_qsl(urlsplit(request.target).query, keep_blank_values=True, strict_parsing=True))


def signed_text(sent: Mapping[str, Any]) -> str:
    """Return the text that is signed."""
    return "&".join(f"{name}={sent[name]}" for name in sorted(sent) if name != "sign" and sent[name] != "")


def hmac_sha256(text: str, key: str) -> str:
    """Return the HMAC of a text in hex."""
    return _run("dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{key.encode().hex()}", "-r", of=text)


def rsa_sha256_verifies(text: str, signature: bytes, public_key: Path, scratch: Path) -> bool:
    """Return whether a signature is that of the text.

    Args:
        text: What was signed.
        signature: Its bytes.
        public_key: A PEM file.
        scratch: A file to write the signature to.
    """
    scratch.write_bytes(signature)
    command = [OPENSSL, "dgst", "-sha256", "-verify", str(public_key), "-signature", str(scratch)]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=False).returncode == 0


def rsa_sha256(text: str, private_key: Path) -> bytes:
    """Return the signature of a text by a private key in a PEM file."""
    command = [OPENSSL, "dgst", "-sha256", "-sign", str(private_key)]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout


def rsa_keys(folder: Path, bits: int = 2048, owner: str = "merchant") -> tuple[Path, Path]:
    """Return PEM files of a private key (PKCS #8) and its public one: of an owner always the same, made once."""
    return _pair(folder, "RSA", "-pkeyopt", f"rsa_keygen_bits:{bits}", owner=owner)


def ed25519_keys(folder: Path) -> tuple[Path, Path]:
    """Return PEM files of a private key (PKCS #8) and its public one."""
    return _pair(folder, "ED25519")


def _pair(folder: Path, *algorithm: str, owner: str = "") -> tuple[Path, Path]:
    private, public = folder / "private.pem", folder / "public.pem"
    for file, text in zip((private, public), _texts(owner, *algorithm), strict=True):
        file.write_bytes(text)
    return private, public


@cache
def _texts(_owner: str, *algorithm: str) -> tuple[bytes, bytes]:
    private = _openssl("genpkey", "-quiet", "-algorithm", *algorithm)
    return private, _openssl("pkey", "-pubout", of=private)


def _run(*arguments: str, of: str = "") -> str:
    """Return the first word that the program prints."""
    return next(iter(_openssl(*arguments, of=of.encode()).decode().split()), "")


def _openssl(*arguments: str, of: bytes = b"") -> bytes:
    return subprocess.run([OPENSSL, *arguments], input=of, capture_output=True, check=True).stdout
