ALTER TABLE payasync_events ADD COLUMN lasting boolean NOT NULL DEFAULT false;

-- Nobody noted of these whether a signed time bounds how late they can come again.
UPDATE payasync_events SET lasting = verified;

DROP INDEX payasync_events_forgettable;
CREATE INDEX payasync_events_forgettable ON payasync_events (since)
WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:';
CREATE INDEX payasync_events_to_empty ON payasync_events (since)
WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0;
