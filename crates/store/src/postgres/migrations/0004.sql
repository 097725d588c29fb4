-- What nodes tell each other. The row of `changed` is locked by whoever changes the configuration, until
-- that is committed: so versions become visible in their order, and nobody misses one.
CREATE TABLE postrider.changed (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL,
    pruned  bigint NOT NULL
) WITH (fillfactor = 20);
INSERT INTO postrider.changed (version, pruned) VALUES (0, 0);

-- Kinds: 0 subscription, 1 key, 2 tenant.
CREATE TABLE postrider.changes (
    version    bigint PRIMARY KEY,
    kind       smallint NOT NULL,
    tenant     text COLLATE "C",
    id         text COLLATE "C" NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What is lost in a crash of the server is asked for again.
CREATE UNLOGGED TABLE postrider.letters (
    id        uuid PRIMARY KEY,
    sender    text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    body      text NOT NULL,
    sent_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX letters_taken ON postrider.letters (recipient, sent_at);

-- When the lease was last renewed: before the server started, nobody could.
ALTER TABLE postrider.nodes ADD COLUMN renewed_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- Which node works on the answer for an idempotency key.
CREATE UNLOGGED TABLE postrider.answering (
    tenant     text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    node       text COLLATE "C" NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- What has one value for all nodes.
CREATE TABLE postrider.claims (
    name  text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['changes', 'answering'] LOOP
        EXECUTE format('ALTER TABLE postrider.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE postrider.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON postrider.%I USING ('
            || '(SELECT current_setting(''postrider.scope'', true)) = ''all'' OR '
            || 'tenant = (SELECT current_setting(''postrider.tenant'', true)))', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['letters', 'claims'] LOOP
        EXECUTE format('ALTER TABLE postrider.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE postrider.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY nodes ON postrider.%I USING ('
            || '(SELECT current_setting(''postrider.scope'', true)) = ''all'')', name);
    END LOOP;
END
$$;
