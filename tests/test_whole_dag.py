"""The whole DAG on a preset of seconds, through the command line: run, cached, changed, closed, damaged, approved."""

import json

import pytest
from sagemaker_stub import sagemaker_stub
from served_folder import OURS, READ_BY_SERVERS
from stub_executions import serve_run
from transformers import AutoModelForCausalLM, AutoTokenizer
from workplace import JOB_STEPS, PRESET, Workplace, fill_workplace

from pipeline.config import load_config, placeless_digest
from pipeline.local.log_metrics import final_metrics
from steps.contract import EXIT_DONE, EXIT_GATE_CLOSED, read_seal
from steps.schemas.evaluation import Evaluation
from steps.text.bbpe import tokenizer_digest
from steps.text.packing import PackedBlocks


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama) -> Workplace:
    """Data, and one finished run."""
    folder = tmp_path_factory.mktemp("workplace")
    workplace = fill_workplace(folder, make_tiny_llama)
    finished = workplace.run()
    assert finished.returncode == EXIT_DONE, finished.stderr
    (folder / "summary.txt").write_text(finished.stdout)
    return workplace


def test_every_step_did_its_work(place: Workplace) -> None:
    states = place.states()
    assert [states[name] for name in ("ResolveInputs", *JOB_STEPS, "QualityGate", "RegisterModel")] == [
        "Succeeded"
    ] * 10
    assert states["GateClosed"] == "Skipped"
    for step in JOB_STEPS:
        manifest = read_seal(place.output(step))
        assert manifest.code_sha256 is not None
        assert manifest.metrics


def test_the_summary_ends_with_its_six_lines(place: Workplace) -> None:
    lines = (place.folder / "summary.txt").read_text().splitlines()[-6:]
    beginnings = ["fertility:", "bits per byte:", "gate open:", "model version:", "report:", "run folder:"]
    assert [line.startswith(beginning) for line, beginning in zip(lines, beginnings, strict=True)] == [True] * 6
    assert "langadapt models approve 1" in lines[3]


def test_the_run_leaves_its_report(place: Workplace) -> None:
    """Every figure of its first screen is the run's own."""
    report = (place.run_folder / "report.md").read_text("utf-8")
    evaluation = Evaluation.model_validate_json((place.output("Evaluate") / "evaluation.json").read_bytes())
    bits = evaluation.bits_per_byte
    fertility = json.loads((place.output("TrainTokenizer") / "fertility.json").read_bytes())["tokens_per_word"]
    assert f"{bits.base:.4f} → {bits.pretrained:.4f} → {bits.candidate:.4f}" in report
    assert f"{fertility['base']:.2f} → {fertility['chosen']:.2f}" in report
    assert "as each tokenizer reads it" in report
    page = (place.run_folder / "report.html").read_text("utf-8")
    assert page.count("<svg") == 12
    assert page.count('class="token ') > 50
    assert "Files that are not there" not in page


def test_status_of_an_execution_on_sagemaker_prints_the_rows_of_the_same_run_here(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is a stub that has this run's definition, states and small files."""
    definition = json.loads((place.run_folder / place.execution()["definition"]).read_bytes())
    with sagemaker_stub() as stub:
        serve_run(stub, place.run_folder, definition)
        for name, value in stub.environment.items():
            monkeypatch.setenv(name, value)
        here, there = place.langadapt("status", str(place.run_folder)), place.langadapt("status")
    assert (here.returncode, there.returncode) == (EXIT_DONE, EXIT_DONE), there.stderr
    *lines, last = here.stdout.splitlines()
    assert there.stdout.splitlines()[:-1] == lines
    assert last == f"execution:      succeeded; run folder {place.run_folder.relative_to(place.folder)}"
    assert [line.split()[:2] for line in lines[:3]] == [
        ["ResolveInputs", "Succeeded"], ["PrepareCorpus", "Succeeded"], ["TrainTokenizer", "Succeeded"]
    ]  # fmt: skip
    printed = (place.folder / "summary.txt").read_text().splitlines()
    assert [line for line in printed if line.startswith(("fertility:", "bits per byte:", "gate open:"))] == lines[-4:-1]


def test_metric_definitions_find_numbers_in_the_logs_of_both_training_steps(place: Workplace) -> None:
    """All but the utilisation of a device whose peak is known, and what only a source corpus gives."""
    compiled = json.loads(place.langadapt("compile", "--config", str(PRESET)).stdout)
    of_pretraining = {"model_flop_utilisation", "source_validation_bits_per_byte"}
    unmeasured = {"ContinuedPretraining": of_pretraining, "FineTune": set()}
    for step in compiled["Steps"]:
        if step["Type"] == "Training":
            definitions = step["Arguments"]["AlgorithmSpecification"]["MetricDefinitions"]
            (log,) = place.run_folder.glob(f"jobs/{step['Name']}/*/log.txt")
            found = final_metrics(log, definitions)
            assert {definition["Name"] for definition in definitions} - found.keys() == unmeasured[step["Name"]]


def test_the_evaluation_holds_measured_numbers(place: Workplace) -> None:
    evaluation = Evaluation.model_validate_json((place.output("Evaluate") / "evaluation.json").read_bytes())
    bits = evaluation.bits_per_byte
    assert bits.improvement == pytest.approx(bits.base - bits.candidate)
    assert bits.candidate != bits.pretrained != bits.base
    assert len(evaluation.samples) == 5
    assert not evaluation.champion.present


def test_transformers_loads_the_registered_model(place: Workplace) -> None:
    (version,) = place.versions()
    assert version["status"] == "PendingManualApproval"
    model = AutoModelForCausalLM.from_pretrained(place.folder / version["model_folder"])
    tokenizer = AutoTokenizer.from_pretrained(place.folder / version["model_folder"])
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.chat_template


def test_a_server_finds_nothing_harmful_in_the_registered_folder(place: Workplace) -> None:
    """What stands at its root is known by name, and Bedrock's rules are kept by what the DAG makes."""
    (version,) = place.versions()
    folder = place.folder / version["model_folder"]
    assert {path.name for path in folder.iterdir()} <= READ_BY_SERVERS | OURS.keys()
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"adapter"}
    exported = place.langadapt("models", "export-bedrock", "1", "--pending", "--output", "bedrock", "--json")
    assert exported.returncode == EXIT_DONE, exported.stderr
    told = json.loads(exported.stdout)
    assert told["files"].keys() <= READ_BY_SERVERS
    assert [warned["name"] for warned in told["warnings"]] == ["float32-weights"]


def test_the_same_again_is_cached_and_registers_nothing(place: Workplace) -> None:
    again = place.run()
    assert again.returncode == EXIT_DONE, again.stderr
    assert {place.states()[name] for name in JOB_STEPS} == {"Cached"}
    assert len(place.versions()) == 1


def test_json_and_quiet_leave_one_object_and_nothing_else(place: Workplace) -> None:
    quiet = place.run("--json", "--quiet")
    assert (quiet.returncode, quiet.stderr) == (EXIT_DONE, "")
    told = json.loads(quiet.stdout)
    assert (told["state"], told["failure"], told["warnings"]) == ("Succeeded", None, [])
    shown = place.run("--quiet")
    assert (shown.returncode, shown.stderr) == (EXIT_DONE, "")
    assert len(shown.stdout.splitlines()) == 6
    assert shown.stdout.startswith("fertility:")


def test_a_selection_runs_the_steps_named_and_says_so(place: Workplace) -> None:
    selected = place.run("--from", "QualityGate")
    assert selected.returncode == EXIT_DONE, selected.stderr
    states = place.states()
    assert {states[name] for name in JOB_STEPS} == {"Cached"}
    assert (states["QualityGate"], states["RegisterModel"]) == ("Succeeded", "Succeeded")
    assert "selected:       --from QualityGate; 0 of" in selected.stdout
    refused = place.run("--only", "FineTune", "--set", "continued_pretraining.phase_2_steps=9")
    assert refused.returncode == 1
    assert refused.stderr.count("error: ") == 1
    assert "ContinuedPretraining: not current in the cache (changed: " in refused.stderr
    # FineTune does not come into it: nothing ran.
    assert set(place.states().values()) == {"Succeeded", "Cached", "Failed", "NotRun"}
    assert len(place.versions()) == 1


def test_two_instances_share_the_shards_and_give_what_one_gives(place: Workplace) -> None:
    """Two processes at once, each with its own parts and seal, as two instances of a processing job have."""
    of_one = read_seal(place.output("TokenizeCorpus"))
    of_two = {"instance_type": "ml.m5.large", "instance_count": 2}
    settings = [f"--set=compute.tokenize_corpus.{name}={value}" for name, value in of_two.items()]
    ran = place.run(*settings, "--only", "TokenizeCorpus")
    assert ran.returncode == EXIT_DONE, ran.stderr
    assert place.states()["TokenizeCorpus"] == "Succeeded"
    seals = sorted(path.name for path in place.output("TokenizeCorpus").glob("manifest*"))
    assert seals == ["manifest.part-00000-of-00002.json", "manifest.part-00001-of-00002.json"]
    assert read_seal(place.output("TokenizeCorpus")).content_digest == of_one.content_digest


def test_a_fine_tuning_setting_reruns_what_follows_alone(place: Workplace) -> None:
    assert place.run("--set", "fine_tune.learning_rate=0.001").returncode == EXIT_DONE
    states = place.states()
    assert [states[name] for name in JOB_STEPS] == ["Cached"] * 5 + ["Succeeded"] * 2
    assert len(place.versions()) == 2


def test_a_closed_gate_exits_2_names_every_condition_and_registers_nothing(place: Workplace) -> None:
    before = len(place.versions())
    closed = place.run("--param", "MaxBitsPerByte=0.05")
    assert closed.returncode == EXIT_GATE_CLOSED
    for words in ("0.05", "bits_per_byte.candidate", "bits_per_byte.improvement", "-20"):
        assert words in closed.stdout
    assert place.states()["GateClosed"] == "Failed"
    assert len(place.versions()) == before


def test_a_truncated_file_reruns_its_step_and_says_why(place: Workplace) -> None:
    victim = place.output("TrainTokenizer") / "tokenizer" / "tokenizer.json"
    content = victim.read_bytes()
    victim.write_bytes(content[:100])
    again = place.run()
    assert again.returncode == EXIT_DONE, again.stderr
    assert "tokenizer.json" in again.stderr
    assert place.states()["TrainTokenizer"] == "Succeeded"
    assert place.states()["PrepareCorpus"] == "Cached"
    assert (place.output("TrainTokenizer") / "tokenizer" / "tokenizer.json").read_bytes() == content


def test_approving_makes_a_champion(place: Workplace) -> None:
    assert place.langadapt("models", "approve", "1", "--comment", "read the samples").returncode == EXIT_DONE
    assert place.langadapt("models", "approve", "1").returncode == EXIT_DONE
    shown = json.loads(place.langadapt("models", "show", "1", "--json").stdout)
    assert [approval["status"] for approval in shown["approvals"]] == ["PendingManualApproval", "Approved"]
    # The model is its own champion: no better, so that the gate closes, by this condition alone.
    before = len(place.versions())
    again = place.run()
    assert again.returncode == EXIT_GATE_CLOSED, again.stdout + again.stderr
    evaluation = Evaluation.model_validate_json((place.output("Evaluate") / "evaluation.json").read_bytes())
    assert evaluation.champion.present
    assert evaluation.champion.improvement == 0
    *others, champion = place.execution()["gates"]["QualityGate"]["conditions"]
    assert [condition["holds"] for condition in others] == [True] * 3
    assert not champion["holds"]
    assert "none registered, the candidate equals the approved version in every document" in again.stdout
    assert len(place.versions()) == before
    # A rejected version is no champion any more, and stays rejected when its model is made again.
    assert place.langadapt("models", "reject", "1", "--comment", "a test").returncode == EXIT_DONE
    assert place.run("--param", "ModelApprovalStatus=Approved").returncode == EXIT_DONE
    assert {version["version"]: version["status"] for version in place.versions()}[1] == "Rejected"


def test_a_version_keeps_what_made_it(place: Workplace) -> None:
    shown = json.loads(place.langadapt("models", "show", "1", "--json").stdout)
    kept = place.run_folder.parent / "registry" / "langadapt" / "1" / "evidence"
    config = load_config(file=kept / "config.yaml")
    assert placeless_digest(config) == shown["metadata"]["config_sha256"]
    assert config.data.corpus == str(place.folder / "corpus.jsonl")
    for step in JOB_STEPS:
        (seal,) = (name for name in shown["evidence"] if name.startswith(f"{step}/") and name.endswith("manifest.json"))
        manifest = shown["evidence"][seal]
        assert manifest["code_sha256"] == shown["metadata"][f"code.{step}"]
        assert manifest["versions"]["torch"]
        assert manifest["config"]
    assert shown["evidence"]["environment.json"]["versions"]["sagemaker"]
    assert shown["evidence"]["execution.json"]["execution_id"] == shown["metadata"]["execution_id"]
    screen = place.langadapt("models", "show", "1").stdout.splitlines()
    assert len(screen) <= 40
    assert max(map(len, screen)) <= 100


def test_one_byte_of_the_corpus_reruns_everything(place: Workplace) -> None:
    corpus = place.folder / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes().replace("Qardaşım".encode(), "Bacımın".encode(), 1))
    assert place.run().returncode == EXIT_DONE
    assert {place.states()[name] for name in JOB_STEPS} == {"Succeeded"}


@pytest.mark.verify  # forty seconds and more
def test_an_ablation_carries_the_base_tokenizer_through_the_same_documents(place: Workplace) -> None:
    branch = ("TokenizeCorpusBase", "ContinuedPretrainingBase")
    # A quarter of a pass costs a quarter of the time.
    ablation = ("--set", "ablation=true", "--set", "continued_pretraining.passes=0.25")
    ablated = place.run(*ablation)
    assert ablated.returncode == EXIT_DONE, ablated.stderr
    states = place.states()
    assert [states[name] for name in JOB_STEPS] == ["Cached"] * 4 + ["Succeeded"] * 3
    assert {states[name] for name in branch} == {"Succeeded"}
    assert tokenizer_digest(place.output(branch[1])) == tokenizer_digest(place.folder / "base")
    evaluation = Evaluation.model_validate_json((place.output("Evaluate") / "evaluation.json").read_bytes())
    assert evaluation.ablation is not None
    base, new = (evaluation.ablation.training[name] for name in ("base_tokenizer", "new_tokenizer"))
    for training, blocks_of in ((base, "TokenizeCorpusBase"), (new, "TokenizeCorpus")):
        blocks = PackedBlocks(place.output(blocks_of) / "train")
        # The last step is a whole one, of 4 blocks.
        assert 0.25 <= training.corpus_passes < 0.25 + 4 / len(blocks)
        assert training.steps == -(-len(blocks) // 16)
        assert (training.corpus_bytes, training.tokens) == (blocks.bytes, training.steps * 256)
    assert base.corpus_bytes == new.corpus_bytes
    assert base.steps > new.steps
    settings = [read_seal(place.output(name)).config for name in ("ContinuedPretraining", branch[1])]
    assert {name for name in settings[0] if settings[0][name] != settings[1][name]} == {"base_model_digest"}

    measured = evaluation.ablation.equal_bytes
    assert measured.new_tokenizer == evaluation.bits_per_byte.pretrained
    shown = (
        f"tokenizer:      base's own {measured.base_tokenizer:.4f} -> new {measured.new_tokenizer:.4f} bits per byte"
    )
    assert ablated.stdout.splitlines()[-5].startswith(shown)
    version = json.loads(place.langadapt("models", "show", str(len(place.versions())), "--json").stdout)
    assert float(version["metadata"]["ablation.improvement"]) == pytest.approx(measured.improvement, abs=1e-4)
    assert place.run(*ablation).returncode == EXIT_DONE
    assert {place.states()[name] for name in (*JOB_STEPS, *branch)} == {"Cached"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--param", "MaxBitPerByte=1"], "Did you mean MaxBitsPerByte"),
        (["--param", "MaxBitsPerByte=low"], "MaxBitsPerByte"),
        (["--set", "fine_tune.epoch=1"], "Did you mean epochs?"),
        (["--set", "data.corpus=/no/such/folder"], "data.corpus: /no/such/folder does not exist"),
        (["--preset", "laptop"], "limit one of --preset and --config"),
        (["--registry", "corpus.jsonl"], "corpus.jsonl is a file"),
        (["--run-dir", "corpus.jsonl/x"], "corpus.jsonl is a file"),
        (["--set", "data.base_model="], "data.base_model: ''"),
        (["--only", "FineTun"], "--only: FineTun; limit a step of the definition. Did you mean FineTune?"),
        (["--from", "FineTune", "--only", "Evaluate"], "limit one of the two"),
    ],
)
def test_misuse_is_one_line_and_exit_1(place: Workplace, arguments: list[str], words: str) -> None:
    misused = place.run(*arguments)
    assert misused.returncode == 1
    assert misused.stderr.startswith("error: ")
    assert words in misused.stderr
    assert misused.stderr.count("\n") == 1


def test_errors_as_json(place: Workplace) -> None:
    misused = place.run("--param", "MaxBitPerByte=1", "--json")
    assert misused.returncode == 1
    assert "MaxBitsPerByte" in json.loads(misused.stdout)["error"]["line"]
