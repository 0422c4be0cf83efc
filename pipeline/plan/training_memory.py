"""What continued pretraining holds on one GPU, by one formula:

    state + gathered + blocks x block

state     bytes a parameter (weight, gradient, AdamW's two moments) x parameters / GPUs that share them under FSDP
gathered  under FSDP, what is whole for a while: embedding, head and two layers, weights and gradients
block     what is kept of one block for the way back: tokens x (L x layer + logits), with e bytes an element,
            layer   e (6 h + 2 kv + 3 f) with Liger; without it 8 h + e f more, which Liger computes again: what enters
                    the two norms in float32, and the activation before it is multiplied
            logits  none with Liger, which computes head and loss in pieces; without it 12 V at the peak: in float32 the
                    log-probabilities, their gradient, and the gradient of the logits
          with activation checkpointing e L h of all layers and the layer's own of one

attention keeps no scores. docs/plan.md has the sources and the errors beside what was published.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.plan.model_shapes import ModelShape

GIB = 2**30
STATE_BYTES = {"bfloat16": 8, "bfloat16_mixed": 16, "float32": 16}
# Of a gathered parameter: the weight and its gradient as they travel.
GATHERED_BYTES = {"bfloat16": 4, "bfloat16_mixed": 8, "float32": 8}
ELEMENT_BYTES = {"bfloat16": 2, "bfloat16_mixed": 2, "float32": 4}
LOGIT_BYTES = 12
# Of a GPU's memory, what tensors may take. The rest is the driver, NCCL, libraries and what the allocator loses. It is
# calibrated as the largest share that a published run must have used (docs/plan.md).
USABLE_SHARE = 0.88


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of one GPU. parallelism: ddp or fsdp. gpus: that share the state. block_tokens: of one block."""

    shape: ModelShape
    rows: int
    precision: str
    parallelism: str
    gpus: int
    block_tokens: int
    has_liger: bool
    is_checkpointed: bool = False

    @property
    def state(self) -> float:
        shared_by = self.gpus if self.parallelism == "fsdp" else 1
        return STATE_BYTES[self.precision] * self.shape.parameters(self.rows) / shared_by

    @property
    def gathered(self) -> float:
        if self.parallelism != "fsdp":
            return 0.0
        whole = self.shape.vocabulary_parameters(self.rows) + 2 * self.shape.layer_parameters
        return GATHERED_BYTES[self.precision] * whole

    @property
    def block(self) -> float:
        layers, element = self.shape.layers, ELEMENT_BYTES[self.precision]
        layer = layer_bytes(self.shape, element, has_liger=self.has_liger)
        kept = element * layers * self.shape.width + layer if self.is_checkpointed else layers * layer
        logits = 0 if self.has_liger else LOGIT_BYTES * self.rows
        return self.block_tokens * (kept + logits)

    def total(self, blocks: int) -> float:
        """With so many blocks in one pass."""
        return self.state + self.gathered + blocks * self.block

    def largest_batch(self, memory_gib: float) -> int:
        """Blocks of one pass that a GPU of so much memory holds; 0: not even one."""
        free = USABLE_SHARE * memory_gib * GIB - self.state - self.gathered
        return max(0, int(free // self.block))


def layer_bytes(shape: ModelShape, element: int, *, has_liger: bool) -> int:
    """Of one token in one layer: what norms, attention and feed-forward read and write, kept for the way back."""
    h, kv, f = shape.width, shape.key_value_width, shape.feed_forward_width
    fused = element * (6 * h + 2 * kv + 3 * f)
    return fused if has_liger else fused + 8 * h + element * f


def fine_tuning_bytes(
    shape: ModelShape, rows: int, *, rank: int, modules: tuple[str, ...], weight_bytes: float, adapter_bytes: int
) -> float:
    """What LoRA holds all the time: the base's weights, and of the adapter weight, gradient and moments."""
    return weight_bytes * shape.parameters(rows) + adapter_bytes * shape.adapter_parameters(rank, modules)
