"""What a saver does, each operation written once as statements; no connection, no clock, no chance here."""
