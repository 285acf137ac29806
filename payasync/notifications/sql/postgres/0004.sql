-- Which handlers have got a fact: a number and its state. An event that a query confirms and a verified one may both have it.
CREATE TABLE payasync_facts (
    fact text NOT NULL,
    handler text NOT NULL,
    verified boolean NOT NULL,
    lasting boolean NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (fact, handler, verified)
);
CREATE INDEX payasync_facts_forgettable ON payasync_facts (since) WHERE NOT lasting;
