"""What a node is shown: a slice of the state and a window of the conversation, each under a budget and explained."""

from graph_agent.slicing.cutting import LeftOut, Size, utf8_bytes
from graph_agent.slicing.ranking import Index
from graph_agent.slicing.select import Choice, Item, Selection, Tier, select
from graph_agent.slicing.window import Message, Window, window

__all__ = [
    "Choice",
    "Index",
    "Item",
    "LeftOut",
    "Message",
    "Selection",
    "Size",
    "Tier",
    "Window",
    "select",
    "utf8_bytes",
    "window",
]
