"""Configuration: every preset loads, the published figures are the published figures, errors name the field."""

from pathlib import Path

import pytest

from pipeline.config import config_digest, load_config, placeless_digest, preset_names
from pipeline.config_text import read_yaml
from steps.contract import ConfigError


def test_presets() -> None:
    assert preset_names() == ["aws-smoke", "azerbaijani-1b-p4d", "azerbaijani-1b-p5", "azerbaijani-8b-p5", "laptop"]


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_loads(preset: str) -> None:
    config = load_config(preset)
    assert config.preset == preset
    assert config_digest(config) == config_digest(load_config(preset))


def test_the_first_run_in_an_account_is_small() -> None:
    config = load_config("aws-smoke")
    pretraining, compute = config.continued_pretraining, config.compute
    assert pretraining.phase_1_steps + pretraining.phase_2_steps == 20
    jobs = {
        name: getattr(compute, name)
        for name in type(compute).model_fields
        if name not in ("cache_days", "max_attempts")
    }
    assert {job.instance_type for job in jobs.values()} == {"ml.m5.large", "ml.g5.xlarge"}
    assert {getattr(job, "instance_count", 1) for job in jobs.values()} == {1}
    assert max(job.max_runtime_seconds for job in jobs.values()) == 1_800


def test_the_published_run() -> None:
    config = load_config("azerbaijani-1b-p4d")
    pretraining, tuning, compute = config.continued_pretraining, config.fine_tune, config.compute
    assert (pretraining.phase_1_steps, pretraining.phase_1_learning_rate) == (5_000, 0.0032)
    assert (pretraining.phase_2_steps, pretraining.phase_2_learning_rate) == (15_000, 0.0024)
    assert pretraining.device_batch_blocks == 14
    assert pretraining.global_batch_tokens == 224 * 2_048
    assert (pretraining.precision, pretraining.liger) == ("bfloat16", "on")
    assert config.tokenize_corpus.block_tokens == 2_048
    assert max(config.train_tokenizer.vocabulary_sizes) == 99_968
    assert compute.continued_pretraining.instance_type == "ml.p4d.24xlarge"
    assert compute.continued_pretraining.instance_count == 2
    assert compute.fine_tune.instance_type == "ml.g5.8xlarge"
    assert (tuning.lora_rank, tuning.lora_alpha, tuning.lora_dropout) == (64, 28, 0.05)
    assert (tuning.max_tokens, tuning.learning_rate) == (1_024, 1e-4)
    assert set(tuning.target_modules) == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"
    }  # fmt: skip
    assert config.thresholds.max_bits_per_byte == 0.6830


def test_overrides_are_yaml_and_texts_stay_texts() -> None:
    overrides = ["fine_tune.epochs=2", "data.corpus=/data/my texts", "train_tokenizer.vocabulary_sizes=[640, 1024]"]
    config = load_config(overrides=overrides)
    assert (config.fine_tune.epochs, config.data.corpus) == (2, "/data/my texts")
    assert config.train_tokenizer.vocabulary_sizes == (640, 1024)


def test_on_and_off_are_words_and_true_is_true() -> None:
    overrides = ["continued_pretraining.liger=off", "data.trust_remote_code=true", "compute.fine_tune.managed_spot=yes"]
    config = load_config(overrides=overrides)
    assert (config.continued_pretraining.liger, config.data.trust_remote_code) == ("off", True)
    assert config.compute.fine_tune.managed_spot is True
    assert read_yaml("a: {liger: on, flag: false, text: trueish, no: No}", "x") == {
        "a": {"liger": "on", "flag": False, "text": "trueish", "no": "No"}
    }


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("fine_tune.epoch=3", "fine_tune.epoch: no such field. Did you mean epochs?"),
        ("fine_tun.epochs=3", "fine_tun: no such field. Did you mean fine_tune?"),
        ("fine_tune.epochs=-1", "fine_tune.epochs: -1; limit greater than 0. Change this field."),
        ("fine_tune.epochs", "--set: fine_tune.epochs; limit section.field=value"),
        ("fine_tune.epochs.x=1", "epochs is a field, no section"),
        ("tokenize_corpus.block_tokens=100", "limit a multiple of tokenize_corpus.block_tokens 100. Take "),
        ("data.source_corpus=/x", "max_retention_loss: missing; limit a value with data.source_corpus."),
        ("data.source_replay_share=0.2", "data.source_replay_share: 0.2; limit 0 without data.source_corpus."),
        ("data.source_replay_share=1", "data.source_replay_share: '1'; limit less than or equal to 0.9."),
        ("thresholds.max_bits_per_byte=.inf", "thresholds.max_bits_per_byte"),
        ("aws.region=mars", "aws.region: 'mars'"),
        ("aws.bucket=s3://team", "aws.bucket: 's3://team'"),
        ("aws.bucket=a..b", "aws.bucket: a..b; limit no two dots together, and no address"),
        ("aws.bucket=192.168.5.4", "aws.bucket: 192.168.5.4"),
        ("aws.prefix=x//y", "aws.prefix: 'x//y'"),
        ("aws.subnets=[subnet-0a]", "aws.security_group_ids: empty; limit some with aws.subnets"),
        ("aws.security_group_ids=[sg-0a]", "aws.subnets: empty; limit some with aws.security_group_ids"),
        ("data.corpus=", "data.corpus: ''; limit at least 1 character"),
        ("train_tokenizer.vocabulary_sizes=[64]", "train_tokenizer.vocabulary_sizes.0: 64"),
        ("train_tokenizer.vocabulary_sizes=[1000]", "vocabulary_sizes.0: 1000; limit a multiple of 64. Take 1024."),
        (
            "train_tokenizer.vocabulary_sizes=1024",
            ": 1024; limit a list. Write it in brackets: [1024].",
        ),
        ("train_tokenizer.vocabulary_sizes=640,1024", "limit a list. Write it in brackets: [640,1024]."),
        ("fine_tune=3", "fine_tune: 3; limit a section of fields. Write its fields as fine_tune.FIELD."),
        ("epochs=2", "epochs: no such field. Did you mean fine_tune.epochs?"),
        ("continued_pretraining.lora_rank=2", "no such field. Did you mean fine_tune.lora_rank?"),
        ("=3", "--set: =3; limit section.field=value"),
        ("aws.image_uri=000000000000.dkr.ecr.us-west-2.amazonaws.com/x:latest", "aws.image_uri: "),
        (
            f"aws.image_uri=123456789012.dkr.ecr.eu-west-1.amazonaws.com/x@sha256:{'1' * 64}",
            "limit an image in ECR in aws.region us-west-2. Copy it there",
        ),
        (
            "aws.resolve_inputs_function_arn=arn:aws:lambda:eu-west-1:123456789012:function:x",
            "limit a function in aws.region us-west-2. Deploy it there.",
        ),
        ("aws.kms_key_id=arn:aws:kms:eu-west-1:123456789012:key/x", "limit a key in aws.region us-west-2. Name one"),
        ("compute.fine_tune.instance_count=2", "compute.fine_tune.instance_count: no such field"),
        ("compute.prepare_corpus.instance_count=2", "compute.prepare_corpus.instance_count: no such field"),
        ("compute.evaluate_model.instance_count=1", "compute.evaluate_model.instance_count: no such field"),
    ],
)
def test_errors_name_the_field(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[override])
    assert words in str(caught.value)


def test_only_steps_that_share_their_work_have_several_instances() -> None:
    compute = load_config("laptop").compute
    sections = {
        name: section
        for name in type(compute).model_fields
        if hasattr(section := getattr(compute, name), "instance_type")
    }
    assert {name for name, section in sections.items() if hasattr(section, "instance_count")} == {
        "tokenize_corpus",
        "continued_pretraining",
    }
    overrides = ["compute.tokenize_corpus.instance_count=3", "compute.continued_pretraining.instance_count=4"]
    compute = load_config("laptop", overrides=overrides).compute
    assert (compute.tokenize_corpus.instance_count, compute.continued_pretraining.instance_count) == (3, 4)


def test_spot_capacity_has_twice_the_time_unless_it_is_given() -> None:
    def section(*overrides: str):
        return load_config(overrides=[f"compute.fine_tune.{override}" for override in overrides]).compute.fine_tune

    assert section("max_runtime_seconds=600").spot_wait_seconds is None
    assert section("managed_spot=true", "max_runtime_seconds=600").spot_wait_seconds == 1_200
    assert section("managed_spot=true", "max_runtime_seconds=2000000").spot_wait_seconds == 2_419_200
    given = section("managed_spot=true", "max_runtime_seconds=600", "max_wait_seconds=600")
    assert given.spot_wait_seconds == 600
    with pytest.raises(ConfigError, match=r"compute.fine_tune.max_wait_seconds: 599; limit at least max_runtime"):
        section("managed_spot=true", "max_runtime_seconds=600", "max_wait_seconds=599")
    with pytest.raises(ConfigError, match=r"compute.fine_tune.max_wait_seconds: 600; limit none without managed_spot"):
        section("max_runtime_seconds=600", "max_wait_seconds=600")


YAML_FAULTS = {
    "a: [1": "no YAML .*in line 1",
    "- a": "a list; limit a mapping of sections",
    "": "empty; limit a mapping of sections",
    "fine_tune:\n  epochs: 1\n  seed: 2\n  epochs: 3\n": "no YAML \\('epochs' stands twice, again in line 4\\)",
}


def test_code_of_a_model_is_trusted_where_the_user_says_so_alone() -> None:
    steps = ("adapt_vocabulary", "continued_pretraining", "fine_tune", "evaluate_model")
    for preset in preset_names():
        config = load_config(preset)
        assert not any(getattr(config, section).trust_remote_code for section in ("data", *steps))
        config = load_config(preset, overrides=["data.trust_remote_code=true"])
        assert all(getattr(config, section).trust_remote_code for section in ("data", *steps))


def test_personal_data_is_masked_in_corpus_and_conversations_alike() -> None:
    assert not load_config().fine_tune.mask_personal_data
    config = load_config(overrides=["data.mask_personal_data=true"])
    assert config.fine_tune.mask_personal_data
    assert config.prepare_corpus.mask_personal_data
    config = load_config(overrides=["data.mask_personal_data=true", "fine_tune.mask_personal_data=false"])
    assert config.prepare_corpus.mask_personal_data
    assert not config.fine_tune.mask_personal_data


def test_unknown_preset_and_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean laptop"):
        load_config("labtop")
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(file=tmp_path / "none.yaml")
    for text, words in YAML_FAULTS.items():
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(ConfigError, match=rf"bad\.yaml: {words}"):
            load_config(file=tmp_path / "bad.yaml")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    laptop = Path("pipeline/presets/laptop.yaml")
    (tmp_path / "mine.yaml").write_text((Path(__file__).parents[2] / laptop).read_text())
    config = load_config(file=tmp_path / "mine.yaml")
    assert config.preset == "mine"
    assert config.fine_tune == load_config("laptop").fine_tune


def test_a_path_stays_what_was_typed() -> None:
    for path in ("my data #1/", "2024", "~", "a: b", "[x]", " spaced "):
        assert load_config(overrides=[f"data.corpus={path}"]).data.corpus == path
    assert load_config(overrides=["data.corpus=null"]).data.corpus is None


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("# ölçü\n".encode("utf-16"))
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(file=tmp_path / "latin.yaml")
    with pytest.raises(ConfigError, match="is no file"):
        load_config(file=tmp_path)


def test_the_share_of_replay_reaches_the_step_that_replays() -> None:
    source = ("data.source_corpus=/x", "thresholds.max_retention_loss=0.5")
    config = load_config(overrides=source)
    assert config.continued_pretraining.source_replay_share == config.data.source_replay_share == 0.1
    config = load_config(overrides=[*source, "data.source_replay_share=0.25"])
    assert config.continued_pretraining.source_replay_share == 0.25
    assert load_config(overrides=["data.source_replay_share=0"]).continued_pretraining.source_replay_share == 0


def test_a_version_tells_one_configuration_whatever_the_account_and_the_place() -> None:
    digest = placeless_digest(load_config("laptop"))
    image = "444455556666.dkr.ecr.us-west-2.amazonaws.com/lmi@sha256:" + "1" * 64
    for override in ("aws.bucket=own", "data.corpus=own.txt", f"serving.image_uri={image}"):
        assert placeless_digest(load_config("laptop", overrides=[override])) == digest
    for override in ("serving.engine=vllm", "fine_tune.seed=7", "thresholds.min_improvement=0.5"):
        assert placeless_digest(load_config("laptop", overrides=[override])) != digest
