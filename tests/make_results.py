"""`make results`: measures what the README states, writes docs/results.json, and renders the README's figures from it.

    python tests/make_results.py [NAME ...]  measure all, or the entries named: sample_run, real_text,
                                             training_comparison, ablation; write both files
    python tests/make_results.py --render    render the README from the docs/results.json that is there

Each entry keeps its command, the commit and the machine. The real text is read from LANGADAPT_REAL_TEXT (a folder with
az_laws.jsonl, az_qa.jsonl, az_heldout_wiki.jsonl, az_web.jsonl and az_fiction.jsonl); without it those entries stay as
they were measured last.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from ablation_results import render_ablation, write_corpus  # noqa: E402

from steps.contract import library_versions, read_seal, write_atomically, write_json  # noqa: E402

RESULTS = ROOT / "docs" / "results.json"
README = ROOT / "README.md"
REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", ROOT.parent / "shared" / "data"))
ENTRIES = ("sample_run", "real_text", "training_comparison", "ablation")
JOB_STEPS = (
    "PrepareCorpus", "TrainTokenizer", "TokenizeCorpus", "AdaptVocabulary", "ContinuedPretraining", "FineTune",
    "Evaluate",
)  # fmt: skip


def langadapt(folder: Path, *arguments: str, cache: Path | None = None) -> tuple[str, str, float]:
    """(standard output, standard error, seconds) of one command, which must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    if cache is not None:
        environment["LANGADAPT_CACHE"] = str(cache)
    began = time.monotonic()
    command = [sys.executable, "-m", "pipeline", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"langadapt {' '.join(arguments)} exited {done.returncode}:\n{done.stderr}")
    return done.stdout, done.stderr, time.monotonic() - began


def clean_commit() -> str:
    """The commit that is measured. Exits where the tree differs from it: its figures would be another program's."""
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout
    changed = "\n".join(line for line in changed.splitlines() if line[3:] not in ("README.md", "docs/results.json"))
    if changed:
        raise SystemExit(f"not committed:\n{changed}")
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def measured(command: str, commit: str, **content: Any) -> dict[str, Any]:
    """One entry: the content with where it comes from."""
    return {
        "command": command,
        "commit": commit,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        **content,
    }


def machine() -> str:
    """Processor, cores, memory and versions, in words."""
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    versions = library_versions()
    return (
        f"{os.cpu_count()} cores of {model.group(1) if model else platform.processor()}, "
        f"{round(int(memory.group(1)) / 2**20) if memory else '?'} GiB, {gpu()}; "
        f"Python {versions['python']}, torch {versions['torch']}, transformers {versions['transformers']}"
    )


def gpu() -> str:
    """The GPU's name, or that there is none."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


def run_figures(run_folder: Path) -> dict[str, Any]:
    """What one finished run measured: fertility, bits per byte, seconds and peak memory of each step."""
    execution = json.loads((run_folder / "execution.json").read_text())
    outputs = {name: Path(*execution["steps"][name]["outputs"].values()) for name in JOB_STEPS}
    fertility = json.loads((outputs["TrainTokenizer"] / "fertility.json").read_text())
    evaluation = json.loads((outputs["Evaluate"] / "evaluation.json").read_text())
    seals = {name: read_seal(folder) for name, folder in outputs.items()}
    return {
        "fertility": fertility,
        "bits_per_byte": evaluation["bits_per_byte"],
        "extra_heldout": evaluation["extra_heldout"],
        "ablation": evaluation["ablation"],
        "documents": evaluation["documents"],
        "fine_tuning": seals["FineTune"].metrics,
        "corpus": seals["PrepareCorpus"].metrics,
        "step_seconds": {name: seal.seconds for name, seal in seals.items()},
        "step_peak_memory_bytes": {name: seal.peak_memory_bytes for name, seal in seals.items()},
    }


def measure_sample(commit: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run on the sample, its base model made too; and the small times beside it."""
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        _, _, sample_seconds = langadapt(folder, "sample", "copy", cache=cache)
        summary, progress, seconds = langadapt(folder, "run", cache=cache)
        progress = progress.replace(str(cache), "~/.cache/langadapt")
        sample = measured("langadapt run", commit, seconds=round(seconds, 1), output=progress + summary)
        sample["base_model_seconds"] = round(sample_seconds, 1)
        sample |= run_figures(folder / "runs" / "laptop")
        _, _, cached = langadapt(folder, "run", cache=cache)
        compiled = [langadapt(folder, "compile", "--preset", "azerbaijani-1b-p4d", "--output", "d.json")[2]]
        size = (folder / "d.json").stat().st_size
        helped = sorted(langadapt(folder, "--help")[2] for _ in range(5))[2]
    small = measured(
        "langadapt run (again); langadapt compile --preset azerbaijani-1b-p4d; langadapt --help",
        commit,
        cached_run_seconds=round(cached, 1),
        compile_seconds=round(compiled[0], 1),
        definition_bytes=size,
        help_seconds=round(helped, 2),
    )
    return sample, small


def measure_real_text(commit: str) -> dict[str, Any]:
    """The laptop preset on legal codes of Azerbaijan, with Wikipedia sentences held out."""
    names = {"corpus": "az_laws.jsonl", "conversations": "az_qa.jsonl", "extra_heldout": "az_heldout_wiki.jsonl"}
    shown = " ".join(f"--set data.{name}={file}" for name, file in names.items())
    settings = [part for name, file in names.items() for part in ("--set", f"data.{name}={REAL_TEXT / file}")]
    with tempfile.TemporaryDirectory() as name:
        summary, _, seconds = langadapt(Path(name), "run", "--run-dir", "real", *settings)
        entry = measured(
            f"langadapt run --run-dir real {shown}", commit, seconds=round(seconds, 1), output=summary.strip()
        )
        return entry | run_figures(Path(name) / "real")


def measure_ablation(commit: str) -> dict[str, Any]:
    """The same pass over the same documents with the base's tokenizer and with the new one."""
    settings = {"conversations": REAL_TEXT / "az_qa.jsonl", "extra_heldout": REAL_TEXT / "az_heldout_wiki.jsonl"}
    with tempfile.TemporaryDirectory() as name:
        write_corpus(REAL_TEXT, Path(name) / "corpus.jsonl")
        given = {**settings, "corpus": Path(name) / "corpus.jsonl"}
        arguments = [part for key, file in given.items() for part in ("--set", f"data.{key}={file}")]
        _, _, seconds = langadapt(Path(name), "run", "--run-dir", "real", *arguments, "--set", "ablation=true")
        entry = measured("make results", commit, seconds=round(seconds, 1))
        return entry | run_figures(Path(name) / "real")


def measure_training(commit: str) -> dict[str, Any]:
    """Initialisers and phases compared over three seeds (see tests/bench/compare_training.py)."""
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "comparison.json"
        command = [sys.executable, str(ROOT / "tests" / "bench" / "compare_training.py"), "--output", str(output)]
        subprocess.run(command, env={**os.environ, "LANGADAPT_REAL_TEXT": str(REAL_TEXT)}, check=True)
        return measured("make bench-phases", commit, **json.loads(output.read_text()))


# --- rendering ------------------------------------------------------------------------------------------------------


def render(results: dict[str, Any]) -> dict[str, str]:
    """The README's generated blocks by name."""
    return {
        "sample_run": render_sample(results["sample_run"]),
        "real_text": render_real_text(results["real_text"]) if "real_text" in results else "not measured",
        "figures": render_figures(results["figures"], results["sample_run"]),
        "ablation": render_ablation(results["ablation"]) if "ablation" in results else "not measured",
        "training_comparison": (
            render_training(results["training_comparison"]) if "training_comparison" in results else "not measured"
        ),
    }


def render_sample(entry: dict[str, Any]) -> str:
    ratio = entry["bits_per_byte"]["candidate"] / entry["bits_per_byte"]["base"]
    return (
        f"`langadapt run`, which `make run` starts when all is installed, took {entry['seconds']:.0f} s on "
        f"{entry['machine']} ({entry['date']}, commit {entry['commit']}), after {entry['base_model_seconds']:.0f} s "
        f"for the sample's base model, which is made once. It printed:\n\n"
        f"```\n{entry['output'].strip()}\n```\n\n"
        f"The candidate needs {ratio:.2f} of the base model's bits per byte."
    )


def render_real_text(entry: dict[str, Any]) -> str:
    candidates = entry["fertility"]["candidates"]
    rows = [
        "| tokenizer | law, tokens a word | Wikipedia, tokens a word | Wikipedia, bytes a token | one-token words |",
        "| --- | --- | --- | --- | --- |",
    ]
    for candidate in candidates:
        held, extra = candidate["texts"]["heldout"], candidate["texts"]["extra"]
        rows.append(
            f"| {candidate['name']} | {held['tokens_per_word']:.2f} | {extra['tokens_per_word']:.2f} | "
            f"{extra['bytes_per_token']:.2f} | {extra['one_token_words']:.0%} |"
        )
    bits = [
        "| bits per byte | base | pretrained | candidate | improvement (95% interval) |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, values in (("legal codes", entry["bits_per_byte"]), ("Wikipedia sentences", entry["extra_heldout"])):
        low, high = values["improvement_ci95"]
        bits.append(
            f"| {name}, {values['documents']} documents | {values['base']:.3f} | {values['pretrained']:.3f} | "
            f"{values['candidate']:.3f} | "
            f"{values['improvement']:.3f} ({low:.3f} to {high:.3f}) |"
        )
    peak = max(entry["step_peak_memory_bytes"].values()) / 1e9
    return (
        f"On real text: the legal codes of Azerbaijan ({entry['corpus']['words']:,} words; GitHub "
        "mzffreyvazov/rag-pipeline-eqanun, 9a2f549) with the question-answer pairs of GitHub khazar08/azerbaijani-LLM "
        "(f77f63c, MIT), and 1,004 Wikipedia sentences of SIB-200 (GitHub dadelani/sib-200, 593cea8, CC BY-SA 4.0) "
        "held out. The base is the sample's tiny English model, so the improvement is an easy one here too; law is "
        "formulaic, so its numbers flatter, and the Wikipedia sentences stand beside them.\n\n"
        + "\n".join(rows)
        + "\n\n"
        + "\n".join(bits)
        + f"\n\n`{entry['command']}`: {entry['seconds']:.0f} s, peak memory of the largest step {peak:.2f} GB "
        f"({entry['machine']}, {entry['date']}, commit {entry['commit']})."
    )


def render_figures(entry: dict[str, Any], sample: dict[str, Any]) -> str:
    peak = max(sample["step_peak_memory_bytes"].values()) / 1e9
    tuned = sample["fine_tuning"]
    return "\n".join(
        [
            "| what | figure |",
            "| --- | --- |",
            f"| the sample's base model, made once | {sample['base_model_seconds']:.0f} s |",
            f"| `langadapt run` on the sample | {sample['seconds']:.0f} s |",
            f"| the same again, every job from the cache | {entry['cached_run_seconds']:.1f} s |",
            f"| peak memory of its largest step | {peak:.2f} GB |",
            "| greedy replies that end by themselves: prompts trained on, held out | "
            f"{100 * tuned['stop_rate_training']:.0f}%, {100 * tuned['stop_rate_heldout']:.0f}% |",
            f"| `langadapt compile --preset azerbaijani-1b-p4d` | {entry['compile_seconds']:.1f} s, "
            f"{entry['definition_bytes']:,} bytes |",
            f"| `langadapt --help` | {entry['help_seconds']:.2f} s |",
        ]
    )


def render_training(entry: dict[str, Any]) -> str:
    settings = entry["settings"]
    return (
        f"Bits per byte of held-out documents (legal codes, web pages and fiction in one), mean over "
        f"{len(settings['seeds'])} seeds with the smallest and the largest; the sample's tiny English base model, "
        f"{settings['phase_1_steps']} steps of embeddings only and {settings['phase_2_steps']} of all weights on "
        f"{settings['train_bytes'] / 1e6:.0f} MB. `{entry['command']}` "
        f"({entry['machine']}, {entry['date']}, commit {entry['commit']}).\n\n" + "\n".join(entry["table"])
    )


def rendered_readme(text: str, results: dict[str, Any]) -> str:
    """The README with each block between `<!-- results: NAME -->` and `<!-- end -->` made anew."""
    blocks = render(results)

    def block(match: re.Match[str]) -> str:
        return f"<!-- results: {match.group(1)} -->\n{blocks[match.group(1)]}\n<!-- end -->"

    return re.sub(r"<!-- results: (\w+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def main(arguments: list[str]) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    if arguments != ["--render"]:
        if unknown := set(arguments) - set(ENTRIES):
            raise SystemExit(f"{' '.join(sorted(unknown))}: unknown; limit {', '.join(ENTRIES)}")
        commit = clean_commit()
        for name in arguments or ENTRIES:
            if name == "sample_run":
                results["sample_run"], results["figures"] = measure_sample(commit)
            elif not (REAL_TEXT / "az_laws.jsonl").is_file():
                print(f"no real text at {REAL_TEXT}: {name} stays as it is", file=sys.stderr)
            else:
                measure = {"real_text": measure_real_text, "ablation": measure_ablation}.get(name, measure_training)
                results[name] = measure(commit)
            # Each as soon as it is there: the next one may fail.
            write_json(RESULTS, results)
    write_atomically(README, rendered_readme(README.read_text("utf-8"), results))


if __name__ == "__main__":
    main(sys.argv[1:])
