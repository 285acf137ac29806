-- What an event tells: the number and our state. An event that a query confirmed and a verified one have other keys.
ALTER TABLE payasync_events ADD COLUMN told text;
CREATE INDEX payasync_events_told ON payasync_events (told) WHERE told IS NOT NULL;
