"""Bits per byte of causal models of many families and of both kinds of tokenizer, against each model's own logits."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    CohereConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from steps.contract import StepError
from steps.modeling.bits_per_byte import context_token_id, score_documents
from steps.modeling.parallel import join_processes
from steps.modeling.token_losses import TokenScorer, Window, has_plain_head, logit_finish
from steps.modeling.validation import BlockValidation
from steps.text.packing import PackedBlocks, Vocabulary, write_part
from steps.text.plain_encoding import encode_plain
from steps.text.token_bytes import PieceBytes, TokenBytes, spelled_sizes, token_bytes_of

TEXTS = [
    "Bakı Xəzər dənizinin sahilində yerləşir.",
    "İ ı ə ğ\n\nş ç ö ü 😀  iki boşluq",
    "Qış axşamları nənəm sobanın yanında oturub bizə nağıl danışardı. " * 3,
    "x",
]
SPECIAL = {"bos_token_id": 314, "eos_token_id": 315, "pad_token_id": 319}
SIZES = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    **SPECIAL,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
FAMILIES = {
    "llama": LlamaConfig(**GROUPED),
    "mistral, sliding window": MistralConfig(**GROUPED, sliding_window=32),
    "qwen2": Qwen2Config(**GROUPED),
    "qwen3": Qwen3Config(**GROUPED, head_dim=8),
    "gemma2, capped logits": Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=2.0),
    "gemma3": Gemma3TextConfig(**GROUPED, head_dim=8, sliding_window=32),
    "gpt2, learned positions": GPT2Config(
        vocab_size=320, n_embd=32, n_layer=2, n_head=4, n_positions=512, initializer_range=0.2, **SPECIAL
    ),
    "gpt-neox": GPTNeoXConfig(**SIZES),
    "cohere, scaled logits": CohereConfig(**GROUPED, logit_scale=0.25),
    "granite, divided logits": GraniteConfig(**GROUPED, logits_scaling=4.0),
    "opt, head of another width": OPTConfig(
        vocab_size=320, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=512, word_embed_proj_dim=16, init_std=0.2, **SPECIAL,
    ),
}  # fmt: skip


def build(config):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def direct_bits(model, tokenizer, text: str) -> float:
    """The model's own logits of one document in one pass."""
    (encoded,) = encode_plain(tokenizer, [text])
    ids = torch.tensor([[context_token_id(tokenizer), *encoded]])
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0, :-1].double()
    return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")) / math.log(2)


@pytest.mark.parametrize("family", FAMILIES)
def test_equals_the_models_own_logits(family, tiny_tokenizer):
    model = build(FAMILIES[family])
    assert has_plain_head(model)
    direct = np.array([direct_bits(model, tiny_tokenizer, text) for text in TEXTS])
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        for batch_tokens in (1, 200, 4_096):
            texts = [TEXTS[index] for index in order]
            scores = score_documents(model, tiny_tokenizer, texts, context_bytes=2_048, batch_tokens=batch_tokens)
            assert scores.bits == pytest.approx(direct[order], rel=1e-6)


@pytest.mark.parametrize("batch_documents", [1, 3, 8])
def test_batches_of_1_3_and_8(batch_documents, tiny_tokenizer, tiny_llama):
    """Documents of one length, so that batch_tokens says how many stand in a batch; shuffled too."""
    texts = [f"{number * 7919}" for number in range(13, 25)]
    lengths = {len(ids) for ids in encode_plain(tiny_tokenizer, texts)}
    assert len(lengths) == 1
    batch_tokens = batch_documents * lengths.pop()
    order = np.random.default_rng(5).permutation(len(texts))
    scores = score_documents(
        tiny_llama, tiny_tokenizer, [texts[index] for index in order], context_bytes=256, batch_tokens=batch_tokens
    )
    direct = np.array([direct_bits(tiny_llama, tiny_tokenizer, texts[index]) for index in order])
    assert scores.bits == pytest.approx(direct, rel=1e-6)
    assert scores.bits_per_byte == pytest.approx(direct.sum() / scores.bytes_scored, abs=1e-6)


def test_a_cap_that_hardly_touches_small_logits_is_applied(tiny_tokenizer):
    """The logits of a new model are far below Gemma's cap of 30; those of a trained one are not."""
    model = build(Gemma2Config(**GROUPED, head_dim=8, final_logit_softcapping=30.0))
    assert has_plain_head(model)
    large = torch.tensor([[-100.0, 0.0, 100.0]])
    assert logit_finish(model)(large).tolist()[0] == pytest.approx([-30 * math.tanh(10 / 3), 0, 30 * math.tanh(10 / 3)])
    model.config.final_logit_softcapping = None
    assert has_plain_head(model)


def test_logits_changed_in_another_way_are_taken_whole(tiny_tokenizer, make_tiny_llama, capsys):
    from transformers import LlamaForCausalLM

    class CubedLlama(LlamaForCausalLM):
        def forward(self, *arguments, **named):
            output = super().forward(*arguments, **named)
            output.logits = output.logits + 1e-3 * output.logits**3
            return output

    torch.manual_seed(0)
    model = CubedLlama(make_tiny_llama().config).eval()
    assert not has_plain_head(model)
    direct = np.array([direct_bits(model, tiny_tokenizer, text) for text in TEXTS])
    scores = score_documents(model, tiny_tokenizer, TEXTS, context_bytes=2_048, batch_tokens=500)
    assert scores.bits == pytest.approx(direct, rel=1e-6)
    assert capsys.readouterr().err.count("warning: whole-logits: CubedLlama changes its logits") == 1


def test_a_model_that_sees_ahead_is_refused(tiny_tokenizer):
    model = build(BertConfig(**SIZES, is_decoder=False))
    with pytest.raises(StepError, match="BertLMHeadModel looks at tokens that come later"):
        score_documents(model, tiny_tokenizer, TEXTS, context_bytes=256, batch_tokens=64)


def test_bfloat16_below_the_output_layer_stays_near(tiny_tokenizer, tiny_llama):
    exact = score_documents(tiny_llama, tiny_tokenizer, TEXTS, context_bytes=256, batch_tokens=512)
    near = score_documents(
        tiny_llama, tiny_tokenizer, TEXTS, context_bytes=256, batch_tokens=512, matmul_dtype=torch.bfloat16
    )
    assert near.bits_per_byte != exact.bits_per_byte
    assert near.bits_per_byte == pytest.approx(exact.bits_per_byte, rel=0.01)


def test_the_most_probable_tokens_are_those_of_the_logits(tiny_tokenizer, tiny_llama):
    (encoded,) = encode_plain(tiny_tokenizer, [TEXTS[2]])
    ids = np.array([tiny_tokenizer.bos_token_id, *encoded])
    windows = [Window(0, 0, 5, len(ids)), Window(0, 0, 1, 3)]
    found = TokenScorer(tiny_llama).score([ids], windows, 256, with_most_probable=True)
    with torch.no_grad():
        places = tiny_llama(torch.from_numpy(ids)[None]).logits[0].argmax(-1).numpy()
    assert found[0].most_probable.tolist() == places[4:-1].tolist()
    assert found[1].most_probable.tolist() == places[:2].tolist()


# --- tokenizers -------------------------------------------------------------------------------------------------------


def sentencepiece_bpe(prefix: str = "always", byte_fallback: bool = True) -> PreTrainedTokenizerFast:
    """Llama 2's and Mistral's form: pieces with U+2581 for a space, a space before the text, bytes for the rest."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(TEXTS[:1] * 2, trainers.BpeTrainer(vocab_size=60, show_progress=False))
    state = trained.get_vocab()
    special = ["<unk>", "<s>", "</s>"]
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else []
    pieces = [piece for piece in sorted(state, key=state.get) if piece not in special]
    vocabulary = {piece: index for index, piece in enumerate([*special, *bytes_of, *pieces])}
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend("▁")] if prefix == "always" else []), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def sentencepiece_unigram() -> PreTrainedTokenizerFast:
    pieces = ["<unk>", "<s>", "</s>", "▁", *sorted(set("".join(TEXTS)) - {" ", "\n", "😀"}), "▁nə", "əm"]
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    scored = [(piece, -float(index % 7 + 1)) for index, piece in enumerate([*pieces, *bytes_of])]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in pieces[:3]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize(
    "tokenizer",
    [sentencepiece_bpe(), sentencepiece_bpe(prefix="never"), sentencepiece_unigram()],
    ids=["a space before the text", "none", "unigram"],
)
def test_sentencepiece_tokens_add_up_to_the_text(tokenizer, make_tiny_llama):
    model = make_tiny_llama(len(tokenizer), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    texts = [*TEXTS, " boşluqla başlayır", "iki  boşluq\tvə sekme"]
    assert isinstance(token_bytes_of(tokenizer), PieceBytes)
    for text, ids in zip(texts, encode_plain(tokenizer, texts), strict=True):
        sizes = spelled_sizes(token_bytes_of(tokenizer), ids, text)
        assert sizes is not None, text
        assert sum(sizes) == len(text.encode())
    scores = score_documents(model, tokenizer, texts, context_bytes=1_024, batch_tokens=512)
    direct = np.array([direct_bits(model, tokenizer, text) for text in texts])
    assert scores.bits == pytest.approx(direct, rel=1e-6)
    assert scores.bytes.tolist() == [len(text.encode()) for text in texts]
    assert scores.tokens.tolist() == [len(ids) for ids in encode_plain(tokenizer, texts)]


def test_the_space_before_the_text_has_no_bytes_but_counts_its_bits():
    tokenizer = sentencepiece_unigram()
    (ids,) = encode_plain(tokenizer, ["Bakı"])
    assert tokenizer.convert_ids_to_tokens(ids) == ["▁", "B", "a", "k", "ı"]
    assert spelled_sizes(token_bytes_of(tokenizer), ids, "Bakı") == [0, 1, 1, 1, 2]


@pytest.mark.parametrize("text", ["çin 中", "alt▁xətt"])
def test_text_that_sentencepiece_loses_is_refused(text, make_tiny_llama):
    """A letter that is no piece, where there are no byte pieces, and the letter that stands for a space."""
    tokenizer = sentencepiece_bpe(byte_fallback=False)
    model = make_tiny_llama(len(tokenizer), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    with pytest.raises(StepError, match="held-out document 0: its tokens do not spell it"):
        score_documents(model, tokenizer, [text], context_bytes=256, batch_tokens=64)


def test_a_tokenizer_that_forgets_spaces_is_refused(make_tiny_llama):
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="[UNK]")
    with pytest.raises(StepError, match="WordPiece whose tokens do not spell bytes"):
        score_documents(make_tiny_llama(), fast, ["ab a"], context_bytes=256, batch_tokens=64)


def test_without_bos_the_end_of_the_document_before_gives_context(tiny_tokenizer, make_tiny_tokenizer, tiny_llama):
    tokenizer = make_tiny_tokenizer()
    tokenizer.bos_token = None
    assert context_token_id(tokenizer) == tokenizer.eos_token_id
    scores = score_documents(tiny_llama, tokenizer, TEXTS, context_bytes=1_024, batch_tokens=256)
    assert scores.bits == pytest.approx(np.array([direct_bits(tiny_llama, tokenizer, t) for t in TEXTS]), rel=1e-6)
    assert scores.bytes_scored == sum(len(text.encode()) for text in TEXTS)
    assert scores.tokens.tolist() == [len(ids) for ids in encode_plain(tokenizer, TEXTS)]
    with_bos = score_documents(tiny_llama, tiny_tokenizer, TEXTS, context_bytes=1_024, batch_tokens=256)
    assert (scores.bits != with_bos.bits).all()
    tokenizer.eos_token = None
    with pytest.raises(StepError, match="tokenizer: no BOS and no EOS token"):
        score_documents(tiny_llama, tokenizer, TEXTS, context_bytes=1_024, batch_tokens=256)


def test_byte_level_tokenizers_are_read_as_before(tiny_tokenizer):
    assert type(token_bytes_of(tiny_tokenizer)) is TokenBytes


@pytest.mark.parametrize(
    "tokenizer",
    [sentencepiece_bpe(), sentencepiece_bpe(prefix="never"), sentencepiece_unigram()],
    ids=["a space before the text", "none", "unigram"],
)
def test_validation_while_training_agrees_with_whole_documents(tokenizer, make_tiny_llama, tmp_path):
    """Each document lies whole in its block, so that both leave nothing out but what is no text."""
    model = make_tiny_llama(len(tokenizer), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    vocabulary = Vocabulary(1, 2, pad_token_id=1, size=len(tokenizer), tokenizer_sha256="")
    encoded = encode_plain(tokenizer, TEXTS)
    longest = max(map(len, encoded)) + 2
    for part, ids in enumerate(encoded):
        write_part(tmp_path, f"part-{part:05d}", [(ids, 1)], longest, vocabulary, parts=len(encoded))
    processes = join_processes("cpu", "none")
    measured = BlockValidation(PackedBlocks(tmp_path), tokenizer, 100, processes)(model, "float32")
    whole = score_documents(model, tokenizer, TEXTS, context_tokens=longest, batch_tokens=longest)
    assert measured == pytest.approx(whole.bits_per_byte, rel=1e-5)
