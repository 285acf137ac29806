-- The statements of the sandbox's store that are longer than a table and its columns.

-- name: refunded
SELECT coalesce(sum(refund_amt), 0) FROM refunds WHERE out_trade_no = :out_trade_no AND state = 'succeeded';

-- name: set_timer
INSERT INTO timers (due, kind, reference) VALUES (:due, :kind, :reference)
ON CONFLICT (kind, reference) DO UPDATE SET due = excluded.due;

-- name: stop_timer
DELETE FROM timers WHERE kind = :kind AND reference = :reference;

-- name: next_timer
SELECT due, kind, reference FROM timers ORDER BY due, seq LIMIT 1;

-- name: time
SELECT latest, wall FROM clock WHERE one = 1;

-- name: set_time
INSERT INTO clock VALUES (1, :latest, :wall)
ON CONFLICT (one) DO UPDATE SET latest = excluded.latest, wall = excluded.wall;

-- name: key
SELECT text FROM keys WHERE name = :name;

-- name: add_key
INSERT INTO keys VALUES (:name, :text);

-- name: use_nonce
INSERT INTO nonces VALUES (:merchant_id, :nonce) ON CONFLICT DO NOTHING;

-- name: next_notification
SELECT * FROM notifications WHERE due > :after ORDER BY due, seq LIMIT 1;

-- From address to address, reading only the first due one of each: what waits behind it costs nothing.
-- name: due_notification
WITH RECURSIVE addresses (url) AS (
    SELECT min(url) FROM notifications WHERE due IS NOT NULL
    UNION ALL
    SELECT (SELECT min(url) FROM notifications WHERE due IS NOT NULL AND url > addresses.url)
    FROM addresses WHERE url IS NOT NULL
)
SELECT notifications.* FROM addresses JOIN notifications ON seq = (
    SELECT seq FROM notifications WHERE url = addresses.url AND due <= :now ORDER BY due, seq LIMIT 1
)
WHERE addresses.url NOT IN (SELECT value FROM json_each(:busy)) ORDER BY due, seq LIMIT 1;
