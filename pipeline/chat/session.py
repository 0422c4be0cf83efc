"""A chat: the turns so far with each of its speakers, and how a question becomes replies."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.chat.speakers import Events, Speaker, Told, error_of
from steps.contract import UserError
from steps.schemas.chat import Ended, EndOfReply, Fault, Message, Piece, Ready


class Painter(Protocol):
    """Shows replies while they come; speakers are counted from 0.  failed: there is no whole reply, for an error."""

    def piece(self, speaker: int, text: str) -> None: ...
    def end(self, speaker: int, *, failed: bool) -> None: ...


@dataclass
class Reply:
    """What came of a question. stopped: None until it has ended.  error: why there is no whole reply."""

    text: str = ""
    stopped: EndOfReply | None = None
    ended: Ended | None = None
    error: UserError | None = None

    @property
    def is_open(self) -> bool:
        return self.stopped is None and self.error is None


@dataclass
class Talk:
    """The turns with one speaker, without the system prompt: each model hears its own replies."""

    speaker: Speaker
    turns: list[Message] = field(default_factory=list)

    def keep(self, question: Message, reply: Reply) -> None:
        """Takes a turn into the history, and what the model had no room for out of it.

        A reply that was stopped is kept as far as it came. A question without a reply is forgotten: the roles of a
        conversation take turns.
        """
        if reply.error is not None or (reply.stopped == "interrupted" and not reply.text):
            return
        answer = Message(role="assistant", content=reply.text)
        left_out = reply.ended.left_out_messages if reply.ended else 0
        self.turns = [*self.turns, question, answer][left_out:]


class Chat:
    """speakers: each is asked every question.  system: the system prompt, empty for none."""

    def __init__(self, speakers: Sequence[Speaker], *, system: str = "") -> None:
        self.talks = [Talk(speaker) for speaker in speakers]
        self.system = system
        self._events: Events = queue.SimpleQueue()
        self._number, self._interrupted_number = 0, 0

    @property
    def names(self) -> list[str]:
        return [talk.speaker.name for talk in self.talks]

    def open(self) -> list[Ready]:
        """Starts every speaker and waits until all can be asked. Raises the UserError of one that cannot be."""
        for talk in self.talks:
            talk.speaker.start(self._events)
        ready: dict[int, Ready] = {}
        while len(ready) < len(self.talks):
            index, event = self._next()
            if event is None:
                raise self.talks[index].speaker.end_error()
            if isinstance(event, Fault):
                raise error_of(event)
            if isinstance(event, Ready):
                ready[index] = event
        return [ready[index] for index in range(len(self.talks))]

    def close(self) -> None:
        for talk in self.talks:
            talk.speaker.close()

    def reset(self) -> None:
        """Forgets the turns, not the system prompt."""
        for talk in self.talks:
            talk.turns = []

    def ask(self, text: str, painter: Painter) -> list[Reply]:
        """Asks all speakers and shows what they reply. ctrl-C ends the replies; pressed twice, KeyboardInterrupt.

        Raises what `end_error` of a speaker gives where it has gone.
        """
        question = Message(role="user", content=text)
        system = [Message(role="system", content=self.system)] if self.system else []
        self._number += 1
        replies = [Reply() for _ in self.talks]
        with self._interrupts_as_events():
            for talk in self.talks:
                talk.speaker.ask(self._number, [*system, *talk.turns, question])
            while any(reply.is_open for reply in replies):
                index, event = self._next()
                # One that came when the last reply had just ended is none of this one.
                if index < 0 and self._interrupted_number == self._number:
                    self._stop(replies)
                elif index >= 0 and event is None:
                    for number in (place for place, reply in enumerate(replies) if reply.is_open):
                        painter.end(number, failed=True)
                    raise self.talks[index].speaker.end_error()
                elif event is not None:
                    self._take(replies[index], index, event, painter)
        for talk, reply in zip(self.talks, replies, strict=True):
            talk.keep(question, reply)
        return replies

    def _next(self) -> tuple[int, Ready | Piece | Ended | Fault | None]:
        """The next event and the place of its speaker, -1 where the person pressed ctrl-C; None where the speaker has
        gone."""
        told = self._events.get()
        if told.speaker is None:
            return -1, None
        return next(index for index, talk in enumerate(self.talks) if talk.speaker is told.speaker), told.event

    def _take(self, reply: Reply, index: int, event: Ready | Piece | Ended | Fault, painter: Painter) -> None:
        # A reply that was stopped here may still be told of by whoever did not know yet.
        if not reply.is_open or isinstance(event, Ready) or event.number != self._number:
            return
        if isinstance(event, Piece):
            reply.text += event.text
            painter.piece(index, event.text)
            return
        if isinstance(event, Ended):
            reply.stopped, reply.ended = event.stopped, event
        else:
            reply.error = error_of(event)
        painter.end(index, failed=reply.error is not None)

    def _stop(self, replies: Sequence[Reply]) -> None:
        for talk, reply in zip(self.talks, replies, strict=True):
            if reply.is_open:
                talk.speaker.stop(self._number)

    @contextmanager
    def _interrupts_as_events(self) -> Iterator[None]:
        """Within it the first ctrl-C is an event like any other, so that nothing is torn in two by it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        pressed = 0

        def note(number: int, frame: object) -> None:
            nonlocal pressed
            pressed += 1
            if pressed > 1:
                raise KeyboardInterrupt
            self._interrupted_number = self._number
            self._events.put(Told(None, None))

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
