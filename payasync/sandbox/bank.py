"""The bank: what neither the merchant nor the customer decides, done by hand in tests."""

from typing import Final

from payasync.errors import InvalidArgumentError
from payasync.sandbox.by_hand import by_hand
from payasync.sandbox.numbers import Named, Numbers
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.values import RefundState

MOST_TIMES: Final = 1000


class Bank:
    """Ends refunds, and has charges of subscriptions fail.

    Args:
        service: Does it.
        store: Holds the transaction around it.
        numbers: Finds numbers in answers.
    """

    def __init__(self, service: Service, store: Store, numbers: Numbers) -> None:
        self._numbers = numbers
        self._service = service
        self._store = store

    async def settle_refund(self, out_refund_no: Named, state: RefundState = "succeeded") -> None:
        """End a refund that is processing, such as those of `Sandbox(refunds="by hand")`; the merchant is told.

        Args:
            out_refund_no: Its number, or an answer that tells it.
            state: `succeeded` or `failed`.

        Raises:
            InvalidArgumentError: There is no such refund, it has ended before, or `state` is no end.
        """
        number = self._numbers.of("out_refund_no", out_refund_no)
        with by_hand(self._store, out_refund_no=number, state=state):
            self._service.settle_refund(self._service.refund(number), state)

    async def fail_renewals(self, subscription_id: Named, times: int = 1) -> None:
        """Have the next charges of a subscription fail: it is past due, and after the third in a row cancelled.

        Args:
            subscription_id: Its number, or an answer that tells it.
            times: How many; 0: none any more.

        Raises:
            InvalidArgumentError: There is no such subscription, it is cancelled, or `times` is no number of times.
        """
        if type(times) is not int or not 0 <= times <= MOST_TIMES:
            rule = f"an integer from 0 to {MOST_TIMES}"
            raise InvalidArgumentError(f"times must be {rule}, not {times!r}", field="times", rule=rule, value=times)
        number = self._numbers.of("subscription_id", subscription_id)
        with by_hand(self._store, subscription_id=number):
            self._service.subscriptions.fail(number, times)
