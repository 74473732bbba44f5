"""The nodes: one file, one node; each takes its view and gives a patch."""
