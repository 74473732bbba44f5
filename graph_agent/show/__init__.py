"""What runs, reviews, timelines and agents show of themselves; drawn by `checkpointers.show`."""
