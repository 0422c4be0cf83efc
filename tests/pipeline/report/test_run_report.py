"""The report of a run: in whatever state the run is, every figure from its files, every text escaped."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_run import DIGEST, MadeRun, telemetry

from pipeline.__main__ import command_code
from pipeline.execution_record import CACHED, EXECUTING, FAILED, NOT_RUN, SKIPPED, STOPPED, WAITING, StepRecord
from pipeline.report.contents import report_of
from pipeline.report.files import written_report
from pipeline.report.markdown_text import markdown
from pipeline.report.page import page
from pipeline.report.reading import read_run

VOID = ("meta", "wbr")
INLINE = ("span", "code", "small", "strong", "wbr")
SECTIONS = ["Gate", "Steps", "Tokenizer", "Training", "Evaluation", "Samples", "Corpus", "Provenance"]


class Page(HTMLParser):
    """Elements and texts of a page. AssertionError where an element ends that is not the one begun last."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts += [] if tag in INLINE else [" "]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def names(self) -> list[str]:
        return [name for name, _ in self.elements]

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


def both(folder: Path) -> tuple[Page, str]:
    """The page and the Markdown of a run folder."""
    report = report_of(read_run(folder))
    return Page(page(report)), markdown(report)


def test_the_first_screen_tells_what_the_files_hold(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run", candidate=1.5)
    shown, text = both(made.write())
    bits = made.evaluation["bits_per_byte"]
    values = [f"{bits[name]:.4f}" for name in ("base", "pretrained", "candidate", "improvement")]
    low, high = bits["improvement_ci95"]
    figures = [f"{values[0]} → {values[1]} → {values[2]}", f"{values[3]} better (95%: {low:.4f} to {high:.4f})",
               "6.48 → 2.27", "tokens a word, base → bbpe-4096", "1 h 02 min", "no cost"]  # fmt: skip
    first_screen = shown.text.split("Gate Steps Tokenizer")[0].split("QualityGate")[0]
    for told in ("Registered: version 3, PendingManualApproval", *figures):
        assert told in first_screen
        assert told in text.split("## Gate")[0]
    # Nothing but these, the execution and the number of steps.
    numbers = set(re.findall(r"\d+\.\d+", first_screen.split("abcdefabcdef")[-1]))
    assert numbers == {*values, f"{low:.4f}", f"{high:.4f}", "6.48", "2.27"}
    assert [text for name, text in re.findall(r"^(##) (.+)$", text, re.MULTILINE)] == SECTIONS


def test_pictures_and_tables_of_a_whole_run(tmp_path: Path) -> None:
    shown, text = both(MadeRun(tmp_path / "run", champion=True).write())
    names = shown.names()
    # Graph, time, memory, fertility, six curves, fine-tuning, bits per byte. No tokenizer is here to cut a text.
    assert names.count("svg") == 12
    assert names.count("table") == 16
    for told in ("phase 2: all weights", "duplicate", "champion (approved)", "What the tokenizer alone brought", DIGEST,
                 "No text of the run is at hand that both tokenizers could cut.", "too long",
                 "prompts trained on"):  # fmt: skip
        assert told in shown.text
    assert "**Loss** (nats a token): " in text
    assert "at step 40; between" in text


@pytest.mark.parametrize("needed", ["https://", "http://", "src=", "@import", "url(", "<script"])
def test_nothing_is_asked_of_a_network(tmp_path: Path, needed: str) -> None:
    assert needed not in page(report_of(read_run(MadeRun(tmp_path / "run").write())))


def closed(made: MadeRun) -> None:
    made.set_gate(2.5, 2.0)
    made.result.exit_code = 2
    made.result.steps["RegisterModel"].state = SKIPPED
    made.result.steps["GateClosed"].state, made.result.steps["GateClosed"].error = FAILED, "Quality gate closed."


def failed(made: MadeRun, at: str = "ContinuedPretraining") -> None:
    names = list(made.result.steps)
    for name in names[names.index(at) + 1 :]:
        made.result.steps[name] = StepRecord(name, made.result.steps[name].type, NOT_RUN)
    step = made.result.steps[at]
    step.state, step.error = FAILED, "error: loss: nan; limit finite. Lower the learning rate."
    made.result.exit_code, made.result.gates = 1, {}
    made.result.failure = f"{at}: {step.error}"


def stopped(made: MadeRun) -> None:
    failed(made)
    made.result.steps["ContinuedPretraining"].state, made.result.steps["ContinuedPretraining"].error = STOPPED, ""
    made.result.exit_code, made.result.failure = 143, ""


def at_work(made: MadeRun) -> None:
    failed(made, "TrainTokenizer")
    made.result.steps["TrainTokenizer"].state, made.result.steps["TrainTokenizer"].error = EXECUTING, ""
    made.result.steps["Evaluate"].state = WAITING
    made.result.exit_code, made.result.failure = None, ""


def selected(made: MadeRun) -> None:
    failed(made, "TrainTokenizer")
    made.result.steps["TrainTokenizer"] = StepRecord("TrainTokenizer", "Processing", CACHED)
    made.result.exit_code, made.result.failure, made.result.selection = 0, "", "--only TrainTokenizer"


def failed_at_once(made: MadeRun) -> None:
    failed(made, "ResolveInputs")


def of_another_pipeline(made: MadeRun) -> None:
    names = ["A step with a long name that nobody of us has given", "Tune", "Callback"]
    made.result.steps = {name: StepRecord(name, "Callback", FAILED if name == "Tune" else SKIPPED) for name in names}
    made.result.exit_code, made.result.gates = 1, {}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (closed, "Not registered: the gate is closed bits_per_byte.candidate 2.5000 <= 2.0000 FAILED"),
        (failed, "Failed at ContinuedPretraining loss: nan; limit finite. Lower the learning rate."),
        (stopped, "Stopped before its end"),
        (at_work, "Not ended when this was written At work: TrainTokenizer."),
        (selected, "Done, a part of it --only TrainTokenizer: 8 steps not run."),
        (failed_at_once, "Failed at ResolveInputs"),
        (of_another_pipeline, "Failed at Tune"),
    ],
)
def test_a_run_in_any_state_has_a_report(tmp_path: Path, change: Callable[[MadeRun], None], verdict: str) -> None:
    made = MadeRun(tmp_path / "run", candidate=2.5)
    change(made)
    shown, text = both(made.write())
    assert verdict in shown.text
    assert shown.names().count("section") == len(SECTIONS)
    assert text.startswith(f"# {'✗' if change in (closed, failed, failed_at_once, of_another_pipeline) else text[2]} ")


def test_missing_files_are_said(tmp_path: Path) -> None:
    folder = MadeRun(tmp_path / "run").write()
    shutil.rmtree(folder / "outputs" / "FineTune")
    shutil.rmtree(folder / "definitions")
    (folder / "outputs" / "Evaluate" / "key" / "output" / "evaluation.json").write_text('{"bits_per_byte": 1}')
    (folder / "outputs" / "TrainTokenizer" / "key" / "output" / "fertility.json").write_text("not JSON")
    (folder / "outputs" / "ContinuedPretraining" / "key" / "model" / "training.json").write_bytes(b"\xff")
    shown, _ = both(folder)
    for told in ("FineTune: its output", "is gone", "The run's definition is gone", "evaluation.json: not in the form",
                 "fertility.json: not in the form", "training.json: not in the form",
                 "Evaluate did not finish"):  # fmt: skip
        assert told in shown.text


def test_a_training_that_did_not_end_shows_how_far_it_came(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    failed(made)
    log = made.folder / "jobs" / "ContinuedPretraining" / "key" / "log.txt"
    made.result.steps["ContinuedPretraining"].log = log
    written = log.parent / "opt" / "ml" / "model" / "telemetry.jsonl"
    written.parent.mkdir(parents=True)
    lines = [record.model_dump_json() for record in telemetry(30, phase_1=10)]
    written.write_text("\n".join(lines) + '\n{"step": 31, "pha', "utf-8")
    shown, _ = both(made.write())
    assert "This training did not end; what it told until then." in shown.text
    assert f"{json.loads(lines[-1])['loss']:.3f} at step 30" in shown.text
    assert "telemetry.jsonl: not in the form" in shown.text


def test_texts_are_never_markup(tmp_path: Path) -> None:
    attack = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x07` | **bold** ```"
    made = MadeRun(tmp_path / "run<script>")
    made.evaluation["samples"][0].update(prompt=attack, base=attack, pretrained=f"```\n{attack}", candidate=attack)
    made.result.steps["FineTune"].warnings = [f"odd: {attack}"]
    made.result.steps["FineTune"].error = attack
    made.result.parameters["CorpusUri"] = f"file:///{attack}"
    made.files["FineTune"]["training.json"]["first_dropped"] = {"too long": attack}
    made.settings["ContinuedPretraining"]["name"] = attack
    folder = made.write()
    whole = page(report_of(read_run(folder)))
    shown = Page(whole)
    assert "script" not in shown.names()
    assert "img" not in shown.names()
    assert not [name for _, attributes in shown.elements for name in attributes if name.startswith("on")]
    assert whole.count("&lt;script&gt;") >= 8
    assert "\u202e" not in whole
    assert "\\u202E\\u0007" in shown.text
    text = both(folder)[1]
    outside, fence = [], ""
    for line in text.split("\n"):
        found = re.match("`{3,}", line)
        if found and not fence:
            fence = found[0]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            outside.append(re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert not fence
    assert not [line for line in outside if re.search(r"(?<!\\)<", line)]
    rows = [line for line in outside if line.startswith("| CorpusUri")]
    assert rows


def test_a_long_training_stays_small_and_keeps_its_peaks(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run", training_steps=20_000)
    folder = made.write()
    path = folder / "outputs" / "ContinuedPretraining" / "key" / "model" / "telemetry.jsonl"
    lines = path.read_text("utf-8").splitlines()
    lines[12_344] = re.sub(r'"loss":[0-9.]+', '"loss":97.25', lines[12_344])
    path.write_text("\n".join(lines) + "\n", "utf-8")
    whole = page(report_of(read_run(folder)))
    assert len(whole.encode()) < 5_000_000
    print(f"a report of 20,000 steps: {len(whole.encode()):,} bytes; limit 5,000,000")
    assert "97.250" in whole
    (loss,) = [attributes["d"] for name, attributes in Page(whole).elements
               if name == "path" and attributes.get("class") == "line dense series-1"][:1]  # fmt: skip
    heights = [float(point.split()[1]) for point in str(loss)[1:].split("L")]
    assert len(heights) <= 500
    assert min(heights) == sorted(heights)[0] < sorted(heights)[1] - 100


def test_an_ablation_shows_both_trainings(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run")
    folder = made.write()
    whole = folder / "outputs" / "ContinuedPretraining"
    shutil.copytree(whole, whole.with_name("ContinuedPretrainingBase"))
    second = StepRecord("ContinuedPretrainingBase", "Training", CACHED)
    second.outputs = {"model": whole.with_name("ContinuedPretrainingBase") / "key" / "model"}
    made.result.steps[second.name] = second
    made.result.write()
    shown, text = both(folder)
    assert text.count("**Loss** (nats a token)") == 2
    # Of a step that the definition lacks there is a row and no node.
    assert "| ContinuedPretrainingBase | ✓ from the cache |  | from the cache; making it took 12 s |" in text
    assert "1 from the cache; making all of it took 1 min 40 s" in shown.text


def test_a_record_of_an_earlier_version_has_a_report(tmp_path: Path) -> None:
    path = MadeRun(tmp_path / "run").write() / "execution.json"
    record = json.loads(path.read_bytes())
    del record["definition"]
    path.write_text(json.dumps(record), "utf-8")
    assert "The run's definition is gone: steps are listed, not drawn." in both(tmp_path / "run")[0].text


def test_a_run_folder_may_be_moved(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").write().rename(tmp_path / "elsewhere")
    assert read_run(tmp_path / "elsewhere").missing == []


def test_the_command_writes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = MadeRun(tmp_path / "run").write()
    assert command_code(["report", str(folder)], as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "report.html")
    target = tmp_path / "told.md"
    record = folder / "executions" / "abcdefabcdef.json"
    words = ["report", str(record), "--markdown", "--output", str(target), "--json"]
    assert command_code(words, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["output"] == str(target)
    assert told["figures"]["Fertility"] == "6.48 → 2.27"
    assert target.read_text("utf-8").startswith("# ✓ Registered")
    for named in (tmp_path, tmp_path / "nowhere", target):
        assert command_code(["report", str(named)], as_json=False) == 1
        assert capsys.readouterr().err.startswith("error: ")


def test_a_report_that_cannot_be_written_is_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeRun(tmp_path / "run")
    made.write()
    assert written_report(made.result) == f"report:         {tmp_path / 'run' / 'report.html'}"
    assert (tmp_path / "run" / "report.md").is_file()
    (tmp_path / "run" / "report.html").unlink()
    (tmp_path / "run" / "report.html").mkdir()
    (tmp_path / "run" / "report.html" / "inside").touch()
    assert written_report(made.result) == ""
    assert capsys.readouterr().err.startswith("warning: no report was written: ")
