"""Environments: the shipped ones load; a wrong one is told in one line, before anything is synthesised."""

import json

import pytest
from environments import BARE, FULL, ROOT, environment_file, synthesise

from infra.app import build_app, context, environment_files
from infra.environment import load_environment
from steps.contract import EXIT_USER_ERROR, ConfigError

DIGEST = "sha256:" + "1" * 64
# What is set in BARE (null: left out), and how the line begins.
BAD = {
    "unknown preset": ({"preset": "azerbaijani-1b-p4"}, "preset: azerbaijani-1b-p4. Did you mean azerbaijani-1b-p4d?"),
    "no preset and no config": ({"preset": None}, "preset: neither preset nor config; limit one of preset and config."),
    "preset and config": ({"config": "own.yaml"}, "preset: preset and config; limit one of preset and config."),
    "a missing config file": ({"preset": None, "config": "own.yaml"}, "config: "),
    "a wrong setting of the pipeline": ({"set": ["compute.cache_days=0"]}, "compute.cache_days: 0; limit "),
    "an unknown setting of the pipeline": ({"set": ["compute.cash_days=7"]}, "compute.cash_days: no such field. Did "),
    "an account that is a number": ({"account": 123456789012}, "account: 123456789012; limit a text. Write it"),
    "an account of eleven digits": ({"account": "12345678901"}, "account: '12345678901'; limit the form ^"),
    "no region": ({"region": "Ireland"}, "region: 'Ireland'; limit the form ^"),
    "a name with capitals": ({"name": "LangAdapt"}, "name: 'LangAdapt'; limit the form ^"),
    "a name that is too long": ({"name": "l" * 33}, f"name: '{'l' * 33}'; limit String should have at most 32"),
    "an unknown key": ({"shedule": {}}, "shedule: no such field. Did you mean schedule?"),
    "an unknown key of an option": ({"budget": {"monthly_eur": 5}}, "budget.monthly_usd: missing; limit a value."),
    "a misspelt key of an option": (
        {"budget": {"monthly_usd": 5, "stop_at": 9}}, "budget.stop_at: no such field. Did you mean stop_at_percent?",
    ),
    "an image by its tag": ({"image": {"uri": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/l:1"}}, "image.uri: "),
    "a base by its tag": ({"image": {"base": "public.ecr.aws/x/pytorch:2.14"}}, "image.base: "),
    "an image of another region": (
        {"image": {"uri": f"123456789012.dkr.ecr.us-west-2.amazonaws.com/l@{DIGEST}"}}, "image.uri: 123456789012.dkr",
    ),
    "a server of another region": (
        {"serving_image_uri": f"123456789012.dkr.ecr.us-west-2.amazonaws.com/l@{DIGEST}"}, "serving_image_uri: 123456",
    ),
    "no image": ({"image": {}}, "image: neither base nor uri; limit one of base and uri."),
    "two images": (
        {"image": {"base": f"public.ecr.aws/x/pytorch@{DIGEST}", "uri": BARE["image"]["uri"]}},
        "image: base and uri; limit one of base and uri.",
    ),
    "a build that outlasts CloudFormation": (
        {"image": {"base": f"x/y@{DIGEST}", "build_minutes": 90}}, "image.build_minutes: 90; limit less than or equal",
    ),
    "a cron of five fields": ({"schedule": {"expression": "cron(0 3 * * SUN)"}}, "schedule.expression: cron("),
    "a cron of wrong hours": ({"schedule": {"expression": "cron(0 25 ? * SUN *)"}}, "schedule.expression: 25 in cron("),
    "a single time": ({"schedule": {"expression": "at(2030-01-01T00:00:00)"}}, "schedule.expression: at(2030"),
    "a time zone that is none": (
        {"schedule": {"expression": "rate(7 days)", "time_zone": "Asia/Bakku"}}, "schedule.time_zone: Asia/Bakku;",
    ),
    "a mail without a host": ({"mails": ["models"]}, "mails: models; limit name@host."),
    "a negative budget": ({"budget": {"monthly_usd": -1}}, "budget.monthly_usd: -1; limit greater than 0."),
    "an infinite budget": ({"budget": {"monthly_usd": float("inf")}}, "budget.monthly_usd: inf; limit "),
    "a zone of another region": (
        {"network": {"availability_zones": ["us-west-2a"]}}, "network.availability_zones: us-west-2a; limit a zone",
    ),
    "a network without zones": ({"network": {"availability_zones": []}}, "network.availability_zones: []; limit "),
    "a range that is too small": (
        {"network": {"cidr": "10.0.0.0/28", "availability_zones": ["eu-west-1a"]}}, "network.cidr: '10.0.0.0/28'; ",
    ),
    "deployment without a server": (
        {"approval": {"action": "deploy"}}, "serving_image_uri: not set; limit an image that serves",
    ),
    "an approval that does something else": ({"approval": {"action": "delete"}}, "approval.action: 'delete'; limit "),
    "a boundary that is no policy": ({"permissions_boundary": "boundary"}, "permissions_boundary: 'boundary'; lim"),
    "a removal that is neither": ({"removal": "destroy"}, "removal: 'destroy'; limit 'retain' or 'delete'."),
    "an option that is no section": ({"monitoring": True}, "monitoring: True; limit "),
    "a mail twice": ({"mails": ["a@example.com"] * 2}, "mails: a@example.com; limit each address once."),
    "a range that is none": (
        {"network": {"cidr": "999.1.1.1/16", "availability_zones": ["eu-west-1a"]}}, "network.cidr: 999.1.1.1/16; ",
    ),
    "a range that begins within itself": (
        {"network": {"cidr": "10.20.1.1/16", "availability_zones": ["eu-west-1a"]}}, "network.cidr: 10.20.1.1/16; ",
    ),
    "a zone twice": (
        {"network": {"availability_zones": ["eu-west-1a"] * 2}}, "network.availability_zones: eu-west-1a; limit each",
    ),
    "a warning with the stop": (
        {"budget": {"monthly_usd": 5, "warn_at_percent": 100}}, "budget.warn_at_percent: 100; limit below stop_at",
    ),
    "a warning after the stop": (
        {"budget": {"monthly_usd": 5, "stop_at_percent": 50}}, "budget.warn_at_percent: 80; limit below stop_at_perc",
    ),
    "an endpoint with capitals": ({"approval": {"endpoint_name": "LangAdapt"}}, "approval.endpoint_name: 'Lang"),
    "a boundary of another account": (
        {"permissions_boundary": "arn:aws:iam::999999999999:policy/b"}, "permissions_boundary: arn:aws:iam::99999",
    ),
    "a tag of AWS's own": ({"tags": {"aws:team": "language"}}, "tags: aws:team=language; limit names of 1 to 128"),
    "a tag without a name": ({"tags": {"": "language"}}, "tags: =language; limit names of 1 to 128 characters"),
    "a tag that is too long": ({"tags": {"team": "l" * 300}}, "tags: team=lll"),
    "parameters that no function holds": (
        {"new_data": {"parameters": {"MinImprovement": "1" * 5_000}}}, "new_data.parameters: 5022 characters; limit ",
    ),
    "a region without model package groups": ({"region": "cn-north-1"}, "region: cn-north-1; limit a region outside"),
    "a budget where there is none": (
        {"region": "us-gov-west-1", "budget": {"monthly_usd": 5}}, "budget: given; limit none in us-gov-west-1.",
    ),
}  # fmt: skip


def with_changes(changes):
    return {name: value for name, value in {**BARE, **changes}.items() if value is not None}


@pytest.mark.parametrize(("changes", "beginning"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_told_in_one_line_that_names_the_field(tmp_path, changes, beginning):
    with pytest.raises(ConfigError) as raised:
        load_environment(environment_file(tmp_path, with_changes(changes)))
    line = str(raised.value)
    assert line.startswith(beginning), line
    assert "\n" not in line
    assert line.endswith((".", "?")), line


def test_a_wrong_environment_ends_the_app_with_one_line_before_it_synthesises(tmp_path):
    file = environment_file(tmp_path / "environments", with_changes({"budget": {"monthly_usd": -1}}))
    finished = synthesise([file], tmp_path / "cdk.out")
    assert finished.returncode == EXIT_USER_ERROR
    assert finished.stderr == "error: budget.monthly_usd: -1; limit greater than 0. Change this field.\n"
    assert not (tmp_path / "cdk.out").exists()


def test_files_that_are_no_environment_are_named(tmp_path):
    broken, latin = tmp_path / "broken.yaml", tmp_path / "latin.yaml"
    broken.write_text("name: [")
    latin.write_bytes("name: Bakı".encode("utf-16"))
    for file, part in ((broken, "no YAML"), (latin, "is not UTF-8"), (tmp_path / "absent.yaml", "is no file")):
        with pytest.raises(ConfigError, match=part):
            load_environment(file)
    twice = [environment_file(tmp_path / folder, BARE) for folder in ("a", "b")]
    with pytest.raises(ConfigError, match="langadapt-bare; limit one environment of a name"):
        build_app(twice)
    shared = {"serving_image_uri": FULL["serving_image_uri"], "approval": {"action": "deploy", "endpoint_name": "one"}}
    both = [environment_file(tmp_path, {**BARE, **shared, "name": name}) for name in ("first", "second")]
    with pytest.raises(
        ConfigError, match=r"approval.endpoint_name: one; limit one environment of an endpoint. Give sec"
    ):
        build_app(both)


def test_the_placeholder_that_a_base_is_shipped_with_is_warned_of(capsys):
    build_app([ROOT / "infra/environments/dev.yaml"])
    assert capsys.readouterr().err.startswith("warning: langadapt-dev: image.base is the placeholder")


def test_an_own_configuration_lies_beside_its_environment(tmp_path):
    (tmp_path / "own.yaml").write_text((ROOT / "pipeline/presets/aws-smoke.yaml").read_text("utf-8"), "utf-8")
    file = environment_file(tmp_path, with_changes({"preset": None, "config": "own.yaml"}))
    assert load_environment(file).config == str(tmp_path / "own.yaml")


def test_shipped_environments_load_and_have_nothing_of_an_account():
    found = {file.stem: load_environment(file) for file in environment_files()}
    assert list(found) == ["dev", "prod"]
    assert {environment.account for environment in found.values()} == {"111122223333"}
    assert found["dev"].network is None
    assert found["prod"].network is not None
    assert set(FULL) == set(type(found["prod"]).model_fields) - {"config", "adopt_model_package_group", "removal"}


def test_both_ways_to_the_template_have_the_same_context():
    """The command line reads it from cdk.json, the app from the same file; what adds to templates is off."""
    settings = json.loads((ROOT / "infra/cdk.json").read_text(encoding="utf-8"))
    assert context() == settings["context"]
    assert [settings[name] for name in ("versionReporting", "pathMetadata", "assetMetadata")] == [False] * 3
