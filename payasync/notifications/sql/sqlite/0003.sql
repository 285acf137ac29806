-- What an event tells: the number and our state. An event that a query confirmed and a verified one have other keys.
ALTER TABLE events ADD COLUMN told TEXT;
CREATE INDEX events_told ON events (told) WHERE told IS NOT NULL;
