"""The shell's door: `graph-agent VERB …`; each verb is a method of `Agent`, `History` or a saver, of the same name."""

from graph_agent.cli.main import main as main
