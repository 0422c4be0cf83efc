"""FOCUS (Dobler and de Melo, 2023): a token that the base lacks is a weighted sum of tokens that both tokenizers have.

As published: tokens that overlap are copied; for each other one the cosine similarities to the overlapping tokens, in a
static embedding trained on text of the new language tokenised by the new tokenizer, go through sparsemax, whose output
weighs the overlapping tokens' rows. A token without a vector is drawn from a normal distribution with the base rows'
mean and spread. Different from the paper:

- the static embedding is not fastText but the one of steps/modeling/static_embedding.py, trained on a bounded part of
  the corpus;
- tokens overlap where their bytes are equal, without the paper's looser match of letter case and leading space;
- special tokens are copied by name or role and take no part in the sums.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from transformers import PreTrainedTokenizerBase

from steps.contract import StepError
from steps.modeling.initialisers import RowMixture
from steps.modeling.static_embedding import train_static_embedding
from steps.modeling.vocabulary_plan import VocabularyPlan

# Similarities at once: 64 MiB in float32, whatever the vocabulary.
CHUNK_SIMILARITIES = 2**24
# Sparsemax keeps the few largest; more are looked at where these do not suffice.
FIRST_CANDIDATES = 128


def similar_tokens(
    plan: VocabularyPlan,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[str],
    *,
    max_bytes: int,
    seed: int,
) -> RowMixture:
    """The weights of base rows for each token that the base lacks and the text tells of.

    texts: of the new language; max_bytes of them, in UTF-8, are read. Raises StepError where no overlapping token
    stands in the texts.
    """
    vectors = train_static_embedding(tokenizer, texts, max_bytes=max_bytes, seed=seed)
    told = vectors.norm(dim=1) > 0
    overlap = [index for index in plan.copied if index not in plan.special and told[index]]
    wanted = [index for index in plan.composed if index not in plan.special and told[index]]
    if not overlap:
        remedy = "Give more text or another initialiser."
        raise StepError("initialiser focus", "no token of both tokenizers stands in the corpus", remedy=remedy)
    base_ids = torch.tensor([plan.copied[index] for index in overlap])
    anchors = vectors[overlap].T.contiguous()
    ids, lengths, chosen, weights = torch.tensor(wanted, dtype=torch.int64), [], [], []
    for chunk in ids.split(max(1, CHUNK_SIMILARITIES // len(overlap))):
        places, shares = sparsemax(vectors[chunk] @ anchors)
        kept = shares > 0
        lengths.append(kept.sum(dim=1))
        chosen.append(base_ids[places[kept]])
        weights.append(shares[kept])
    empty = torch.zeros(0, dtype=torch.int64)
    return RowMixture(
        ids=ids,
        starts=torch.cat([torch.zeros(1, dtype=torch.int64), torch.cat([empty, *lengths]).cumsum(0)]),
        base_ids=torch.cat([empty, *chosen]),
        weights=torch.cat([torch.zeros(0), *weights]),
    )


def sparsemax(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest point of the probability simplex to each row (Martins and Astudillo, 2016): [rows, n] to (places,
    shares) of the largest k entries of each row, all others being 0. The shares of a row add up to 1."""
    candidates = min(FIRST_CANDIDATES, scores.shape[1])
    while True:
        ordered, places = scores.topk(candidates, dim=1)
        sums = ordered.cumsum(dim=1)
        ranks = torch.arange(1, candidates + 1, device=scores.device)
        support = (1 + ranks * ordered > sums).sum(dim=1, keepdim=True)
        if candidates == scores.shape[1] or int(support.max()) < candidates:
            break
        candidates = min(4 * candidates, scores.shape[1])
    threshold = (sums.gather(1, support - 1) - 1) / support
    return places, (ordered - threshold).clamp(min=0)
