-- What tells this database from every other, so that a move between stores knows its two ends.
CREATE TABLE postrider.identity (
    id uuid PRIMARY KEY
);
INSERT INTO postrider.identity (id) VALUES (gen_random_uuid());

-- How far a move into this database has come: at most one row, in JSON. `run` is the process that
-- moves: what an earlier one had still under way when it ended is refused.
CREATE TABLE postrider.transfer (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    run      uuid NOT NULL,
    progress text NOT NULL
);
