"""A table of conversations: tokens and labels as put together by hand, one by one, and the loss as computed by hand.

The same table with a real tokenizer of this project and with Llama 3's is in tests/verify/test_mask_table_whole.py.
"""

from __future__ import annotations

import pytest
from mask_table import MAX_TOKENS, ROWS, by_hand, compared_rows, cut_by_one, long_row, loss_differences

from steps.text.assistant_mask import IGNORED_LABEL, Example, ExampleBuilder
from steps.text.chat_encoding import ChatEncoder
from steps.text.chat_template import BOS_TOKEN, END_OF_TURN_TOKEN


@pytest.fixture(scope="module")
def examples(tiny_tokenizer) -> list[Example]:
    return [example for _, example, _ in compared_rows(tiny_tokenizer)]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_tokens_and_labels_are_those_put_together_by_hand(tiny_tokenizer, row):
    example = ExampleBuilder(tiny_tokenizer, MAX_TOKENS).build(row.messages, "here")
    ids, labels = by_hand(tiny_tokenizer, row)
    assert example.input_ids == ids
    assert example.labels == labels
    assert (ids.count(tiny_tokenizer.bos_token_id), ids[0]) == (1, tiny_tokenizer.bos_token_id)
    # Each answer's end of turn is trained, and nobody else's.
    end_of_turn = tiny_tokenizer.convert_tokens_to_ids(END_OF_TURN_TOKEN)
    assert labels.count(end_of_turn) == sum(role == "assistant" for role, _ in row.turns)
    assert ids.count(end_of_turn) == len(row.turns)


def test_a_conversation_that_just_fits_is_kept_and_one_token_more_is_dropped(tiny_tokenizer):
    example = ExampleBuilder(tiny_tokenizer, MAX_TOKENS).build(long_row(tiny_tokenizer, MAX_TOKENS).messages, "here")
    assert (example.input_ids, example.labels) == by_hand(tiny_tokenizer, long_row(tiny_tokenizer, MAX_TOKENS))
    assert len(example.input_ids) == MAX_TOKENS
    assert example.labels[-1] == tiny_tokenizer.convert_tokens_to_ids(END_OF_TURN_TOKEN)
    # Of the longer one nothing but the end of turn would be cut.
    assert cut_by_one(tiny_tokenizer) == (True, True)


def test_a_reply_is_asked_for_with_the_tokens_before_it(tiny_tokenizer):
    encoder = ChatEncoder(tiny_tokenizer)
    for row, example, _ in compared_rows(tiny_tokenizer):
        asked = encoder.encode(row.messages[:-1], add_generation_prompt=True)
        assert asked.ids == example.prompt
        assert example.labels[len(asked.ids)] != IGNORED_LABEL


def test_padding_is_neither_the_end_of_text_nor_of_a_turn(tiny_tokenizer):
    ids = [tiny_tokenizer.pad_token_id, tiny_tokenizer.eos_token_id, tiny_tokenizer.bos_token_id,
           tiny_tokenizer.convert_tokens_to_ids(END_OF_TURN_TOKEN)]  # fmt: skip
    assert len(set(ids)) == 4
    assert tiny_tokenizer.bos_token == BOS_TOKEN


def test_both_losses_are_the_cross_entropy_by_hand(make_tiny_llama, tiny_tokenizer, examples, tmp_path):
    """For each conversation and for all in one batch."""
    model = make_tiny_llama(max_position_embeddings=2 * MAX_TOKENS)
    differences = loss_differences(model, tiny_tokenizer, examples, tmp_path)
    assert [len(values) for values in differences.values()] == [len(examples) + 1] * 2
    assert max(differences["validation"]) < 1e-5
    assert max(differences["trainer"]) < 1e-5
