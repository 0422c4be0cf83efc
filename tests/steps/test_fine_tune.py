"""FineTune on a tiny model: what is trained, what is written, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import ConfigError, StepError, StepFolders, content_digest
from steps.fine_tune import fine_tune
from steps.modeling.adapter import check_target_modules, merge_adapter, prompt_logits, relative_difference
from steps.modeling.adapter_training import make_trainer
from steps.modeling.loading import load_model, load_tokenizer, save_model, save_model_as
from steps.modeling.reply_measures import mean_token_loss
from steps.schemas.training import FineTuningSummary
from steps.text.assistant_mask import IGNORED_LABEL, Example, ExampleBuilder
from steps.text.conversations import Conversations, Unusable, read_conversations
from steps.text.fine_tuning_data import build_examples, count_personal_data, split_examples

ANSWERS = ["Bəli", "Xeyr", "Tətbiqdə", "Sabah", "Ofisdə"]
PAIRS = [
    {"instruction": f"{word} {number}?", "response": ANSWERS[number % 5]}
    for number, word in enumerate(["Balans", "Paket", "İnternet", "Nömrə", "Rouminq", "Hesab"] * 4)
]
CONFIG = FineTuneConfig(
    lora_rank=8,
    lora_alpha=16,
    lora_dropout=0.05,
    max_tokens=128,
    learning_rate=0.01,
    epochs=2,
    batch_conversations=4,
    validation_share=0.2,
    device="cpu",
)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory, make_tiny_llama, tiny_tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    save_model(make_tiny_llama(), tiny_tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def conversations(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("conversations") / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    return path


def run(model_folder: Path, conversations: Path, output: Path, config: FineTuneConfig = CONFIG) -> dict:
    output.mkdir()
    return fine_tune(config, StepFolders(output=output, inputs={"model": model_folder, "conversations": conversations}))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model_folder, conversations) -> Path:
    output = tmp_path_factory.mktemp("finished") / "out"
    run(model_folder, conversations, output)
    return output


def given(messages: list[list[dict[str, str]]]) -> Conversations:
    return Conversations("messages", messages, [f"line {number}" for number in range(1, len(messages) + 1)])


@pytest.fixture
def examples(tiny_tokenizer) -> list[Example]:
    messages = [
        [{"role": "user", "content": pair["instruction"]}, {"role": "assistant", "content": pair["response"]}]
        for pair in PAIRS
    ]
    return build_examples(tiny_tokenizer, given(messages), CONFIG)[0]


def test_output_folder_is_a_model_its_adapter_and_a_summary(finished):
    names = {path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()}
    assert names == {
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    }
    tokenizer = load_tokenizer(finished)
    generation = json.loads((finished / "generation_config.json").read_text())
    assert generation["eos_token_id"] == tokenizer.convert_tokens_to_ids(["<|end_of_text|>", "<|eot_id|>"])
    assert generation["pad_token_id"] == tokenizer.pad_token_id
    summary = FineTuningSummary.model_validate_json((finished / "training.json").read_bytes())
    assert summary.conversation_form == "instruction/response"
    assert summary.conversations + summary.conversations_heldout == len(PAIRS)
    assert summary.conversations_heldout > 0
    assert summary.steps == 2 * math.ceil(summary.conversations / 4)
    assert summary.lora_scaling == 2.0
    assert summary.validation_loss < summary.validation_loss_before
    assert summary.last_loss < summary.first_loss
    assert summary.merge_relative_difference < 1e-5


def test_no_path_of_this_run_is_written(finished, model_folder):
    for path in finished.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(model_folder).encode() not in content, path
            assert str(finished.parent).encode() not in content, path


def test_same_inputs_give_the_same_bytes(finished, model_folder, conversations, tmp_path):
    """The order of the lines leaves no trace either."""
    lines = conversations.read_text().splitlines(keepends=True)
    shuffled = tmp_path / "pairs.jsonl"
    shuffled.write_text("".join(reversed(lines)))
    run(model_folder, shuffled, tmp_path / "out")
    assert content_digest(tmp_path / "out") == content_digest(finished)


def test_merged_model_answers_like_base_with_adapter_and_stays_tied(finished, model_folder, examples):
    adapted = PeftModel.from_pretrained(load_model(model_folder), str(finished / "adapter")).eval()
    merged = load_model(finished)
    base = load_model(model_folder)
    assert "lm_head.weight" not in load_file(finished / "model.safetensors")
    assert merged.lm_head.weight is merged.model.embed_tokens.weight
    changed = (merged.lm_head.weight != base.lm_head.weight).any(dim=1).nonzero()[:, 0].tolist()
    # The rows of the chat's own tokens, which no text has, and no other.
    turn_tokens = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    assert changed == sorted(load_tokenizer(finished).convert_tokens_to_ids(turn_tokens))
    for example in examples[:3]:
        of_merged = prompt_logits(merged, example.input_ids)
        assert torch.allclose(of_merged, prompt_logits(adapted, example.input_ids), atol=1e-4)
        assert (of_merged - prompt_logits(base, example.input_ids)).abs().max() > 0.1


def test_an_adapter_folder_that_does_not_match_its_merge_is_refused(
    finished, model_folder, tiny_tokenizer, examples, tmp_path
):
    with pytest.raises(
        StepError, match=r"merged model: logits differ by .* of the largest from the adapter's; limit 1e-12"
    ):
        merge_adapter(
            model_folder,
            finished / "adapter",
            tmp_path / "out",
            tiny_tokenizer,
            [examples[0].input_ids],
            max_difference=1e-12,
        )


def test_a_bfloat16_model_is_merged_in_float32_and_saved_in_bfloat16(
    finished, tmp_path, make_tiny_llama, tiny_tokenizer, examples
):
    """Merging in bfloat16 would round twice; the limit is far below what the cast alone changes."""
    base = tmp_path / "pretrained"
    save_model(make_tiny_llama().to(torch.bfloat16), tiny_tokenizer, base)
    prompts = [example.input_ids for example in examples[:2]]
    difference = merge_adapter(
        base, finished / "adapter", tmp_path / "out", tiny_tokenizer, prompts, max_difference=1e-5
    )
    assert difference < 1e-5
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in written.values()} == {torch.bfloat16}
    merged = PeftModel.from_pretrained(load_model(base), str(finished / "adapter")).merge_and_unload().state_dict()
    for name, tensor in written.items():
        assert torch.equal(tensor, merged[name].to(torch.bfloat16)), name
    cast = relative_difference(
        [prompt_logits(load_model(tmp_path / "out"), prompts[0])],
        [prompt_logits(PeftModel.from_pretrained(load_model(base), str(finished / "adapter")).eval(), prompts[0])],
    )
    assert 1e-4 < cast < 0.05


def test_saved_weights_are_read_back_and_compared(tmp_path, tiny_llama, tiny_tokenizer):
    """NaN is the one value that a sound file gives back unequal."""
    with torch.no_grad():
        tiny_llama.model.norm.weight[0] = float("nan")
    with pytest.raises(StepError, match=r"saved model: model\.norm\.weight: other values than before"):
        save_model_as(tiny_llama, tiny_tokenizer, tmp_path / "out", torch.bfloat16)


def test_the_merge_error_is_relative_to_the_largest_logit():
    expected = [torch.tensor([[1.0, -2.0]]), torch.tensor([[-40.0, 3.0]])]
    found = [torch.tensor([[1.0, -2.1]]), torch.tensor([[-40.0, 3.2]])]
    assert relative_difference(found, expected) == pytest.approx(0.2 / 40)
    assert math.isnan(relative_difference([torch.tensor([[math.nan, 1.0]]), found[1]], expected))
    assert math.isnan(relative_difference([found[0], torch.tensor([[math.nan, 1.0]])], expected))


def test_trainer_sees_exactly_our_tokens_and_its_loss_is_their_mean(
    make_tiny_llama, tiny_tokenizer, examples, tmp_path
):
    config = CONFIG.model_copy(update={"lora_dropout": 0.0, "batch_conversations": len(examples)})
    trainer = make_trainer(make_tiny_llama(), tiny_tokenizer, examples, config, tmp_path)
    (batch,) = list(trainer.get_train_dataloader())
    seen = []
    for ids, labels, attention in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
        length = int(attention.sum())
        seen.append((ids[:length].tolist(), labels[:length].tolist()))
        assert (labels[length:] == IGNORED_LABEL).all()
        assert (ids[length:] == tiny_tokenizer.pad_token_id).all()
    assert sorted(seen) == sorted((example.input_ids, example.labels) for example in examples)
    trainer.model.eval()
    with torch.no_grad():
        loss = float(trainer.compute_loss(trainer.model, dict(batch)))
    # The adapter starts at zero, so the model is still the one that it was.
    assert loss == pytest.approx(mean_token_loss(make_tiny_llama(), examples, 5), abs=1e-5)


def test_mean_token_loss_is_the_direct_mean_for_any_batch(make_tiny_llama, examples):
    model = make_tiny_llama()
    nats, tokens = 0.0, 0
    for example in examples:
        log_probabilities = prompt_logits(model, example.input_ids).double().log_softmax(-1)
        for position, label in enumerate(example.labels[1:]):
            if label != IGNORED_LABEL:
                nats -= float(log_probabilities[position, label])
                tokens += 1
    for batch in (1, 7, 100):
        assert mean_token_loss(model, examples, batch) == pytest.approx(nats / tokens, abs=1e-6)


def test_the_tuned_model_stops(tmp_path, make_tiny_llama, tiny_tokenizer):
    """After overfitting one answer, plain generate() with the folder's own settings ends with the end of turn."""
    save_model(make_tiny_llama(hidden_size=64), tiny_tokenizer, tmp_path / "pretrained")
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Sual {n}", "completion": "Hə."}) + "\n" for n in range(24)))
    config = CONFIG.model_copy(update={"epochs": 8.0, "learning_rate": 0.02, "lora_dropout": 0.0})
    metrics = run(tmp_path / "pretrained", path, tmp_path / "out", config)
    assert (metrics["stop_rate_training"], metrics["stop_rate_heldout"]) == (1.0, 1.0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    asked = [{"role": "user", "content": "Sual 99"}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = model.generate(**prompt, max_new_tokens=50)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(reply) == "Hə.<|eot_id|>"


def test_too_many_dropped_conversations_stop_the_step(model_folder, conversations, tmp_path):
    config = CONFIG.model_copy(update={"max_tokens": 16})
    with pytest.raises(
        StepError,
        match=r"conversations: 24 of 24 cannot be used \(24 end of turn beyond max_tokens\), first pairs.jsonl line 1: "
        "end of turn beyond max_tokens; limit a share of 0.1. Mend",
    ):
        run(model_folder, conversations, tmp_path / "out", config)


def test_dropped_conversations_are_counted(tiny_tokenizer):
    pair = [{"role": "user", "content": "Salam"}, {"role": "assistant", "content": "Buyurun"}]
    conversations = given([pair] * 18 + [pair[:1], [pair[0], {"role": "assistant", "content": ""}]])
    examples, dropped = build_examples(tiny_tokenizer, conversations, CONFIG)
    assert len(examples) == 18
    assert dropped == {
        "no answer": Unusable(1, "line 19: no answer"),
        "empty turn": Unusable(1, "line 20: empty turn"),
    }


def test_bad_lines_and_personal_data_are_counted_in_the_summary(model_folder, tmp_path):
    lines = [json.dumps(pair) for pair in PAIRS]
    lines[3:3] = ['{"instruction": "Balans?"}', "not JSON"]
    lines[9] = json.dumps({"instruction": "Kimə yazım?", "response": "destek@example.com"})
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    run(
        model_folder, tmp_path / "pairs.jsonl", tmp_path / "out", CONFIG.model_copy(update={"mask_personal_data": True})
    )
    summary = FineTuningSummary.model_validate_json((tmp_path / "out" / "training.json").read_bytes())
    assert summary.conversations + summary.conversations_heldout == len(PAIRS)
    assert summary.conversations_dropped == {"another form than the file's first line": 1, "not JSON": 1}
    assert summary.first_dropped["not JSON"] == "pairs.jsonl line 5: not JSON"
    assert summary.personal_data == {"email": 1}
    masked, found = count_personal_data(read_conversations(tmp_path / "pairs.jsonl"), mask=True)
    assert found == {"email": 1}
    assert [messages[1]["content"] for messages in masked.conversations].count("[EMAIL]") == 1


def test_a_question_is_on_one_side_only(tiny_tokenizer, examples):
    builder = ExampleBuilder(tiny_tokenizer, 128)
    asked = {"role": "user", "content": PAIRS[0]["instruction"]}
    again = builder.build([asked, {"role": "assistant", "content": "Başqa cavab"}], "here")
    training, heldout = split_examples([*examples, again], 0.2)
    questions = [{example.question_digest for example in side} for side in (training, heldout)]
    assert not questions[0] & questions[1]
    assert len(training) + len(heldout) == len(examples) + 1
    few_training, few_heldout = split_examples(examples[:2], 0.01)
    assert (len(few_training), len(few_heldout)) == (1, 1)
    with pytest.raises(StepError, match="conversations: 1 different question in 1; limit at least 2, one of"):
        split_examples(examples[:1], 0.1)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens", "input_layernorm", "wq"])
def test_only_linear_layers_of_the_blocks_get_an_adapter(tiny_llama, target):
    with pytest.raises(ConfigError, match=f"fine_tune.target_modules: {target}; limit linear layers .*: down_proj"):
        check_target_modules(tiny_llama, ["q_proj", target])


def test_conversations_longer_than_the_models_positions_are_refused(model_folder, conversations, tmp_path):
    with pytest.raises(ConfigError, match=r"fine_tune\.max_tokens: 600; limit 512"):
        run(model_folder, conversations, tmp_path / "out", CONFIG.model_copy(update={"max_tokens": 600}))


def test_a_loss_that_is_not_finite_stops_the_run(tiny_tokenizer, make_tiny_llama, conversations, tmp_path):
    save_model(make_tiny_llama(), tiny_tokenizer, tmp_path / "pretrained")
    weights = load_file(tmp_path / "pretrained" / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, tmp_path / "pretrained" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(StepError, match="loss at step 1: nan; limit a finite number"):
        run(tmp_path / "pretrained", conversations, tmp_path / "out")
