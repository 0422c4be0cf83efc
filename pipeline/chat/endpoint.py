"""A SageMaker endpoint as a speaker: the chat goes to it as OpenAI's chat completions, and its reply is streamed back.

DJL LMI and vLLM serve that schema; the chat template is the server's.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from pipeline.chat.server_events import CUT_OFF, ServerLines, ServerPart
from pipeline.chat.speakers import Events, ReplySettings, Told
from steps.contract import StepError, UserError
from steps.schemas.chat import Ended, EndOfReply, Event, Fault, Message, Piece, Ready

CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 10, 60, 3


class Endpoint:
    """Implements Speaker. region: None for the one that AWS' own settings name."""

    def __init__(self, name: str, settings: ReplySettings, *, region: str | None = None) -> None:
        self.name, self._settings, self._region = name, settings, region
        self._client: Any = None
        self._events: Events | None = None
        self._stopped_number = 0
        self._begun: dict[int, float] = {}
        self._bug: Exception | None = None

    def start(self, events: Events) -> None:
        """Tells at once of missing credentials and regions; the endpoint itself is first asked with a question."""
        import boto3
        import botocore.config
        import botocore.exceptions

        self._events = events
        config = botocore.config.Config(
            connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )  # fmt: skip
        try:
            session = boto3.session.Session(region_name=self._region)
            if session.get_credentials() is None:
                raise botocore.exceptions.NoCredentialsError
            self._client = session.client("sagemaker-runtime", config=config)
        except botocore.exceptions.BotoCoreError as error:
            self._tell_error(error, None)
            return
        self._tell(Ready(parameters=None, dtype="", device=self._client.meta.region_name))

    def ask(self, number: int, messages: list[Message]) -> None:
        self._begun[number] = time.monotonic()
        threading.Thread(target=self._reply, args=(number, messages), daemon=True).start()

    def stop(self, number: int) -> None:
        """The reply has ended for the person; whoever still reads it notices with the next piece."""
        self._stopped_number = number
        self._tell(self._ended(number, "interrupted"))

    def close(self) -> None:
        """What is still read is read by threads that end with this process."""

    def end_error(self) -> Exception:
        return self._bug or RuntimeError(f"endpoint {self.name}: no more events")

    def body(self, messages: list[Message]) -> bytes:
        """The request: what is not set is left to the server."""
        settings = self._settings
        request: dict[str, Any] = {
            "messages": [message.model_dump() for message in messages],
            "stream": True,
            "max_tokens": settings.max_new_tokens,
            "temperature": settings.temperature,
        }
        if settings.temperature:
            request |= {"top_p": settings.top_p, "seed": settings.seed}
        return json.dumps(request, ensure_ascii=False).encode()

    def _reply(self, number: int, messages: list[Message]) -> None:
        try:
            answer = self._client.invoke_endpoint_with_response_stream(
                EndpointName=self.name, ContentType="application/json", Body=self.body(messages)
            )
            self._read(number, answer["Body"])
        # Of whatever kind: this is a thread, and the error is told, or raised, where the chat goes on.
        except Exception as error:
            self._tell_error(error, number)

    def _read(self, number: int, stream: Any) -> None:
        lines, last = ServerLines(), ServerPart()
        finish: str | None = None
        tokens = 0
        for part in self._parts(lines, stream):
            if self._stopped_number >= number:
                stream.close()
                return
            if part.error is not None:
                remedy = "Look at the endpoint's log in CloudWatch; /reset shortens the chat."
                raise StepError(f"endpoint {self.name}", part.error, remedy=remedy)
            tokens += part.is_token
            finish = finish or part.finish
            last = part if part.tokens is not None else last
            if part.text:
                self._tell(Piece(number=number, text=part.text))
        if finish is None:
            raise StepError(f"endpoint {self.name}", "its reply broke off before its end", remedy="Ask again.")
        counted = last.tokens if last.tokens is not None else (tokens or None)
        stopped: EndOfReply = "max_new_tokens" if finish in CUT_OFF else "end_of_turn"
        self._tell(self._ended(number, stopped, tokens=counted, prompt_tokens=last.prompt_tokens))

    @staticmethod
    def _parts(lines: ServerLines, stream: Any) -> Any:
        for event in stream:
            yield from lines.add(event.get("PayloadPart", {}).get("Bytes", b""))
        yield from lines.finish()

    def _ended(
        self, number: int, stopped: EndOfReply, *, tokens: int | None = None, prompt_tokens: int | None = None
    ) -> Ended:
        seconds = round(time.monotonic() - self._begun[number], 3)
        return Ended(number=number, stopped=stopped, tokens=tokens, prompt_tokens=prompt_tokens, seconds=seconds)

    def _tell(self, event: Event) -> None:
        assert self._events is not None
        self._events.put(Told(self, event))

    def _tell_error(self, error: Exception, number: int | None) -> None:
        """number: of the question that it ends; None before there was one."""
        from pipeline.chat.endpoint_errors import endpoint_error

        known = error if isinstance(error, UserError) else endpoint_error(error, self.name)
        if known is None:
            self._bug = error
            assert self._events is not None
            self._events.put(Told(self, None))
            return
        limit = None if known.limit is None else str(known.limit)
        self._tell(
            Fault(number=number, subject=known.subject, value=str(known.value), limit=limit, remedy=known.remedy)
        )
