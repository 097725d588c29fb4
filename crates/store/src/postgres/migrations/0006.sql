-- Lists by subscription and by type, in each state, and lists of what did not arrive. Made for the table
-- alone: the partitions of days that begin from now on have them, and those of earlier days keep what they
-- have until they are removed. Building them there would stop writers for as long as it takes.
CREATE INDEX done_subscription ON ONLY postrider.deliveries_done
    (subscription, state, created_at, id);
CREATE INDEX done_kind ON ONLY postrider.deliveries_done (tenant, kind, state, created_at, id);
CREATE INDEX done_state ON ONLY postrider.deliveries_done (tenant, state, created_at, id)
    WHERE state <> 2;
CREATE INDEX done_destination_state ON ONLY postrider.deliveries_done
    (destination, state, created_at, id) WHERE state <> 2;
CREATE INDEX events_kind ON ONLY postrider.events (tenant, kind, accepted_at, id);

-- What waits for a retry. A delivery that arrives at once never touches these.
CREATE INDEX open_waiting ON postrider.deliveries_open (tenant, created_at, id) WHERE state = 1;
CREATE INDEX open_waiting_subscription ON postrider.deliveries_open
    (subscription, created_at, id) WHERE state = 1;
CREATE INDEX open_waiting_kind ON postrider.deliveries_open
    (tenant, kind, created_at, id) WHERE state = 1;
CREATE INDEX replays_listed ON postrider.replays (tenant, created_at, id);
