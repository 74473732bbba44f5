-- What a name is called: channels and nodes, shared by all threads, never deleted. The seal binds it to its key.
CREATE TABLE cp_names (
    name_key INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest BYTEA NOT NULL UNIQUE,
    name BYTEA NOT NULL,
    seal BYTEA
);
-- A thread; its key is computed from its name. Its stamp changes with every write: whoever computed from an older one
-- must look again. head, head_id, flags and kinds are those of the checkpoint that the root namespace stands at.
CREATE TABLE cp_threads (
    thread BIGINT PRIMARY KEY,
    stamp BIGINT NOT NULL,
    steps INTEGER NOT NULL,
    head INTEGER NOT NULL,
    head_id BYTEA NOT NULL,
    flags INTEGER NOT NULL,
    kinds INTEGER NOT NULL,
    checkpoints INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    body BYTEA NOT NULL
);
-- Who may write a thread, and until when by the clock of this database. The row stays: its epoch only grows.
CREATE TABLE cp_leases (
    thread BIGINT PRIMARY KEY,
    epoch BIGINT NOT NULL,
    token BYTEA,
    owner BYTEA NOT NULL,
    since BIGINT NOT NULL,
    until BIGINT NOT NULL,
    steps INTEGER NOT NULL
);
-- The key that a thread's rows are encrypted with, itself encrypted. Without it they say nothing any more.
CREATE TABLE cp_keys (
    thread BIGINT PRIMARY KEY,
    master BYTEA NOT NULL,
    key BYTEA NOT NULL
);
-- A checkpoint: references to elements in place of values, and a tally of the rows of writes that are on it.
CREATE TABLE cp_checkpoints (
    thread BIGINT NOT NULL,
    ns BYTEA NOT NULL,
    step INTEGER NOT NULL,
    id BYTEA NOT NULL,
    parent BYTEA,
    at BIGINT NOT NULL,
    flags INTEGER NOT NULL,
    tally BIGINT NOT NULL,
    metadata BYTEA NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (thread, ns, step)
);
CREATE UNIQUE INDEX cp_checkpoints_id ON cp_checkpoints (thread, ns, id);
-- Where each namespace but the root one stands.
CREATE TABLE cp_heads (
    thread BIGINT NOT NULL,
    ns BYTEA NOT NULL,
    step INTEGER NOT NULL,
    PRIMARY KEY (thread, ns)
);
-- The writes of one task on one checkpoint; they may arrive before their checkpoint does.
CREATE TABLE cp_writes (
    thread BIGINT NOT NULL,
    ns BYTEA NOT NULL,
    checkpoint BYTEA NOT NULL,
    task BYTEA NOT NULL,
    kinds INTEGER NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (thread, ns, checkpoint, task)
);
-- The elements of values, each stored once in its thread, numbered in its channel.
CREATE TABLE cp_elements (
    thread BIGINT NOT NULL,
    channel INTEGER NOT NULL,
    n INTEGER NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (thread, channel, n)
);
-- What a planner learns of these columns by sampling would be copies of them elsewhere.
ALTER TABLE cp_checkpoints ALTER COLUMN metadata SET STATISTICS 0, ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE cp_writes ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE cp_elements ALTER COLUMN body SET STATISTICS 0;
ALTER TABLE cp_threads ALTER COLUMN body SET STATISTICS 0;
