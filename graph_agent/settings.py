"""What is set from outside: which agent, which model, which database. Read when asked for, never when imported."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from graph_agent.errors import SetupError

if TYPE_CHECKING:
    from graph_agent.agent import Agent

APP: Final = "GRAPH_AGENT_APP"
DB: Final = "GRAPH_AGENT_DB"
MODEL: Final = "GRAPH_AGENT_MODEL"
DEFAULT_DB: Final = "agent.db"
DEFAULT_MODEL: Final = "openai:gpt-5-mini"
KEYS: Final = ("OPENAI_API_KEY", "OPENAI_BASE_URL")


def database(given: str = "") -> str:
    """Give the address of the database: as given, else of the environment, else `agent.db` here."""
    found = given or os.environ.get(DB) or DEFAULT_DB
    return found if "://" in found else f"sqlite:///{quote(found)}"


def model_name(given: str = "") -> str:
    """Give the name of the model: as given, else of the environment, else OpenAI's if there is a key or a server."""
    return given or os.environ.get(MODEL, "") or (DEFAULT_MODEL if any(map(os.environ.get, KEYS)) else "")


def agent_named(app: str) -> tuple[Agent, bool]:
    """Load the agent that `module:name` names, and give whether a function made it, just now and for whoever asks."""
    module, _, name = app.partition(":")
    if not name or not module:
        named = f"{app!r} names no agent" if app else "which agent?"
        raise SetupError(f"{named}; pass --app module:name, or set {APP}; for one without tools, --model openai:NAME")
    found = _loaded(app, module, name)
    made = callable(found) and not hasattr(found, "resume")
    try:
        agent = found() if made else found
    except TypeError as error:
        raise SetupError(f"{app!r} cannot be called without arguments: {error}") from error
    if not all(hasattr(agent, door) for door in ("resume", "saver", "kit")):
        raise SetupError(f"{app!r} is {agent!r}, and no Agent; name one, or a function that makes one")
    return agent, made


def _loaded(app: str, module: str, name: str) -> Any:
    if os.getcwd() not in sys.path:  # noqa: PTH109  a text is what the path holds
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # whatever somebody else's module raises
        raise SetupError(f"the agent {app!r} cannot be loaded: {type(error).__name__}: {error}") from error
