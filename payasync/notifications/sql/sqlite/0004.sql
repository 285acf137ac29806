-- Most events are handled soon, and never listed by state: the index of the others costs them nothing. What waits is
-- listed, counted and compared with the clock by the index that finds what is due.
DROP INDEX events_waiting;
DROP INDEX events_by_state;
DROP INDEX events_due;
-- Facts are forgotten with their events.
DROP INDEX facts_forgettable;
CREATE INDEX events_by_state ON events (state, id) WHERE due IS NULL AND state <> 'done';
CREATE INDEX events_due ON events (due, id, since, state) WHERE due IS NOT NULL;
