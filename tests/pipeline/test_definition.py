"""The DAG as compiled: its steps, what connects them, what its cache keys and outputs are made of."""

import json
import re
import shutil

import pytest

from pipeline.code_archive import STEPS_FOLDER
from pipeline.compile import offline_sdk
from pipeline.config import config_digest, load_config, preset_names
from pipeline.references import as_text, reference_kind, referenced_steps, walk_references
from steps.configs.continued_pretraining import NOT_LEARNED, ContinuedPretrainingConfig, not_learned
from steps.contract import config_arguments, parse_config
from steps.schemas.evaluation import Ablation, BitsPerByte, Champion, Evaluation, Retention, TokenizerComparison
from steps.schemas.fertility import FertilityReport

RETENTION = ("data.source_corpus=s3://somewhere/english/", "thresholds.max_retention_loss=0.1")
EXTRA = ("data.extra_heldout=/home/someone/heldout.jsonl",)
QUESTIONS = ("data.accuracy=/home/someone/questions",)
ALL_INPUTS = (*RETENTION, *EXTRA, *QUESTIONS)
JOBS = {
    "PrepareCorpus": "prepare_corpus",
    "TrainTokenizer": "train_tokenizer",
    "TokenizeCorpus": "tokenize_corpus",
    "AdaptVocabulary": "adapt_vocabulary",
    "ContinuedPretraining": "continued_pretraining",
    "FineTune": "fine_tune",
    "Evaluate": "evaluate_model",
}


@pytest.fixture(scope="session")
def definition(compiled_text):
    def load(preset="laptop", *overrides):
        return json.loads(compiled_text(preset, *overrides))

    return load


def steps_of(definition):
    """All steps by name, those of branches included."""
    found = {}
    for step in definition["Steps"]:
        found[step["Name"]] = step
        for branch in ("IfSteps", "ElseSteps"):
            found |= {inner["Name"]: inner for inner in step["Arguments"].get(branch, [])}
    return found


def settings_of(step):
    """A job's settings: values, or the references that give them when it runs."""
    if "HyperParameters" in step["Arguments"]:
        return step["Arguments"]["HyperParameters"]
    settings = {}
    for argument in step["Arguments"]["AppSpecification"]["ContainerArguments"]:
        if isinstance(argument, str):
            name, value = argument.split("=", 1)
        else:
            name, value = argument["Std:Join"]["Values"]
            name = name.removesuffix("=")
        settings[name.removeprefix("--")] = value
    return settings


def inputs_of(step):
    """A job's inputs by name: a URI or a reference."""
    arguments = step["Arguments"]
    if "InputDataConfig" in arguments:
        return {
            channel["ChannelName"]: channel["DataSource"]["S3DataSource"]["S3Uri"]
            for channel in arguments["InputDataConfig"]
        }
    return {entry["InputName"]: entry["S3Input"]["S3Uri"] for entry in arguments["ProcessingInputs"]}


def test_steps_come_in_the_order_of_the_work(definition):
    names = [step["Name"] for step in definition()["Steps"]]
    assert names == ["ResolveInputs", *JOBS, "QualityGate"]
    gate = definition()["Steps"][-1]["Arguments"]
    assert [step["Name"] for step in gate["IfSteps"]] == ["RegisterModel"]
    assert [step["Name"] for step in gate["ElseSteps"]] == ["GateClosed"]


def test_edges_are_those_of_the_drawn_graph(definition):
    steps = steps_of(definition())
    edges = {name: referenced_steps(step["Arguments"]) - {"ResolveInputs"} for name, step in steps.items()}
    assert edges["PrepareCorpus"] == set()
    assert edges["TrainTokenizer"] == {"PrepareCorpus"}
    assert edges["TokenizeCorpus"] == {"PrepareCorpus", "TrainTokenizer"}
    assert edges["AdaptVocabulary"] == {"PrepareCorpus", "TrainTokenizer"}
    assert edges["ContinuedPretraining"] == {"AdaptVocabulary", "TokenizeCorpus"}
    assert edges["FineTune"] == {"ContinuedPretraining"}
    assert edges["Evaluate"] == {"PrepareCorpus", "ContinuedPretraining", "FineTune"}
    assert edges["GateClosed"] == {"Evaluate"}
    assert edges["RegisterModel"] == {"Evaluate", "FineTune", "TrainTokenizer"}
    assert not [name for name, step in steps.items() if "DependsOn" in step], "what a step reads orders it already"


@pytest.mark.parametrize("overrides", [(), RETENTION, EXTRA, QUESTIONS, ALL_INPUTS])
def test_every_parameter_is_used_and_has_a_default(definition, overrides):
    compiled = definition("laptop", *overrides)
    used = {reference["Get"] for reference in walk_references(compiled["Steps"]) if "Get" in reference}
    for parameter in compiled["Parameters"]:
        assert f"Parameters.{parameter['Name']}" in used
        assert parameter["DefaultValue"] is not None


def test_parameters_are_those_of_the_form_and_optional_ones_follow_the_data(definition):
    plain = {parameter["Name"] for parameter in definition()["Parameters"]}
    assert plain == {
        *("CorpusUri", "ConversationsUri", "BaseModelUri", "ImageUri", "ModelApprovalStatus"),
        *("MaxBitsPerByte", "MinImprovement", "AllowConcurrent", "FineTuneInstanceType", "EvaluateInstanceType"),
        *("ContinuedPretrainingInstanceType", "ContinuedPretrainingInstanceCount"),
    }
    extended = {parameter["Name"] for parameter in definition("laptop", *ALL_INPUTS)["Parameters"]}
    assert extended - plain == {"SourceCorpusUri", "MaxRetentionLoss", "ExtraHeldoutUri", "AccuracyUri"}


def test_data_uris_default_to_the_configured_ones_and_a_local_path_leaves_no_trace(compiled_text, definition):
    defaults = {
        parameter["Name"]: parameter["DefaultValue"] for parameter in definition("laptop", *ALL_INPUTS)["Parameters"]
    }
    assert defaults["SourceCorpusUri"] == "s3://somewhere/english/"
    assert defaults["ExtraHeldoutUri"] == "s3://langadapt-placeholder-bucket/langadapt/inputs/extra_heldout/"
    assert "/home/someone" not in compiled_text("laptop", *ALL_INPUTS)


def test_a_local_path_changes_nothing(compiled_text):
    assert compiled_text("laptop", "data.corpus=/home/someone/corpus.jsonl") == compiled_text()


@pytest.mark.parametrize("preset", preset_names())
def test_settings_reach_each_step_as_the_configuration_has_them(definition, preset):
    config = load_config(preset)
    for name, step in JOBS.items():
        expected = {"step": step, **config_arguments(getattr(config, step))}
        given = settings_of(steps_of(definition(preset))[name])
        assert given.keys() == expected.keys()
        fixed = {key: value for key, value in given.items() if isinstance(value, str)}
        assert fixed.items() <= expected.items()
        assert all(key.endswith("_digest") or key == "champion_present" for key in given.keys() - fixed.keys())


def test_a_steps_settings_read_back_as_the_configuration(definition):
    settings = settings_of(steps_of(definition())["ContinuedPretraining"])
    settings.pop("step")
    assert parse_config(ContinuedPretrainingConfig, settings) == load_config("laptop").continued_pretraining


def test_each_reader_of_user_data_gets_the_datas_digest(definition):
    steps = steps_of(definition("laptop", *ALL_INPUTS))
    reads = {"CorpusUri": "corpus", "ConversationsUri": "conversations", "BaseModelUri": "base_model"}
    reads |= {"SourceCorpusUri": "source_corpus", "ExtraHeldoutUri": "extra_heldout", "AccuracyUri": "accuracy"}
    seen = set()
    for name in JOBS:
        for uri in inputs_of(steps[name]).values():
            parameter = uri["Get"].removeprefix("Parameters.") if reference_kind(uri) == "Get" else ""
            if parameter in reads:
                digest = settings_of(steps[name])[f"{reads[parameter]}_digest"]
                assert digest == {"Get": f"Steps.ResolveInputs.OutputParameters['{reads[parameter]}_digest']"}
                seen.add(parameter)
    assert seen == reads.keys()
    champion = settings_of(steps["Evaluate"])["champion_digest"]
    assert champion == {"Get": "Steps.ResolveInputs.OutputParameters['champion_digest']"}


@pytest.mark.parametrize("preset", preset_names())
def test_no_number_stands_bare_where_the_service_takes_texts(definition, preset):
    compiled = definition(preset)
    kinds = {f"Parameters.{parameter['Name']}": parameter["Type"] for parameter in compiled["Parameters"]}
    for name in JOBS:
        arguments = steps_of(compiled)[name]["Arguments"]
        texts = arguments.get("HyperParameters", arguments.get("AppSpecification"))
        for reference in walk_references(texts):
            assert kinds.get(reference.get("Get"), "String") == "String"
            assert reference_kind(reference) != "Std:JsonGet"


def test_ids_of_an_execution_stand_in_output_uris_only(definition):
    for name in JOBS:
        arguments = dict(steps_of(definition())[name]["Arguments"])
        outputs = [
            arguments.pop("ProcessingOutputConfig", None),
            arguments.pop("OutputDataConfig", None),
            arguments.pop("TensorBoardOutputConfig", None),
        ]
        assert "Execution." not in json.dumps(arguments)
        assert "Execution.PipelineExecutionId" in json.dumps(outputs)


def test_outputs_lie_under_runs_and_the_registered_model_under_models(definition):
    steps = steps_of(definition())
    for name in JOBS:
        arguments = steps[name]["Arguments"]
        if steps[name]["Type"] == "Training":
            uri = arguments["OutputDataConfig"]["S3OutputPath"]
            assert arguments["OutputDataConfig"]["CompressionType"] == "NONE"
        else:
            uri = arguments["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
        folder = "models" if name == "FineTune" else "runs"
        root = f"s3://langadapt-placeholder-bucket/langadapt/{folder}"
        assert uri["Std:Join"] == {"On": "/", "Values": [root, {"Get": "Execution.PipelineExecutionId"}, name]}


def checkpoint_parts(compiled, name):
    return steps_of(compiled)[name]["Arguments"]["CheckpointConfig"]["S3Uri"]["Std:Join"]["Values"]


def test_checkpoints_follow_settings_code_and_inputs_but_no_instance_count(definition):
    compiled = definition()
    root, config, code, inputs, *data = checkpoint_parts(compiled, "ContinuedPretraining")
    assert root.endswith("/checkpoints/continued_pretraining")
    section = load_config("laptop").continued_pretraining
    assert config == config_digest(section, not_learned(section))
    assert inputs_of(steps_of(compiled)["ContinuedPretraining"])["code"].endswith(f"/code/{code}.zip")
    assert re.fullmatch("[0-9a-f]{64}", inputs)
    assert [entry["Get"].split("'")[1] for entry in data] == ["base_model_digest", "corpus_digest"]
    data = checkpoint_parts(compiled, "FineTune")[4:]
    assert [entry["Get"].split("'")[1] for entry in data] == [
        "base_model_digest",
        "conversations_digest",
        "corpus_digest",
    ]
    more = definition("laptop", "compute.continued_pretraining.instance_count=2")
    assert checkpoint_parts(more, "ContinuedPretraining") == checkpoint_parts(compiled, "ContinuedPretraining")


def test_another_setting_upstream_starts_checkpoints_clean_and_one_downstream_does_not(definition):
    before = checkpoint_parts(definition(), "ContinuedPretraining")
    upstream = checkpoint_parts(definition("laptop", "prepare_corpus.text_field=body"), "ContinuedPretraining")
    assert upstream[:3] == before[:3]
    assert upstream[3] != before[3]
    downstream = definition("laptop", "fine_tune.learning_rate=0.5")
    assert checkpoint_parts(downstream, "ContinuedPretraining") == before


def test_settings_of_speed_and_reports_go_on_from_the_same_checkpoints_and_others_do_not(definition):
    before = checkpoint_parts(definition(), "ContinuedPretraining")
    changed = {
        "device_batch_blocks": 8, "activation_checkpointing": True, "liger": "off", "device": "cpu",
        "log_every_steps": 7, "validate_every_steps": 7, "max_validation_blocks": 7, "checkpoint_every_steps": 7,
        "kept_checkpoints": 7, "parallelism": "ddp", "compile_layers": True, "profile": "off", "attention": "sdpa",
        "stop_grace_seconds": 7.0, "base_model_digest": "0" * 64,
    }  # fmt: skip
    assert changed.keys() == set(NOT_LEARNED)
    overrides = [f"continued_pretraining.{name}={json.dumps(value)}" for name, value in changed.items()]
    assert load_config("laptop", overrides=overrides).continued_pretraining != load_config().continued_pretraining
    assert checkpoint_parts(definition("laptop", *overrides), "ContinuedPretraining") == before
    learned = definition("laptop", "continued_pretraining.weight_decay=0.05")
    assert checkpoint_parts(learned, "ContinuedPretraining") != before


def metadata_of(compiled):
    return steps_of(compiled)["RegisterModel"]["Arguments"]["CustomerMetadataProperties"]


def test_a_version_is_known_by_the_settings_that_made_its_model(definition):
    before = metadata_of(definition())
    for override in ("evaluate_model.bootstrap_resamples=500", "continued_pretraining.log_every_steps=7"):
        assert metadata_of(definition("laptop", override))["settings_sha256"] == before["settings_sha256"]
    measured = metadata_of(definition("laptop", "evaluate_model.bootstrap_resamples=500"))
    assert {name for name in before if measured[name] != before[name]} == {"config_sha256"}
    for override in ("fine_tune.learning_rate=0.5", "prepare_corpus.text_field=body"):
        assert metadata_of(definition("laptop", override))["settings_sha256"] != before["settings_sha256"]


def test_a_changed_line_of_code_changes_its_step_and_what_follows_and_nothing_before(tmp_path):
    package = shutil.copytree(STEPS_FOLDER, tmp_path / "steps", ignore=shutil.ignore_patterns("__pycache__"))
    config = load_config("laptop")
    with offline_sdk(config) as session:
        from pipeline.definition import build_pipeline

        before = json.loads(build_pipeline(config, session, package).definition())
        with (package / "fine_tune.py").open("a") as stream:
            stream.write("# one more line\n")
        after = json.loads(build_pipeline(config, session, package).definition())

    steps, changed = steps_of(before), steps_of(after)
    assert {name for name in steps if steps[name] != changed[name]} == {"FineTune", "QualityGate", "RegisterModel"}
    assert inputs_of(steps["FineTune"])["code"] != inputs_of(changed["FineTune"])["code"]
    # Evaluate's own arguments change as it starts: they are made of FineTune's job and output.
    assert "FineTune" in referenced_steps(changed["Evaluate"]["Arguments"])
    # The same weights of other code are the same version; where they come from is still told.
    before_metadata, after_metadata = metadata_of(before), metadata_of(after)
    different = {name for name in before_metadata if before_metadata[name] != after_metadata[name]}
    assert different == {"recipe_sha256", "code.FineTune"}


def test_one_changed_setting_changes_the_arguments_of_its_step_alone(definition):
    before, after = steps_of(definition()), steps_of(definition("laptop", "fine_tune.learning_rate=0.5"))
    assert {name for name in before if before[name] != after[name]} == {"FineTune", "QualityGate", "RegisterModel"}


def test_every_job_is_cached_retried_and_limited_in_time(definition):
    config = load_config("laptop")
    for name, step in JOBS.items():
        compiled = steps_of(definition())[name]
        assert compiled["CacheConfig"] == {"Enabled": True, "ExpireAfter": f"P{config.compute.cache_days}D"}
        kinds = [kind for policy in compiled["RetryPolicies"] for kind in policy["ExceptionType"]]
        assert {"Step.SERVICE_FAULT", "Step.THROTTLING"} <= set(kinds)
        assert {"SageMaker.CAPACITY_ERROR", "SageMaker.JOB_INTERNAL_ERROR"} <= set(kinds)
        seconds = compiled["Arguments"]["StoppingCondition"]["MaxRuntimeInSeconds"]
        assert seconds == getattr(config.compute, step).max_runtime_seconds
    assert "CacheConfig" not in steps_of(definition())["ResolveInputs"]


def test_spot_capacity_is_asked_for_with_time_to_wait_and_the_checkpoints_that_a_job_has_anyway(definition):
    asked = [
        "compute.continued_pretraining.managed_spot=true",
        "compute.continued_pretraining.max_runtime_seconds=600",
        "compute.continued_pretraining.max_wait_seconds=3600",
    ]
    before, after = steps_of(definition()), steps_of(definition("laptop", *asked))
    plain, spot = (steps["ContinuedPretraining"]["Arguments"] for steps in (before, after))
    assert "EnableManagedSpotTraining" not in plain
    assert spot["EnableManagedSpotTraining"] is True
    assert spot["StoppingCondition"] == {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 3_600}
    # Nothing that is learned depends on it: a job goes on from checkpoints that were written without it.
    assert spot["CheckpointConfig"] == plain["CheckpointConfig"]
    assert before["FineTune"] == after["FineTune"]


def test_containers_start_the_launcher(definition):
    for name in JOBS:
        arguments = steps_of(definition())[name]["Arguments"]
        specification = arguments.get("AlgorithmSpecification") or arguments["AppSpecification"]
        assert specification["ContainerEntrypoint"] == ["python3", "-m", "containers.launch"]


def test_models_are_read_from_the_uncompressed_folder(definition):
    steps = steps_of(definition())
    expected = {
        "Std:Join": {
            "On": "/",
            "Values": [
                {"Get": "Steps.FineTune.OutputDataConfig.S3OutputPath"},
                {"Get": "Steps.FineTune.TrainingJobName"},
                "output/model/",
            ],
        }
    }
    assert inputs_of(steps["Evaluate"])["model"] == expected
    (container,) = steps["RegisterModel"]["Arguments"]["InferenceSpecification"]["Containers"]
    source = {"S3Uri": expected, "S3DataType": "S3Prefix", "CompressionType": "None"}
    assert container["ModelDataSource"]["S3DataSource"] == source
    # The image that trains has no server (tests/pipeline/test_serving.py).
    assert container["Image"] == load_config().serving.image_uri


def test_gate_has_each_condition_and_the_message_names_each_with_value_and_limit(definition):
    gate = definition("laptop", *RETENTION)["Steps"][-1]["Arguments"]
    *limits, champion = gate["Conditions"]
    found = [
        (limit["LeftValue"]["Std:JsonGet"]["Path"], limit["Type"], as_text(limit["RightValue"])) for limit in limits
    ]
    assert found == [
        ("bits_per_byte.candidate", "LessThanOrEqualTo", '{"Get": "Parameters.MaxBitsPerByte"}'),
        ("bits_per_byte.improvement", "GreaterThanOrEqualTo", '{"Get": "Parameters.MinImprovement"}'),
        ("bits_per_byte.improvement_ci95[0]", "GreaterThan", "0.0"),
        ("retention.loss", "LessThanOrEqualTo", '{"Get": "Parameters.MaxRetentionLoss"}'),
    ]
    absent, better = champion["Conditions"]
    assert champion["Type"] == "Or"
    assert (absent["Type"], absent["RightValue"]) == ("Equals", "false")
    assert (better["Type"], better["RightValue"]) == ("GreaterThan", 0.0)
    message = gate["ElseSteps"][0]["Arguments"]["ErrorMessage"]["Std:Join"]["Values"]
    values = [part["Std:JsonGet"]["Path"] for part in message if reference_kind(part) == "Std:JsonGet"]
    assert values == [*(path for path, _, _ in found), "champion.improvement_ci95[0]"]
    gets = [part["Get"] for part in message if reference_kind(part) == "Get"]
    assert gets[:3] == [f"Parameters.{name}" for name in ("MaxBitsPerByte", "MinImprovement", "MaxRetentionLoss")]


def test_json_paths_exist_in_the_schemas_of_their_files(definition):
    """The writer, the gate and this test share one schema: a renamed field fails here, not after a day of training."""
    text_size = {"documents": 1, "bytes_scored": 1}
    improvement = {"improvement": 1.0, "improvement_ci95": (0.9, 1.1)}
    bits = BitsPerByte(base=2.0, pretrained=1.5, candidate=1.0, **improvement, **text_size)
    tokenizers = TokenizerComparison(base_tokenizer=2.0, new_tokenizer=1.0, **improvement, **text_size)
    evaluation = Evaluation(
        bits_per_byte=bits,
        equal_tokens=bits,
        champion=Champion(present=False, bits_per_byte=2.0, improvement=1.0, improvement_ci95=(0.9, 1.1)),
        retention=Retention(base=1.0, candidate=1.1, loss=0.1, **text_size),
        ablation=Ablation(equal_bytes=tokenizers, equal_tokens=tokenizers, training={}),
        contamination={"ngram_words": 13, "test": {"texts": 1, "contaminated": 0, "share": 0.0, "too_short": 0}},
        samples=[],
        **text_size,
        text_sha256="0" * 64,
    )
    text = {"tokens_per_word": 2.0, "ci95": (1.9, 2.1), "bytes_per_token": 3.0, "one_token_words": 0.5}
    candidate = {"name": "base", "kind": "base", "vocab_size": 300, "train_seconds": 0.0, "peak_memory_bytes": 0}
    candidate["texts"] = {"heldout": {**text, "round_trip_errors": 0}}
    chosen = {"chosen": "base", "reason": "only one", "tokens_per_word": {"base": 2.0, "chosen": 2.0}}
    fertility = FertilityReport.model_validate({"candidates": [candidate], **chosen})
    files = {"Evaluation": evaluation.model_dump(mode="json"), "Fertility": fertility.model_dump(mode="json")}
    compiled = definition("laptop", *RETENTION, "ablation=true")
    paths = [reference["Std:JsonGet"] for reference in walk_references(compiled["Steps"]) if "Std:JsonGet" in reference]
    assert len(paths) >= 18
    for path in paths:
        found = files[path["PropertyFile"]["Get"].rsplit(".", 1)[1]]
        for part in path["Path"].replace("[", ".[").split("."):
            found = found[int(part[1:-1])] if part.startswith("[") else found[part]
        assert isinstance(found, int | float | str)


def test_metric_patterns_read_the_lines_that_steps_print(definition):
    line = "metrics: step=20 phase=2 loss=3.1415 validation_loss=2.5e-05 learning_rate=0.001"
    for name in ("ContinuedPretraining", "FineTune"):
        specification = steps_of(definition())[name]["Arguments"]["AlgorithmSpecification"]
        patterns = {metric["Name"]: metric["Regex"] for metric in specification["MetricDefinitions"]}
        assert re.search(patterns["loss"], line)[1] == "3.1415"
    assert re.search(patterns["validation_loss"], line)[1] == "2.5e-05"
    assert re.search(patterns["loss"], "metrics: validation_loss=2.5") is None


def test_network_and_keys_go_where_the_service_takes_them(definition):
    key = "arn:aws:kms:us-west-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    overrides = ("aws.subnets=[subnet-0a]", "aws.security_group_ids=[sg-0a]", f"aws.kms_key_id={key}")
    steps = steps_of(definition("laptop", *overrides))
    vpc = {"SecurityGroupIds": ["sg-0a"], "Subnets": ["subnet-0a"]}
    for name in JOBS:
        arguments = steps[name]["Arguments"]
        if steps[name]["Type"] == "Training":
            assert arguments["VpcConfig"] == vpc
            assert arguments["OutputDataConfig"]["KmsKeyId"] == key
            assert "VolumeKmsKeyId" not in arguments["ResourceConfig"]
        else:
            assert arguments["NetworkConfig"]["VpcConfig"] == vpc
            assert arguments["ProcessingOutputConfig"]["KmsKeyId"] == key
            cluster = arguments["ProcessingResources"]["ClusterConfig"]
            # Evaluate's instance type is a parameter and may name one with local disks, which refuse the key.
            assert ("VolumeKmsKeyId" in cluster) == (name != "Evaluate")


def test_resolve_inputs_gives_every_output_that_is_read(definition):
    compiled = definition("laptop", *ALL_INPUTS)
    declared = {output["OutputName"] for output in compiled["Steps"][0]["OutputParameters"]}
    read = set(re.findall(r"OutputParameters\['(\w+)'\]", json.dumps(compiled)))
    assert read == declared
    assert compiled["Steps"][0]["Arguments"]["allow_concurrent"] == {"Get": "Parameters.AllowConcurrent"}
