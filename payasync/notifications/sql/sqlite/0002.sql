ALTER TABLE events ADD COLUMN lasting INTEGER NOT NULL DEFAULT 0;

-- Nobody noted of these whether a signed time bounds how late they can come again.
UPDATE events SET lasting = verified;

DROP INDEX events_forgettable;
CREATE INDEX events_forgettable ON events (since)
WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:';
CREATE INDEX events_to_empty ON events (since)
WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0;
