-- What stood when a lease began: the writes on the checkpoints that the thread stood at, sealed; a rollback goes by it.
ALTER TABLE cp_leases ADD COLUMN note BYTEA;
ALTER TABLE cp_leases ALTER COLUMN note SET STATISTICS 0;
-- What was to be done to the world, and what came of it: one row for each key, found by a print of it.
CREATE TABLE cp_effects (
    thread BIGINT NOT NULL,
    id BYTEA NOT NULL,
    number INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (thread, id)
);
-- Large texts beside the state, found by a print of their hash: row 0 says what it is, the others are its parts.
CREATE TABLE cp_bodies (
    thread BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    n INTEGER NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (thread, hash, n)
);
-- What a planner learns of these columns by sampling would be copies of them elsewhere.
ALTER TABLE cp_effects ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE cp_bodies ALTER COLUMN body SET STATISTICS 0;
