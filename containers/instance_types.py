"""What the accelerated instance types of SageMaker training bring, as far as starting a job on them goes.

Sources, looked up on 2026-11-30:

    gbit_per_second       of every type: the list of bandwidths that Karpenter generates from EC2's instance tables
    gpus                  EC2's pages of instance types, as several public tables give them
    efa_interfaces        p5, p5e 32 and g6e 4: EC2's guide on instances with several network cards; p4d, p4de 4: AWS'
                          announcement; p5en 16: published commands that start one; p6 and all others: not checked
                          against a source, told in the log beside what is found and used for nothing else
    asks_for_device_rdma  awsome-distributed-training's notes on EFA: to be asked for on p4d, p4de, p5 and p5e by
                          libfabric before 1.18 or aws-ofi-nccl before 1.7, harmless on them later

The floor of an all-reduce lies far below what is published (p4d, 4 instances, 1 GiB: 29.6 GB/s, NVIDIA/nccl#527) and
above what NCCL gets over TCP (p3dn: 1.3 to 2.3 GB/s, NVIDIA/nccl#209): a quarter of the line's rate in the p families,
a tenth in the g families, whose GPUs speak over PCIe. No floor was measured by this project.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InstanceType:
    """gpus: of one instance. efa_interfaces: None where no source tells. gbit_per_second: of its network, all
    interfaces together; None for those that may only reach it for a while. asks_for_device_rdma: see above.
    """

    gpus: int
    efa_interfaces: int | None = 0
    gbit_per_second: float | None = None
    floor_gb_per_second: float | None = None
    asks_for_device_rdma: bool = False


INSTANCE_TYPES = {
    "ml.p3.2xlarge": InstanceType(1),
    "ml.p3.8xlarge": InstanceType(4),
    "ml.p3.16xlarge": InstanceType(8),
    "ml.p3dn.24xlarge": InstanceType(8, 1, 100, 3.1),
    "ml.p4d.24xlarge": InstanceType(8, 4, 400, 12.5, asks_for_device_rdma=True),
    "ml.p4de.24xlarge": InstanceType(8, 4, 400, 12.5, asks_for_device_rdma=True),
    "ml.p5.4xlarge": InstanceType(1, 1, 100, 3.1),
    "ml.p5.48xlarge": InstanceType(8, 32, 3_200, 100, asks_for_device_rdma=True),
    "ml.p5e.48xlarge": InstanceType(8, 32, 3_200, 100, asks_for_device_rdma=True),
    "ml.p5en.48xlarge": InstanceType(8, 16, 3_200, 100),
    "ml.p6-b200.48xlarge": InstanceType(8, 8, 3_200, 100),
    "ml.p6-b300.48xlarge": InstanceType(8, 16, 6_400, 200),
    # The list of bandwidths says 3,200 of it; AWS' announcement says 28.8 Tbit/s for 72 GPUs. The lesser counts.
    "ml.p6e-gb200.36xlarge": InstanceType(4, None, 1_600, 50),
    "ml.g4dn.xlarge": InstanceType(1),
    "ml.g4dn.2xlarge": InstanceType(1),
    "ml.g4dn.4xlarge": InstanceType(1),
    "ml.g4dn.8xlarge": InstanceType(1, 1, 50, 0.6),
    "ml.g4dn.12xlarge": InstanceType(4, 1, 50, 0.6),
    "ml.g4dn.16xlarge": InstanceType(1, 1, 50, 0.6),
    "ml.g5.xlarge": InstanceType(1),
    "ml.g5.2xlarge": InstanceType(1),
    "ml.g5.4xlarge": InstanceType(1),
    "ml.g5.8xlarge": InstanceType(1, 1, 25, 0.3),
    "ml.g5.12xlarge": InstanceType(4, 1, 40, 0.5),
    "ml.g5.16xlarge": InstanceType(1, 1, 25, 0.3),
    "ml.g5.24xlarge": InstanceType(4, 1, 50, 0.6),
    "ml.g5.48xlarge": InstanceType(8, 1, 100, 1.2),
    "ml.g6.xlarge": InstanceType(1),
    "ml.g6.2xlarge": InstanceType(1),
    "ml.g6.4xlarge": InstanceType(1),
    "ml.g6.8xlarge": InstanceType(1, 1, 25, 0.3),
    "ml.g6.12xlarge": InstanceType(4, 1, 40, 0.5),
    "ml.g6.16xlarge": InstanceType(1, 1, 25, 0.3),
    "ml.g6.24xlarge": InstanceType(4, 1, 50, 0.6),
    "ml.g6.48xlarge": InstanceType(8, 1, 100, 1.2),
    "ml.g6e.xlarge": InstanceType(1),
    "ml.g6e.2xlarge": InstanceType(1),
    "ml.g6e.4xlarge": InstanceType(1),
    "ml.g6e.8xlarge": InstanceType(1, 1, 25, 0.3),
    "ml.g6e.12xlarge": InstanceType(4, 1, 100, 1.2),
    "ml.g6e.16xlarge": InstanceType(1, 1, 35, 0.4),
    "ml.g6e.24xlarge": InstanceType(4, 2, 200, 2.5),
    "ml.g6e.48xlarge": InstanceType(8, 4, 400, 5),
}
