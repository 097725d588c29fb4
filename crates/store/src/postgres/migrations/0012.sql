-- The description and the own limits of a tenant, as JSON. Nodes of the version before this one ignore it.
ALTER TABLE postrider.tenants ADD COLUMN details text;

-- The application's own identifier of a subscription, which is in `record` too.
ALTER TABLE postrider.subscriptions ADD COLUMN uid text COLLATE "C";
CREATE UNIQUE INDEX subscriptions_by_uid ON postrider.subscriptions (tenant, uid)
    WHERE uid IS NOT NULL AND deleted_at IS NULL;

-- Since when nothing uses a destination, and whether it is disabled or frozen. The latter is computed, so that it
-- is right also where a node of the version before this one writes the circuit. Its value rarely changes, so
-- an update of the circuit stays on its page.
ALTER TABLE postrider.destinations ADD COLUMN unused_since bigint;
ALTER TABLE postrider.destinations ADD COLUMN failing boolean NOT NULL
    GENERATED ALWAYS AS (circuit NOT LIKE '{"state":{"state":"closed"%') STORED;
CREATE INDEX destinations_used ON postrider.destinations (tenant, created_at, id)
    WHERE unused_since IS NULL;
CREATE INDEX destinations_unused ON postrider.destinations (unused_since)
    WHERE unused_since IS NOT NULL;

-- Lists of all tenants together. Those of events and of what arrived are read by spans of time.
CREATE INDEX keys_of_all ON postrider.keys (created_at, id);
CREATE INDEX subscriptions_of_all ON postrider.subscriptions (created_at, id)
    WHERE deleted_at IS NULL;
CREATE INDEX destinations_of_all ON postrider.destinations (created_at, id)
    WHERE unused_since IS NULL;
CREATE INDEX destinations_failing ON postrider.destinations (created_at, id)
    WHERE failing AND unused_since IS NULL;
CREATE INDEX open_waiting_of_all ON postrider.deliveries_open (created_at, id) WHERE state = 1;
CREATE INDEX done_state_of_all ON ONLY postrider.deliveries_done (state, created_at, id)
    WHERE state <> 2;
CREATE INDEX done_time ON ONLY postrider.deliveries_done
    USING brin (created_at) WITH (pages_per_range = 16);
CREATE INDEX events_time ON ONLY postrider.events
    USING brin (accepted_at) WITH (pages_per_range = 16);

-- Events of an object. As in migration 6: for the partitions of days that begin from now on.
CREATE INDEX events_object ON ONLY postrider.events (tenant, object, accepted_at, id)
    WHERE object IS NOT NULL;
