"""The plan beside what was published: the errors of each figure without it, their order, the constants of it."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence

import published_run as published
import pytest
from published_run import Compared

from pipeline.__main__ import command_code
from pipeline.config import load_config
from pipeline.plan.prices import package_prices
from pipeline.plan.throughput import UTILISATION
from pipeline.plan.training_memory import USABLE_SHARE
from pipeline.plan.whole_plan import make_plan

PLAN_FOLDER = published.ROOT / "pipeline" / "plan"


def in_published_order(rows: Sequence[Compared]) -> bool:
    """Whether of any two figures of which one was published as larger, it is planned as larger, too."""
    return all(
        (one.published - other.published) * (one.planned - other.planned) > 0
        for one, other in itertools.combinations(rows, 2)
        if one.published != other.published
    )


def test_the_pages_table_is_what_comes_out() -> None:
    text = published.PAGE.read_text("utf-8")
    print(published.table())
    assert published.page_with_table(text) == text
    assert text.count("| +") + text.count("| -") > 10


def test_hours_are_within_a_quarter_and_in_their_order() -> None:
    rows = published.hours()
    print([f"{row.name}: {row.error:+.1%}" for row in rows])
    assert max(abs(row.error) for row in rows) < 0.25
    assert in_published_order(rows)
    assert max(abs(row.error) for row in rows) < 0.105  # as the page says


def test_batches_are_in_the_published_order() -> None:
    rows = published.batches()
    assert in_published_order(rows)
    # More of it with FSDP than with DDP, more with Liger than without, more on p5 than on p4d.
    by_name = dict(zip(published.BATCHES, (row.planned for row in rows), strict=True))
    for family in ("p4d", "p5"):
        assert by_name[family, "ddp", False] < by_name[family, "fsdp", False] < by_name[family, "fsdp", True]
    for way in (("ddp", False), ("fsdp", False), ("fsdp", True)):
        assert by_name["p4d", *way] < by_name["p5", *way]
    # "More, never fewer, with one exception".
    assert [row.name for row in rows if row.planned < row.published] == ["largest batch a GPU, p4d, FSDP and Liger"]


def test_memory_is_in_its_order_and_near() -> None:
    assert in_published_order([*published.peaks()])
    assert in_published_order([*published.states()])
    assert max(abs(row.error) for row in published.peaks()) < 0.1
    assert max(abs(row.error) for row in published.states()) < 0.02


def test_the_constants_are_those_of_the_calibration() -> None:
    implied = published.implied_utilisations()
    for gpu, pair in (("A100", ("phase 1", "phase 2")), ("H100", ("liger True", "liger False"))):
        low, high = sorted(implied[name] for name in pair)
        print(gpu, f"{low:.3f} to {high:.3f}: {UTILISATION[gpu]}")
        assert low < UTILISATION[gpu] < high
    shares = [published.implied_share(key) for key in published.BATCHES]
    assert math.ceil(100 * max(shares)) / 100 == USABLE_SHARE


@pytest.mark.parametrize(
    ("overrides", "ddp", "fsdp", "within"),
    [(["train_tokenizer.vocabulary_sizes=[128256]"], 9.23, 1.17, 0.02), ([], 8.78, 1.10, 0.005)],
)
def test_state_of_the_preset(
    overrides: list[str], ddp: float, fsdp: float, within: float, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for override in overrides for word in ("--set", override)]
    assert command_code(["plan", "--preset", "azerbaijani-1b-p4d", "--json", *words], as_json=True) == 0
    state = json.loads(capsys.readouterr().out)["state_gib_per_gpu"]
    print(state)
    assert state == {"ddp": pytest.approx(ddp, rel=within), "fsdp": pytest.approx(fsdp, rel=within)}


def test_the_preset_of_the_published_run_takes_its_hours_and_fits() -> None:
    plan = make_plan(load_config("azerbaijani-1b-p4d"), package_prices())
    seconds = plan.pretraining.seconds
    assert seconds is not None
    for phase, planned in ((1, seconds.phase_1), (2, seconds.phase_2)):
        print(phase, planned, published.PHASE_SECONDS[phase])
        assert planned == pytest.approx(published.PHASE_SECONDS[phase], rel=0.25)
    assert seconds.together == pytest.approx(sum(published.PHASE_SECONDS.values()), rel=0.02)
    assert not [caution for caution in plan.cautions if "device_batch_blocks" in caution]


def test_the_product_holds_no_published_figure() -> None:
    """Batches, memories and hours of the published run are held against the plan, never put into it."""
    numbers = {f"{value:{form}}" for value in (*published.PHASE_SECONDS.values(), *published.TOKENS_PER_SECOND.values())
               for form in ("d", ",", "_")} | {"9.23", "1.17", "3.17", "11.94"}  # fmt: skip
    for path in sorted(PLAN_FOLDER.iterdir()):
        if path.suffix in (".py", ".yaml"):
            found = {word for word in re.findall(r"[\d_.,]+", path.read_text("utf-8")) if word in numbers}
            assert not found, path
