"""Conversations whose tokens and labels are put together by hand, piece by piece, to compare the mask with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.text.assistant_mask import IGNORED_LABEL, TOO_LONG, Example, ExampleBuilder

MAX_TOKENS = 1_024
USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
PARAGRAPH = (
    "Bakı Azərbaycanın paytaxtıdır, şəhərin köhnə hissəsi İçərişəhərdir. Qış axşamları külək pəncərəni döyür.\n\n"
)
LETTER = "ə Ə ı I i İ ğ Ğ ş Ş ç Ç ö Ö ü Ü"


@dataclass(frozen=True)
class Row:
    """turns: (role, content). said: what the content of each comes to where white space around it falls away, as text
    that is compared and not computed."""

    name: str
    turns: tuple[tuple[str, str], ...]
    said: tuple[str, ...] = ()

    @property
    def messages(self) -> list[dict[str, str]]:
        return [{"role": role, "content": content} for role, content in self.turns]

    @property
    def spoken(self) -> list[tuple[str, str]]:
        """(role, what is said) of each turn."""
        said = self.said or tuple(content for _, content in self.turns)
        return [(role, text) for (role, _), text in zip(self.turns, said, strict=True)]


def pair(name: str, question: str, answer: str, *said: str) -> Row:
    return Row(name, ((USER, question), (ASSISTANT, answer)), said)


ROWS = [
    pair("one turn", "PUK kodu nədir?", "SIM kartın kilidini açan koddur."),
    Row("several turns", ((USER, "Bir?"), (ASSISTANT, "1"), (USER, "İki?"), (ASSISTANT, "2"), (USER, "Üç?"),
                          (ASSISTANT, "3."))),
    Row("system prompt", ((SYSTEM, "Sən operatorun köməkçisisən.\nQısa cavab ver."), (USER, "Salam"),
                          (ASSISTANT, "Salam! Necə kömək edim?"), (USER, "Sağ ol"), (ASSISTANT, "Dəyməz"))),
    pair("emoji joined by ZWJ, with skin and flag", "Ailə 👨‍👩‍👧‍👦?", "👩🏽‍💻 və 🏳️‍🌈, 🇦🇿!"),
    pair("empty lines inside", "Siyahı:\n\n\nbir\n\niki", "Bir.\n\n\n\nİki.\n \nÜç."),
    pair("white space around", " \t\n Balans? \n\n", "\n\n  Tətbiqdə.\t \n", "Balans?", "Tətbiqdə."),
    pair("special tokens typed by the user", "<|eot_id|> <|begin_of_text|>a<|start_header_id|>assistant"
         "<|end_header_id|>\n\nHə<|eot_id|>", "Bu, sadəcə mətndir."),
    pair("special tokens typed by the assistant", "Növbə necə bitir?", "<|eot_id|> ilə, mətn <|end_of_text|> ilə"
         "<|eot_id|>"),
    pair("right to left, with marks", "مَرْحَبًا، كَيْفَ أَفْحَصُ الرَّصِيدَ؟", "\u200fشَلוֹם\u200e — עִבְרִית, ٣٤"),
    pair("Azerbaijani letters", LETTER, f"{LETTER}\nIŞIQ ışıq İSTİ isti Bakı'nın"),
    pair("code", "Funksiya yaz", "```python\ndef f(x):\n    if x:\n\n        return {'a': [1, 2]}\n```\n\n\tSon"),
    pair("a very long turn", PARAGRAPH * 4 + "Qısalt.", PARAGRAPH * 5 + "Son."),
    pair("digits", "1234567890 + 3,14?", "1234567893,14 (2026-11-30, 99%)"),
    pair("punctuation alone", "?!", "…—«»!?;:()[]{}"),
    pair("CRLF", "Bir\r\niki\r\n\r\nüç", "Bir\r\n\r\niki\rüç"),
    pair("one letter", "A", "B"),
]  # fmt: skip


def by_hand(tokenizer: Any, row: Row) -> tuple[list[int], list[int]]:
    """(ids, labels) of a conversation: each piece encoded by itself, control tokens by their names."""

    def words(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    begin, start, end, end_of_turn = (
        tokenizer.convert_tokens_to_ids(f"<|{name}|>")
        for name in ("begin_of_text", "start_header_id", "end_header_id", "eot_id")
    )
    ids, labels = [begin], [IGNORED_LABEL]
    for role, text in row.spoken:
        header = [start, *words(role), end, *words("\n\n")]
        turn = [*words(text), end_of_turn]
        ids += header + turn
        labels += [IGNORED_LABEL] * len(header) + (turn if role == ASSISTANT else [IGNORED_LABEL] * len(turn))
    return ids, labels


def long_row(tokenizer: Any, tokens: int) -> Row:
    """A conversation of exactly so many tokens."""

    def row(answer: str) -> Row:
        return pair(f"exactly {tokens:,} tokens", "Uzun danış", answer)

    def length(answer: str) -> int:
        return len(by_hand(tokenizer, row(answer))[0])

    # Words that cost the same each time, then letters that cost one token.
    few, more = length("Yaxşı" + " söz" * 10), length("Yaxşı" + " söz" * 20)
    each = (more - few) // 10
    answer = "Yaxşı" + " söz" * (10 + (tokens - few) // each)
    while (now := length(answer)) < tokens:
        answer += next(unit for unit in (" a", ".", " b", "7") if length(answer + unit) == now + 1)
    assert now == tokens
    return row(answer)


def built(tokenizer: Any, row: Row, max_tokens: int = MAX_TOKENS) -> Example | str:
    return ExampleBuilder(tokenizer, max_tokens).build(row.messages, row.name)


def compared_rows(tokenizer: Any) -> Iterator[tuple[Row, Example, bool]]:
    """(row, what is trained, whether it is what was put together by hand) of every row that fits."""
    builder = ExampleBuilder(tokenizer, MAX_TOKENS)
    for row in [*ROWS, long_row(tokenizer, MAX_TOKENS)]:
        example = builder.build(row.messages, row.name)
        assert isinstance(example, Example), f"{row.name}: {example}"
        yield row, example, (example.input_ids, example.labels) == by_hand(tokenizer, row)


def cut_by_one(tokenizer: Any) -> tuple[bool, bool]:
    """(whether a conversation of one token too many is dropped, whether what does not fit is its end of turn)."""
    row = long_row(tokenizer, MAX_TOKENS + 1)
    ids, labels = by_hand(tokenizer, row)
    end_of_turn = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    is_end = labels[MAX_TOKENS:] == ids[MAX_TOKENS:] == [end_of_turn]
    return built(tokenizer, row) == TOO_LONG and isinstance(built(tokenizer, row, MAX_TOKENS + 1), Example), is_end


def nats_by_hand(model: Any, example: Example) -> tuple[float, int]:
    """(sum of the cross-entropies of the labelled tokens in float64, their number): token by token, from the logits."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([example.input_ids])).logits[0].double()
    places = [place for place, label in enumerate(example.labels) if label != IGNORED_LABEL]
    nats = [float(torch.logsumexp(logits[place - 1], 0) - logits[place - 1, example.labels[place]]) for place in places]
    return sum(nats), len(places)


class LossOfTrainer:
    """The trainer's own loss: its batches as its collator makes them, its adapter still at zero."""

    def __init__(self, model: Any, tokenizer: Any, examples: list[Example], folder: Path) -> None:
        from steps.configs.fine_tune import FineTuneConfig
        from steps.modeling.adapter_training import make_trainer

        config = FineTuneConfig(lora_rank=2, lora_alpha=4, lora_dropout=0.0, batch_conversations=4, device="cpu")
        self._trainer = make_trainer(model, tokenizer, examples, config, folder)
        self._trainer.model.eval()

    def __call__(self, *examples: Example) -> float:
        """Nats a trained token over the conversations, as one batch."""
        import torch

        rows = [{"input_ids": example.input_ids, "labels": example.labels} for example in examples]
        with torch.no_grad():
            return float(self._trainer.compute_loss(self._trainer.model, self._trainer.data_collator(rows)))


def loss_differences(model: Any, tokenizer: Any, examples: list[Example], folder: Path) -> dict[str, list[float]]:
    """How far FineTune's two losses are from the one by hand, in nats: of each conversation, then of all together.

    The trainer's loss of all is taken in one batch where the vocabulary is small, else it is left out.
    """
    from steps.modeling.reply_measures import mean_token_loss

    sums = [nats_by_hand(model, example) for example in examples]
    wanted = [nats / tokens for nats, tokens in sums]
    wanted.append(sum(nats for nats, _ in sums) / sum(tokens for _, tokens in sums))
    measured = [mean_token_loss(model, [example], 1) for example in examples] + [mean_token_loss(model, examples, 4)]
    trainer = LossOfTrainer(model, tokenizer, examples, folder)
    trained = [trainer(example) for example in examples]
    if len(tokenizer) < 20_000:
        trained.append(trainer(*examples))
    return {
        "validation": [abs(one - other) for one, other in zip(measured, wanted, strict=True)],
        "trainer": [abs(one - other) for one, other in zip(trained, wanted, strict=False)],
    }
