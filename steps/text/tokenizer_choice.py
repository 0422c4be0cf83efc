"""Which tokenizer candidate is taken, and why in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import ConfigError, StepError
from steps.schemas.fertility import FertilityCandidate


def choose(candidates: Sequence[FertilityCandidate], config: TrainTokenizerConfig) -> tuple[str, str]:
    """(name, reason). The base is no choice: a model that keeps it needs no langadapt.

    The rule: of the candidates that give every text back, and whose vocabulary is no larger a share of the model than
    allowed, begin with the smallest vocabulary; a larger one takes its place only if it saves more than `min_gain` of
    the tokens a word. Of equal sizes the one of fewer tokens a word stands for its size.

    Raises ConfigError for a name that no candidate has, or one that does not give its text back, and for a share that
    none keeps to; StepError where no candidate gives its text back.
    """
    trained = [candidate for candidate in candidates if candidate.kind != "base"]
    exact = [one for one in trained if not any(text.round_trip_errors for text in one.texts.values())]
    if not exact:
        value = "no candidate decodes to the text it was given"
        raise StepError("corpus", value, remedy="Look for unusual characters.")
    if config.chosen:
        names = [candidate.name for candidate in exact]
        if config.chosen not in names:
            is_there = config.chosen in [candidate.name for candidate in trained]
            value = f"{config.chosen}, which does not decode to the text it was given" if is_there else config.chosen
            raise ConfigError("train_tokenizer.chosen", value, limit=", ".join(names), remedy="Name one of these.")
        return config.chosen, "named in the configuration"
    limit = config.max_vocabulary_parameters_share
    within = [one for one in exact if vocabulary_share(one) <= limit]
    if not within:
        least = min(exact, key=vocabulary_share)
        raise ConfigError(
            "train_tokenizer.max_vocabulary_parameters_share",
            limit,
            limit=f"{vocabulary_share(least):.3f}, of {least.name}, the smallest vocabulary",
            remedy="Raise it, or ask for smaller vocabularies.",
        )
    chosen, refused = climb(within, config.min_gain)
    reason = [f"{tokens_per_word(chosen):.3f} tokens a word"]
    if refused is not None and (saved := gain(chosen, refused)) > 0:
        reason.append(f"{refused.name}, the next larger, would save {saved:.1%}, not more than {config.min_gain:.1%}")
    elif refused is not None:
        reason.append(f"{refused.name}, the next larger, would save nothing")
    elif len(within) == 1:
        reason.append("the only candidate allowed")
    else:
        reason.append("the largest vocabulary allowed, and each larger one saved enough")
    reason.append(f"its vocabulary is {vocabulary_share(chosen):.1%} of the model's parameters (limit {limit:.0%})")
    left = len(exact) - len(within), len(trained) - len(exact)
    if left[0]:
        reason.append(f"{left[0]} beyond that limit")
    reason.append(f"{left[1]} do not give every text back" if left[1] else "all candidates decode every text exactly")
    return chosen.name, "; ".join(reason)


def climb(
    candidates: Sequence[FertilityCandidate], min_gain: float
) -> tuple[FertilityCandidate, FertilityCandidate | None]:
    """(the chosen one, the next larger one that gained too little; None where there is no larger one)."""
    by_size = sorted(candidates, key=lambda one: (one.vocab_size, tokens_per_word(one), one.name))
    chosen, *larger = by_size
    refused = None
    for candidate in larger:
        if gain(chosen, candidate) > (min_gain if candidate.vocab_size > chosen.vocab_size else 0):
            chosen, refused = candidate, None
        elif refused is None and candidate.vocab_size > chosen.vocab_size:
            refused = candidate
    return chosen, refused


def gain(smaller: FertilityCandidate, larger: FertilityCandidate) -> float:
    """The share of tokens a word that the larger one saves."""
    return 1 - tokens_per_word(larger) / tokens_per_word(smaller)


def tokens_per_word(candidate: FertilityCandidate) -> float:
    return candidate.texts["heldout"].tokens_per_word


def vocabulary_share(candidate: FertilityCandidate) -> float:
    """Of the adapted model's parameters; 0 where the model is not known."""
    return candidate.vocabulary_parameters_share or 0.0
