"""AdaptVocabulary as a step: folders in, a model folder and adaptation.json out."""

from __future__ import annotations

import json

import pytest
import torch

from steps.adapt_vocabulary import FOLDERS, adapt_vocabulary
from steps.configs.adapt_vocabulary import AdaptVocabularyConfig
from steps.contract import StepConfig, StepFolders, read_seal, run_step, seal, write_json
from steps.modeling.bits_per_byte import score_documents
from steps.modeling.loading import load_model, load_tokenizer, save_model
from steps.schemas.adaptation import Adaptation
from steps.schemas.corpus import CorpusSummary, SplitSummary

ENGLISH = ("the quick brown fox jumps over the lazy dog and then the other dogs rest in the shade of the tree. " * 3,)
DOCUMENTS = ["Bakı şəhərində qış axşamları uzun olur.", "Şəhərin küçələrində külək əsir.", "İşıqlar yanır."]


def sealed(folder):
    seal(StepFolders(output=folder), "test", StepConfig(), {}, 0.0)
    return folder


@pytest.fixture
def step_arguments(make_tiny_tokenizer, make_tiny_llama, tmp_path):
    base = tmp_path / "base_model"
    save_model(make_tiny_llama(320), make_tiny_tokenizer(ENGLISH, 310), base)
    (tmp_path / "tokenizer").mkdir()
    make_tiny_tokenizer(DOCUMENTS, 300).save_pretrained(tmp_path / "tokenizer" / "tokenizer")
    corpus = tmp_path / "corpus"
    (corpus / "validation").mkdir(parents=True)
    lines = [json.dumps({"id": str(index), "text": text}, ensure_ascii=False) for index, text in enumerate(DOCUMENTS)]
    (corpus / "validation" / "part-00000.jsonl").write_text("\n".join(lines) + "\n")
    split = SplitSummary(shards=["validation/part-00000.jsonl"], documents=3, words=12, bytes=100)
    summary = CorpusSummary(splits={"validation": split}, sources={})
    write_json(corpus / "corpus.json", summary.model_dump(mode="json"))
    sealed(tmp_path / "tokenizer")
    sealed(corpus)
    return [
        f"--base_model={base}",
        f"--tokenizer={tmp_path / 'tokenizer'}",
        f"--corpus={corpus}",
        f"--output={tmp_path / 'output'}",
        "--device=cpu",
    ]


def test_writes_the_model_of_the_chosen_initialiser_and_measures_each(step_arguments, tmp_path):
    arguments = [*step_arguments, '--compared_initialisers=["normal","copy+mean"]', "--measured_documents=2"]
    assert run_step(adapt_vocabulary, AdaptVocabularyConfig, FOLDERS, arguments=arguments) == 0
    output = tmp_path / "output"
    adaptation = Adaptation.model_validate_json((output / "adaptation.json").read_bytes())
    assert list(adaptation.bits_per_byte_at_step_0) == ["normal", "copy+mean", "copy+subtoken_mean"]
    model, tokenizer = load_model(output), load_tokenizer(output)
    again = score_documents(model, tokenizer, DOCUMENTS[:2], context_bytes=2_048, batch_tokens=64).bits_per_byte
    assert adaptation.bits_per_byte_at_step_0["copy+subtoken_mean"] == pytest.approx(again, rel=1e-6)
    assert adaptation.rows_copied + adaptation.rows_composed == adaptation.vocabulary_rows == 320
    assert adaptation.parameters_after == sum(weight.numel() for weight in model.parameters())
    assert adaptation.base_vocabulary_rows == 320
    assert adaptation.tied_embeddings
    assert tokenizer.chat_template
    assert read_seal(output).metrics["bits_per_byte_at_step_0"] == pytest.approx(again, rel=1e-6)


def test_keeps_the_dtype_of_the_base_model(step_arguments, tmp_path, make_tiny_llama, make_tiny_tokenizer):
    base = make_tiny_llama(320, dtype=torch.bfloat16).to(torch.bfloat16)
    save_model(base, make_tiny_tokenizer(ENGLISH, 310), tmp_path / "base_model")
    assert run_step(adapt_vocabulary, AdaptVocabularyConfig, FOLDERS, arguments=step_arguments) == 0
    written = load_model(tmp_path / "output", dtype=torch.bfloat16)
    assert json.loads((tmp_path / "output" / "config.json").read_text())["dtype"] == "bfloat16"
    for name, value in base.state_dict().items():
        if ".layers." in name:
            assert torch.equal(written.state_dict()[name], value)
