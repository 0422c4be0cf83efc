"""The process that holds the model of `langadapt chat`: questions in, replies out as they come into being.

    python -m steps.chat --model DIR [--device auto] [--max-new-tokens 512] [--temperature 0] [--top-p 1] [--seed 0]

It speaks JSON lines on standard input and output (steps/schemas/chat.py), and ends with its input. ctrl-C is not for
it: the command line tells it when a reply is to end.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from steps.contract import EXIT_BUG, EXIT_DONE, EXIT_USER_ERROR, mendable_error
from steps.schemas.chat import REQUESTS, Ended, Event, Fault, Piece, Question

if TYPE_CHECKING:
    from steps.modeling.chat_model import ChatModel


class Requests:
    """What comes on standard input, read by a thread of its own so that a reply can be stopped while it is made."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._questions: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._stopped_number, self._has_ended = 0, False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._stream:
                request = REQUESTS.validate_json(line)
                if isinstance(request, Question):
                    self._questions.put(request)
                else:
                    self._stopped_number = request.number
        finally:
            self._has_ended = True
            self._questions.put(None)

    def next(self) -> Question | None:
        """The next question; None where no more will come."""
        return self._questions.get()

    def is_stopped(self, number: int) -> bool:
        """Whether the reply to this question is to end: it was asked for, or nobody is there any more."""
        return self._has_ended or self._stopped_number >= number


class Answering:
    """Answers questions with the model of a folder, which is loaded first. Events go to a stream, each as one line."""

    def __init__(self, arguments: argparse.Namespace, requests: Requests, output: TextIO) -> None:
        self._arguments, self._requests, self._output = arguments, requests, output

    def run(self) -> int:
        """Goes on until no more questions come; returns the exit code. Raises what is no mendable error."""
        try:
            model = self._loaded()
        except Exception as error:
            self._tell_fault(error)
            return EXIT_USER_ERROR
        self._send(model.ready)
        while (question := self._requests.next()) is not None:
            try:
                self._send(self._reply(model, question))
            except BrokenPipeError:
                raise
            except Exception as error:
                self._tell_fault(error, question.number)
        return EXIT_DONE

    def _loaded(self) -> ChatModel:
        # Imported here: what a wrong option tells needs no torch.
        from steps.modeling.chat_model import ChatModel
        from steps.modeling.loading import choose_device

        arguments = self._arguments
        return ChatModel(
            arguments.model,
            choose_device(arguments.device),
            trust_remote_code=arguments.trust_remote_code,
            takes_plain_text=arguments.takes_plain_text,
        )

    def _reply(self, model: ChatModel, question: Question) -> Ended:
        from steps.modeling.streaming import Sampling

        arguments = self._arguments
        return model.reply(
            question,
            max_new_tokens=arguments.max_new_tokens,
            # Another reply where the same is asked again, and the same ones in every chat.
            sampling=Sampling(arguments.temperature, arguments.top_p, arguments.seed + question.number - 1),
            on_text=lambda text: self._send(Piece(number=question.number, text=text)),
            is_stopped=lambda: self._requests.is_stopped(question.number),
        )

    def _send(self, event: Event) -> None:
        self._output.write(event.model_dump_json() + "\n")
        self._output.flush()

    def _tell_fault(self, error: Exception, number: int | None = None) -> None:
        """number: of the question that the error ends. Raises the error itself where nobody can mend it."""
        known = mendable_error(error)
        if known is None:
            raise error
        limit = None if known.limit is None else str(known.limit)
        self._send(
            Fault(number=number, subject=known.subject, value=str(known.value), limit=limit, remedy=known.remedy)
        )


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--max-new-tokens", type=int, default=512, help="of a reply")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the most probable token, always")
    parser.add_argument("--top-p", type=float, default=1.0, help="share of the probability that is drawn from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trust-remote-code", action="store_true", help="run the model's own code")
    parser.add_argument("--takes-plain-text", action="store_true", help="of a model without the tokens of a chat")
    return parser


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arguments = command_line().parse_args()
    # What libraries print must not come between the lines of the protocol.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests = Requests(os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8"))
    try:
        return Answering(arguments, requests, output).run()
    except BrokenPipeError:
        # Whoever asked has gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        return EXIT_DONE
    except Exception:
        traceback.print_exc()
        return EXIT_BUG


if __name__ == "__main__":
    sys.exit(main())
