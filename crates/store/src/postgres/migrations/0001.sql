-- Times are milliseconds since the Unix epoch, as everywhere in Postrider, and come from whoever
-- writes; leases alone go by this database's own clock (timestamptz).
-- States of a delivery: 0 queued, 1 waiting, 2 delivered, 3 dead, 4 cancelled.

CREATE TABLE postrider.tenants (
    id         text COLLATE "C" PRIMARY KEY,
    name       text,
    created_at bigint NOT NULL
);

CREATE TABLE postrider.keys (
    id           text COLLATE "C" PRIMARY KEY,
    tenant       text COLLATE "C",
    name         text,
    scopes       text[] NOT NULL,
    hash         bytea NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint,
    last_used_at bigint
);
CREATE INDEX keys_listed ON postrider.keys (tenant, created_at, id);

CREATE TABLE postrider.subscriptions (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    destination uuid NOT NULL,
    created_at  bigint NOT NULL,
    deleted_at  bigint,
    record      text NOT NULL,
    credentials bytea NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX subscriptions_listed ON postrider.subscriptions (tenant, created_at, id);
CREATE INDEX subscriptions_twins ON postrider.subscriptions (tenant, destination);

-- Changes with every settled attempt: room on the page, so that updates stay on it.
CREATE TABLE postrider.destinations (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    shard       smallint NOT NULL,
    url         text NOT NULL,
    created_at  bigint NOT NULL,
    circuit     text NOT NULL,
    transitions bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (id, tenant)
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX destinations_listed ON postrider.destinations (tenant, created_at, id);
CREATE INDEX destinations_held ON postrider.destinations (shard);

CREATE TABLE postrider.transitions (
    tenant      text COLLATE "C" NOT NULL,
    destination uuid NOT NULL,
    number      bigint NOT NULL,
    record      text NOT NULL,
    PRIMARY KEY (tenant, destination, number)
);

CREATE TABLE postrider.answers (
    tenant     text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    request    bytea NOT NULL,
    status     integer NOT NULL,
    body       bytea NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX answers_pruned ON postrider.answers (created_at);

-- An identifier is unique in its tenant across all days. Rows come in the order of time, so a
-- block range index is enough to find those of a day.
CREATE TABLE postrider.event_ids (
    tenant      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    accepted_at bigint NOT NULL,
    fingerprint bytea NOT NULL,
    deliveries  integer NOT NULL,
    CONSTRAINT event_ids_unique PRIMARY KEY (tenant, id)
);
CREATE INDEX event_ids_pruned ON postrider.event_ids
    USING brin (accepted_at) WITH (pages_per_range = 16);

-- The days for which the partitions of events, deliveries_done and attempts exist. A day that is
-- being removed has lost its partitions, and its identifiers follow.
CREATE TABLE postrider.days (
    day      integer PRIMARY KEY,
    removing boolean NOT NULL DEFAULT false
);

CREATE TABLE postrider.events (
    tenant      text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    accepted_at bigint NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    object      text,
    data        bytea NOT NULL,
    old         bytea,
    time        bigint NOT NULL,
    deliveries  integer NOT NULL,
    trace       bytea
) PARTITION BY RANGE (accepted_at);
CREATE UNIQUE INDEX events_listed ON postrider.events (tenant, accepted_at, id);

-- What has not ended: a queue. It stays small where deliveries arrive, and is vacuumed early.
CREATE TABLE postrider.deliveries_open (
    id              uuid NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    event           text COLLATE "C" NOT NULL,
    subscription    uuid NOT NULL,
    destination     uuid NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    created_at      bigint NOT NULL,
    attempts        integer NOT NULL,
    last_attempt_at bigint,
    state           smallint NOT NULL,
    slot            bigint,
    due_at          bigint,
    anchor_at       bigint,
    previous_at     bigint,
    shard           smallint NOT NULL,
    CONSTRAINT deliveries_open_id PRIMARY KEY (id)
) WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX open_queued ON postrider.deliveries_open (created_at, id) WHERE state = 0;
CREATE INDEX open_due ON postrider.deliveries_open (due_at, id) WHERE state = 1;
CREATE INDEX open_probe ON postrider.deliveries_open
    (destination, last_attempt_at NULLS FIRST, id) WHERE state = 1;
CREATE INDEX open_oldest ON postrider.deliveries_open (destination, state, created_at, id);
CREATE INDEX open_subscription ON postrider.deliveries_open (subscription) WHERE state = 1;
CREATE INDEX open_listed ON postrider.deliveries_open (tenant, created_at, id);

CREATE TABLE postrider.deliveries_done (
    id              uuid NOT NULL,
    tenant          text COLLATE "C" NOT NULL,
    event           text COLLATE "C" NOT NULL,
    subscription    uuid NOT NULL,
    destination     uuid NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    created_at      bigint NOT NULL,
    attempts        integer NOT NULL,
    last_attempt_at bigint,
    state           smallint NOT NULL,
    finished_at     bigint NOT NULL,
    reason          smallint
) PARTITION BY RANGE (created_at);
CREATE UNIQUE INDEX done_id ON postrider.deliveries_done (id, created_at);
CREATE INDEX done_listed ON postrider.deliveries_done (tenant, created_at, id);
CREATE INDEX done_destination ON postrider.deliveries_done (destination, created_at, id);

-- By the day of the delivery, so that they go with it.
CREATE TABLE postrider.attempts (
    tenant     text COLLATE "C" NOT NULL,
    delivery   uuid NOT NULL,
    created_at bigint NOT NULL,
    number     integer NOT NULL,
    started_at bigint NOT NULL,
    status     integer,
    record     text NOT NULL,
    body       bytea
) PARTITION BY RANGE (created_at);
CREATE UNIQUE INDEX attempts_once ON postrider.attempts (delivery, number, created_at);

CREATE TABLE postrider.replays (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid NOT NULL,
    filter      text NOT NULL,
    per_second  bigint,
    created_at  bigint NOT NULL,
    state       smallint NOT NULL,
    total       bigint NOT NULL,
    done        bigint NOT NULL,
    position    uuid,
    finished_at bigint,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX replays_running ON postrider.replays (state) WHERE state = 0;

-- Every transaction appends what it adds; somebody folds that into the sums now and then. So no two
-- transactions ever wait for each other because of a counter.
CREATE TABLE postrider.ledgers (
    tenant    text COLLATE "C" PRIMARY KEY,
    accepted  bigint NOT NULL,
    queued    bigint NOT NULL,
    waiting   bigint NOT NULL,
    delivered bigint NOT NULL,
    dead      bigint NOT NULL,
    cancelled bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE postrider.ledger_deltas (
    tenant    text COLLATE "C" NOT NULL,
    accepted  bigint NOT NULL,
    queued    bigint NOT NULL,
    waiting   bigint NOT NULL,
    delivered bigint NOT NULL,
    dead      bigint NOT NULL,
    cancelled bigint NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE postrider.tallies (
    tenant    text COLLATE "C" NOT NULL,
    minute    bigint NOT NULL,
    accepted  bigint NOT NULL,
    delivered bigint NOT NULL,
    failed    bigint NOT NULL,
    dead      bigint NOT NULL,
    PRIMARY KEY (tenant, minute)
) WITH (fillfactor = 50);
CREATE INDEX tallies_of_all ON postrider.tallies (minute);
CREATE TABLE postrider.tally_deltas (
    tenant    text COLLATE "C" NOT NULL,
    minute    bigint NOT NULL,
    accepted  bigint NOT NULL,
    delivered bigint NOT NULL,
    failed    bigint NOT NULL,
    dead      bigint NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- A node's lease is one row: it holds for all the shards that it owns. Whoever settles locks the
-- row of its own node; whoever takes a shard away locks the row of the node that had it.
CREATE TABLE postrider.nodes (
    name       text COLLATE "C" PRIMARY KEY,
    instance   uuid NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE postrider.shards (
    shard smallint PRIMARY KEY,
    owner text COLLATE "C",
    epoch bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO postrider.shards (shard) SELECT generate_series(0, 255);

-- The second wall between tenants. A transaction says for whom it acts, or that it acts for all;
-- one that says neither sees nothing. Sub-selects, so that it is asked once and not for each row.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'keys', 'subscriptions', 'destinations', 'transitions', 'answers', 'event_ids', 'events',
        'deliveries_open', 'deliveries_done', 'attempts', 'replays', 'ledgers', 'ledger_deltas',
        'tallies', 'tally_deltas'
    ] LOOP
        EXECUTE format('ALTER TABLE postrider.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE postrider.%I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON postrider.%I USING ('
            || '(SELECT current_setting(''postrider.scope'', true)) = ''all'' OR '
            || 'tenant = (SELECT current_setting(''postrider.tenant'', true)))', name);
    END LOOP;
    ALTER TABLE postrider.tenants ENABLE ROW LEVEL SECURITY;
    ALTER TABLE postrider.tenants FORCE ROW LEVEL SECURITY;
    CREATE POLICY tenant ON postrider.tenants USING (
        (SELECT current_setting('postrider.scope', true)) = 'all'
        OR id = (SELECT current_setting('postrider.tenant', true)));
END
$$;
