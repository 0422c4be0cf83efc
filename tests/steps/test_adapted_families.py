"""AdaptVocabulary on decoder families beyond Llama: rows, configuration and logits after saving and loading again."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    MistralConfig,
    Phi3Config,
    PhiConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from steps.contract import StepError
from steps.modeling.generation import stop_token_ids
from steps.modeling.initialisers import compose_rows
from steps.modeling.loading import auto_tokenizer_agrees, check_tie, load_model, load_tokenizer, save_model
from steps.modeling.special_ids import set_special_tokens
from steps.modeling.vocabulary import BaseRows, replace_vocabulary
from steps.modeling.vocabulary_plan import plan_vocabulary
from steps.text.chat_template import END_OF_TURN_TOKEN

BASE_ROWS = 400
ENGLISH = ("the quick brown fox jumps over the lazy dog and then the other dogs rest in the shade of the tree. " * 3,)
AZERBAIJANI = ("Bakı şəhərində qış axşamları uzun olur, şəhərin küçələrində isə the fox kimi söz eşidilmir. " * 3,)
SIZES = {
    "vocab_size": BASE_ROWS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 390,
    "eos_token_id": 391,
    "pad_token_id": 392,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
FAMILIES = {
    "mistral": MistralConfig(**GROUPED, sliding_window=32),
    "qwen2, tied": Qwen2Config(**GROUPED, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**GROUPED, head_dim=8, tie_word_embeddings=False),
    "gemma2, capped logits": Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=2.0),
    "gemma3, scaled embedding": Gemma3TextConfig(**GROUPED, head_dim=8, sliding_window=32),
    "phi3": Phi3Config(**GROUPED),
    "phi, head with a bias": PhiConfig(**SIZES),
    "gpt2": GPT2Config(
        vocab_size=BASE_ROWS, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.2,
        bos_token_id=390, eos_token_id=390,
    ),
    "gpt-neox": GPTNeoXConfig(**SIZES),
}  # fmt: skip


def build(config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()
    bias = getattr(model.get_output_embeddings(), "bias", None)
    if bias is not None:
        torch.nn.init.normal_(bias)
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


@pytest.fixture(scope="module")
def base_tokenizer(make_tiny_tokenizer):
    return make_tiny_tokenizer(ENGLISH, 310)


@pytest.fixture(scope="module")
def new_tokenizer(make_tiny_tokenizer):
    return make_tiny_tokenizer(AZERBAIJANI, 330)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_adapted_saved_and_loaded(family, base_tokenizer, new_tokenizer, tmp_path):
    model = build(FAMILIES[family])
    base = BaseRows.of(model)
    plan = plan_vocabulary(base_tokenizer, new_tokenizer, base_rows=BASE_ROWS)
    replace_vocabulary(model, base, plan, new_tokenizer.pad_token_id, initialiser="copy+subtoken_mean")
    set_special_tokens(model, new_tokenizer, plan.new_id)
    save_model(model, new_tokenizer, tmp_path)
    reloaded = load_model(tmp_path)

    check_tie(reloaded)
    assert load_tokenizer(tmp_path).backend_tokenizer.to_str() == new_tokenizer.backend_tokenizer.to_str()
    # transformers forces a class of its own on Qwen 2.
    assert auto_tokenizer_agrees(tmp_path) == ("qwen2" not in family)
    copied = torch.tensor(list(plan.copied.items()))
    matrices = [(base.embedding, reloaded.get_input_embeddings().weight)]
    if base.head is not None:
        matrices.append((base.head, reloaded.get_output_embeddings().weight))
    for before_rows, rows in matrices:
        assert torch.equal(rows, compose_rows(before_rows, plan, "copy+subtoken_mean", spread=0.2, seed=0))
        used = [number for number, (_, origin) in enumerate(copied.tolist()) if float(before_rows[origin].norm()) > 0]
        assert torch.equal(rows[copied[used, 0]], before_rows[copied[used, 1]])
        assert rows.shape[0] == 384 == reloaded.config.get_text_config().vocab_size
    if base.bias is not None:
        assert torch.equal(reloaded.get_output_embeddings().bias[copied[:, 0]], base.bias[copied[:, 1], 0])

    # Text of copied tokens alone gives the logits that it gave: scales, caps and biases are still there.
    expected = logits_of(build(FAMILIES[family]), base_tokenizer.convert_tokens_to_ids(list("theĠfoxĠ")))
    found = logits_of(reloaded, new_tokenizer.convert_tokens_to_ids(list("theĠfoxĠ")))
    assert torch.isfinite(found).all()
    assert torch.allclose(found[:, copied[:, 0]], expected[:, copied[:, 1]], atol=1e-4)
    assert not stale_ids(json.loads((tmp_path / "config.json").read_text()), new_tokenizer)
    assert not stale_ids(json.loads((tmp_path / "generation_config.json").read_text()), new_tokenizer)


def stale_ids(settings, tokenizer) -> list[str]:
    """Names of settings that hold other ids than the tokenizer's."""
    ends = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(END_OF_TURN_TOKEN)]
    right = {
        "bos_token_id": [tokenizer.bos_token_id],
        "eos_token_id": [tokenizer.eos_token_id, ends],
        "pad_token_id": [tokenizer.pad_token_id],
    }
    found = [
        name
        for name, value in settings.items()
        if name.endswith(("_token_id", "_token_index")) and value is not None and value not in right.get(name, [])
    ]
    nested = [part for part in settings.values() if isinstance(part, dict)]
    return found + [name for part in nested for name in stale_ids(part, tokenizer)]


def test_generation_settings_with_ids_of_the_base_are_dropped_aloud(base_tokenizer, new_tokenizer, capsys):
    model = build(FAMILIES["mistral"])
    model.generation_config.suppress_tokens = [7]
    set_special_tokens(model, new_tokenizer, {})
    assert model.generation_config.suppress_tokens is None
    assert "warning: generation-setting-dropped: suppress_tokens [7]" in capsys.readouterr().err


def test_other_special_ids_follow_their_tokens_or_are_refused(new_tokenizer):
    model = build(FAMILIES["mistral"])
    model.config.image_token_id = 55
    set_special_tokens(model, new_tokenizer, {55: 77})
    assert model.config.image_token_id == 77
    with pytest.raises(StepError, match="base model image_token_id: 77; limit a token that the new tokenizer has too"):
        set_special_tokens(model, new_tokenizer, {55: 77})


def test_a_second_matrix_by_token_id_is_refused():
    """Gemma 3n has one in each layer."""
    model = build(FAMILIES["mistral"])
    model.model.embed_tokens_per_layer = torch.nn.Embedding(BASE_ROWS, 8)
    with pytest.raises(StepError, match=r"model\.embed_tokens_per_layer has a row for each token too"):
        BaseRows.of(model)


# --- bases with sentencepiece-like tokenizers -------------------------------------------------------------------------


def sentencepiece_bpe() -> PreTrainedTokenizerFast:
    """The form of Mistral's and Gemma's: U+2581 for a space, one before each text, bytes for other letters."""
    letters = sorted(set("▁thequickbrownfoxjumpsoverthelazydogBakış."))
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("B", "a"), ("Ba", "k"), ("Bak", "ı"), ("▁", "Bakı")]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    pieces += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)}, merges=merges, unk_token="<unk>",
            byte_fallback=True, fuse_unk=True,
        )
    )  # fmt: skip
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in pieces[:3]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def test_a_sentencepiece_base_gives_rows_to_byte_level_tokens(new_tokenizer, make_tiny_llama):
    base = sentencepiece_bpe()
    plan = plan_vocabulary(base, new_tokenizer, base_rows=320)
    named = {base.convert_ids_to_tokens(origin): new_tokenizer.convert_ids_to_tokens(new)
             for new, origin in plan.copied.items()}  # fmt: skip
    # A letter has the row of its piece, not of its byte; a byte that is no letter has that of its byte.
    assert named["▁"] == "Ġ"
    assert named["t"] == "t"
    assert "<0x74>" not in named
    assert named["<0xC9>"] == "É"
    assert named["▁the"] == "Ġthe"
    ends = [base.convert_ids_to_tokens(plan.copied[index]) for index in stop_token_ids(new_tokenizer)]
    assert (named["<s>"], ends) == ("<|begin_of_text|>", ["</s>", "</s>"])
    pieces = {new_tokenizer.convert_ids_to_tokens(new): [base.convert_ids_to_tokens(i) for i in ids]
              for new, ids in plan.composed.items()}  # fmt: skip
    # ə has no piece: its bytes; the first byte of it alone too.
    assert pieces["ÉĻ"] == ["<0xC9>", "<0x99>"]
    assert all(ids for new, ids in plan.composed.items() if new not in plan.special)


def test_a_sentencepiece_base_and_a_sentencepiece_tokenizer_of_the_same_pieces():
    base = sentencepiece_bpe()
    plan = plan_vocabulary(base, base, base_rows=len(base))
    assert plan.copied == {index: index for index in range(len(base))}
    assert plan.not_extended == ""


def test_without_byte_pieces_what_cannot_be_spelled_is_the_mean(new_tokenizer):
    letters = sorted(set("▁theBakış."))
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(["<unk>", *letters])}, merges=[], unk_token="<unk>"
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")
    tokenizer.decoder = decoders.Replace("▁", " ")
    tokenizer.add_special_tokens([AddedToken("<unk>", special=True, normalized=False)])
    base = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<unk>", unk_token="<unk>")
    plan = plan_vocabulary(base, new_tokenizer, base_rows=len(base))
    assert plan.composed[new_tokenizer.convert_tokens_to_ids("ÉĻ")] == ()
