"""What langadapt plan refuses: one line on standard error, exit code 1, nothing on standard output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

PRICES = "region: us-west-2\nprices:\n  ml.p4d.24xlarge: {usd_per_hour: %s, date: %s, source: %s}\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Files and folders that cannot be planned with."""
    (tmp_path / "model").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{", "utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"n_embd": 8, "vocab_size": 64}', "utf-8")
    (tmp_path / "empty").mkdir()
    for name, text in {
        "negative": PRICES % (-1, "2026-11-01", "a test"),
        "nothing": PRICES % (0, "2026-11-01", "a test"),
        "words": PRICES % ("much", "2026-11-01", "a test"),
        "undated": PRICES % (25, "yesterday", "a test"),
        "sourceless": PRICES % (25, "2026-11-01", '""'),
        "elsewhere": (PRICES % (25, "2026-11-01", "a test")).replace("us-west-2", "eu-central-1"),
        "family": (PRICES % (25, "2026-11-01", "a test")).replace("ml.p4d.24xlarge", "p4d"),
        "unpriced": "region: us-west-2\n",
        "list": "- 25\n",
        "no-yaml": "{",
        "share": (PRICES % (25, "2026-11-01", "a test")).replace("}", ", spot_share: 1.5}"),
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"region: us-west-2 # \xe9\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--preset azerbaijani-1b-p4", "--preset: azerbaijani-1b-p4. Did you mean azerbaijani-1b-p4d?"),
        ("--config {place}/none.yaml", "--config: {place}/none.yaml does not exist. Name a YAML file."),
        ("--budget -5", "--budget: -5.0; limit above 0. Give US dollars."),
        ("--budget nan", "--budget: nan; limit above 0. Give US dollars."),
        ("--budget much", "Invalid value for '--budget': "),
        ("--spot-share 1.5", "--spot-share: 1.5; limit above 0, up to 1. 0.4 is 40% of the price."),
        ("--spot-share 0.4", "--spot-share: 0.4; limit a step on spot capacity. Set compute."),
        ("--budget 5 --set aws.region=eu-central-1", "--budget: no price for ml.m5.large, ml.g5.xlarge; limit prices"),
        ("--prices {place}/none.yaml", "--prices: {place}/none.yaml cannot be read. Name a YAML file with prices."),
        ("--prices {place}", "--prices: {place} is a folder. Name a YAML file with prices."),
        ("--prices {place}/latin.yaml", "--prices: {place}/latin.yaml is not UTF-8. Save it as UTF-8."),
        ("--prices {place}/no-yaml.yaml", "--prices {place}/no-yaml.yaml: no YAML ("),
        ("--prices {place}/list.yaml", "--prices {place}/list.yaml: a list; limit a mapping of sections."),
        ("--prices {place}/unpriced.yaml", "--prices {place}/unpriced.yaml: prices: missing; limit field required."),
        ("--prices {place}/negative.yaml",
         "--prices {place}/negative.yaml: prices.ml.p4d.24xlarge.usd_per_hour: -1; limit greater than 0."),
        ("--prices {place}/nothing.yaml", "--prices {place}/nothing.yaml: prices.ml.p4d.24xlarge.usd_per_hour: 0;"),
        ("--prices {place}/words.yaml", "--prices {place}/words.yaml: prices.ml.p4d.24xlarge.usd_per_hour: 'much';"),
        ("--prices {place}/undated.yaml", "--prices {place}/undated.yaml: prices.ml.p4d.24xlarge.date: 'yesterday';"),
        ("--prices {place}/sourceless.yaml", "--prices {place}/sourceless.yaml: prices.ml.p4d.24xlarge.source: '';"),
        ("--prices {place}/family.yaml", "--prices {place}/family.yaml: prices.p4d: 'p4d';"),
        ("--prices {place}/share.yaml", "--prices {place}/share.yaml: prices.ml.p4d.24xlarge.spot_share: 1.5;"),
        ("--prices {place}/elsewhere.yaml",
         "--prices {place}/elsewhere.yaml: region eu-central-1; limit aws.region us-west-2. Give prices of "),
        ("--prices s3://bucket/prices.yaml", "Invalid value for '--prices': s3://bucket/prices.yaml is an address;"),
        ("--set data.base_model={place}/model", "data.base_model: {place}/model has no config.json to read. Name a "),
        ("--set data.base_model={place}/broken", "data.base_model: {place}/broken/config.json is no JSON. Mend it."),
        ("--set data.base_model={place}/other",
         "data.base_model: {place}/other/config.json: hidden_size missing; limit a whole number above 0."),
        ("--set data.base_model=s3://bucket/model",
         "plan.base_model_shape: missing; limit a shape, for a model that lies elsewhere. Set it to one of "),
        ("--set plan.base_model_shape=llama-3.2-1B", "plan.base_model_shape: llama-3.2-1B. Did you mean llama-3.2-1b?"),
        ("--set plan.corpus_bytes=0", "plan.corpus_bytes: 0; limit greater than or equal to 1."),
        ("--set data.corpus={place}/none.jsonl", "data.corpus: {place}/none.jsonl does not exist. Name a file or "),
        ("--set data.corpus={place}/empty", "data.corpus: {place}/empty has no files. Name a file or folder with text"),
    ],
)  # fmt: skip
def test_one_line_says_what_is_wrong(
    words: str, line: str, place: Path, plan: Callable[..., tuple[int, str, str]]
) -> None:
    code, output, errors = plan(*words.format(place=place).split())
    print(errors)
    assert (code, output) == (1, "")
    assert errors.startswith(f"error: {line.format(place=place)}")
    assert len(errors.splitlines()) == 1
