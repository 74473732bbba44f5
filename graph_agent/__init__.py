"""A durable LangGraph agent; it stands on `checkpointers`, and comes with the next release."""
