-- Two further states. `quarantined` is the old name of `held`: only an older payasync writes it.
ALTER TABLE payasync_events DROP CONSTRAINT payasync_events_state_check;
UPDATE payasync_events SET state = 'held' WHERE state = 'quarantined';
-- The event's own time, and how often the journal had sent its write when the event came: a part of its key.
ALTER TABLE payasync_events
    ADD COLUMN event_time timestamptz,
    ADD COLUMN sends integer NOT NULL DEFAULT 1,
    ADD CONSTRAINT payasync_events_state_check CHECK (
        state IN ('pending', 'leased', 'done', 'dead', 'parked', 'held', 'superseded', 'quarantined')
    );

-- What superseded events are for is over: they are deleted as done ones are.
DROP INDEX payasync_events_forgettable, payasync_events_to_empty;
CREATE INDEX payasync_events_forgettable ON payasync_events (since)
WHERE (state = 'done' OR state = 'superseded' OR (due IS NULL AND NOT verified))
AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:';
CREATE INDEX payasync_events_to_empty ON payasync_events (since)
WHERE (state = 'done' OR state = 'superseded') AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0;
