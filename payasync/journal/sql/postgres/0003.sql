-- Each write pays for each index: the number also finds what is about an order or a refund, and few rows have an intent.
ALTER TABLE payasync_intents
    DROP CONSTRAINT payasync_intents_merchant_number_key,
    DROP CONSTRAINT payasync_intents_merchant_intent_key,
    ADD UNIQUE (number, merchant);
CREATE UNIQUE INDEX payasync_intents_of_caller ON payasync_intents (merchant, intent) WHERE intent IS NOT NULL;
DROP INDEX payasync_intents_about;
CREATE INDEX payasync_intents_about ON payasync_intents (reference, operation) WHERE number IS NULL;
