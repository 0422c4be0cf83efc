"""Embeddings rebuilt for a new tokenizer: each row's origin, and what survives saving and loading."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from steps.contract import StepError
from steps.modeling.initialisers import RowMixture, compose_rows
from steps.modeling.loading import check_tie, load_model, save_model
from steps.modeling.special_ids import set_special_tokens
from steps.modeling.vocabulary import BaseRows, replace_vocabulary
from steps.modeling.vocabulary_plan import plan_vocabulary, subtokens
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
    rows = compose_rows(base, plan, "copy+subtoken_mean", spread=0.02, seed=0)
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
    rows = compose_rows(base, plan, "copy+subtoken_mean", spread=0.02, seed=0)
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
    rows = compose_rows(base, plan, "copy+mean", spread=0.02, seed=0)
    mean = base[:310].mean(dim=0)
    assert plan.rows == 320
    for index in [*plan.composed, *range(300, 320)]:
        assert torch.allclose(rows[index], mean, atol=1e-6)


def test_normal_has_the_spread_asked_for_and_depends_on_the_seed(base_tokenizer, new_tokenizer, make_tiny_llama):
    base = make_tiny_llama(320).get_input_embeddings().weight.detach()
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    rows = compose_rows(base, plan, "normal", spread=0.05, seed=1)
    assert float(rows[:300].std()) == pytest.approx(0.05, rel=0.05)
    assert torch.equal(rows, compose_rows(base, plan, "normal", spread=0.05, seed=1))
    assert not torch.equal(rows, compose_rows(base, plan, "normal", spread=0.05, seed=2))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("initialiser", ["copy+subtoken_mean", "copy+mean", "normal"])
def test_rows_survive_saving_and_loading(base_tokenizer, new_tokenizer, make_tiny_llama, tmp_path, tied, initialiser):
    model = make_tiny_llama(320, tied=tied)
    backbone = {name: value.clone() for name, value in model.state_dict().items() if ".layers." in name}
    base = BaseRows.of(model)
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    replace_vocabulary(model, base, plan, new_tokenizer.pad_token_id, initialiser=initialiser, seed=5)
    set_special_tokens(model, new_tokenizer)
    save_model(model, new_tokenizer, tmp_path)
    reloaded = load_model(tmp_path)
    check_tie(reloaded)
    expected = compose_rows(base.embedding, plan, initialiser, spread=0.2, seed=5)
    assert row_hashes(reloaded.get_input_embeddings().weight) == row_hashes(expected)
    if not tied:
        assert row_hashes(reloaded.get_output_embeddings().weight) == row_hashes(
            compose_rows(base.head, plan, initialiser, spread=0.2, seed=6)
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
    pad = base_tokenizer.pad_token_id
    replace_vocabulary(model, BaseRows.of(model), plan, pad, initialiser="copy+subtoken_mean")
    assert torch.equal(model(ids).logits[..., :310], before)


def test_a_model_with_fewer_rows_than_tokens_is_refused(base_tokenizer, new_tokenizer):
    with pytest.raises(StepError, match="256 embedding rows; limit 310 tokens"):
        plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=256)


def test_a_row_of_zeros_becomes_the_mean(base_tokenizer, new_tokenizer, make_tiny_llama):
    """Llama 3 has tokens that were never trained, the end of a turn among them."""
    base = make_tiny_llama(320).get_input_embeddings().weight.detach().clone()
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    end_of_turn = new_tokenizer.convert_tokens_to_ids(END_OF_TURN_TOKEN)
    base[plan.copied[end_of_turn]] = 1e-9
    for initialiser in ("copy+subtoken_mean", "copy+mean", "focus"):
        similar = RowMixture.means({}) if initialiser == "focus" else None
        rows = compose_rows(base, plan, initialiser, spread=0.2, seed=0, similar=similar)
        assert torch.allclose(rows[end_of_turn], base[:310].mean(dim=0), atol=1e-6)
        lengths = rows.norm(dim=1)
        assert float(lengths.min()) > 0.01 * float(base[:310].norm(dim=1).median())


def test_rows_that_are_not_finite_are_refused(base_tokenizer, new_tokenizer, make_tiny_llama):
    base = make_tiny_llama(320).get_input_embeddings().weight.detach().clone()
    base[5, 3] = float("nan")
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    with pytest.raises(StepError, match="embedding rows that are not finite"):
        compose_rows(base, plan, "copy+mean", spread=0.2, seed=0)


def with_more_tokens(tokenizer, pieces, replaced=()):
    """The tokenizer with tokens behind its last, or with some of its tokens replaced, each made of two it has."""
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    model, size = settings["model"], len(tokenizer)
    for old, piece in zip(replaced, pieces, strict=bool(replaced)):
        model["vocab"][piece] = model["vocab"].pop(old)
        model["merges"] = [pair for pair in model["merges"] if "".join(pair) != old and old not in pair]
    if not replaced:
        # Special tokens keep their ids where the model's vocabulary names them too.
        model["vocab"].update({token["content"]: token["id"] for token in settings["added_tokens"]})
        model["vocab"].update({piece: size + index for index, piece in enumerate(pieces)})
    model["merges"] += [[piece[:-1], piece[-1:]] for piece in pieces]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(settings)),
        bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token, pad_token=tokenizer.pad_token,
    )  # fmt: skip


def test_extend_leaves_each_base_row_where_it_is(base_tokenizer, make_tiny_llama):
    base = make_tiny_llama(320).get_input_embeddings().weight.detach().clone()
    base[3] = 0.0
    extended = with_more_tokens(base_tokenizer, ["ab", "abc", "abcd"])
    plan = plan_vocabulary(base_tokenizer, extended, base_rows=320)
    assert (plan.not_extended, plan.rows, plan.tokens) == ("", 320, 313)
    rows = compose_rows(base, plan, "extend", spread=0.2, seed=0)
    assert torch.equal(rows[:310], base[:310])
    assert torch.equal(rows[313:], base[313:])
    letters = [base_tokenizer.convert_tokens_to_ids(letter) for letter in "abc"]
    assert torch.allclose(rows[311], base[letters].mean(dim=0), atol=1e-6)


def test_extend_refuses_a_tokenizer_that_moves_ids(base_tokenizer, new_tokenizer, make_tiny_llama):
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=320)
    base = make_tiny_llama(320).get_input_embeddings().weight
    with pytest.raises(StepError, match=r"initialiser extend: token 2.. is '.*' in the base and '.*' in the new"):
        compose_rows(base, plan, "extend", spread=0.2, seed=0)


def test_a_replaced_tokenizer_keeps_the_height_and_all_other_rows(base_tokenizer, make_tiny_llama):
    base = make_tiny_llama(384).get_input_embeddings().weight.detach()
    words = sorted(token for token in base_tokenizer.get_vocab() if len(token) > 3 and not token.startswith("<"))[:3]
    replaced = with_more_tokens(base_tokenizer, ["ab", "abc", "abcd"], replaced=words)
    plan = plan_vocabulary(base_tokenizer, replaced, base_rows=384)
    assert plan.rows == 384
    rows = compose_rows(base, plan, "copy+subtoken_mean", spread=0.2, seed=0)
    changed = [base_tokenizer.convert_tokens_to_ids(word) for word in words]
    same = [index for index in range(310) if index not in changed]
    assert torch.equal(rows[same], base[same])
    assert not any(torch.equal(rows[index], base[index]) for index in changed)


def test_special_tokens_of_other_families_are_found_by_their_role(new_tokenizer, make_tiny_tokenizer):
    """Qwen's: no BOS, the end of a text pads too, the marks of ChatML."""
    base = make_tiny_tokenizer(ENGLISH, 300)
    base = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(
            re.sub(r"<\|(begin_of_text|start_header_id|eot_id)\|>", lambda found: CHATML[found[0]], base_json(base))
        ),
        eos_token="<|end_of_text|>", pad_token="<|end_of_text|>",
    )  # fmt: skip
    plan = plan_vocabulary(base, new_tokenizer, base_rows=320)
    found = {new_tokenizer.convert_ids_to_tokens(new): base.convert_ids_to_tokens(plan.copied[new])
             for new in plan.special if new in plan.copied}  # fmt: skip
    assert found == {
        BOS_TOKEN: "<|end_of_text|>",
        "<|end_of_text|>": "<|end_of_text|>",
        "<|start_header_id|>": "<|im_start|>",
        "<|end_header_id|>": "<|end_header_id|>",
        END_OF_TURN_TOKEN: "<|im_end|>",
        # The tiny tokenizers share Llama 3's name of it.
        "<|finetune_right_pad_id|>": "<|finetune_right_pad_id|>",
    }


CHATML = {"<|begin_of_text|>": "<|other|>", "<|start_header_id|>": "<|im_start|>", "<|eot_id|>": "<|im_end|>"}


def base_json(tokenizer) -> str:
    return tokenizer.backend_tokenizer.to_str()


def test_padding_that_ends_a_text_is_refused(new_tokenizer, make_tiny_llama):
    new_tokenizer.pad_token = new_tokenizer.eos_token
    with pytest.raises(StepError, match="pad_token"):
        set_special_tokens(make_tiny_llama(320), new_tokenizer)
