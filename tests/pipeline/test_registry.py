"""The local model registry: numbered, append-only, independent of the runs."""

import json
import shutil

import pytest

from pipeline.model_commands import check_registry
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError, StepConfig, StepError, StepFolders, seal


@pytest.fixture
def registry(tmp_path):
    return LocalRegistry(tmp_path / "registry")


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "run" / "model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "sub").mkdir()
    (folder / "sub" / "config.json").write_text("{}")
    return seal_model(folder, 1.0)


def seal_model(folder, seconds):
    """The seal that a step leaves, with a report of how long it took."""
    (folder / "training.json").write_text(f'{{"seconds": {seconds}}}')
    seal(StepFolders(folder), "step", StepConfig(), {}, seconds, ["training.json"])
    return folder


def register(registry, model, group="texts", **metadata):
    return registry.register(group=group, model=model, metadata=metadata, metrics={"bits": 1.5}, request={"a": 1})


def test_a_version_keeps_model_metrics_and_status(registry, model):
    version, is_new = register(registry, model, recipe="r")

    assert (version.version, version.status, is_new) == (1, "PendingManualApproval", True)
    assert (version.metrics, version.metadata, version.request) == ({"bits": 1.5}, {"recipe": "r"}, {"a": 1})
    assert (version.model_folder / "sub" / "config.json").read_text() == "{}"
    assert version.model_bytes == 7 + 2 + sum(
        (model / name).stat().st_size for name in ("training.json", "manifest.json")
    )
    assert registry.show(1) == version


def test_the_same_model_of_the_same_settings_is_the_same_version(registry, model):
    first, _ = register(registry, model, settings_sha256="s", recipe_sha256="r", **{"champion.bits": "2"})
    # Seconds in the seal, code that made the same bytes and figures of another measurement make no other model.
    seal_model(model, 2.0)
    second, is_new = register(registry, model, settings_sha256="s", recipe_sha256="code", **{"champion.bits": "1"})
    assert (second, is_new) == (first, False)
    assert second.metadata["recipe_sha256"] == "r"

    assert register(registry, model, settings_sha256="other", recipe_sha256="r")[0].version == 2
    (model / "model.safetensors").write_bytes(b"Weights")
    seal_model(model, 2.0)
    assert register(registry, model, settings_sha256="s")[0].version == 3
    assert register(registry, model, group="more", settings_sha256="s")[0].version == 1


def test_the_registered_model_survives_whatever_happens_to_the_run(registry, model):
    version, _ = register(registry, model)
    (model / "model.safetensors").write_bytes(b"cut")
    (model / "sub" / "config.json").unlink()

    assert (version.model_folder / "model.safetensors").read_bytes() == b"weights"
    assert (version.model_folder / "sub" / "config.json").is_file()


def test_approving_and_rejecting_add_to_the_history(registry, model):
    register(registry, model)
    assert registry.newest_approved("texts") is None
    registry.approve(1, by="a person")
    registry.approve(1)
    assert registry.newest_approved("texts").version == 1
    version = registry.reject(1, "invents facts")

    assert [(entry.status, entry.comment) for entry in version.approvals] == [
        ("PendingManualApproval", ""), ("Approved", ""), ("Rejected", "invents facts"),
    ]  # fmt: skip
    assert version.approvals[1].by == "a person"
    assert registry.newest_approved("texts") is None
    with pytest.raises(ConfigError, match="Say why"):
        registry.reject(1, " ")


def test_the_newest_approved_version_counts(registry, model):
    for number in range(12):
        (model / "model.safetensors").write_bytes(str(number).encode())
        seal_model(model, 1.0)
        register(registry, model)
    registry.approve(11)
    registry.approve(2)

    assert [version.version for version in registry.list_versions("texts")] == list(range(1, 13))
    assert registry.newest_approved("texts").version == 11


def test_a_status_may_be_set_at_registration_but_must_be_known(registry, model):
    options = {"group": "texts", "model": model, "metadata": {}, "metrics": {}, "request": {}}
    with pytest.raises(ConfigError, match=r"ModelApprovalStatus: Aproved. Did you mean Approved?"):
        registry.register(status="Aproved", **options)
    assert registry.register(status="Approved", **options)[0].status == "Approved"


def test_unknown_versions_and_ambiguous_ones_are_named(registry, model):
    with pytest.raises(ConfigError, match=f"registry: {registry.folder} does not exist. Name another with --registry"):
        registry.show(1)
    registry.folder.mkdir()
    with pytest.raises(ConfigError, match=f"version: 1; limit none is registered in {registry.folder}."):
        registry.show(1)
    register(registry, model)
    register(registry, model, group="more")
    with pytest.raises(ConfigError, match="version: 2; limit one of 1"):
        registry.show(2)
    with pytest.raises(ConfigError, match="limit one group of more, texts"):
        registry.show(1)
    assert registry.show(1, "more").group == "more"
    with pytest.raises(ConfigError, match=f"group: mora; limit a group of {registry.folder}. Did you mean more?"):
        registry.show(1, "mora")


def test_a_missing_model_and_a_broken_record_are_named(registry, model, tmp_path):
    with pytest.raises(StepError, match="does not exist"):
        register(registry, tmp_path / "none")
    assert registry.list_versions() == []
    register(registry, model)
    (registry.folder / "texts" / "1" / "version.json").write_text("{")
    with pytest.raises(StepError, match="damaged model version"):
        registry.show(1)


def test_half_made_versions_are_not_seen(registry, model):
    register(registry, model)
    unfinished = registry.folder / "texts" / ".new-1234"
    (unfinished / "model").mkdir(parents=True)
    (unfinished / "version.json").write_text(json.dumps({}))

    assert [version.version for version in registry.list_versions()] == [1]


@pytest.mark.parametrize("name", ["²", "٣", "007", "0", "1 (copy)"])
def test_a_folder_that_is_named_by_no_version_number_is_none(registry, model, name):
    register(registry, model)
    (registry.folder / "texts" / name).mkdir()
    assert [version.version for version in registry.list_versions()] == [1]
    assert registry.damaged() == []
    check_registry(registry.folder)
    assert register(registry, model, settings_sha256="other")[0].version == 2


def test_a_version_of_another_group_is_damaged(registry, model):
    register(registry, model)
    shutil.copytree(registry.folder / "texts", registry.folder / "more")
    assert [(version.group, version.version) for version in registry.list_versions()] == [("texts", 1)]
    with pytest.raises(StepError, match=r"damaged model version \(it says that it is version 1 of texts\)"):
        registry.show(1, "more")


def test_no_group_is_read_from_outside_the_registry(registry, model):
    register(registry, model)
    with pytest.raises(ConfigError, match=r"ModelPackageGroupName: '../registry/texts'; limit 63 letters"):
        registry.show(1, "../registry/texts")
