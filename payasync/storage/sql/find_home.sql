-- Where the tables of a store are. `reset_val` is what is configured, whatever another program has set since.
-- The role is the one that connected: another program may have left `SET ROLE`, or `SET SESSION AUTHORIZATION`.
WITH role AS (
    SELECT usename::text AS name FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()
)
SELECT row_to_json(home)::text AS found FROM (SELECT
    current_setting('server_encoding') AS encoding,
    (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'search_path') AS path,
    (SELECT name FROM role) AS role,
    ARRAY(SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema')
        AS schemas,
    ARRAY(
        SELECT nspname::text FROM pg_catalog.pg_namespace
        WHERE pg_catalog.has_schema_privilege((SELECT name FROM role), oid, 'CREATE')
    ) AS creatable,
    ARRAY(
        SELECT nspname::text FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
        WHERE relname = '<table>' AND relkind IN ('r', 'p') AND relpersistence <> 't' ORDER BY nspname
    ) AS homes,
    ARRAY(
        SELECT nspname::text FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace AS space ON space.oid = relnamespace
        WHERE relname = 'payasync_migrations' AND relkind = 'r'
    ) AS migrated,
    current_schemas(false)::text[] AS current
) AS home
