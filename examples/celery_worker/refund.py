"""Record refunds, and queue them: `python refund.py I1 I2`."""

import asyncio
import sys

import invoices
from tasks import execute_intent

for invoice in sys.argv[1:]:
    intent_id = asyncio.run(invoices.record_refund(invoice))
    # If the process dies before this line, `reconcile` queues the refund.
    execute_intent.delay(intent_id)
