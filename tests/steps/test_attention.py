"""Documents of a packed block read nothing of each other, in every implementation that this machine runs.

flex's fused kernel takes a minute to compile on a CPU and has no backward pass there: here its unfused form runs, on
the same masks. flash needs a GPU: here a plain stand-in takes its place in transformers' table of implementations and
attends by the bounds that it is given, which proves what reaches the kernel.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from steps.contract import ConfigError, StepError
from steps.modeling import attention
from steps.modeling.attention import LARGEST_LEAK, check_isolation, choose_attention, wants_one_row
from steps.modeling.batches import BatchPlan, in_one_row, labelled_tokens
from steps.modeling.loading import load_model, load_tokenizer
from steps.modeling.parallel import Processes
from steps.modeling.validation import BlockValidation

ALONE = Processes(rank=0, local_rank=0, world_size=1, device=torch.device("cpu"))
CPU = torch.device("cpu")
STAND_IN = "attention_by_bounds"


def attend_by_bounds(module, query, key, value, attention_mask, scaling=None, cu_seq_lens_q=None, **settings):
    """[batch, heads, tokens, size]; each document for itself, by the bounds alone."""
    assert attention_mask is None
    assert cu_seq_lens_q is not None, "the bounds did not reach the layer"
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    pieces = [
        torch.nn.functional.scaled_dot_product_attention(
            query[:, :, first:end], key[:, :, first:end], value[:, :, first:end], is_causal=True, scale=scaling
        )
        for first, end in itertools.pairwise(cu_seq_lens_q.tolist())
    ]
    return torch.cat(pieces, dim=2).transpose(1, 2), None


@pytest.fixture(scope="module", autouse=True)
def flash_stand_in():
    AttentionInterface.register(STAND_IN, attend_by_bounds)
    AttentionMaskInterface.register(STAND_IN, flash_attention_mask)


@pytest.fixture
def batch(pretraining_inputs):
    return BatchPlan.of(pretraining_inputs.train, 256, 4, seed=1, world_size=1).device_batches(0, 0, 1)[0]


def loss_of(model, batch) -> float:
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        normaliser = torch.tensor(labelled_tokens(batch))
        return float(model(**batch, use_cache=False, num_items_in_batch=normaliser).loss)


def mean_of_own_losses(model, batch, pad_token_id: int) -> float:
    """The mean over labelled tokens of the losses of all documents' pieces, each read alone."""
    nats, tokens = 0.0, 0
    for ids, positions in zip(batch["input_ids"], batch["position_ids"], strict=True):
        starts = [*torch.nonzero(positions == 0).flatten().tolist(), len(ids)]
        assert len(starts) > 2, "a block of one document proves nothing"
        for first, end in itertools.pairwise(starts):
            if ids[first] != pad_token_id and end - first > 1:
                with torch.no_grad():
                    logits = model(ids[None, first:end], use_cache=False).logits[0, :-1]
                nats += float(torch.nn.functional.cross_entropy(logits, ids[first + 1 : end], reduction="sum"))
                tokens += end - first - 1
    assert tokens == labelled_tokens(batch)
    return nats / tokens


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention", STAND_IN])
def test_packed_loss_is_the_mean_of_the_documents_own_losses(pretraining_inputs, batch, implementation):
    model = load_model(pretraining_inputs.model)
    model.set_attn_implementation("eager")
    alone = mean_of_own_losses(model, batch, pretraining_inputs.train.pad_token_id)
    model.set_attn_implementation(implementation)
    packed = loss_of(model, in_one_row(batch) if implementation == STAND_IN else batch)
    assert packed == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa", STAND_IN])
def test_gradients_do_not_depend_on_the_implementation(pretraining_inputs, batch, implementation):
    gradients = []
    for name in ("eager", implementation):
        model = load_model(pretraining_inputs.model)
        model.set_attn_implementation(name)
        model(**(in_one_row(batch) if name == STAND_IN else batch), use_cache=False).loss.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-6), name


class Leaking(torch.nn.Module):
    """A model with one of the two planted leaks: a mask of ones, or positions that never begin again."""

    def __init__(self, model, leak: str) -> None:
        super().__init__()
        self.model, self.leak, self.config = model, leak, model.config

    def forward(self, input_ids, position_ids, **settings):
        if self.leak == "mask":
            settings["attention_mask"] = torch.ones_like(input_ids)
        else:
            position_ids = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        return self.model(input_ids=input_ids, position_ids=position_ids, **settings)


@pytest.mark.parametrize("leak", ["mask", "positions"])
def test_a_planted_leak_is_caught(pretraining_inputs, batch, leak):
    model = load_model(pretraining_inputs.model)
    leaking = Leaking(model, leak)
    alone = mean_of_own_losses(model, batch, pretraining_inputs.train.pad_token_id)
    assert abs(loss_of(leaking, batch) - alone) > 1e-4
    with pytest.raises(StepError, match=r"^attention: a document of a packed block reads the one before it \(leak "):
        check_isolation(leaking, ALONE, "float32")


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16_mixed"])
def test_isolation_is_exact_and_the_check_leaves_the_model_as_it_was(pretraining_inputs, implementation, precision):
    model = load_model(pretraining_inputs.model).train()
    model.set_attn_implementation(implementation)
    assert check_isolation(model, ALONE, precision) == 0.0 < LARGEST_LEAK
    assert model.training


def test_validation_is_the_same_in_one_row(pretraining_inputs):
    measured = []
    for name in ("sdpa", STAND_IN):
        model = load_model(pretraining_inputs.model)
        model.set_attn_implementation(name)
        validation = BlockValidation(pretraining_inputs.validation, load_tokenizer(pretraining_inputs.model), 64, ALONE)
        measured.append(validation(model, "float32"))
    assert wants_one_row(model)
    assert measured[1] == pytest.approx(measured[0], rel=1e-6)


def test_bounds_by_hand():
    batch = {
        "input_ids": torch.arange(12).view(2, 6),
        "position_ids": torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]]),
    }
    row = in_one_row(batch)
    assert row["input_ids"].tolist() == [list(range(12))]
    assert row["cu_seq_lens_q"].tolist() == [0, 3, 5, 6, 12]
    assert row["cu_seq_lens_q"].dtype == torch.int32
    assert (row["max_length_q"], row["max_length_k"]) == (6, 6)


# --- the choice -------------------------------------------------------------------------------------------------------


def test_auto_takes_sdpa_on_a_cpu_however_long_the_blocks(tiny_llama):
    assert choose_attention(tiny_llama, "auto", CPU, "float32", 64) == "sdpa"
    assert choose_attention(tiny_llama, "auto", CPU, "float32", 131_072) == "sdpa"
    assert tiny_llama.config._attn_implementation == "sdpa"
    assert not wants_one_row(tiny_llama)


def test_auto_falls_back_to_eager_where_a_model_has_nothing_else(tiny_llama):
    tiny_llama._supports_sdpa = False
    assert choose_attention(tiny_llama, "auto", CPU, "float32", 64) == "eager"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("flash", "attention: flash, but no CUDA device. Set attention to auto."),
        ("flex", "attention: flex, but no CUDA device, and its backward pass runs on no other. Set attention to auto."),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tiny_llama, setting, message):
    with pytest.raises(ConfigError) as caught:
        choose_attention(tiny_llama, setting, CPU, "float32", 64)
    assert str(caught.value) == message


def test_a_model_without_an_implementation_is_refused(tiny_llama):
    tiny_llama._supports_sdpa = False
    with pytest.raises(ConfigError, match="attention: sdpa, but transformers has none for a model of type llama"):
        choose_attention(tiny_llama, "sdpa", CPU, "float32", 64)


def test_auto_on_a_gpu_without_flash_takes_flex_for_long_blocks_alone(tiny_llama):
    """No GPU is touched: only its kind is asked for, until flash-attn is there."""
    gpu = SimpleNamespace(type="cuda")
    if attention.is_flash_attn_2_available():
        pytest.skip("flash-attn is installed")
    assert choose_attention(tiny_llama, "auto", gpu, "bfloat16", 2_048) == "sdpa"
    assert choose_attention(tiny_llama, "auto", gpu, "bfloat16", 8_192) == "flex"
    with pytest.raises(ConfigError, match="flash, but the package flash-attn is not installed"):
        choose_attention(tiny_llama, "flash", gpu, "bfloat16", 2_048)
