"""langadapt plan: every preset, costs, budgets, spot, warnings, and what cannot be planned."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import load_config, preset_names
from pipeline.plan import run_price

ROOT = Path(__file__).parents[3]
P4D = "azerbaijani-1b-p4d"
SPOT = "compute.continued_pretraining.managed_spot=true"
TYPES = ("ml.m5.12xlarge", "ml.m5.4xlarge", "ml.p4d.24xlarge", "ml.g5.8xlarge")
Command = Callable[..., tuple[int, str, str]]
Planned = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_plans(preset: str, plan: Command) -> None:
    code, output, errors = plan("--preset", preset)
    print(output)
    assert (code, errors) == (0, "")
    for step in ("PrepareCorpus", "ContinuedPretraining", "FineTune", "Evaluate"):
        assert f"\n{step}" in output
    told = [line for line in output.splitlines() if line.startswith("warning: ")]
    # What is shipped fits and ends in time; of a new account and of prices that are not known it is said.
    assert all("is likely 0" in line or "no price" in line for line in told)
    assert ("runs here" in output) is (preset in ("laptop", "aws-smoke"))


def test_it_takes_a_second_or_two() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "pipeline", "plan", "--preset", P4D, "--json"], cwd=ROOT,
                          capture_output=True, text=True, check=True)  # fmt: skip
    seconds = time.monotonic() - began
    print(f"langadapt plan: {seconds:.1f} s (asked: under 3 on a quiet machine)")
    assert seconds < 20
    assert json.loads(done.stdout)["preset"] == P4D


def test_a_plan_brings_no_heavy_library() -> None:
    code = "import sys; from pipeline.__main__ import command_code\n"
    code += f"command_code(['plan', '--preset', '{P4D}', '--json'], as_json=True)\n"
    code += "print(*sorted({'torch', 'transformers', 'sagemaker', 'boto3', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_costs_are_hours_times_instances_times_price(planned: Planned, price_file: Callable[..., Path]) -> None:
    file = price_file(**dict(zip(TYPES, (2.0, 1.0, 100.0, 3.0), strict=True)))
    found = planned(words=("--prices", str(file)))
    steps = {row["step"]: row for row in found["steps"]}
    pretraining = steps["ContinuedPretraining"]
    assert pretraining["instances"] == 2
    assert pretraining["usd"] == pytest.approx(pretraining["hours"] * 2 * 100)
    assert pretraining["at_most_usd"] == 48 * 2 * 100
    assert found["cost"]["usd"] == pytest.approx(sum(row["usd"] for row in steps.values()))
    assert found["cost"]["unpriced"] == []
    assert found["cost"]["dates"] == ["2026-11-01"]
    assert pretraining["hours"] == pytest.approx(sum(found["pretraining"]["hours"].values()))


def test_what_has_no_price_is_in_no_sum_and_told(planned: Planned, price_file: Callable[..., Path]) -> None:
    found = planned(words=("--prices", str(price_file(**{"ml.p4d.24xlarge": 100.0}))))
    steps = {row["step"]: row["usd"] for row in found["steps"]}
    assert {name for name, usd in steps.items() if usd is not None} == {"ContinuedPretraining"}
    assert found["cost"]["usd"] == steps["ContinuedPretraining"]
    assert found["cost"]["unpriced"] == ["ml.m5.12xlarge", "ml.m5.4xlarge", "ml.g5.8xlarge"]
    assert any(
        line.startswith("no price for ml.m5.12xlarge, ml.m5.4xlarge, ml.g5.8xlarge") for line in found["warnings"]
    )


def test_another_region_has_no_price(plan: Command) -> None:
    code, output, _ = plan("--preset", P4D, "--set", "aws.region=eu-central-1")
    assert code == 0
    assert "no price for ml.m5.12xlarge, ml.m5.4xlarge, ml.p4d.24xlarge, ml.g5.8xlarge in eu-central-1" in output


def test_a_budget_refuses_in_one_line(plan: Command) -> None:
    code, output, errors = plan("--preset", P4D, "--budget", "100")
    assert (code, output) == (1, "")
    assert errors.startswith("error: --budget: 100.00 USD; limit at least the planned ")
    assert len(errors.splitlines()) == 1
    assert "ml.m5.12xlarge not counted" in errors
    code, output, _ = plan("--preset", P4D, "--budget", "100", "--json")
    assert (code, json.loads(output)["error"]["subject"]) == (1, "--budget")
    code, output, _ = plan("--preset", P4D, "--budget", "1000")
    assert code == 0
    assert " of 1,000.00 USD" in output


def test_spot_is_a_ceiling_until_a_share_is_stated(planned: Planned, price_file: Callable[..., Path]) -> None:
    def pretraining(**options: Any) -> tuple[float, dict[str, Any]]:
        found = planned(P4D, *options.get("overrides", (SPOT,)), words=options.get("words", ()))
        return found["steps"][4]["usd"], found

    on_demand, _ = pretraining(overrides=())
    ceiling, found = pretraining()
    assert ceiling == on_demand
    assert any("counted on demand" in line for line in found["warnings"])
    stated, found = pretraining(words=("--spot-share", "0.4"))
    assert stated == pytest.approx(0.4 * on_demand)
    assert not any("counted on demand" in line for line in found["warnings"])
    assert found["steps"][4]["at_most_usd"] == 2 * 48 * 25.251
    row = "  ml.p4d.24xlarge: {usd_per_hour: 25.251, date: 2026-11-01, source: a test, spot_share: 0.5}"
    by_table, _ = pretraining(words=("--prices", str(price_file(f"region: us-west-2\nprices:\n{row}\n"))))
    assert by_table == pytest.approx(0.5 * on_demand)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["compute.evaluate_model.instance_type=ml.p5.48xlarge"], "Evaluate: Processing jobs have no ml.p5.48xlarge"),
        (["continued_pretraining.liger=off"], "device_batch_blocks 14 take "),
        (["continued_pretraining.parallelism=ddp"], "device_batch_blocks 14 take "),
        (["continued_pretraining.device_batch_blocks=28"], "that can be used of an A100. Lower it"),
        (["compute.continued_pretraining.instance_count=3"], "224 blocks a step do not divide over 24 GPUs"),
        (["compute.continued_pretraining.max_runtime_seconds=36000"], "max_runtime_seconds stops it after 10.0"),
        (["compute.prepare_corpus.volume_gib=40"], "prepare_corpus: its disk of "),
        (["compute.continued_pretraining.instance_type=ml.g5.xlarge"], "continued_pretraining: its disk of "),
        (["continued_pretraining.checkpoint_every_steps=30000"], "checkpoint_every_steps 30000 lies beyond its 20,000"),
        (["continued_pretraining.phase_1_steps=20"], "phase_1_warmup_steps 50 of 20 steps"),
        (["plan.corpus_bytes=1000000000"], "tokens read the corpus 53.2 times"),
        (["train_tokenizer.vocabulary_sizes=[256000]"], "a vocabulary of 256,000 is 35% of the model"),
        (["fine_tune.batch_conversations=512"], "FineTune: takes "),
        (["evaluate_model.batch_tokens=200000"], "Evaluate: takes "),
        (
            ["plan.corpus_bytes=null"],
            "PrepareCorpus: hours not known (needs plan.corpus_bytes): counted until its limit",
        ),
        (["plan.conversations=null"], "FineTune: hours not known (needs plan.conversations)"),
        (["compute.continued_pretraining.instance_type=ml.g4dn.12xlarge"], "nothing is known of the GPU"),
        (["compute.fine_tune.instance_type=ml.g4dn.xlarge"], "FineTune: hours not known (nothing is known of the GPU"),
        ([SPOT], "the quota `ml.p4d.24xlarge for spot training job usage` is likely 0 in a new account. Ask for 2"),
        (["plan.corpus_bytes=null", "continued_pretraining.passes=2"], "passes without plan.corpus_bytes"),
    ],
)
def test_what_is_likely_to_go_wrong_is_told(overrides: list[str], told: str, planned: Planned) -> None:
    usual = planned()["warnings"]
    found = planned(P4D, *overrides)["warnings"]
    assert not [line for line in usual if told in line]
    assert [line for line in found if told in line], found


def test_passes_and_the_second_branch_follow_the_corpus(planned: Planned) -> None:
    found = planned(P4D, "ablation=true")
    steps = {row["step"]: row["hours"] for row in found["steps"]}
    assert [*steps][4:7] == ["ContinuedPretraining", "TokenizeCorpusBase", "ContinuedPretrainingBase"]
    # One pass over 2.5 billion tokens, in batches of 458,752.
    assert found["pretraining"]["steps"] == {"phase_1": 1_362, "phase_2": 4_088}
    # More tokens by 5.8 / 2.6, and a larger vocabulary.
    assert 5.8 / 2.6 < steps["ContinuedPretrainingBase"] / steps["ContinuedPretraining"] < 1.1 * 5.8 / 2.6
    # The base's model, its blocks and a checkpoint every 500 steps.
    alone = planned(P4D, "continued_pretraining.passes=1")["storage"]["s3_bytes"]
    base, tokens = found["model"]["base_parameters"], 14.5e9 / 2.6
    sets = math.ceil(math.ceil(tokens / 458_752) / 500)
    assert found["storage"]["s3_bytes"] - alone == pytest.approx(4 * tokens + 2 * base + sets * 6 * base)


def test_phase_1_takes_less_and_checkpointing_a_third_more(planned: Planned) -> None:
    usual = planned()["pretraining"]
    assert usual["tokens_per_second_per_gpu"]["phase_1"] / usual["tokens_per_second_per_gpu"]["phase_2"] == (
        pytest.approx(1.38, abs=0.005)
    )
    again = planned(P4D, "continued_pretraining.activation_checkpointing=true")
    assert again["pretraining"]["hours"]["phase_2"] == pytest.approx(4 / 3 * usual["hours"]["phase_2"])
    assert again["memory"]["block_gib"]["with_liger"] < 0.12 * planned()["memory"]["block_gib"]["with_liger"]


def test_storage_by_hand(planned: Planned) -> None:
    found = planned("azerbaijani-8b-p5")
    storage, parameters = found["storage"], found["model"]["parameters"]
    assert storage["checkpoint_bytes"] == 12 * parameters
    assert storage["checkpoint_sets"] == 35
    assert storage["model_bytes"] == 2 * parameters
    inputs = 2 * 14.5e9 + 4 * 2.5e9 + 2 * found["model"]["base_parameters"]
    assert storage["s3_bytes"] == pytest.approx(inputs + 3 * 2 * parameters + 35 * 12 * parameters)


def test_the_data_of_this_machine_is_measured(planned: Planned, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for name, size in (("a.txt", 1_000), ("b.jsonl", 500)):
        (tmp_path / "corpus" / name).write_bytes(b"x" * size)
    (tmp_path / "talk.jsonl").write_text('{"messages": []}\n\n{"messages": []}\n', "utf-8")
    found = planned("laptop", f"data.corpus={tmp_path / 'corpus'}", f"data.conversations={tmp_path / 'talk.jsonl'}")
    assert found["data"]["corpus_bytes"] == 1_500
    assert found["data"]["conversations"] == 2


def test_the_pages_table_of_prices_is_one(planned: Planned, price_file: Callable[..., Path]) -> None:
    page = (ROOT / "docs" / "plan.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    words = ("--prices", str(price_file(block)), "--set", "aws.region=eu-central-1")
    assert planned("azerbaijani-1b-p5", words=words)["steps"][4]["usd_per_hour"] == 75.0


def test_the_price_of_a_run_for_preflight() -> None:
    usd, line = run_price(load_config(P4D))
    assert usd is not None
    assert line.startswith(f"about {usd:,.2f} USD, at most ")
    usd, line = run_price(load_config(P4D, overrides=["aws.region=eu-central-1"]))
    assert usd is None
    assert line.startswith("no price for ml.m5.12xlarge")
    usd, line = run_price(load_config("laptop", overrides=["data.base_model=s3://bucket/model"]))
    assert usd is None
    assert line.startswith("plan.base_model_shape: missing")
