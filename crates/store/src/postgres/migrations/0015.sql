-- The bulk job that sent a waiting delivery last, and whether an attempt has failed since: the identifier, and one
-- byte. Nodes of the version before this one neither read nor write it; until none is left, it is NULL.
ALTER TABLE postrider.deliveries_open ADD COLUMN by_job bytea;

-- What became of the deliveries that a job sent. Every node that settles them adds to a row of its own, so that no
-- node waits for another; the sum of the rows counts.
CREATE TABLE postrider.replay_outcomes (
    tenant    text COLLATE "C" NOT NULL,
    replay    uuid NOT NULL,
    node      text COLLATE "C" NOT NULL,
    pending   bigint NOT NULL,
    failed    bigint NOT NULL,
    delivered bigint NOT NULL,
    dead      bigint NOT NULL,
    withdrawn bigint NOT NULL,
    PRIMARY KEY (tenant, replay, node)
) WITH (fillfactor = 50);
ALTER TABLE postrider.replay_outcomes ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.replay_outcomes FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON postrider.replay_outcomes USING (
    (SELECT current_setting('postrider.scope', true)) = 'all'
    OR tenant = (SELECT current_setting('postrider.tenant', true)));
