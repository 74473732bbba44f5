"""`python -m graph_agent` is `graph-agent`."""

import sys

from graph_agent.cli import main

sys.exit(main())
