"""What a vocabulary costs in a model: parameters of embedding and head, told from the model's files alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from steps.contract.model_folder import HEAD, context_limit, input_matrix, read_tensors, text_settings
from steps.vocabulary_size import VOCABULARY_MULTIPLE

# Of a model that names no limit.
USUAL_CONTEXT_TOKENS = 2_048


@dataclass(frozen=True)
class ModelSize:
    """width: of an embedding row. matrices: 1 where embedding and head are one, else 2. other_parameters: all that does
    not grow with the vocabulary. context_tokens: the longest input."""

    width: int
    matrices: int
    other_parameters: int
    context_tokens: int

    @classmethod
    def of(cls, model: Path) -> ModelSize:
        """Of a model folder. Raises StepError for one that is damaged."""
        tensors, settings = read_tensors(model), text_settings(model)
        head = next((tensor for name, tensor in tensors.items() if name.endswith(HEAD)), None)
        embedding = input_matrix(tensors)
        if embedding is None:
            # A family of other names: the largest matrix with a row for each token.
            rows = settings.get("vocab_size")
            matching = [tensor for tensor in tensors.values() if len(tensor.shape) == 2 and tensor.shape[0] == rows]
            embedding = max(matching or tensors.values(), key=lambda tensor: math.prod(tensor.shape))
        total = sum(math.prod(tensor.shape) for tensor in tensors.values())
        stored = math.prod(embedding.shape) + (math.prod(head.shape) if head else 0)
        return cls(
            width=embedding.shape[-1],
            # A tied head may be stored as well.
            matrices=2 if head is not None and not settings.get("tie_word_embeddings") else 1,
            other_parameters=total - stored,
            context_tokens=context_limit(model) or USUAL_CONTEXT_TOKENS,
        )

    def vocabulary_parameters(self, tokens: int) -> int:
        """Of a vocabulary padded to a multiple of 64."""
        return -(-tokens // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE * self.width * self.matrices

    def vocabulary_share(self, tokens: int) -> float:
        """The same as a share of the whole model."""
        vocabulary = self.vocabulary_parameters(tokens)
        return vocabulary / (vocabulary + self.other_parameters)
