-- How far each node's clock was ahead of the database's, when the node last said so.
CREATE TABLE postrider.clocks (
    node     text COLLATE "C" PRIMARY KEY,
    ahead_ms bigint NOT NULL,
    read_at  timestamptz NOT NULL
);
ALTER TABLE postrider.clocks ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.clocks FORCE ROW LEVEL SECURITY;
CREATE POLICY nodes ON postrider.clocks
    USING ((SELECT current_setting('postrider.scope', true)) = 'all');
