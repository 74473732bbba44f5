-- What a name is called: channels and nodes, shared by all threads, never deleted. The seal binds it to its key.
CREATE TABLE cp_names (
    name_key INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL UNIQUE,
    name BLOB NOT NULL,
    seal BLOB
);
-- A thread; its key is computed from its name. Its stamp changes with every write: whoever computed from an older one
-- must look again. head, head_id, flags and kinds are those of the checkpoint that the root namespace stands at.
CREATE TABLE cp_threads (
    thread INTEGER PRIMARY KEY,
    stamp INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    head INTEGER NOT NULL,
    head_id BLOB NOT NULL,
    flags INTEGER NOT NULL,
    kinds INTEGER NOT NULL,
    checkpoints INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    body BLOB NOT NULL
);
-- Who may write a thread, and until when by the clock of this database. The row stays: its epoch only grows.
CREATE TABLE cp_leases (
    thread INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    token BLOB,
    owner BLOB NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    steps INTEGER NOT NULL
);
-- The key that a thread's rows are encrypted with, itself encrypted. Without it they say nothing any more.
CREATE TABLE cp_keys (
    thread INTEGER PRIMARY KEY,
    master BLOB NOT NULL,
    key BLOB NOT NULL
);
-- A checkpoint: references to elements in place of values, and a tally of the rows of writes that are on it.
CREATE TABLE cp_checkpoints (
    thread INTEGER NOT NULL,
    ns BLOB NOT NULL,
    step INTEGER NOT NULL,
    id BLOB NOT NULL,
    parent BLOB,
    at INTEGER NOT NULL,
    flags INTEGER NOT NULL,
    tally INTEGER NOT NULL,
    metadata BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (thread, ns, step)
);
CREATE UNIQUE INDEX cp_checkpoints_id ON cp_checkpoints (thread, ns, id);
-- Where each namespace but the root one stands.
CREATE TABLE cp_heads (
    thread INTEGER NOT NULL,
    ns BLOB NOT NULL,
    step INTEGER NOT NULL,
    PRIMARY KEY (thread, ns)
) WITHOUT ROWID;
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
