-- The fact of an event: the number and our state. A verified event and one that a query confirmed have other keys.
ALTER TABLE events ADD COLUMN fact TEXT;
CREATE INDEX events_fact ON events (fact) WHERE fact IS NOT NULL;
