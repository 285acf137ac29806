-- Most events are handled soon, and never listed by state: the index of the others costs them nothing. What waits is
-- listed, counted and compared with the clock by the index that finds what is due.
-- Facts are forgotten with their events.
DROP INDEX payasync_facts_forgettable;
DROP INDEX payasync_events_waiting, payasync_events_by_state, payasync_events_due;
CREATE INDEX payasync_events_by_state ON payasync_events (state, id) WHERE due IS NULL AND state <> 'done';
CREATE INDEX payasync_events_due ON payasync_events (due, id, since, state) WHERE due IS NOT NULL;
