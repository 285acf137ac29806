-- The fact of an event: the number and our state. A verified event and one that a query confirmed have other keys.
ALTER TABLE events ADD COLUMN fact TEXT;
CREATE INDEX events_fact ON events (fact) WHERE fact IS NOT NULL;

-- Which handlers have got a fact, and whether from a verified event.
CREATE TABLE facts (
    fact TEXT NOT NULL,
    handler TEXT NOT NULL,
    verified INTEGER NOT NULL,
    lasting INTEGER NOT NULL,
    since REAL NOT NULL,
    PRIMARY KEY (fact, handler, verified)
) STRICT, WITHOUT ROWID;
CREATE INDEX facts_forgettable ON facts (since) WHERE NOT lasting;
