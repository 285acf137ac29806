-- What one merchant waits for costs another nothing: what is due, and what no worker has sent, is found by the merchant.
DROP INDEX payasync_intents_due;
CREATE INDEX payasync_intents_due ON payasync_intents (merchant, coalesce(lease, due), id)
WHERE coalesce(lease, due) IS NOT NULL;
CREATE INDEX payasync_intents_waiting ON payasync_intents
(merchant, (CASE reason WHEN '' THEN updated ELSE created END)) WHERE state = 'new';

-- The refunds of an order. PostgreSQL reads no key of an object that has the escape of a zero anywhere.
CREATE INDEX payasync_intents_of_order ON payasync_intents
((CASE WHEN strpos(CAST(request AS text), chr(92) || 'u0000') = 0 THEN request ->> 'out_trade_no' END))
WHERE operation = 'refunds.create';

-- Queries since the last send whose response said nothing about the write, and queries without a usable response.
ALTER TABLE payasync_intents
    ADD COLUMN odd integer NOT NULL DEFAULT 0,
    ADD COLUMN silent integer NOT NULL DEFAULT 0;
