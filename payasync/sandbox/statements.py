"""Every statement that the sandbox runs on its database; the schema stands in `schema.sql`.

A name that begins with `ALL_` reads or counts a whole table; every other statement finds its rows by
an index.
"""

from typing import Final

ADD_ORDER: Final = """
INSERT INTO orders VALUES (
    :out_trade_no, :payment_id, :token, :origin, :total_amt, :currency, :subject, :body, :notify_url,
    :return_url, :state, :declines, :reserved
) ON CONFLICT (out_trade_no) DO NOTHING"""
ORDER: Final = "SELECT * FROM orders WHERE out_trade_no = :key"
ORDER_BY_PAYMENT: Final = "SELECT * FROM orders WHERE payment_id = :key"
ORDER_AT_GATEWAY: Final = "SELECT * FROM orders WHERE token = :key"
MOVE_ORDER: Final = """
UPDATE orders SET state = :state, declines = :declines
WHERE out_trade_no = :out_trade_no AND state = :was AND declines = :declined"""
RESERVE: Final = """
UPDATE orders SET reserved = reserved + :amount
WHERE out_trade_no = :out_trade_no AND state = 'paid' AND reserved + :amount <= total_amt"""
RELEASE: Final = "UPDATE orders SET reserved = reserved - :amount WHERE out_trade_no = :out_trade_no"
COUNT_ORDERS: Final = "SELECT count(*) FROM orders WHERE origin = :origin"

ADD_REFUND: Final = """
INSERT INTO refunds VALUES (
    :out_refund_no, :out_trade_no, :total_amt, :refund_amt, :notify_url, :fingerprint, :state
)"""
REFUND: Final = "SELECT * FROM refunds WHERE out_refund_no = :key"
MOVE_REFUND: Final = "UPDATE refunds SET state = :state WHERE out_refund_no = :out_refund_no AND state = :was"
REFUNDED: Final = """
SELECT coalesce(sum(refund_amt), 0) FROM refunds WHERE out_trade_no = :out_trade_no AND state = 'succeeded'"""
ALL_REFUNDS: Final = "SELECT count(*) FROM refunds"

ADD_SUBSCRIPTION: Final = """
INSERT INTO subscriptions VALUES (
    :subscription_id, :frequency, :amount, :start_date, :customer, :state, :period
)"""
SUBSCRIPTION: Final = "SELECT * FROM subscriptions WHERE subscription_id = :key"
MOVE_SUBSCRIPTION: Final = """
UPDATE subscriptions SET
    frequency = :frequency, amount = :amount, start_date = :start_date, customer = :customer,
    state = :state, period = :period
WHERE subscription_id = :subscription_id AND state = :was AND period = :before"""

BURN: Final = "INSERT INTO nonces VALUES (:merchant_id, :nonce) ON CONFLICT DO NOTHING"

ADD_NOTIFICATION: Final = """
INSERT INTO notifications (notification_id, url, body, due) VALUES (:notification_id, :url, :body, 1)"""
DUE: Final = "SELECT notification_id, url, body FROM notifications WHERE due = 1 ORDER BY seq LIMIT 1"
DONE: Final = "UPDATE notifications SET due = 0 WHERE notification_id = :notification_id"
ADD_ATTEMPT: Final = """
INSERT INTO attempts (notification_id, url, status, error, acknowledged)
VALUES (:notification_id, :url, :status, :error, :acknowledged)"""
ALL_ATTEMPTS: Final = "SELECT notification_id, url, status, error, acknowledged FROM attempts ORDER BY seq"

ADD_CALL: Final = "INSERT INTO calls (operation, status, code) VALUES (:operation, :status, :code)"
CALLS: Final = "SELECT operation, status, code FROM calls WHERE operation = :operation ORDER BY seq"
ALL_CALLS: Final = "SELECT operation, status, code FROM calls ORDER BY seq"
