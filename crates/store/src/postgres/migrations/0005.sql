-- Which version a node runs, and the newest format level that it reads. A node of a version that has no
-- level writes neither and has level 0.
ALTER TABLE postrider.nodes ADD COLUMN program text;
ALTER TABLE postrider.nodes ADD COLUMN format integer NOT NULL DEFAULT 0;

-- The format level that every node reads and may write. It never falls.
CREATE TABLE postrider.format (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    level integer NOT NULL
);
INSERT INTO postrider.format (level) VALUES (0);
ALTER TABLE postrider.format ENABLE ROW LEVEL SECURITY;
ALTER TABLE postrider.format FORCE ROW LEVEL SECURITY;
CREATE POLICY nodes ON postrider.format
    USING ((SELECT current_setting('postrider.scope', true)) = 'all');

-- A node that reads less than the others may write does not come back.
CREATE FUNCTION postrider.refuse_older_node() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE needed integer;
BEGIN
    SELECT level INTO needed FROM postrider.format;
    IF NEW.format < needed THEN
        RAISE EXCEPTION
            'node % reads format level %, and this cluster writes level %: upgrade postrider on it',
            NEW.name, NEW.format, needed;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER refuse_older_node BEFORE INSERT OR UPDATE ON postrider.nodes
    FOR EACH ROW EXECUTE FUNCTION postrider.refuse_older_node();
