-- Sessions, links that are exchanged for one, and the logos of portal links. Nodes of the version before this
-- one neither read nor write them.
CREATE TABLE postrider.passes (
    id text PRIMARY KEY,
    kind smallint NOT NULL,
    owner text NOT NULL,
    tenant text,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    used_at bigint,
    body bytea NOT NULL
);
CREATE INDEX passes_of_owner ON postrider.passes (kind, owner, created_at, id);
CREATE INDEX passes_of_tenant ON postrider.passes (tenant, kind, created_at, id);
CREATE INDEX passes_by_time ON postrider.passes (expires_at);
ALTER TABLE postrider.passes ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.passes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postrider.passes USING (
    (SELECT current_setting('postrider.scope', true)) = 'all'
    OR tenant = (SELECT current_setting('postrider.tenant', true)));
