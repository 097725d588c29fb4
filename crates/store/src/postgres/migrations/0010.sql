-- When the slot of a waiting delivery falls due, where somebody asked for an attempt before it: `due_at` is
-- then the time of that attempt.
ALTER TABLE postrider.deliveries_open ADD COLUMN ahead_of bigint;
