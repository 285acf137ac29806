-- Most events are handled soon, and never listed by state: the index of the others costs them nothing. What waits is
-- found by when it is due.
DROP INDEX payasync_events_waiting, payasync_events_by_state;
CREATE INDEX payasync_events_by_state ON payasync_events (state, id) WHERE due IS NULL AND state <> 'done';
