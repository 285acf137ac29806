"""Who may ask: Bearer, the merchant's number, the signature, and at last the nonce (spec: Authentication)."""

import hmac
from typing import Final

from payasync.credentials import Credentials
from payasync.operations import Operation
from payasync.profile import MERCHANT, NONCE, SIGN, Profile
from payasync.sandbox.dialect import Incoming
from payasync.sandbox.signatures import UnsignableError, text, verify
from payasync.sandbox.store import Store
from payasync.sandbox.values import RefusedError
from payasync.sandbox.vocabulary import Vocabulary
from payasync.secret import Secret

MASK: Final = "<customer details>"


class Admission:
    """Checks requests against the one merchant of a sandbox.

    Args:
        profile: Which operations carry what.
        credentials: The merchant's.
    """

    def __init__(self, profile: Profile, credentials: Credentials) -> None:
        self._profile = profile
        self._credentials = credentials
        self._customer = Vocabulary(profile).fields["customer"]

    def check(self, incoming: Incoming, authorization: str) -> None:
        """Check who asks, by all that the profile has the request carry.

        Args:
            incoming: The request.
            authorization: Its header of this name.

        Raises:
            RefusedError: It is not the merchant.
        """
        name = incoming.operation.name
        if name in self._profile.bearer:
            self._check_bearer(authorization)
        if name in self._profile.merchant and incoming.merchant_id != self._credentials.merchant_id:
            raise RefusedError("unauthenticated", "no such merchant", field=MERCHANT, status=403)
        if name in self._profile.signed:
            self._check_signature(incoming)

    def burn(self, incoming: Incoming, store: Store) -> None:
        """Use up the nonce of a signed request, in the transaction that does what it asks for.

        Raises:
            RefusedError: It was used before.
        """
        if not self.signed(incoming.operation):
            return
        if not store.burn(self._credentials.merchant_id, incoming.nonce):
            raise RefusedError("nonce_used", "the nonce was used before", field=NONCE)

    def signed(self, operation: Operation) -> bool:
        """Return whether an operation carries a nonce and a signature."""
        return operation.name in self._profile.signed

    def _check_bearer(self, authorization: str) -> None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not _equal(token.strip(), self._credentials.secret_key):
            raise RefusedError("unauthenticated", "Authorization must be: Bearer <SECRET_KEY>")

    def _check_signature(self, incoming: Incoming) -> None:
        key = self._credentials.signing_key
        try:
            genuine = key is not None and verify(
                self._profile.signature,
                incoming.fields,
                incoming.signature,
                path=incoming.operation.path,
                key=key,
            )
        except UnsignableError as error:
            raise RefusedError("invalid", f"{error.field} cannot be signed", field=error.field) from None
        if not genuine:
            message, expected = "the signature is not that of these fields", self._text(incoming)
            raise RefusedError("bad_signature", message, field=SIGN, expected=expected)

    def _text(self, incoming: Incoming) -> str:
        """Return the text that was to be signed; a customer's details are nobody's business."""
        told = {name: MASK if name == self._customer else value for name, value in incoming.fields.items()}
        return text(self._profile.signature, told, path=incoming.operation.path)


def _equal(given: str, expected: Secret | None) -> bool:
    told = given.encode(errors="surrogateescape")
    return expected is not None and hmac.compare_digest(told, expected.reveal().encode())
