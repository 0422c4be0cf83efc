"""A reply token by token: each is told when it is there, and the reply can be ended at any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from steps.modeling.generation import own_settings_aside
from steps.schemas.chat import EndOfReply


@dataclass(frozen=True)
class Sampling:
    """temperature: 0 takes the most probable token.  top_p: share of the probability that is drawn from, 0 to 1."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


def stream_reply(
    model: PreTrainedModel,
    prompt: Sequence[int],
    *,
    new_tokens: int,
    stop_ids: Sequence[int],
    vocabulary_size: int,
    sampling: Sampling,
    on_token: Callable[[int], None],
    is_stopped: Callable[[], bool],
) -> EndOfReply:
    """Calls on_token with each token of the reply, its stop token included, and returns what ended it.

    vocabulary_size: ids from there on stand for no token, as the rows that pad a vocabulary, and are never drawn.
    is_stopped: asked after each token.  The same seed gives the same reply.
    """
    streamer = _Streamer(on_token, stop_ids)
    inputs = torch.tensor([list(prompt)], device=model.device)
    settings = _settings(model, new_tokens, stop_ids, vocabulary_size, sampling)
    torch.manual_seed(sampling.seed)
    with own_settings_aside(model), torch.inference_mode():
        generating: Any = model.generate
        generating(
            inputs,
            attention_mask=torch.ones_like(inputs),
            generation_config=settings,
            streamer=streamer,
            stopping_criteria=StoppingCriteriaList([_WhenAsked(is_stopped)]),
        )
    if streamer.has_ended:
        return "end_of_turn"
    return "interrupted" if is_stopped() else "max_new_tokens"


def _settings(
    model: PreTrainedModel, new_tokens: int, stop_ids: Sequence[int], vocabulary_size: int, sampling: Sampling
) -> GenerationConfig:
    rows = model.config.get_text_config().vocab_size
    drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0} if sampling.temperature else {}
    return GenerationConfig(
        do_sample=bool(drawn),
        max_new_tokens=new_tokens,
        eos_token_id=list(stop_ids) or None,
        pad_token_id=stop_ids[0] if stop_ids else None,
        suppress_tokens=list(range(vocabulary_size, rows)) or None,
        **drawn,
    )


class _WhenAsked(StoppingCriteria):
    def __init__(self, is_stopped: Callable[[], bool]) -> None:
        self._is_stopped = is_stopped

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **more: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), self._is_stopped(), dtype=torch.bool, device=input_ids.device)


class _Streamer(BaseStreamer):
    """Passes tokens on, the prompt aside, up to the first stop token."""

    def __init__(self, on_token: Callable[[int], None], stop_ids: Sequence[int]) -> None:
        self._on_token, self._stop_ids = on_token, frozenset(stop_ids)
        self._is_prompt = True
        self.has_ended = False

    def put(self, value: torch.Tensor) -> None:
        if self._is_prompt:
            self._is_prompt = False
            return
        for token in value.flatten().tolist():
            if self.has_ended:
                return
            self._on_token(token)
            self.has_ended = token in self._stop_ids

    def end(self) -> None: ...
