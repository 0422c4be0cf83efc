"""What a training tells: figures by hand, lines that survive a kill, a profile of one step."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from steps.modeling.step_profile import StepProfiler, check_fused, summarise
from steps.modeling.telemetry import telemetry_in
from steps.modeling.utilisation import Utilisation, flops_per_token, peak_of
from steps.schemas.training import StepProfile, TelemetryRecord

RECORD = TelemetryRecord(
    step=5, phase=2, loss=2.5, validation_bits_per_byte=None, learning_rate=0.001, gradient_norm=0.5,
    tokens_per_second_per_device=1234.5, model_flop_utilisation=0.25, peak_memory_bytes=2_000_000_000, blocks_read=20,
    epoch=0.5, seconds_left=12.5,
)  # fmt: skip
CPU = torch.device("cpu")


def test_flops_a_token_by_hand(make_tiny_llama):
    """6 N where all is trained; in phase 1 the backbone's weight gradients are left out."""
    tied, untied = make_tiny_llama(320, tie_word_embeddings=True), make_tiny_llama(320, tie_word_embeddings=False)
    head = 320 * tied.config.hidden_size
    multiplied = sum(parameter.numel() for parameter in tied.parameters())
    assert sum(parameter.numel() for parameter in untied.parameters()) == multiplied + head
    for model in (tied, untied):
        assert flops_per_token(model, 2) == 6 * multiplied
        assert flops_per_token(model, 1) == 4 * multiplied + 2 * head


def test_utilisation_is_a_share_of_the_peak_and_none_on_cpu(tiny_llama):
    utilisation = Utilisation(tiny_llama, CPU, "bfloat16")
    assert utilisation.peak is None
    assert utilisation.of(1_000, 2) is None
    utilisation.peak = 1e9
    assert utilisation.of(1_000, 2) == pytest.approx(1_000 * flops_per_token(tiny_llama, 2) / 1e9)


@pytest.mark.parametrize(
    ("name", "bfloat16"),
    [
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989.5e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989.5e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("Tesla T4", None),
    ],
)
def test_peaks_by_the_names_that_devices_have(name, bfloat16):
    assert peak_of(name, "bfloat16_mixed") == bfloat16
    assert bfloat16 is None or peak_of(name, "float32") < bfloat16


def test_the_published_speed_is_the_published_utilisation():
    """78,319 tokens/s a GPU with 1.2358e9 parameters is about 60% of an H100."""
    peak = peak_of("NVIDIA H100 80GB HBM3", "bfloat16")
    assert peak is not None
    assert 78_319 * 6 * 1.2358e9 / peak == pytest.approx(0.59, abs=0.01)


def test_a_record_is_a_line_of_the_log_and_of_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LANGADAPT_TENSORBOARD", str(tmp_path / "events"))
    earlier = RECORD.model_copy(update={"step": 3})
    with telemetry_in(tmp_path) as telemetry:
        telemetry.begin([earlier])
        telemetry(RECORD)
    assert capsys.readouterr().out == (
        "metrics: step=5 phase=2 loss=2.5 learning_rate=0.001 gradient_norm=0.5 tokens_per_second_per_device=1234.5 "
        "model_flop_utilisation=0.25 peak_memory_bytes=2000000000 blocks_read=20 epoch=0.5 seconds_left=12.5\n"
    )
    lines = [json.loads(line) for line in (tmp_path / "telemetry.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 5]
    assert lines[1].keys() == TelemetryRecord.model_fields.keys()
    assert lines[1]["validation_bits_per_byte"] is None
    assert list((tmp_path / "events").glob("events.out.tfevents.*"))


def test_processes_but_the_first_tell_nothing(capsys):
    with telemetry_in(None) as telemetry:
        telemetry.begin([])
        telemetry(RECORD)
        telemetry.tell(0, 10, "steps")
    assert capsys.readouterr().out == ""


def test_one_step_is_profiled_once(tiny_llama):
    ids = torch.arange(8)[None]
    profiler = StepProfiler("on", CPU)
    for step in (3, 4):
        with profiler.around(step):
            tiny_llama(ids, labels=ids).loss.backward()
    assert profiler.result is not None
    assert profiler.result.step == 4
    assert any(kernel.name == "aten::mm" and kernel.calls > 5 for kernel in profiler.result.kernels)
    assert profiler.result.fused_kernels == []
    for setting in ("auto", "off"):
        unused = StepProfiler(setting, CPU)
        with unused.around(0):
            pass
        assert unused.result is None


def test_fused_kernels_are_found_among_those_of_a_gpu_and_missed_where_liger_is_on(capsys):
    entries = [
        SimpleNamespace(key=name, count=count, self_device_time_total=microseconds)
        for name, count, microseconds in (
            ("_rms_norm_forward_kernel", 33, 50.0), ("liger_cross_entropy_kernel", 4, 80.0), ("ampere_gemm", 9, 900.0),
            ("cudaLaunchKernel", 0, 0.0),
        )
    ]  # fmt: skip
    found = summarise(entries, step=1, on_gpu=True)
    assert [kernel.name for kernel in found.fused_kernels] == ["liger_cross_entropy_kernel", "_rms_norm_forward_kernel"]
    assert found.kernels[0].name == "ampere_gemm"
    assert found.total_microseconds == 1030.0
    check_fused(found, liger=True)
    assert capsys.readouterr().err == ""
    check_fused(StepProfile(step=2, total_microseconds=0.0, fused_kernels=[], kernels=[]), liger=True)
    assert capsys.readouterr().err.startswith("warning: no-fused-kernels: Liger is on")
