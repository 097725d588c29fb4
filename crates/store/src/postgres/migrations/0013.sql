-- Event types, what tenants do with events that do not fit them, and jobs that erase payloads. The tenant '' is the
-- server. Nodes of the version before this one neither read nor write them.
CREATE TABLE postrider.documents (
    kind   smallint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    open   boolean NOT NULL,
    body   text NOT NULL,
    PRIMARY KEY (kind, tenant, name)
);
CREATE INDEX documents_open ON postrider.documents (kind) WHERE open;
ALTER TABLE postrider.documents ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.documents FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postrider.documents USING (
    (SELECT current_setting('postrider.scope', true)) = 'all'
    OR tenant = (SELECT current_setting('postrider.tenant', true)));
-- What is noted about an event: why it does not fit the catalogue, and when its payload was erased. Nodes of the
-- version before this one write none.
ALTER TABLE postrider.events ADD COLUMN mark text;
