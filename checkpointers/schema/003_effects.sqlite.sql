-- What stood when a lease began: the writes on the checkpoints that the thread stood at, sealed; a rollback goes by it.
ALTER TABLE cp_leases ADD COLUMN note BLOB;
-- What was to be done to the world, and what came of it: one row for each key, found by a print of it.
CREATE TABLE cp_effects (
    thread INTEGER NOT NULL,
    id BLOB NOT NULL,
    number INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, id)
) WITHOUT ROWID;
-- Large texts beside the state, found by a print of their hash: row 0 says what it is, the others are its parts.
CREATE TABLE cp_bodies (
    thread INTEGER NOT NULL,
    hash BLOB NOT NULL,
    n INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, hash, n)
);
