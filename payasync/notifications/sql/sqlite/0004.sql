-- Which handlers have got a fact: a number and its state. An event that a query confirms and a verified one may both have it.
CREATE TABLE facts (
    fact TEXT NOT NULL,
    handler TEXT NOT NULL,
    verified INTEGER NOT NULL,
    lasting INTEGER NOT NULL,
    since REAL NOT NULL,
    PRIMARY KEY (fact, handler, verified)
) STRICT, WITHOUT ROWID;
CREATE INDEX facts_forgettable ON facts (since) WHERE NOT lasting;
