"""What `langadapt chat` and the process that holds the model say to each other: one JSON object a line.

To the model: Question and Stop.  From it: Ready, once; then for each question pieces of the reply and one Ended or
Fault.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

EndOfReply = Literal["end_of_turn", "max_new_tokens", "interrupted"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Message(_Part):
    role: Literal["system", "user", "assistant"]
    content: str


class Question(_Part):
    """The whole conversation, the system prompt (if any) first and the user's question last."""

    kind: Literal["question"] = "question"
    number: int = Field(description="counted from 1")
    messages: list[Message]


class Stop(_Part):
    kind: Literal["stop"] = "stop"
    number: int = Field(description="of the question whose reply is to end here")


class Ready(_Part):
    kind: Literal["ready"] = "ready"
    parameters: int | None = Field(description="None where they are not known here, as of an endpoint's model")
    dtype: str
    device: str


class Piece(_Part):
    kind: Literal["piece"] = "piece"
    number: int
    text: str = Field(description="whole characters, that follow those of the last piece")


class Ended(_Part):
    kind: Literal["ended"] = "ended"
    number: int
    stopped: EndOfReply
    prompt_tokens: int | None = None
    tokens: int | None = Field(default=None, description="of the reply, with the end of turn; None where nobody counts")
    left_out_messages: int = Field(default=0, description="the oldest ones, that the context has no room for")
    context_tokens: int | None = None
    seconds: float


class Fault(_Part):
    """An error that a person can mend. number: the question that it ends; None where there is no model to ask."""

    kind: Literal["fault"] = "fault"
    number: int | None = None
    subject: str
    value: str
    limit: str | None = None
    remedy: str


Event = Ready | Piece | Ended | Fault
EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
REQUESTS: TypeAdapter[Question | Stop] = TypeAdapter(Annotated[Question | Stop, Field(discriminator="kind")])
