"""Settings of the merge of an adapter from elsewhere."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from steps.contract import StepConfig

# model: as config.json of the model's folder says.
StoredAs = Literal["model", "float32", "bfloat16", "float16"]


class MergeAdapterConfig(StepConfig):
    """What the merged model may differ by, and how it is stored."""

    max_difference: float = Field(
        1e-3, gt=0, description="largest difference of a logit allowed, as a share of the largest logit"
    )
    dtype: StoredAs = Field("model", description="of the weights written; model: as the base model's config.json says")
    trust_remote_code: bool = Field(
        False, description="run the model's own code (auto_map of its config.json) on this machine"
    )
