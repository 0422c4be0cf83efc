"""Embeddings rebuilt for a new tokenizer: each row's origin, and what survives saving and loading."""

from __future__ import annotations

import hashlib

import pytest
import torch

from steps.contract import StepError
from steps.modeling.loading import check_tie, load_model, save_model
from steps.modeling.vocabulary import BaseRows, compose_rows, plan_vocabulary, replace_vocabulary, subtokens
from steps.text.chat_template import BOS_TOKEN, END_OF_TURN_TOKEN
from steps.text.token_bytes import TokenBytes

ENGLISH = ("the quick brown fox jumps over the lazy dog and then the other dogs rest in the shade of the tree. " * 3,)
AZERBAIJANI = ("Bakı şəhərində qış axşamları uzun olur, şəhərin küçələrində isə the fox kimi söz eşidilmir. " * 3,)


@pytest.fixture
def base_tokenizer(make_tiny_tokenizer):
    return make_tiny_tokenizer(ENGLISH, 310)


@pytest.fixture
def new_tokenizer(make_tiny_tokenizer):
    return make_tiny_tokenizer(AZERBAIJANI, 300)


def row_hashes(matrix: torch.Tensor) -> list[str]:
    return [hashlib.sha256(row.contiguous().numpy().tobytes()).hexdigest() for row in matrix.detach()]


def test_rows_of_the_same_bytes_and_of_the_same_special_name_are_copied(base_tokenizer, new_tokenizer, make_tiny_llama):
    base = make_tiny_llama(320).get_input_embeddings().weight.detach()
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    rows = compose_rows(base, plan, "copy+subtoken_mean", 0.02, seed=0)
    for token in ("a", "Ġt", "he", BOS_TOKEN, END_OF_TURN_TOKEN):
        new_id, base_id = (tokenizer.get_vocab().get(token) for tokenizer in (new_tokenizer, base_tokenizer))
        if new_id is not None and base_id is not None:
            assert torch.equal(rows[new_id], base[base_id])
            assert plan.copied[new_id] == base_id
    # All 256 bytes and the six special tokens are in both vocabularies.
    assert len(plan.copied) >= 262
    assert len(plan.copied) + len(plan.composed) == len(new_tokenizer) == 300


def test_other_rows_are_the_mean_of_the_sub_tokens_rows(base_tokenizer, new_tokenizer, make_tiny_llama):
    base = make_tiny_llama(320).get_input_embeddings().weight.detach()
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    rows = compose_rows(base, plan, "copy+subtoken_mean", 0.02, seed=0)
    assert len(plan.composed) > 20
    for new_id, pieces in plan.composed.items():
        text = TokenBytes(new_tokenizer)[new_id]
        assert b"".join(TokenBytes(base_tokenizer)[piece] for piece in pieces) == text
        assert len(pieces) >= 2
        assert torch.allclose(rows[new_id], sum(base[piece] for piece in pieces) / len(pieces), atol=1e-6)


def test_bytes_that_end_inside_a_character_have_sub_tokens_too(base_tokenizer):
    found = subtokens(base_tokenizer, TokenBytes(base_tokenizer), ["şə".encode()[:3], b"the", b"\xff"])
    lengths = [[len(TokenBytes(base_tokenizer)[index]) for index in ids] for ids in found]
    assert [sum(row) for row in lengths] == [3, 3, 1]


def test_padding_rows_and_copy_mean_hold_the_mean_of_the_base_tokens(base_tokenizer, new_tokenizer, make_tiny_llama):
    base = make_tiny_llama(320).get_input_embeddings().weight.detach().clone()
    base[310:] = 1e6  # rows that no base token uses must not reach the mean
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    rows = compose_rows(base, plan, "copy+mean", 0.02, seed=0)
    mean = base[:310].mean(dim=0)
    assert plan.rows == 320
    for index in [*plan.composed, *range(300, 320)]:
        assert torch.allclose(rows[index], mean, atol=1e-6)


def test_normal_has_the_spread_asked_for_and_depends_on_the_seed(base_tokenizer, new_tokenizer, make_tiny_llama):
    base = make_tiny_llama(320).get_input_embeddings().weight.detach()
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    rows = compose_rows(base, plan, "normal", 0.05, seed=1)
    assert float(rows[:300].std()) == pytest.approx(0.05, rel=0.05)
    assert torch.equal(rows, compose_rows(base, plan, "normal", 0.05, seed=1))
    assert not torch.equal(rows, compose_rows(base, plan, "normal", 0.05, seed=2))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("initialiser", ["copy+subtoken_mean", "copy+mean", "normal"])
def test_rows_survive_saving_and_loading(base_tokenizer, new_tokenizer, make_tiny_llama, tmp_path, tied, initialiser):
    model = make_tiny_llama(320, tied=tied)
    backbone = {name: value.clone() for name, value in model.state_dict().items() if ".layers." in name}
    base = BaseRows.of(model)
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    replace_vocabulary(model, base, plan, new_tokenizer, initialiser=initialiser, seed=5)
    save_model(model, new_tokenizer, tmp_path)
    reloaded = load_model(tmp_path)
    check_tie(reloaded)
    expected = compose_rows(base.embedding, plan, initialiser, 0.2, seed=5)
    assert row_hashes(reloaded.get_input_embeddings().weight) == row_hashes(expected)
    if not tied:
        assert row_hashes(reloaded.get_output_embeddings().weight) == row_hashes(
            compose_rows(base.head, plan, initialiser, 0.2, seed=6)
        )
    for name, value in backbone.items():
        assert torch.equal(reloaded.state_dict()[name], value)
    ends = [new_tokenizer.eos_token_id, new_tokenizer.convert_tokens_to_ids(END_OF_TURN_TOKEN)]
    assert reloaded.generation_config.eos_token_id == ends
    assert reloaded.generation_config.pad_token_id == new_tokenizer.pad_token_id == reloaded.config.pad_token_id
    assert reloaded.config.bos_token_id == new_tokenizer.bos_token_id == reloaded.generation_config.bos_token_id
    assert reloaded.config.eos_token_id == new_tokenizer.eos_token_id
    assert reloaded.config.vocab_size == 320 == reloaded.get_output_embeddings().weight.shape[0]


def test_the_same_tokenizer_gives_the_same_logits(base_tokenizer, make_tiny_llama):
    model = make_tiny_llama(320)
    ids = torch.tensor([base_tokenizer("the lazy dog")["input_ids"]])
    before = model(ids).logits[..., :310]
    plan = plan_vocabulary(base_tokenizer, base_tokenizer, base_rows=320)
    replace_vocabulary(model, BaseRows.of(model), plan, base_tokenizer, initialiser="copy+subtoken_mean")
    assert torch.equal(model(ids).logits[..., :310], before)


def test_a_model_with_fewer_rows_than_tokens_is_refused(base_tokenizer, new_tokenizer):
    with pytest.raises(StepError, match="256 embedding rows; limit 310 tokens"):
        plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=256)


def test_padding_that_ends_a_text_is_refused(base_tokenizer, new_tokenizer, make_tiny_llama):
    model = make_tiny_llama(320)
    new_tokenizer.pad_token = new_tokenizer.eos_token
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    with pytest.raises(StepError, match="pad_token"):
        replace_vocabulary(model, BaseRows.of(model), plan, new_tokenizer, initialiser="copy+mean")
