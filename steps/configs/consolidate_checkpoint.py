"""Settings of the consolidation of a checkpoint."""

from __future__ import annotations

from pydantic import Field

from steps.configs.merge_adapter import StoredAs
from steps.contract import StepConfig

FIND_PREFIX = "auto"


class ConsolidateCheckpointConfig(StepConfig):
    """Which tensors of a checkpoint are the model, and how it is stored."""

    dtype: StoredAs = Field("model", description="of the weights written; model: as --model's config.json says")
    max_file_gib: float = Field(
        4, gt=0, description="weights in one file, in GiB; beyond it there are several and an index"
    )
    prefix: str = Field(
        FIND_PREFIX,
        description="what stands before the model's names in the checkpoint, such as module.; auto finds it; where one "
        "is given, tensors that are not the model's are passed over",
    )
    trust_remote_code: bool = Field(
        False, description="run the model's own code (auto_map of its config.json) on this machine"
    )
