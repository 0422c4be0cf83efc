"""Accuracy by log-likelihood, against sums of the model's own logits, and files of questions."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from steps.contract import StepError
from steps.modeling.accuracy import _cut, measure_accuracy, proportion
from steps.text.accuracy_items import CHOICE, NEXT_WORD, AccuracyItem, AccuracyTask, read_accuracy_tasks
from steps.text.plain_encoding import encode_plain

ITEMS = [
    AccuracyItem("Bakı haradadır?", ("Xəzər dənizinin sahilində", "dağda", "çöldə"), 0),
    AccuracyItem("Qışda hava necə olur", ("soyuq", "isti", "küləkli və çox soyuq"), 2),
    AccuracyItem("İnternet paketini necə dəyişim?", ("Mobil tətbiqi açın", "Çay için"), 0),
]


def direct_nats(model, tokenizer, context: str, choice: str) -> float:
    """The sum over the tokens of the choice and of the space before it."""
    before, whole = encode_plain(tokenizer, [context, f"{context} {choice}"])
    assert whole[: len(before)] == before
    ids = torch.tensor([[tokenizer.bos_token_id, *whole]])
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0, :-1].double()
    losses = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
    return float(losses[len(before) :].sum())


def test_choices_are_those_of_the_models_own_logits(tiny_tokenizer, make_tiny_llama):
    for seed in range(4):
        model = make_tiny_llama(seed=seed)
        plain = by_byte = 0
        for item in ITEMS:
            nats = [direct_nats(model, tiny_tokenizer, item.context, choice) for choice in item.choices]
            plain += int(np.argmin(nats)) == item.answer
            shares = [value / len(choice.encode()) for value, choice in zip(nats, item.choices, strict=True)]
            by_byte += int(np.argmin(shares)) == item.answer
        task = AccuracyTask("t", CHOICE, tuple(ITEMS))
        for batch_tokens in (1, 4_096):
            found = measure_accuracy(model, tiny_tokenizer, task, context_bytes=400, batch_tokens=batch_tokens)
            assert (found.plain.right, found.by_byte.right) == (plain, by_byte)


def test_a_model_that_says_the_same_of_everything_knows_nothing(tiny_tokenizer, tiny_llama):
    with torch.no_grad():
        tiny_llama.lm_head.weight.zero_()
    task = AccuracyTask("t", CHOICE, tuple(AccuracyItem(f"sual {n}", ("123", "456"), n % 2) for n in range(4)))
    found = measure_accuracy(tiny_llama, tiny_tokenizer, task, context_bytes=400, batch_tokens=512)
    assert (found.plain.right, found.by_byte.right) == (0, 0)


def test_the_next_word_is_right_where_greedy_decoding_writes_it(tiny_tokenizer, tiny_llama):
    """An output layer of two rows: after `Bakı` it says a space, after that space `x`."""
    task = AccuracyTask("t", NEXT_WORD, (AccuracyItem("Bakı", ("x",), 0),))
    with torch.no_grad():
        space, x = (tiny_tokenizer.convert_tokens_to_ids(letter) for letter in ("Ġ", "x"))
        ids = torch.tensor([[tiny_tokenizer.bos_token_id, *encode_plain(tiny_tokenizer, ["Bakı "])[0]]])
        assert ids[0, -1] == space
        after_word, after_space = tiny_llama.model(ids, use_cache=False)[0][0, -2:]
        tiny_llama.config.tie_word_embeddings = False
        for wanted, right in ((x, 1), (space, 0)):
            tiny_llama.lm_head.weight = torch.nn.Parameter(torch.zeros(320, 32))
            tiny_llama.lm_head.weight[wanted] = after_space * 3
            tiny_llama.lm_head.weight[space] += after_word * 3
            found = measure_accuracy(tiny_llama, tiny_tokenizer, task, context_bytes=400, batch_tokens=512)
            assert (found.plain.right, found.by_byte.right) == (right, right)
    assert task.chance == 0.0


def test_of_a_long_question_the_end_is_kept():
    tokens, sizes = np.array([9, 1, 2, 3, 4, 5]), np.array([2, 2, 2, 2, 2])
    assert [part.tolist() if hasattr(part, "tolist") else part for part in _cut(tokens, sizes, 6, 100)] == [
        [9, 1, 2, 3, 4, 5], 4,
    ]  # fmt: skip
    kept, scored = _cut(tokens, sizes, 6, 6)
    assert (kept.tolist(), scored) == ([9, 3, 4, 5], 2)
    kept, scored = _cut(tokens, sizes, 6, 1)
    assert (kept.tolist(), scored) == ([9, 4, 5], 1)
    # A token that holds the end of the question and the beginning of the answer is the answer's.
    assert _cut(tokens, sizes, 5, 100)[1] == 3


def test_wilson_by_hand():
    found = proportion(8, 10)
    z2 = 1.959963984540054**2
    centre = (0.8 + z2 / 20) / (1 + z2 / 10)
    half = math.sqrt(0.8 * 0.2 / 10 + z2 / 400) * math.sqrt(z2) / (1 + z2 / 10)
    assert found.ci95 == pytest.approx((centre - half, centre + half))
    assert found.ci95 == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert proportion(0, 5).ci95[0] == 0.0
    assert proportion(5, 5).ci95[1] == 1.0


def test_a_model_that_is_not_finite_is_refused(tiny_tokenizer, tiny_llama):
    with torch.no_grad():
        tiny_llama.model.norm.weight[0] = float("nan")
    with pytest.raises(StepError, match="accuracy of t: nan; limit a finite number"):
        measure_accuracy(
            tiny_llama, tiny_tokenizer, AccuracyTask("t", CHOICE, tuple(ITEMS)), context_bytes=400, batch_tokens=512
        )


# --- files ------------------------------------------------------------------------------------------------------------


def write(path, *values) -> None:
    path.write_text("".join(value if isinstance(value, str) else json.dumps(value) + "\n" for value in values))


def test_both_forms_are_read(tmp_path):
    choice = {"question": "2 + 2?", "choices": ["3", "4"], "answer": 1, "source": "passed over"}
    write(tmp_path / "sums.jsonl", choice, {**choice, "question": "4 - 0?", "answer": "4"}, "\n")
    write(tmp_path / "words.jsonl", {"context": "Bir, iki, ", "word": "üç"})
    sums, words = read_accuracy_tasks(tmp_path, 10)
    assert (sums.name, sums.kind, sums.chance, len(sums.items)) == ("sums", CHOICE, 0.5, 2)
    assert {item.answer for item in sums.items} == {1}
    assert words.items == (AccuracyItem("Bir, iki,", ("üç",), 0),)
    assert words.items[0].text == "Bir, iki, üç"
    assert len(read_accuracy_tasks(tmp_path / "sums.jsonl", 1)[0].items) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"question": "a", "choices": ["b", "c"], "answer": 2},
         "answer 2 is outside its choices; limit an index from 0 to 1"),
        ({"question": "a", "choices": ["b", "c"], "answer": "d"}, "answer 'd' is outside its choices"),
        ({"question": "a", "choices": ["b", "c"], "answer": True}, "answer True is outside"),
        ({"question": "a", "choices": ["b", "c"]}, "answer None is outside"),
        ({"question": "a", "choices": ["b", "b"], "answer": 0}, "1 different choices of 2"),
        ({"question": "a", "choices": ["b"], "answer": 0}, "1 different choices of 1"),
        ({"question": "a", "choices": "bc", "answer": 0}, '"choices" is no list of texts'),
        ({"question": "", "choices": ["b", "c"], "answer": 0}, 'no text in "question" or "context"'),
        ({"context": "a", "word": "b"}, "an item of the form next_word in a file of the form choice"),
        ("[1]\n", "no JSON object"),
        ("{\n", "not JSON in UTF-8"),
    ],
)  # fmt: skip
def test_a_faulty_line_is_named(line, message, tmp_path):
    write(tmp_path / "sums.jsonl", {"question": "2 + 2?", "choices": ["3", "4"], "answer": 1}, line)
    with pytest.raises(StepError) as caught:
        read_accuracy_tasks(tmp_path, 10)
    assert str(caught.value).startswith("sums.jsonl line 2: ")
    assert message in str(caught.value)


def test_a_file_without_items_is_refused(tmp_path):
    write(tmp_path / "sums.jsonl", "\n")
    with pytest.raises(StepError, match="no items in it"):
        read_accuracy_tasks(tmp_path, 10)
