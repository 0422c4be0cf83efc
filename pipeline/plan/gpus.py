"""What the GPUs of an instance type can do, and how large its own disks are.

Peaks are NVIDIA's for dense matrices, without sparsity, float32 without TF32, as in steps/modeling/utilisation.py;
memory and bandwidth are those of the data sheets; disks those of EC2's pages. How many GPUs an instance has stands in
containers/instance_types.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from containers.instance_types import INSTANCE_TYPES


@dataclass(frozen=True)
class Gpu:
    """memory_gib: as the product is named. bfloat16_flops, float32_flops: a second. bandwidth: bytes a second."""

    name: str
    memory_gib: float
    bfloat16_flops: float
    float32_flops: float
    bandwidth: float

    def peak_flops(self, precision: str) -> float:
        """FLOP/s at most for a setting of precision."""
        return self.float32_flops if precision == "float32" else self.bfloat16_flops


# By family of instance types. Those without bfloat16 (p3, g4dn) and those of other makers have no place here.
GPUS = {
    "p4d": Gpu("A100", 40, 312e12, 19.5e12, 1.555e12),
    "p4de": Gpu("A100", 80, 312e12, 19.5e12, 2.039e12),
    "p5": Gpu("H100", 80, 989.5e12, 67e12, 3.35e12),
    "p5e": Gpu("H200", 141, 989.5e12, 67e12, 4.8e12),
    "p5en": Gpu("H200", 141, 989.5e12, 67e12, 4.8e12),
    "p6-b200": Gpu("B200", 180, 2250e12, 75e12, 8e12),
    "g5": Gpu("A10G", 24, 70e12, 35e12, 0.6e12),
    "g6": Gpu("L4", 24, 121e12, 30.3e12, 0.3e12),
    "g6e": Gpu("L40S", 48, 362e12, 91.6e12, 0.864e12),
}
# GB of the disks of instances that bring their own, by family and size.
DISKS_GB = {
    "g5": {"xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_800, "16xlarge": 1_900,
           "24xlarge": 3_800, "48xlarge": 7_600},
    "g6": {"xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_760, "16xlarge": 1_880,
           "24xlarge": 3_760, "48xlarge": 7_520},
    "g6e": {"xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_800, "16xlarge": 1_900,
            "24xlarge": 3_800, "48xlarge": 7_600},
    "p4d": {"24xlarge": 8_000},
    "p4de": {"24xlarge": 8_000},
    "p5": {"48xlarge": 30_400},
    "p5e": {"48xlarge": 30_400},
    "p5en": {"48xlarge": 30_400},
}  # fmt: skip


def gpu_of(instance_type: str) -> Gpu | None:
    """The GPU of an instance type such as ml.g5.xlarge; None for one without, or without a place in the table."""
    return GPUS.get(instance_type.split(".")[1])


def gpus_of(instance_type: str) -> int:
    """How many GPUs an instance has; 0 where the table of instance types does not know it as an accelerated one."""
    return INSTANCE_TYPES[instance_type].gpus if instance_type in INSTANCE_TYPES else 0


def disk_bytes(instance_type: str) -> float | None:
    """Of the instance's own disks; None where it has none or they are not in the table."""
    _, family, size = instance_type.split(".")
    gigabytes = DISKS_GB.get(family, {}).get(size)
    return None if gigabytes is None else gigabytes * 1e9
