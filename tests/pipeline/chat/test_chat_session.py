"""Turns and replies with speakers that say what a test has written for them."""

from __future__ import annotations

import os
import signal

import pytest

from pipeline.chat.dialogue import reply_notes
from pipeline.chat.one_shot import answer_once
from pipeline.chat.session import Chat
from pipeline.chat.speakers import Events, Told
from steps.contract import EXIT_INTERRUPTED, StepError
from steps.schemas.chat import Ended, Event, Fault, Message, Piece, Ready


class Scripted:
    """Implements Speaker. script: the events of each reply; one without an end waits for ctrl-C, and presses it."""

    def __init__(self, name: str, *script: list[Event], presses: int = 1, obeys: bool = True) -> None:
        self.name, self._script, self._presses, self._obeys = name, list(script), presses, obeys
        self.asked: list[list[Message]] = []
        self._events: Events | None = None

    def _tell(self, event: Event | None) -> None:
        assert self._events is not None
        self._events.put(Told(self, event))

    def start(self, events: Events) -> None:
        self._events = events
        self._tell(Ready(parameters=1, dtype="float32", device="cpu"))

    def ask(self, number: int, messages: list[Message]) -> None:
        self.asked.append(messages)
        script = self._script.pop(0)
        for event in script:
            self._tell(event.model_copy(update={"number": number}))
        if not script:
            self._tell(None)
        elif isinstance(script[-1], Piece):
            for _ in range(self._presses):
                os.kill(os.getpid(), signal.SIGINT)

    def stop(self, number: int) -> None:
        if self._obeys:
            self._tell(ended(stopped="interrupted").model_copy(update={"number": number}))

    def close(self) -> None: ...

    def end_error(self) -> Exception:
        return StepError(self.name, "has gone", remedy="Start it again.")


def ended(**fields) -> Ended:
    return Ended(**{"number": 0, "stopped": "end_of_turn", "seconds": 0.1, **fields})


def said(text: str) -> Piece:
    return Piece(number=0, text=text)


class Painted:
    def __init__(self) -> None:
        self.ends: list[tuple[int, bool]] = []

    def piece(self, speaker: int, text: str) -> None: ...

    def end(self, speaker: int, *, failed: bool) -> None:
        self.ends.append((speaker, failed))


def opened(*speakers: Scripted, system: str = "") -> Chat:
    chat = Chat(speakers, system=system)
    chat.open()
    return chat


def contents(messages: list[Message]) -> list[str]:
    return [message.content for message in messages]


def test_each_speaker_hears_its_own_replies_and_what_is_left_out_stays_out():
    first = Scripted(
        "a", [said("a1"), ended()], [said("a2"), ended(left_out_messages=2, context_tokens=1024)], [ended()]
    )
    second = Scripted("b", [said("b1"), ended()], [said("b"), said("2"), ended()], [ended()])
    chat = opened(first, second, system="S")
    for text in ("1", "2"):
        replies = chat.ask(text, Painted())
    assert reply_notes(replies[0]) == [
        "the oldest turn is left out from here on: 1,024 tokens is all that the model reads"
    ]
    chat.ask("3", Painted())
    assert contents(first.asked[-1]) == ["S", "2", "a2", "3"]
    assert contents(second.asked[-1]) == ["S", "1", "b1", "2", "b2", "3"]


def test_ctrl_c_keeps_what_was_said_and_forgets_a_question_without_a_word():
    speaker = Scripted("a", [said("yar")], [said("")], [said("ok"), ended()], presses=1)
    chat = opened(speaker)
    (reply,) = chat.ask("1", Painted())
    assert (reply.text, reply.stopped, reply_notes(reply)) == ("yar", "interrupted", ["stopped"])
    chat.ask("2", Painted())
    chat.ask("3", Painted())
    assert contents(speaker.asked[-1]) == ["1", "yar", "3"]
    # Outside of a reply ctrl-C is what it always is.
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_leaves_a_speaker_that_does_not_stop():
    chat = opened(Scripted("a", [said("yar")], presses=2, obeys=False))
    with pytest.raises(KeyboardInterrupt):
        chat.ask("1", Painted())


def test_a_speaker_that_goes_ends_the_chat_and_one_that_fails_does_not():
    fault = Fault(subject="question", value="9 tokens", limit="8", remedy="Ask a shorter one.")
    first, second = Scripted("a", [fault], [ended()], [ended()]), Scripted("b", [said("b1"), ended()], [])
    chat, painted = opened(first, second), Painted()
    replies = chat.ask("1", painted)
    assert [str(reply.error) for reply in replies] == ["question: 9 tokens; limit 8. Ask a shorter one.", "None"]
    assert painted.ends == [(0, True), (1, False)]
    with pytest.raises(StepError, match=r"^b: has gone\. Start it again\.$"):
        chat.ask("2", painted)
    assert painted.ends[-1] == (1, True)
    assert [contents(speaker.asked[-1]) for speaker in (first, second)] == [["2"], ["1", "b1", "2"]]


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_in_one_shot_tells_what_there_is(as_json, capsys):
    code = answer_once(opened(Scripted("a", [said("yar")])), "1", as_json=as_json)
    assert code == EXIT_INTERRUPTED
    output = capsys.readouterr().out
    assert ('"reply": "yar", "stopped": "interrupted"' in output) if as_json else (output == "yar\n")
