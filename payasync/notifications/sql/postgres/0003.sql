-- The fact of an event: the number and our state. A verified event and one that a query confirmed have other keys.
ALTER TABLE payasync_events ADD COLUMN fact text;
CREATE INDEX payasync_events_fact ON payasync_events (fact) WHERE fact IS NOT NULL;

-- Which handlers have got a fact, and whether from a verified event.
CREATE TABLE payasync_facts (
    fact text NOT NULL,
    handler text NOT NULL,
    verified boolean NOT NULL,
    lasting boolean NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (fact, handler, verified)
);
CREATE INDEX payasync_facts_forgettable ON payasync_facts (since) WHERE NOT lasting;
