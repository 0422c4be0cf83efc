"""Settings of TokenizeCorpus."""

from __future__ import annotations

from pydantic import Field

from steps.contract import StepConfig


class TokenizeCorpusConfig(StepConfig):
    """How documents become token blocks of one length."""

    block_tokens: int = Field(2_048, ge=16, le=131_072, description="tokens in one block")
    use_base_tokenizer: bool = Field(
        False, description="encode with the base model's own tokenizer, not with the chosen one: the ablation does"
    )
