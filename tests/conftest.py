"""Tiny real models and tokenizers that tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from steps.text.chat_template import (
    BOS_TOKEN,
    CHAT_TEMPLATE,
    END_HEADER_TOKEN,
    END_OF_TURN_TOKEN,
    EOS_TOKEN,
    PAD_TOKEN,
    START_HEADER_TOKEN,
)

# Tests that need no model shall not wait seconds for torch.
if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

# The files that take longest come first: a worker that began one of them last would keep the others waiting.
LONG_FILES = ("test_whole_dag.py", "test_readme.py", "test_bad_inputs.py", "test_continued_pretraining.py")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts into the background without SIGINT, nohup without SIGHUP, and children inherit it:
    # programs that tests interrupt would not notice.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


TINY_TEXT = """Bakı Azərbaycanın paytaxtıdır və Xəzər dənizinin sahilində yerləşir. Şəhərin köhnə hissəsi İçərişəhərdir.
Salam, internet paketimi necə dəyişə bilərəm? Mobil tətbiqi açın, Paketlər bölməsinə keçin və uyğun olanı seçin.
Qış axşamları nənəm sobanın yanında oturub bizə nağıl danışardı; külək pəncərəni döyəcləyir, çay isə buxarlanırdı."""


@pytest.fixture(scope="session")
def make_tiny_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    """Builds a byte-level BPE tokenizer with six special tokens of Llama 3; a vocab_size of 262 has no merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    def make(texts: Iterable[str] = (TINY_TEXT,), vocab_size: int = 320) -> PreTrainedTokenizerFast:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        special = [BOS_TOKEN, EOS_TOKEN, START_HEADER_TOKEN, END_HEADER_TOKEN, END_OF_TURN_TOKEN, PAD_TOKEN]
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - len(special),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS_TOKEN} $A",
            pair=f"{BOS_TOKEN} $A {BOS_TOKEN}:1 $B:1",
            special_tokens=[(BOS_TOKEN, tokenizer.token_to_id(BOS_TOKEN))],
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            bos_token=BOS_TOKEN,
            eos_token=EOS_TOKEN,
            pad_token=PAD_TOKEN,
            chat_template=CHAT_TEMPLATE,
        )

    return make


@pytest.fixture(scope="session")
def tiny_tokenizer(make_tiny_tokenizer) -> PreTrainedTokenizerFast:
    """320 tokens: bytes, some merges, six special tokens of Llama 3; BOS before each text; the chat template."""
    return make_tiny_tokenizer()


@pytest.fixture(scope="session")
def make_tiny_llama() -> Callable[..., LlamaForCausalLM]:
    """Builds a Llama of two layers, the same weights for the same seed."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # On tensors this small threads mostly wait for each other.
    torch.set_num_threads(1)

    def make(vocab_size: int = 320, *, seed: int = 0, tied: bool = True, **settings) -> LlamaForCausalLM:
        torch.manual_seed(seed)
        config = LlamaConfig(
            **{
                "vocab_size": vocab_size,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 512,
                "tie_word_embeddings": tied,
                "initializer_range": 0.2,
                "bos_token_id": vocab_size - 6,
                "eos_token_id": vocab_size - 5,
                "pad_token_id": vocab_size - 1,
                **settings,
            }
        )
        return LlamaForCausalLM(config).eval()

    return make


@pytest.fixture
def tiny_llama(make_tiny_llama) -> LlamaForCausalLM:
    """A Llama of two layers for `tiny_tokenizer`, tied, fresh for each test."""
    return make_tiny_llama()
