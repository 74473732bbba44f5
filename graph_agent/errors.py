"""What can go wrong, each with its facts, where it happened, and what to do next.

GraphAgentError
├── SetupError            the agent cannot be built like this
│   ├── NoModelError      there is no key, or no such model
│   └── MissingPackageError   it needs a package that is not installed
├── PatchError            a node wrote what the state does not take
│   └── PhaseError        a change of phase that is not legal
├── ThreadError           the thread is not as the call assumes
│   ├── UnknownThread, FinishedThread, ExpiredThread, OpenThread, WaitingThread, ChangedGraph
├── ReviewError           an answer that settles nothing
│   ├── UnknownReview, SettledReview, ExpiredReview, InvalidAnswer
├── RunFailedError        the run ended in an error, for those who want it raised
├── BudgetSpentError      a node is about to pass a limit: the run stops before it
├── MalformedReplyError   the model did not answer in the asked form, however often it was told
└── ToolError             what a tool may raise to tell the model, and whether trying again makes sense
"""

from __future__ import annotations

from typing import Any


class GraphAgentError(Exception):
    """Any error of this package; `facts` has what the message says, for programs."""

    def __init__(self, message: str, **facts: Any) -> None:
        """Say what happened and what to do next."""
        super().__init__(message)
        self.facts = facts


class SetupError(GraphAgentError):
    """The agent cannot be built from these arguments."""


class NoModelError(SetupError):
    """There is no such model, or no key for it."""


class MissingPackageError(SetupError, ImportError):
    """What was asked for needs a package that is not installed."""

    def __init__(self, package: str, what: str) -> None:
        """Name the package, and what needs it."""
        super().__init__(f"{what} needs {package}: pip install {package}", package=package)


class PatchError(GraphAgentError):
    """A node wrote something that the state does not take; nothing of it was stored."""

    def __init__(self, *, node: str, key: str, path: str, reason: str) -> None:
        """Name the node, the key and the path in its value."""
        super().__init__(f"node {node!r} wrote {key}{path}: {reason}", node=node, key=key, path=path, reason=reason)


class PhaseError(PatchError):
    """A node changed the phase in a way the table does not have."""


class ThreadError(GraphAgentError):
    """The thread is not as the call assumes."""


class UnknownThreadError(ThreadError):
    """There is no such thread, or no such step of it."""


class FinishedThreadError(ThreadError):
    """The thread is done: there is nothing to resume."""


class ExpiredThreadError(ThreadError):
    """The thread is older than may be resumed."""


class OpenThreadError(ThreadError):
    """The thread has work that is not finished, or runs right now: then `facts` has its `owner`, and `since` when."""


class WaitingThreadError(ThreadError):
    """The thread waits for a person: new input would pass over an open review."""


class ChangedGraphError(ThreadError):
    """The thread was written by another version of the graph, and cannot go on in this one."""


class ReviewError(GraphAgentError):
    """An answer that does not fit an open review; nothing was changed."""


class UnknownReviewError(ReviewError):
    """No review of this thread has this id."""


class SettledReviewError(ReviewError):
    """The review was answered before, otherwise; or overtaken by new input."""


class ExpiredReviewError(ReviewError):
    """The review's deadline has passed."""


class InvalidAnswerError(ReviewError):
    """The answer is not one that this review takes."""


class RunFailedError(GraphAgentError):
    """The run ended in an error; `facts["failure"]` has the record."""


class MalformedReplyError(GraphAgentError):
    """The model did not answer in the form it was asked for, after every repair."""


class BudgetSpentError(GraphAgentError):
    """What a node is about to do would pass a limit; the run stops before it."""


class ToolError(GraphAgentError):
    """For tools to raise: the model reads the message; `retryable` says that trying again may help."""

    def __init__(self, message: str, *, retryable: bool = False, **facts: Any) -> None:
        """Say what the model should know."""
        super().__init__(message, **facts)
        self.retryable = retryable
