-- The audit log. The indexes are those of its filters; all end with the identifier, which begins with
-- the time. A node of a version before this one writes nothing here and minds nothing.
CREATE TABLE postrider.audit (
    id      uuid PRIMARY KEY,
    tenant  text COLLATE "C",
    actor   text COLLATE "C" NOT NULL,
    action  text COLLATE "C" NOT NULL,
    target  text COLLATE "C",
    refused boolean NOT NULL,
    record  text NOT NULL
);
CREATE INDEX audit_of_tenant ON postrider.audit (tenant, id);
CREATE INDEX audit_of_actor ON postrider.audit (tenant, actor, id);
CREATE INDEX audit_of_action ON postrider.audit (tenant, action, id);
CREATE INDEX audit_by_actor ON postrider.audit (actor, id);
CREATE INDEX audit_by_action ON postrider.audit (action, id);
CREATE INDEX audit_by_target ON postrider.audit (target, id);
CREATE INDEX audit_refused ON postrider.audit (tenant, id) WHERE refused;
ALTER TABLE postrider.audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.audit FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postrider.audit USING (
    (SELECT current_setting('postrider.scope', true)) = 'all'
    OR tenant = (SELECT current_setting('postrider.tenant', true)));
