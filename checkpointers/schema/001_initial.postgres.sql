-- What a name is called: channels and nodes, shared by all threads, never deleted.
CREATE TABLE cp_names (
    name_key INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest BYTEA NOT NULL UNIQUE,
    name BYTEA NOT NULL
);
-- A thread. Its stamp changes with every write: whoever computed from an older one must look again.
-- head, head_id, flags, kinds and metadata are those of the newest checkpoint of the root namespace.
CREATE TABLE cp_threads (
    thread BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest BYTEA NOT NULL UNIQUE,
    name BYTEA NOT NULL,
    stamp BIGINT NOT NULL,
    steps INTEGER NOT NULL,
    head INTEGER,
    head_id BYTEA,
    flags INTEGER NOT NULL,
    kinds INTEGER NOT NULL,
    metadata BYTEA NOT NULL,
    checkpoints INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    counts BYTEA NOT NULL,
    tags BYTEA
);
-- A checkpoint: references to elements in place of values.
CREATE TABLE cp_checkpoints (
    thread BIGINT NOT NULL,
    ns BYTEA NOT NULL,
    step INTEGER NOT NULL,
    id BYTEA NOT NULL,
    parent BYTEA,
    at BIGINT NOT NULL,
    flags INTEGER NOT NULL,
    metadata BYTEA NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (thread, ns, step)
);
CREATE UNIQUE INDEX cp_checkpoints_id ON cp_checkpoints (thread, ns, id);
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
