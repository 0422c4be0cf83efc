"""langadapt doctor: what it finds on this machine, and what it says of things that are missing."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.doctor import answer, check_sample, check_torch, finding_lines
from pipeline.doctor_finding import MISSING, OK, WARNING, Finding
from pipeline.doctor_libraries import check_library, is_within, requirements
from pipeline.doctor_machine import check_folder, check_open_files, file_locks_work
from pipeline.doctor_surroundings import check_aws, credentials_source

ROOT = Path(__file__).parents[2]


def doctor(folder: Path, *arguments: str, path: tuple[Path, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANGADAPT_", "AWS_"))}
    own = {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT))), "HOME": str(folder), "XDG_CACHE_HOME": ""}
    command = [sys.executable, "-m", "pipeline", "doctor", *arguments]
    return subprocess.run(command, cwd=folder, env=kept | own | more, capture_output=True, text=True, timeout=60)


def test_this_machine_can_run_and_the_doctor_opens_no_socket_and_leaves_nothing(tmp_path: Path) -> None:
    secret = "ASECRETTHATNOBODYMAYSEE"
    # Every process that Python starts with this folder on its path ends at the first socket that is not a local pair.
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(
        "import os, socket, sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.sendto'):\n"
        "        os.write(2, b'a socket was used'); os._exit(99)\n"
        "sys.addaudithook(refuse)\n"
    )
    place = tmp_path / "place"
    place.mkdir()
    variables = {
        "AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "eu-north-1",
        "LANGADAPT_CASHE": "/x", "TMPDIR": str(place),
    }  # fmt: skip
    shown = doctor(place, "--json", path=(guard,), **variables)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "socket" not in shown.stderr
    told = json.loads(shown.stdout)
    findings = {finding["name"]: finding for finding in told["findings"]}
    assert told["ok"]
    assert findings["python"]["state"] == findings["pydantic"]["state"] == findings["run folder"]["state"] == "ok"
    assert {"torch works", "GPU", "liger-kernel", "flash-attn", "cores", "memory", "open files", "cache", "sample",
            "temporary folder", "AWS credentials", "node", "docker", "encoding"} <= set(findings)  # fmt: skip
    assert findings["AWS credentials"]["found"] == "from the environment; not tried"
    assert findings["AWS region"]["found"] == "eu-north-1"
    assert findings["LANGADAPT_CASHE"]["state"] == "warning"
    assert secret not in shown.stdout + shown.stderr
    assert [path for path in place.rglob("*") if path.is_file()] == []


def test_a_broken_torch_stops_a_run_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('libcudart.so.13: no such file')")
    shown = doctor(tmp_path, path=(tmp_path / "broken",))
    assert shown.returncode == 1
    (line,) = [line for line in shown.stdout.splitlines() if line.startswith("torch works")]
    assert "missing" in line
    assert "libcudart.so.13: no such file" in line
    assert shown.stdout.splitlines()[-1] == "a local run is not possible: torch works"


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("2.13.0+cpu", ">=2.10", True), ("2.9.1", ">=2.10", False), ("5.24.0", ">=5.24,<6", True), ("6.0", "<6", False),
        ("6", "<6.0.1", True), ("0.23.3", ">=0.23,<0.24", True), ("1.0", "", True), ("3.14.0rc1", "<3.14", False),
        ("1.2", "!=1.2", False), ("1.2.0", "==1.2", True),
    ],
)  # fmt: skip
def test_versions_are_compared_by_their_numbers(version: str, wanted: str, expected: bool) -> None:
    assert is_within(version, wanted) is expected


def test_every_requirement_of_pyproject_is_looked_at() -> None:
    ranges = requirements()
    assert ranges["python"] == ">=3.11,<3.14"
    assert ranges["tokenizers"] == ">=0.23,<0.24"
    assert {"torch", "sagemaker", "boto3", "trl", "typer", "rich"} <= set(ranges)
    assert not {"pytest", "liger-kernel"} & set(ranges)


def test_what_is_missing_says_how_to_get_it() -> None:
    absent = check_library("no-such-library", ">=1,<2")
    assert absent.stops
    assert absent.text == "not installed, wanted >=1,<2. Install it: pip install 'no-such-library>=1,<2'"
    assert check_library("pydantic", ">=99").stops
    slow = list(check_torch("no answer within 7 s"))
    assert [(finding.state, finding.stops) for finding in slow] == [(WARNING, False)] * 2
    cpu = {"version": "2.13", "cuda": None, "mps": False, "devices": [], "bfloat16": False}
    gpu = list(check_torch(cpu))[1]
    assert (gpu.state, gpu.stops) == (MISSING, False)
    assert "brings" in gpu.text
    card = {**cpu, "cuda": "13.0", "devices": [["NVIDIA H200", 150 * 2**30]], "bfloat16": True}
    assert list(check_torch(card))[1].text == "NVIDIA H200 (150 GiB); bfloat16 yes"
    sample, cache = check_sample({"cache": "/c", "sample": "/c/sample-1", "is_made": False})
    assert (sample.state, sample.stops, cache) == (MISSING, False, Path("/c"))
    lines = finding_lines([Finding("a", OK, "1"), Finding("bcd", MISSING, "gone", needed=True)])
    assert lines == ["a    ok       1", "bcd  missing  gone", "", "a local run is not possible: bcd"]


def test_a_probe_that_hangs_is_left_behind() -> None:
    probe = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.PIPE, text=True)
    assert str(answer(probe, 0.0)).startswith("no answer")
    probe.kill()
    probe.communicate()


def test_folders_that_cannot_serve_are_named(tmp_path: Path) -> None:
    assert file_locks_work(tmp_path)
    (good,) = check_folder("run folder", tmp_path / "runs" / "laptop")
    assert good.state == OK
    assert f"to be made in {tmp_path}" in good.found
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    (bad,) = check_folder("run folder", tmp_path / "file" / "below")
    assert bad.stops
    assert "file is a file" in bad.found
    if os.getuid() == 0:
        (unwritable,) = check_folder("run folder", Path("/proc/langadapt"))
        assert unwritable.stops


def test_a_low_limit_of_open_files_is_told() -> None:
    code = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0}))
from pipeline.doctor_machine import check_open_files
finding = check_open_files()
print(finding.state, finding.stops)
"""
    for limit, expected in ((32, "missing True"), (128, "warning False")):
        done = subprocess.run([sys.executable, "-c", code.format(limit)], cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.strip() == expected, done.stderr
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 256:
        assert check_open_files().state == OK


def test_credentials_are_found_where_boto3_would_find_them_without_being_read_out(tmp_path: Path) -> None:
    assert credentials_source({"aws_access_key_id": "AKIA"}, "work") == "profile work (its keys)"
    assert credentials_source({"sso_session": "x"}, "work") == "profile work (single sign-on)"
    config = tmp_path / "config"
    config.write_text("[default]\nregion = eu-west-1\ncredential_process = /bin/false\n")
    code = "from pipeline.doctor_surroundings import check_aws\nfor f in check_aws(): print(f.state, f.found)"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    own = {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=kept | own, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["ok from profile default (its program); not tried", "ok eu-west-1"]
    assert {finding.state for finding in check_aws()} <= {OK, MISSING, WARNING}
