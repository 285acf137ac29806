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
    reserved INTEGER NOT NULL CHECK (reserved BETWEEN 0 AND total_amt),
    created INTEGER NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS orders_by_origin ON orders (origin);

CREATE TABLE IF NOT EXISTS refunds (
    out_refund_no TEXT NOT NULL PRIMARY KEY,
    refund_id TEXT NOT NULL UNIQUE,
    out_trade_no TEXT NOT NULL REFERENCES orders,
    total_amt INTEGER NOT NULL,
    refund_amt INTEGER NOT NULL CHECK (refund_amt > 0),
    notify_url TEXT,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('processing', 'succeeded', 'failed')),
    created INTEGER NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS refunds_by_order ON refunds (out_trade_no, state, refund_amt);

CREATE TABLE IF NOT EXISTS subscriptions (
    subscription_id TEXT NOT NULL PRIMARY KEY,
    frequency TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0),
    start_date TEXT NOT NULL,
    customer TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('scheduled', 'active', 'past_due', 'cancelled')),
    period INTEGER NOT NULL,
    renews TEXT,
    ends INTEGER NOT NULL CHECK (ends IN (0, 1)),
    failing INTEGER NOT NULL CHECK (failing >= 0),
    failures INTEGER NOT NULL,
    created INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS charges (
    subscription_id TEXT NOT NULL REFERENCES subscriptions,
    period INTEGER NOT NULL,
    at INTEGER NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0),
    paid INTEGER NOT NULL CHECK (paid IN (0, 1)),
    PRIMARY KEY (subscription_id, period)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS idempotency_keys (
    key TEXT NOT NULL PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    at INTEGER NOT NULL,
    outgoing TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS timers (
    seq INTEGER NOT NULL PRIMARY KEY,
    due INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('expire', 'settle', 'renew')),
    reference TEXT NOT NULL,
    UNIQUE (kind, reference)
) STRICT;

CREATE INDEX IF NOT EXISTS timers_by_due ON timers (due, seq);

CREATE TABLE IF NOT EXISTS clock (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    latest INTEGER NOT NULL,
    wall INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS keys (
    name TEXT NOT NULL PRIMARY KEY,
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS nonces (
    merchant_id TEXT NOT NULL,
    nonce TEXT NOT NULL,
    PRIMARY KEY (merchant_id, nonce)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS notifications (
    seq INTEGER NOT NULL PRIMARY KEY,
    notification_id TEXT NOT NULL UNIQUE,
    event TEXT NOT NULL,
    reference TEXT NOT NULL,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    created INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'dead')),
    due INTEGER,
    tries INTEGER NOT NULL,
    resends INTEGER NOT NULL,
    CHECK ((due IS NULL) = (state <> 'waiting'))
) STRICT;

CREATE INDEX IF NOT EXISTS notifications_by_due ON notifications (due, seq) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS notifications_by_url ON notifications (url, due, seq) WHERE due IS NOT NULL;

CREATE TABLE IF NOT EXISTS attempts (
    seq INTEGER NOT NULL PRIMARY KEY,
    notification_id TEXT NOT NULL REFERENCES notifications (notification_id),
    url TEXT NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER,
    error TEXT NOT NULL,
    answer TEXT NOT NULL,
    acknowledged INTEGER NOT NULL CHECK (acknowledged IN (0, 1))
) STRICT;

CREATE INDEX IF NOT EXISTS attempts_by_notification ON attempts (notification_id, seq);

CREATE TABLE IF NOT EXISTS calls (
    seq INTEGER NOT NULL PRIMARY KEY,
    operation TEXT NOT NULL,
    status INTEGER NOT NULL,
    code ANY NOT NULL
) STRICT;

CREATE INDEX IF NOT EXISTS calls_by_operation ON calls (operation, seq);

CREATE TABLE IF NOT EXISTS timeline (
    seq INTEGER NOT NULL PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('request', 'change', 'delivery', 'admin')),
    name TEXT NOT NULL,
    reference TEXT NOT NULL DEFAULT '',
    status INTEGER,
    outcome TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    expected TEXT NOT NULL DEFAULT '',
    fault TEXT NOT NULL DEFAULT '',
    milliseconds REAL
) STRICT;

CREATE INDEX IF NOT EXISTS timeline_by_reference ON timeline (reference, seq);
CREATE INDEX IF NOT EXISTS timeline_by_kind ON timeline (kind, seq);

CREATE TRIGGER IF NOT EXISTS timeline_is_bounded AFTER INSERT ON timeline BEGIN
    DELETE FROM timeline WHERE seq <= new.seq - 10000;
END;

CREATE TRIGGER IF NOT EXISTS order_made AFTER INSERT ON orders BEGIN
    INSERT INTO timeline (at, kind, name, reference, outcome)
    VALUES (sandbox_now(), 'change', 'order', new.out_trade_no, new.state);
END;

CREATE TRIGGER IF NOT EXISTS order_moved AFTER UPDATE OF state ON orders WHEN new.state <> old.state BEGIN
    INSERT INTO timeline (at, kind, name, reference, outcome)
    VALUES (sandbox_now(), 'change', 'order', new.out_trade_no, old.state || ' -> ' || new.state);
END;

CREATE TRIGGER IF NOT EXISTS refund_made AFTER INSERT ON refunds BEGIN
    INSERT INTO timeline (at, kind, name, reference, outcome)
    VALUES (sandbox_now(), 'change', 'refund', new.out_refund_no, new.state);
END;

CREATE TRIGGER IF NOT EXISTS refund_moved AFTER UPDATE OF state ON refunds WHEN new.state <> old.state BEGIN
    INSERT INTO timeline (at, kind, name, reference, outcome)
    VALUES (sandbox_now(), 'change', 'refund', new.out_refund_no, old.state || ' -> ' || new.state);
END;

CREATE TRIGGER IF NOT EXISTS subscription_made AFTER INSERT ON subscriptions BEGIN
    INSERT INTO timeline (at, kind, name, reference, outcome)
    VALUES (sandbox_now(), 'change', 'subscription', new.subscription_id, new.state);
END;

CREATE TRIGGER IF NOT EXISTS subscription_moved
AFTER UPDATE OF state, period ON subscriptions WHEN new.state <> old.state OR new.period <> old.period BEGIN
    INSERT INTO timeline (at, kind, name, reference, outcome)
    VALUES (
        sandbox_now(), 'change', 'subscription', new.subscription_id,
        CASE WHEN new.state <> old.state THEN old.state || ' -> ' || new.state ELSE 'period ' || new.period END
    );
END;

CREATE TRIGGER IF NOT EXISTS attempt_made AFTER INSERT ON attempts BEGIN
    INSERT INTO timeline (at, kind, name, reference, status, outcome, reason)
    SELECT
        sandbox_now(), 'delivery', event, reference, new.status,
        CASE WHEN new.acknowledged THEN 'acknowledged' WHEN new.status IS NULL THEN '' ELSE 'not acknowledged' END,
        new.error
    FROM notifications WHERE notification_id = new.notification_id;
END;
