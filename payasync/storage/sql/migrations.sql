CREATE TABLE IF NOT EXISTS payasync_migrations (
    name text NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
);
