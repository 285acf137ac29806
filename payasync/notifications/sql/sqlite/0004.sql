-- Most events are handled soon, and never listed by state: the index of the others costs them nothing. What waits is
-- found by when it is due.
DROP INDEX events_waiting;
DROP INDEX events_by_state;
CREATE INDEX events_by_state ON events (state, id) WHERE due IS NULL AND state <> 'done';
