"""What a host is counted to have, and what is set for the network between several, by instance type."""

import pytest

from containers.bandwidth_check import bus_gb_per_second, floor_gb_per_second, is_wanted
from containers.host_devices import check_gpus, processes_per_host
from containers.instance_types import INSTANCE_TYPES
from containers.job_configuration import Launch
from containers.launch_errors import LaunchError
from containers.network_settings import network_line, network_variables
from containers.step_process import command_line


def launch(instance_type: str | None = "ml.p4d.24xlarge", interface: str = "eth0", hosts: int = 2, kind="training"):
    names = [f"algo-{number + 1}" for number in range(hosts)]
    return Launch(kind, "tiny", {}, [], 0, names, interface, instance_type)


@pytest.fixture
def devices(tmp_path):
    def make(count: int, name: str = "nvidia") -> str:
        for number in range(count):
            (tmp_path / f"{name}{number}").touch()
        # Beside the GPUs lie the driver's own.
        (tmp_path / "nvidiactl").touch()
        (tmp_path / "nvidia-uvm").touch()
        return f"{tmp_path}/{name}[0-9]*"

    return make


@pytest.mark.parametrize(("variables", "gpus", "processes"), [
    ({}, 8, 8),
    ({}, 0, 1),
    ({"CUDA_VISIBLE_DEVICES": "0,3"}, 8, 2),
    ({"CUDA_VISIBLE_DEVICES": "3, 1 ,9,2"}, 8, 2),
    ({"CUDA_VISIBLE_DEVICES": ""}, 8, 1),
    ({"CUDA_VISIBLE_DEVICES": "-1"}, 8, 1),
    ({"CUDA_VISIBLE_DEVICES": "GPU-5d1a,GPU-77"}, 8, 2),
    ({"CUDA_VISIBLE_DEVICES": "0,1"}, 0, 1),
    ({"LANGADAPT_PROCESSES": "3", "CUDA_VISIBLE_DEVICES": "0"}, 8, 3),
])  # fmt: skip
def test_one_process_a_visible_gpu(devices, variables, gpus, processes):
    assert processes_per_host(variables, devices(gpus)) == processes


@pytest.mark.parametrize("given", ["0", "-1", "x", "1.5", "²", "9" * 5_000])
def test_a_number_of_processes_that_is_none(given):
    with pytest.raises(LaunchError, match=r"^LANGADAPT_PROCESSES: .*; limit a whole number from 1"):
        processes_per_host({"LANGADAPT_PROCESSES": given})


def test_a_gpu_that_is_missing_is_refused(devices):
    with pytest.raises(LaunchError, match=r"^GPUs: 7 in .*; limit 8 of ml\.p5\.48xlarge\. Start the job again on"):
        check_gpus("ml.p5.48xlarge", {}, devices(7))
    check_gpus("ml.p5.48xlarge", {"LANGADAPT_PROCESSES": "7"}, devices(7))
    check_gpus("ml.p5.48xlarge", {"CUDA_VISIBLE_DEVICES": "0"}, devices(8))
    check_gpus("ml.m5.large", {}, devices(0, "none"))
    check_gpus(None, {}, devices(0, "none"))


@pytest.mark.parametrize(("instance_type", "expected"), [
    ("ml.p4d.24xlarge", {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_DEBUG": "WARN"}),
    ("ml.p5.48xlarge", {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_DEBUG": "WARN"}),
    ("ml.p5en.48xlarge", {"FI_PROVIDER": "efa", "NCCL_DEBUG": "WARN"}),
    ("ml.p6-b200.48xlarge", {"FI_PROVIDER": "efa", "NCCL_DEBUG": "WARN"}),
    ("ml.g6e.48xlarge", {"FI_PROVIDER": "efa", "NCCL_DEBUG": "WARN"}),
    ("ml.unknown.large", {"FI_PROVIDER": "efa", "NCCL_DEBUG": "WARN"}),
])  # fmt: skip
def test_what_is_set_by_instance_type(devices, instance_type, expected):
    interface = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
    found = network_variables(launch(instance_type), devices(4, "uverbs"))
    assert found == {**interface, **expected}
    # What aws-ofi-nccl knows better, and what harms.
    assert not {"NCCL_PROTO", "NCCL_ALGO", "RDMAV_FORK_SAFE"} & set(found)


def test_nothing_of_efa_without_its_devices_on_loopback_or_for_one_host(devices):
    none, some = devices(0, "none"), devices(4, "uverbs")
    assert "FI_PROVIDER" not in network_variables(launch(), none)
    assert network_variables(launch(interface="lo"), some) == {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    assert network_variables(launch(hosts=1), some) == {}


def test_the_line_tells_what_is_set_and_what_was_given(devices):
    wanted = network_variables(launch(), pattern := devices(3, "uverbs"))
    assert network_line(launch(), 8, wanted, {"NCCL_DEBUG": "INFO"}, pattern) == (
        "launch: algo-1, 1 of 2 hosts, ml.p4d.24xlarge, processes=8; EFA interfaces: 3 of 4; set: "
        "NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1; left as given: "
        "NCCL_DEBUG=INFO"
    )


def test_the_table_is_sane():
    for name, row in INSTANCE_TYPES.items():
        assert name.startswith("ml."), name
        assert row.gpus in (1, 4, 8), name
        has_efa = row.efa_interfaces is None or row.efa_interfaces > 0
        assert has_efa == (row.gbit_per_second is not None) == (row.floor_gb_per_second is not None), name
        if row.gbit_per_second and row.floor_gb_per_second:
            # In bytes; a floor at the line's rate would refuse good networks.
            share = row.floor_gb_per_second / (row.gbit_per_second / 8)
            expected = 0.25 if name.startswith("ml.p") else 0.1
            assert share == pytest.approx(expected, abs=0.01), name


def test_the_table_has_the_services_accelerated_types():
    """All with NVIDIA's GPUs that training jobs know, but those whose GPUs were not looked up."""
    import botocore.session

    shape = botocore.session.get_session().get_service_model("sagemaker").shape_for("TrainingInstanceType")
    families = ("ml.p3", "ml.p4", "ml.p5", "ml.p6", "ml.g4dn", "ml.g5.", "ml.g6.", "ml.g6e")
    assert set(INSTANCE_TYPES) == {name for name in shape.enum if name.startswith(families)}


@pytest.mark.parametrize(("job", "switch", "wanted"), [
    (launch(), None, True),
    (launch(interface="lo"), None, False),
    (launch(interface="lo"), "on", True),
    (launch(), "off", False),
    (launch(hosts=1), "on", False),
    (launch(kind="processing"), "on", False),
])  # fmt: skip
def test_when_the_network_is_measured(monkeypatch, job, switch, wanted):
    if switch:
        monkeypatch.setenv("LANGADAPT_ALL_REDUCE_CHECK", switch)
    assert is_wanted(job) == wanted


def test_hosts_know_each_other_by_their_job(monkeypatch):
    known = launch().key
    assert launch().key == known != launch(hosts=3).key
    monkeypatch.setenv("TRAINING_JOB_NAME", "another-job")
    assert launch().key != known


def test_the_floor_is_the_tables_or_the_variables(monkeypatch):
    assert floor_gb_per_second(launch("ml.p5.48xlarge")) == 100
    assert floor_gb_per_second(launch("ml.m5.large")) == 0
    monkeypatch.setenv("LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND", "7.5")
    assert floor_gb_per_second(launch("ml.p5.48xlarge")) == 7.5
    monkeypatch.setenv("LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND", "fast")
    with pytest.raises(LaunchError, match=r"^LANGADAPT_ALL_REDUCE_FLOOR_GB_PER_SECOND: fast; limit a number from 0"):
        floor_gb_per_second(launch())
    monkeypatch.setenv("LANGADAPT_ALL_REDUCE_CHECK", "maybe")
    with pytest.raises(LaunchError, match=r"^LANGADAPT_ALL_REDUCE_CHECK: maybe; limit auto, on or off"):
        is_wanted(launch())


def test_bus_bandwidth_as_nccl_tests_defines_it():
    # NVIDIA/nccl#527: 4 instances of 8 GPUs, 1 GiB in 70,253 us, told there as 29.61 GB/s.
    assert bus_gb_per_second(1_073_741_824, 32, 0.070253) == pytest.approx(29.61, abs=0.01)
    assert bus_gb_per_second(1_073_741_824, 16, 0.035215) == pytest.approx(57.17, abs=0.01)


def test_a_job_of_many_hosts_meets_at_the_first(monkeypatch):
    words = command_line(launch(hosts=12), 8)
    assert {"--nnodes=12", "--node-rank=0", "--nproc-per-node=8", "--master-addr=algo-1", "--master-port=7777"} <= {
        *words
    }
    monkeypatch.setenv("LANGADAPT_RENDEZVOUS_PORT", "70000")
    with pytest.raises(LaunchError, match=r"^LANGADAPT_RENDEZVOUS_PORT: 70000; limit a port"):
        command_line(launch(hosts=12), 8)
