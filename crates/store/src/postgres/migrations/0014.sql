-- What the attempts of a destination came to, by the hour in which they began; attempt_codec.rs tells the bytes. Nodes of
-- the version before this one neither read nor write them. A row is written often in its hour: its page has room for that.
CREATE TABLE postrider.attempt_hours (
    tenant      text COLLATE "C" NOT NULL,
    destination uuid NOT NULL,
    hour        bigint NOT NULL,
    counts      bytea NOT NULL,
    recent      bytea NOT NULL,
    PRIMARY KEY (destination, hour)
) WITH (fillfactor = 70);
CREATE INDEX attempt_hours_by_time ON postrider.attempt_hours (hour);
CREATE INDEX attempt_hours_of_tenant ON postrider.attempt_hours (tenant, destination, hour);
ALTER TABLE postrider.attempt_hours ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.attempt_hours FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postrider.attempt_hours USING (
    (SELECT current_setting('postrider.scope', true)) = 'all'
    OR tenant = (SELECT current_setting('postrider.tenant', true)));
