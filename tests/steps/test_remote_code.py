"""A model's own code: refused where it is not trusted; run, told of and carried along where it is."""

import json
import sys
from pathlib import Path

import pytest
import torch
from own_code import AUTO_MAP, CODE, change_settings, give_own_code
from transformers import AutoModelForCausalLM, AutoTokenizer

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.contract import StepError, file_sha256
from steps.contract.model_folder import check_base_model
from steps.modeling.loading import load_config, load_model, load_tokenizer, save_model, save_model_as, stored_dtype
from steps.modeling.measuring import Wanted, measure_model
from steps.modeling.remote_code import modules_folder
from steps.modeling.reply_measures import mean_token_loss
from steps.modeling.scoring_progress import ScoringProgress
from steps.text.assistant_mask import IGNORED_LABEL, Example


@pytest.fixture
def folder(tmp_path: Path, tiny_llama, tiny_tokenizer) -> Path:
    save_model(tiny_llama, tiny_tokenizer, tmp_path / "model")
    return give_own_code(tmp_path / "model")


def logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.arange(12)[None]).logits


@pytest.mark.parametrize("load", [load_model, load_config, load_tokenizer, stored_dtype, check_base_model])
def test_without_trust_nothing_runs(folder: Path, load) -> None:
    (folder / "configuration_own.py").write_text("raise SystemExit('this must never run')")
    with pytest.raises(StepError, match=r"code of its own .*; limit no code .*set data\.trust_remote_code=true"):
        load(folder)


def test_with_trust_it_runs_and_is_told_of(folder: Path, tiny_llama, capsys: pytest.CaptureFixture[str]) -> None:
    check_base_model(folder, trust_remote_code=True)
    model = load_model(folder, trust_remote_code=True)
    load_tokenizer(folder, trust_remote_code=True)
    # The same weights in a plain Llama whose embeddings are scaled: that factor stands in the code alone.
    tiny_llama.model.embed_tokens.register_forward_hook(lambda module, inputs, output: output * 3.0)
    assert torch.equal(logits(model), logits(tiny_llama))
    (line,) = set(capsys.readouterr().err.splitlines())
    files = ", ".join(f"{name} (sha256 {file_sha256(folder / name)[:12]})" for name in sorted(CODE))
    assert line == f"warning: remote-code: runs the model's own code on this machine: {files}"


def test_saved_models_carry_the_code(folder: Path, tmp_path: Path, tiny_tokenizer) -> None:
    """Twice, as from step to step, and in half precision; then loaded as others would."""
    first = load_model(folder, trust_remote_code=True)
    save_model_as(first, tiny_tokenizer, tmp_path / "one", torch.bfloat16, trust_remote_code=True)
    second = load_model(tmp_path / "one", dtype=torch.bfloat16, trust_remote_code=True)
    save_model_as(second, tiny_tokenizer, tmp_path / "two", torch.bfloat16, trust_remote_code=True)
    for name in CODE:
        assert (tmp_path / "two" / name).read_bytes() == (folder / name).read_bytes()
    settings = json.loads((tmp_path / "two" / "config.json").read_text())
    assert settings["auto_map"] == {name: AUTO_MAP[name] for name in ("AutoConfig", "AutoModelForCausalLM")}
    assert settings["model_type"] == "own_llama"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "two", trust_remote_code=True)
    assert (type(loaded).__name__, loaded.config.embedding_factor) == ("OwnForCausalLM", 3.0)
    assert torch.equal(logits(loaded), logits(load_model(tmp_path / "two", dtype=loaded.dtype, trust_remote_code=True)))
    AutoTokenizer.from_pretrained(tmp_path / "two", trust_remote_code=True)


def test_code_is_copied_into_a_folder_of_the_process(folder: Path) -> None:
    model = load_model(folder, trust_remote_code=True)
    assert Path(sys.modules[type(model).__module__].__file__).is_relative_to(modules_folder())


def test_folders_with_other_code_do_not_mix(folder: Path, tmp_path: Path, tiny_llama, tiny_tokenizer) -> None:
    save_model(tiny_llama, tiny_tokenizer, tmp_path / "other")
    give_own_code(tmp_path / "other", factor=0.5)
    factors = [load_config(place, trust_remote_code=True).embedding_factor for place in (folder, tmp_path / "other")]
    assert factors == [3.0, 0.5]
    first, second = (load_model(place, trust_remote_code=True) for place in (folder, tmp_path / "other"))
    assert not torch.equal(logits(first), logits(second))


def with_file(name: str, content: str):
    def change(folder: Path) -> None:
        (folder / name).write_text(content)

    return change


def with_own_tokenizer(folder: Path) -> None:
    change_settings(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokens.Own", None]})


def with_auto_map(**names: object):
    return lambda folder: change_settings(folder, auto_map={**AUTO_MAP, **names})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_auto_map(AutoModel="some/repo--modeling.Own"), r"elsewhere \(some/repo--modeling\.Own\); limit files in"),
        (with_auto_map(AutoModelForCausalLM="../modeling_own.Own"), r"lies elsewhere \(\.\./modeling_own\.Own\)"),
        (lambda folder: (folder / "scaling_own.py").unlink(), "scaling_own.py: missing, and the model's own"),
        (with_file("modeling_own.py", "class Own(:\n"), r"modeling_own\.py: no Python \(invalid syntax"),
        (with_file("modeling_own.py", "from . import scaling_own\n"), r"imports \. in line 1; limit files beside it"),
        (with_own_tokenizer, "tokens.py: missing"),
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "pickled weights only"),
    ],
)  # fmt: skip
def test_what_is_refused_with_trust_as_well(folder: Path, change, words: str) -> None:
    change(folder)
    with pytest.raises(StepError, match=words):
        check_base_model(folder, trust_remote_code=True)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import no_such_package\n" + CODE["modeling_own.py"], r"its own code failed \(ImportError: .*no_such_package"),
        (
            CODE["modeling_own.py"].replace("OwnForCausalLM", "Other"),
            "its own code failed .*no attribute 'OwnForCausal",
        ),
        (
            "print(1 / 0)\n" + CODE["modeling_own.py"],
            r"failed in modeling_own\.py, line 1 \(ZeroDivisionError: division",
        ),
    ],
)
def test_a_fault_of_the_code_is_one_line(folder: Path, code: str, words: str) -> None:
    (folder / "modeling_own.py").write_text(code)
    with pytest.raises(StepError, match=words):
        load_model(folder, trust_remote_code=True)


def test_weights_are_checked_as_ever(folder: Path) -> None:
    with pytest.raises(StepError, match="9 weights missing"):
        load_model(change_settings(folder, num_hidden_layers=3), trust_remote_code=True)


def test_code_without_a_causal_model(folder: Path) -> None:
    change_settings(folder, auto_map={"AutoConfig": AUTO_MAP["AutoConfig"]})
    with pytest.raises(StepError, match="model_type own_llama; limit a causal language model"):
        load_model(folder, trust_remote_code=True)


def test_a_champion_with_code_needs_trust_as_well(folder: Path) -> None:
    def measure(trust_remote_code: bool):
        config = EvaluateModelConfig(trust_remote_code=trust_remote_code, device="cpu", context_bytes=64)
        texts, wanted = {"test": ["Bakı paytaxtdır.", "Qış gəldi."]}, Wanted(["equal_bytes"])
        return measure_model("champion", folder, texts, wanted, config, ScoringProgress(2))

    assert measure(True).scores["equal_bytes"].bits_per_byte > 0
    with pytest.raises(StepError, match=r"champion: .*/model: config\.json asks for code of its own"):
        measure(False)


def test_a_head_of_its_own_counts_in_losses(folder: Path) -> None:
    """The loss of fine-tuning's held-out conversations is that of the model's own logits."""
    changed = """
    def forward(self, *arguments, **others):
        output = super().forward(*arguments, **others)
        output.logits = output.logits.abs().sqrt()
        return output
"""
    (folder / "modeling_own.py").write_text(CODE["modeling_own.py"] + changed)
    model = load_model(folder, trust_remote_code=True)
    ids = [5, 70, 80, 90, 31]
    example = Example(ids, [IGNORED_LABEL, *ids[1:]], prompt_tokens=1)
    own = model(input_ids=torch.tensor([ids])).logits[0, :-1].detach()
    expected = torch.nn.functional.cross_entropy(own, torch.tensor(ids[1:]))
    assert mean_token_loss(model, [example], 1) == pytest.approx(float(expected), rel=1e-5)


def test_trust_changes_nothing_for_a_model_without_code(tmp_path: Path, tiny_llama, tiny_tokenizer, capsys) -> None:
    save_model(tiny_llama, tiny_tokenizer, tmp_path)
    assert torch.equal(logits(load_model(tmp_path, trust_remote_code=True)), logits(tiny_llama))
    assert capsys.readouterr().err == ""
