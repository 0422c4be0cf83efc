"""The image built for real, and jobs run inside it: no network, a read-only disk, nothing but /opt/ml.

`make test-container` runs this file alone. It needs root, buildah, podman, runc and debootstrap, and takes a quarter of
an hour; the first run makes the base image's files and downloads the wheels, which stay in the user's cache.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from container_images import (
    PLACE_OF_WHEELS,
    Build,
    Images,
    by_digest,
    image_facts,
    images_in,
    missing_tools,
    run,
    tiny_wheel,
    wheel_of,
    wheelhouse,
)
from container_jobs import ENGINE, LIMITS, ContainerJob
from workplace import Workplace, copy_of_source, fill_workplace, prove

from steps.contract import EXIT_DONE, EXIT_TERMINATED, EXIT_USER_ERROR, file_sha256
from steps.schemas.evaluation import Evaluation

pytestmark = [
    pytest.mark.verify,
    pytest.mark.skipif(bool(missing_tools()), reason=f"no containers here: {missing_tools()}"),
]

# A user that the image knows nothing of.
SOMEBODY = 12_345
TWO_STEPS = ("continued_pretraining.phase_1_steps=1", "continued_pretraining.phase_2_steps=1")
# Long enough to be stopped in the middle; the only checkpoint is the one that the signal brings.
LONG = {"phase_2_steps": "100000", "validate_every_steps": "100000", "checkpoint_every_steps": "100000"}
LARGEST_DIFFERENCE = 1e-4
PRIVATE = (
    ".git/config",
    ".env",
    ".venv/bin/python",
    ".pypirc",
    "pip.conf",
    "id_rsa",
    "runs/laptop/log.txt",
    "more/a.py",
)


@dataclass(frozen=True)
class Proof:
    """source: the packages that are built and run, one state of them.  place: where the same jobs ran without image."""

    source: Path
    place: Workplace
    images: Images
    base: str
    wheels: Path
    built: Build

    def job(self, step: str, folder: Path, user: int = 0) -> ContainerJob:
        (own,) = self.place.run_folder.glob(f"jobs/{step}/*/opt/ml")
        return ContainerJob(folder / "opt/ml", own, user)


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory, make_tiny_llama) -> Iterator[Proof]:
    folder = tmp_path_factory.mktemp("container")
    (folder / "source").mkdir()
    source = copy_of_source(folder / "source")
    (folder / "place").mkdir()
    place = fill_workplace(folder / "place", make_tiny_llama, source)
    finished = place.run(*(word for setting in TWO_STEPS for word in ("--set", setting)))
    assert finished.returncode == EXIT_DONE, finished.stderr
    with images_in(folder) as images:
        base = images.import_base()
        wheels = wheelhouse(source / "containers/requirements-cpu.txt")
        built = images.build(source / "containers", base, "cpu", wheels)
        assert built.returncode == 0, built.log[-3_000:]
        yield Proof(source, place, images, base, wheels, built)


def test_the_image_is_built_on_a_base_by_digest(proof: Proof) -> None:
    (told,) = [line for line in proof.built.log.splitlines() if "packages as pinned" in line]
    print(f"\n{told}")
    facts, base = image_facts(proof.built.name), image_facts(proof.base)
    print(f"size: {facts['Size'] / 1e9:.2f} GB, of which the base has {base['Size'] / 1e9:.2f} GB")
    layers = len(facts["RootFS"]["Layers"]) - len(base["RootFS"]["Layers"])
    prove("layers on top of the base's", layers, "at most 3", layers <= 3)
    said = facts["Labels"]["org.opencontainers.image.base.name"]
    prove("the label names the base", said, proof.base, said == proof.base)


def test_nothing_of_the_build_stays_in_the_image(proof: Proof) -> None:
    """No configuration of pip, no wheels, no cache, no secret; what is there of ours is the launcher."""
    find = ["find", "/", "-xdev", "(", "-name", "pip.conf", "-o", "-name", "*.whl", "-o", "-name", "base.json", "-o",
            "-path", "/run/secrets/*", "-o", "-path", "/root/.cache/*", "-o", "-path", "/wheels/*", ")"]  # fmt: skip
    alone = [
        *ENGINE,
        "run",
        "--rm",
        "--pull=never",
        "--network=none",
        "--read-only",
        *LIMITS,
        "--entrypoint",
        "",
        proof.built.name,
    ]
    left = run(*alone, *find).split()
    # The wheels that Python's own ensurepip and virtualenv packages bring are the system's.
    left = [path for path in left if not path.startswith(("/usr/share/python-wheels/", "/usr/lib/python3"))]
    prove("files of the build in the image", left, "none", not left)
    ours = run(*alone, "find", "/opt/langadapt", "-type", "f").split()
    expected = {f"/opt/langadapt/containers/{path.name}" for path in (proof.source / "containers").glob("*.py")}
    prove("files below /opt/langadapt", len(ours), f"the {len(expected)} modules", set(ours) == expected)
    writable = run(*alone, "find", "/opt/langadapt", "-perm", "/022").split()
    prove("of them to be written by others", len(writable), "0", not writable)


def test_two_builds_are_one_image(proof: Proof) -> None:
    again = proof.images.build(proof.source / "containers", proof.base, "again", proof.wheels)
    layers = [image_facts(build.name)["RootFS"]["Layers"] for build in (proof.built, again)]
    prove("layers of a second build that differ", sum(one != other for one, other in zip(*layers, strict=True)), "0",
          layers[0] == layers[1])  # fmt: skip


@pytest.mark.parametrize("user", [0, SOMEBODY])
def test_a_tokenizer_is_trained_inside(proof: Proof, tmp_path: Path, user: int) -> None:
    job = proof.job("TrainTokenizer", tmp_path, user)
    ended = job.run(proof.built.name, f"{proof.images.prefix}-tokenizer-{user}")
    print(ended.log[-1_500:])
    prove(f"TrainTokenizer as user {user}: exit code", ended.exit_code, "0", ended.exit_code == EXIT_DONE)
    inside, outside = (
        place / "tokenizer/tokenizer.json" for place in (job.output, proof.place.output("TrainTokenizer"))
    )
    prove("sha256 of tokenizer.json", file_sha256(inside)[:16], f"{file_sha256(outside)[:16]}, as without the image",
          inside.read_bytes() == outside.read_bytes())  # fmt: skip
    prove("a message of failure", job.message.exists(), "none", not job.message.exists())


@pytest.mark.parametrize("user", [0, SOMEBODY])
def test_a_model_is_trained_inside(proof: Proof, tmp_path: Path, user: int) -> None:
    """One step of each phase. The sums of a matrix product may be added in another order by another build."""
    job = proof.job("ContinuedPretraining", tmp_path, user)
    ended = job.run(proof.built.name, f"{proof.images.prefix}-training-{user}")
    print(ended.log[-1_500:])
    prove(f"ContinuedPretraining as user {user}: exit code", ended.exit_code, "0", ended.exit_code == EXIT_DONE)
    inside, outside = (weights(place) for place in (job.output, proof.place.output("ContinuedPretraining")))
    assert inside.keys() == outside.keys()
    difference = max((inside[name] - outside[name]).abs().max().item() for name in inside)
    prove("largest difference of a weight", difference, f"{LARGEST_DIFFERENCE}", difference <= LARGEST_DIFFERENCE)


@pytest.mark.parametrize("user", [0, SOMEBODY])
def test_a_model_is_evaluated_inside(proof: Proof, tmp_path: Path, user: int) -> None:
    job = proof.job("Evaluate", tmp_path, user)
    ended = job.run(proof.built.name, f"{proof.images.prefix}-evaluation-{user}")
    print(ended.log[-1_500:])
    prove(f"Evaluate as user {user}: exit code", ended.exit_code, "0", ended.exit_code == EXIT_DONE)
    inside, outside = (bits_per_byte(place) for place in (job.output, proof.place.output("Evaluate")))
    difference = max(abs(inside[name] - outside[name]) for name in outside)
    prove(f"bits per byte {inside}: largest difference", difference, f"{LARGEST_DIFFERENCE}",
          difference <= LARGEST_DIFFERENCE)  # fmt: skip


def test_a_wrong_setting_ends_in_one_line(proof: Proof, tmp_path: Path) -> None:
    training = proof.job("ContinuedPretraining", tmp_path / "training", SOMEBODY)
    training.set_hyperparameters(phase_2_learning_rate="fast")
    processing = proof.job("TrainTokenizer", tmp_path / "processing", SOMEBODY)
    for job, more in ((training, ()), (processing, ("--min_gain=much",))):
        ended = job.run(proof.built.name, f"{proof.images.prefix}-wrong", *more)
        line = job.message.read_text()
        told, is_line = (ended.exit_code, line), line.startswith("error: ") and "\n" not in line.strip()
        prove(f"{job.message.name} and exit code of a wrong setting", told, f"exit code {EXIT_USER_ERROR}, one line",
              ended.exit_code == EXIT_USER_ERROR and is_line)  # fmt: skip


def test_a_container_that_is_stopped_leaves_a_checkpoint_and_goes_on(proof: Proof, tmp_path: Path) -> None:
    job = proof.job("ContinuedPretraining", tmp_path, SOMEBODY)
    job.set_hyperparameters(**LONG)
    telemetry = job.output / "telemetry.jsonl"
    name = f"{proof.images.prefix}-stopped"

    def has_trained(since: int) -> bool:
        rows = telemetry.read_text().splitlines() if telemetry.is_file() else []
        return any(json.loads(row).get("step", 0) > since for row in rows if row.endswith("}"))

    ended = job.run_until(proof.built.name, name, lambda: has_trained(3))
    checkpoints = sorted(path.name for path in (job.root / "checkpoints").iterdir())
    told = (ended.exit_code, checkpoints, f"{ended.seconds:.1f} s")
    prove("podman stop while training", told, f"exit code {EXIT_TERMINATED}, a checkpoint, in 120 s",
          ended.exit_code == EXIT_TERMINATED and len(checkpoints) >= 1 and ended.seconds < 120)  # fmt: skip
    reason = job.message.read_text()
    prove("output/failure", reason, "one line that names SIGTERM", "SIGTERM" in reason and "\n" not in reason.strip())
    print(ended.log[-1_500:])
    job.begin_another_attempt()
    again = job.run_until(proof.built.name, name, lambda: has_trained(0))
    gone_on = [line for line in again.log.splitlines() if "going on from the checkpoint" in line]
    prove("the next start goes on from it", gone_on[:1], "a line that says so", bool(gone_on))


def test_a_build_gets_no_private_file(proof: Proof, tmp_path: Path) -> None:
    """All that a Dockerfile could copy, from a folder in which somebody has kept things."""
    context = tmp_path / "containers"
    shutil.copytree(proof.source / "containers", context)
    for path in PRIVATE:
        (context / path).parent.mkdir(parents=True, exist_ok=True)
        (context / path).write_text("private")
    listing = "RUN find /context -type f | sed s/^/copied:/"
    lines = ["ARG CPU_BASE", "FROM ${CPU_BASE} AS cpu", "COPY . /context/", listing]
    (context / "Dockerfile").write_text("\n".join(lines) + "\n")
    built = proof.images.build(context, proof.base, "context", tmp_path)
    assert built.returncode == 0, built.log
    got = {line.removeprefix("copied:/context/") for line in built.log.splitlines() if line.startswith("copied:")}
    prove("files that a build gets", len(got), "the launcher and the requirements, none private",
          len(got) > 2 and all(name.endswith((".py", ".txt")) for name in got) and not got & set(PRIVATE))  # fmt: skip


def test_the_gpu_target_is_built_where_there_is_no_gpu(proof: Proof, tmp_path: Path) -> None:
    """On the same base with triton, as the machines that build images have no GPU. Not AWS's base, and nothing runs."""
    wheel = wheel_of("triton")
    installation = f"python3 -m pip install --no-index --find-links={PLACE_OF_WHEELS} --no-deps triton"
    lines = ["ARG CPU_BASE", "FROM ${CPU_BASE} AS cpu", f"RUN {installation}"]
    (tmp_path / "Dockerfile").write_text("\n".join(lines) + "\n")
    base = proof.images.build(tmp_path, proof.base, "triton", wheel)
    assert base.returncode == 0, base.log
    wheels = wheelhouse(proof.source / "containers/requirements-gpu.txt")
    built = proof.images.build(proof.source / "containers", by_digest(base.name), "gpu", wheels, "gpu")
    told = [line for line in built.log.splitlines() if "packages as pinned" in line or line.startswith("error")]
    prove("the target gpu", told, "exit code 0", built.returncode == 0)


def test_a_base_without_a_digest_is_refused(proof: Proof) -> None:
    unpinned = proof.images.names[0]
    refused = proof.images.build(proof.source / "containers", unpinned, "unpinned", proof.wheels)
    prove("a base by its tag", refused.error_lines, "one line, no image", refused.ended_with("base image: "))


def test_a_requirement_that_changes_the_bases_torch_is_refused(proof: Proof, tmp_path: Path) -> None:
    """A wheel that calls itself torch, which pip installs over the base's."""
    context = tmp_path / "containers"
    shutil.copytree(proof.source / "containers", context)
    line = tiny_wheel(tmp_path / "wheels", "torch", "99.0")
    (context / "requirements-cpu.txt").write_text(line)
    refused = proof.images.build(context, proof.base, "changed", tmp_path / "wheels")
    prove("another torch among the requirements", refused.error_lines, "one line", refused.ended_with("torch: "))


def weights(folder: Path) -> dict:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def bits_per_byte(folder: Path) -> dict[str, float]:
    measured = Evaluation.model_validate_json((folder / "evaluation.json").read_bytes()).bits_per_byte
    return {name: getattr(measured, name) for name in ("base", "pretrained", "candidate")}
