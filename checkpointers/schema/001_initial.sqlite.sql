-- What a name is called: channels and nodes, shared by all threads, never deleted.
CREATE TABLE cp_names (
    name_key INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    name BLOB NOT NULL
);
-- A thread. Its stamp changes with every write: whoever computed from an older one must look again.
-- head, head_id, flags, kinds and metadata are those of the newest checkpoint of the root namespace.
CREATE TABLE cp_threads (
    thread INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    name BLOB NOT NULL,
    stamp INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    head INTEGER,
    head_id BLOB,
    flags INTEGER NOT NULL,
    kinds INTEGER NOT NULL,
    metadata BLOB NOT NULL,
    checkpoints INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    counts BLOB NOT NULL,
    tags BLOB
);
-- A checkpoint: references to elements in place of values.
CREATE TABLE cp_checkpoints (
    thread INTEGER NOT NULL,
    ns BLOB NOT NULL,
    step INTEGER NOT NULL,
    id BLOB NOT NULL,
    parent BLOB,
    at INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    metadata BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, ns, step)
);
CREATE UNIQUE INDEX cp_checkpoints_id ON cp_checkpoints (thread, ns, id);
-- The writes of one task on one checkpoint; they may arrive before their checkpoint does.
CREATE TABLE cp_writes (
    thread INTEGER NOT NULL,
    ns BLOB NOT NULL,
    checkpoint BLOB NOT NULL,
    task BLOB NOT NULL,
    kinds INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, ns, checkpoint, task)
) WITHOUT ROWID;
-- The elements of values, each stored once in its thread, numbered in its channel.
CREATE TABLE cp_elements (
    thread INTEGER NOT NULL,
    channel INTEGER NOT NULL,
    n INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, channel, n)
);
