"""Every statement that the sandbox runs on its database; the schema stands in `schema.sql`.

A name that begins with `ALL_` reads or counts a whole table; every other statement finds its rows by
an index.
"""

from typing import Final

ADD_ORDER: Final = """
INSERT INTO orders VALUES (
    :out_trade_no, :payment_id, :token, :origin, :total_amt, :currency, :subject, :body, :notify_url,
    :return_url, :state, :declines, :reserved, :created
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
    :out_refund_no, :out_trade_no, :total_amt, :refund_amt, :notify_url, :fingerprint, :state, :created
)"""
REFUND: Final = "SELECT * FROM refunds WHERE out_refund_no = :key"
MOVE_REFUND: Final = "UPDATE refunds SET state = :state WHERE out_refund_no = :out_refund_no AND state = :was"
REFUNDED: Final = """
SELECT coalesce(sum(refund_amt), 0) FROM refunds WHERE out_trade_no = :out_trade_no AND state = 'succeeded'"""
REFUNDS_OF: Final = "SELECT * FROM refunds WHERE out_trade_no = :out_trade_no"
ALL_REFUNDS: Final = "SELECT count(*) FROM refunds"

ADD_SUBSCRIPTION: Final = """
INSERT INTO subscriptions VALUES (
    :subscription_id, :frequency, :amount, :start_date, :customer, :state, :period, :renews, :ends, :failing,
    :failures, :created
)"""
SUBSCRIPTION: Final = "SELECT * FROM subscriptions WHERE subscription_id = :key"
MOVE_SUBSCRIPTION: Final = """
UPDATE subscriptions SET
    frequency = :frequency, amount = :amount, start_date = :start_date, customer = :customer,
    state = :state, period = :period, renews = :renews, ends = :ends, failing = :failing, failures = :failures
WHERE subscription_id = :subscription_id AND state = :was AND period = :before"""

ADD_CHARGE: Final = "INSERT INTO charges VALUES (:subscription_id, :period, :at, :amount, :paid)"
CHARGES: Final = "SELECT * FROM charges WHERE subscription_id = :subscription_id ORDER BY period"

SET_TIMER: Final = """
INSERT INTO timers (due, kind, reference) VALUES (:due, :kind, :reference)
ON CONFLICT (kind, reference) DO UPDATE SET due = excluded.due"""
STOP_TIMER: Final = "DELETE FROM timers WHERE kind = :kind AND reference = :reference"
DUE_TIMER: Final = "SELECT due, kind, reference FROM timers WHERE due <= :now ORDER BY due, seq LIMIT 1"
NEXT_TIMER: Final = "SELECT due, kind, reference FROM timers WHERE due > :after ORDER BY due, seq LIMIT 1"

KEEP_CLOCK: Final = """
INSERT INTO clock VALUES (1, :latest, :wall)
ON CONFLICT (one) DO UPDATE SET latest = excluded.latest, wall = excluded.wall"""
CLOCK: Final = "SELECT latest, wall FROM clock WHERE one = 1"

KEY: Final = "SELECT text FROM keys WHERE name = :name"
ADD_KEY: Final = "INSERT INTO keys VALUES (:name, :text)"

BURN: Final = "INSERT INTO nonces VALUES (:merchant_id, :nonce) ON CONFLICT DO NOTHING"

ADD_NOTIFICATION: Final = """
INSERT INTO notifications (notification_id, event, reference, url, body, created, state, due, tries, resends)
VALUES (:notification_id, :event, :reference, :url, :body, :created, :state, :due, :tries, :resends)"""
NOTIFICATION: Final = "SELECT * FROM notifications WHERE notification_id = :notification_id"
NEXT_NOTIFICATION: Final = "SELECT * FROM notifications WHERE due > :after ORDER BY due, seq LIMIT 1"
# From address to address, and of each only what is due first: what waits behind it is not read.
DUE_NOTIFICATION: Final = """
WITH RECURSIVE addresses (url) AS (
    SELECT min(url) FROM notifications WHERE due IS NOT NULL
    UNION ALL
    SELECT (SELECT min(url) FROM notifications WHERE due IS NOT NULL AND url > addresses.url)
    FROM addresses WHERE url IS NOT NULL
)
SELECT notifications.* FROM addresses JOIN notifications ON seq = (
    SELECT seq FROM notifications WHERE url = addresses.url AND due <= :now ORDER BY due, seq LIMIT 1
)
WHERE addresses.url NOT IN (SELECT value FROM json_each(:busy)) ORDER BY due, seq LIMIT 1"""
MOVE_NOTIFICATION: Final = """
UPDATE notifications SET state = :state, due = :due, tries = :tries, resends = :resends
WHERE notification_id = :notification_id"""
ALL_NOTIFICATIONS: Final = "SELECT * FROM notifications ORDER BY seq"
ADD_ATTEMPT: Final = """
INSERT INTO attempts (notification_id, url, at, status, error, answer, acknowledged)
VALUES (:notification_id, :url, :at, :status, :error, :answer, :acknowledged)"""
ALL_ATTEMPTS: Final = """
SELECT notification_id, url, at, status, error, answer, acknowledged FROM attempts ORDER BY seq"""
ATTEMPTS_OF: Final = """
SELECT notification_id, url, at, status, error, answer, acknowledged FROM attempts
WHERE notification_id = :notification_id ORDER BY seq"""

ADD_CALL: Final = "INSERT INTO calls (operation, status, code) VALUES (:operation, :status, :code)"
CALLS: Final = "SELECT operation, status, code FROM calls WHERE operation = :operation ORDER BY seq"
ALL_CALLS: Final = "SELECT operation, status, code FROM calls ORDER BY seq"

ADD_ENTRY: Final = """
INSERT INTO timeline (at, kind, name, reference, status, outcome, reason, expected, fault, milliseconds)
VALUES (
    sandbox_now(), :kind, :name, :reference, :status, :outcome, :reason, :expected, :fault, :milliseconds
)"""
ALL_ENTRIES: Final = "SELECT * FROM timeline ORDER BY seq"
ENTRIES_ABOUT: Final = "SELECT * FROM timeline WHERE reference = :reference ORDER BY seq"
NEWEST_REQUESTS: Final = "SELECT * FROM timeline WHERE kind = 'request' ORDER BY seq DESC LIMIT :limit"
ADMIN_ENTRY: Final = "SELECT * FROM timeline WHERE seq = :seq AND kind = 'admin'"

NEWEST_ORDERS: Final = "SELECT * FROM orders WHERE rowid < :below ORDER BY rowid DESC LIMIT :limit"
NEWEST_REFUNDS: Final = "SELECT * FROM refunds WHERE rowid < :below ORDER BY rowid DESC LIMIT :limit"
NEWEST_SUBSCRIPTIONS: Final = "SELECT * FROM subscriptions WHERE rowid < :below ORDER BY rowid DESC LIMIT :limit"
NEWEST_NOTIFICATIONS: Final = "SELECT * FROM notifications WHERE seq < :below ORDER BY seq DESC LIMIT :limit"
