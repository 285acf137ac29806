"""What a list says while it is empty: how to fill it."""

from html import escape
from typing import Final

REFUNDS: Final = """<p>Give back some of an order that is paid:</p>
<pre tabindex="0">await pay.refunds.create(
    out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200
)</pre>"""

SUBSCRIPTIONS: Final = """<p>Begin one today, then advance the clock by 31 days to see it renewed:</p>
<pre tabindex="0">await pay.subscriptions.create(
    frequency="monthly", amount=900, start_date=date.today(), customer={"email": "a@example.com"}
)</pre>"""

NOTIFICATIONS: Final = """<p>They go to the <code>notifyUrl</code> of an order or a refund, and for all else to the
account's webhook address. Give one that listens on this machine:</p>
<pre tabindex="0">await pay.orders.place(
    total_amt=450, currency="CAD", notify_url="http://127.0.0.1:9000/notify"
)</pre>"""

REQUESTS: Final = (
    "<p>Each request to the service appears here with its answer, and with the reason where it is refused.</p>"
)


def start(url: str, merchant_id: str) -> str:
    """Return how to place the first order.

    Args:
        url: Where the sandbox listens.
        merchant_id: The merchant's number.
    """
    program = f"""import asyncio
from payasync import Credentials, Session
from payasync.sandbox import PROFILE

async def main():
    credentials = Credentials("{merchant_id}", secret_key="sk_sandbox_...", signing_key="...")
    async with Session("{url}", credentials=credentials, profile=PROFILE) as pay:
        order = await pay.orders.place(out_trade_no="T1", subject="Coffee", total_amt=450, currency="CAD")
        print(order.redirect_url)

asyncio.run(main())"""
    return f"""<p>Place the first one: a click selects the program. Its customer pays at the address that it prints.
The two keys stand where the sandbox was started: among the first lines of <code>payasync sandbox</code>, or in
<code>sandbox.credentials</code>. With a profile of your own, give that.</p>
<pre tabindex="0">{escape(program)}</pre>"""
