-- What stood when a lease began: the writes on the checkpoints that the thread stood at, sealed; a rollback goes by it.
ALTER TABLE cp_leases ADD COLUMN note BLOB;
