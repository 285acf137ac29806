CREATE TABLE IF NOT EXISTS orders (
    out_trade_no TEXT NOT NULL PRIMARY KEY,
    payment_id TEXT NOT NULL UNIQUE,
    token TEXT NOT NULL UNIQUE,
    origin TEXT NOT NULL CHECK (origin IN ('order', 'payment')),
    total_amt INTEGER NOT NULL CHECK (total_amt > 0),
    currency TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    notify_url TEXT,
    return_url TEXT,
    state TEXT NOT NULL CHECK (state IN ('pending', 'paid', 'failed', 'expired', 'closed')),
    declines INTEGER NOT NULL,
    reserved INTEGER NOT NULL CHECK (reserved BETWEEN 0 AND total_amt)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS orders_by_origin ON orders (origin);

CREATE TABLE IF NOT EXISTS refunds (
    out_refund_no TEXT NOT NULL PRIMARY KEY,
    out_trade_no TEXT NOT NULL REFERENCES orders,
    total_amt INTEGER NOT NULL,
    refund_amt INTEGER NOT NULL CHECK (refund_amt > 0),
    notify_url TEXT,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('processing', 'succeeded', 'failed'))
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS refunds_by_order ON refunds (out_trade_no, state, refund_amt);

CREATE TABLE IF NOT EXISTS subscriptions (
    subscription_id TEXT NOT NULL PRIMARY KEY,
    frequency TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0),
    start_date TEXT NOT NULL,
    customer TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('scheduled', 'active', 'past_due', 'cancelled')),
    period INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS nonces (
    merchant_id TEXT NOT NULL,
    nonce TEXT NOT NULL,
    PRIMARY KEY (merchant_id, nonce)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS notifications (
    seq INTEGER NOT NULL PRIMARY KEY,
    notification_id TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    due INTEGER NOT NULL CHECK (due IN (0, 1))
) STRICT;

CREATE INDEX IF NOT EXISTS notifications_due ON notifications (seq) WHERE due = 1;

CREATE TABLE IF NOT EXISTS attempts (
    seq INTEGER NOT NULL PRIMARY KEY,
    notification_id TEXT NOT NULL REFERENCES notifications (notification_id),
    url TEXT NOT NULL,
    status INTEGER,
    error TEXT NOT NULL,
    acknowledged INTEGER NOT NULL CHECK (acknowledged IN (0, 1))
) STRICT;

CREATE TABLE IF NOT EXISTS calls (
    seq INTEGER NOT NULL PRIMARY KEY,
    operation TEXT NOT NULL,
    status INTEGER NOT NULL,
    code ANY NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS calls_by_operation ON calls (operation, seq);
