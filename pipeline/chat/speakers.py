"""Who answers in a chat: each is asked, and tells events into a queue while the person is free to stop it."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from typing import Protocol

from steps.contract import StepError, UserError
from steps.schemas.chat import Event, Fault, Message


@dataclass(frozen=True)
class Told:
    """An event of one speaker, or, where there is none, that the person pressed ctrl-C. event None: the speaker has
    gone, and will tell no more."""

    speaker: Speaker | None
    event: Event | None


Events = queue.SimpleQueue[Told]


class Speaker(Protocol):
    """A model that answers.

    name: as it is shown.  start: begins to load, and returns at once; Ready or a Fault without number follows.
    ask: begins a reply.  stop: ends the reply to a question, which Ended follows.
    end_error: why it has gone, where it was not asked to.
    """

    name: str

    def start(self, events: Events) -> None: ...
    def ask(self, number: int, messages: list[Message]) -> None: ...
    def stop(self, number: int) -> None: ...
    def close(self) -> None: ...
    def end_error(self) -> Exception: ...


@dataclass(frozen=True)
class ReplySettings:
    """temperature: 0 takes the most probable token.  top_p: share of the probability that is drawn from."""

    max_new_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


def error_of(fault: Fault) -> UserError:
    return StepError(fault.subject, fault.value, limit=fault.limit, remedy=fault.remedy)
