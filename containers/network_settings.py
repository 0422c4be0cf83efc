"""The network between the hosts of a training job: what is set for NCCL, libfabric and gloo, and why.

    NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME   the interface that the service names: a host has others (docker0, a second
                                             network) over which its peers do not answer
    FI_PROVIDER=efa                          where there are EFA devices: old aws-ofi-nccl may take libfabric's TCP
    FI_EFA_USE_DEVICE_RDMA=1                 on the types that the table says it has to be asked for
    NCCL_DEBUG=WARN                          NCCL says nothing of a failing network otherwise

What is not set, and why: NCCL_PROTO, NCCL_ALGO, NCCL_BUFFSIZE and chunk sizes, which aws-ofi-nccl chooses by instance
type (NCCL_PROTO=simple takes LL128 from p5: aws-ofi-nccl#280); RDMAV_FORK_SAFE, which can break newer kernels;
FI_EFA_FORK_SAFE, which aws-ofi-nccl sets where it is needed; FI_EFA_USE_HUGE_PAGE, as no step forks loaders of data.
A variable that the job has already keeps its value.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping

from containers.instance_types import INSTANCE_TYPES
from containers.job_configuration import Launch

LAUNCH_PREFIX = "launch: "
EFA_DEVICES = "/dev/infiniband/uverbs*"


def network_variables(launch: Launch, pattern: str = EFA_DEVICES) -> dict[str, str]:
    """The variables for a job of several hosts; none for a job of one. pattern: of the EFA interfaces' device files."""
    if len(launch.hosts) == 1:
        return {}
    variables: dict[str, str] = {}
    if launch.network_interface:
        variables |= dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), launch.network_interface)
    if launch.is_loopback:
        return variables
    variables["NCCL_DEBUG"] = "WARN"
    if glob.glob(pattern):
        variables["FI_PROVIDER"] = "efa"
        known = INSTANCE_TYPES.get(launch.instance_type or "")
        if known is not None and known.asks_for_device_rdma:
            variables["FI_EFA_USE_DEVICE_RDMA"] = "1"
    return variables


def network_line(
    launch: Launch, processes: int, wanted: Mapping[str, str], given: Mapping[str, str], pattern: str = EFA_DEVICES
) -> str:
    """One line for the log: who this host is and what is set for its network. given: the job's own variables."""
    host = launch.hosts[launch.host_index]
    place = f"{host}, {launch.host_index + 1} of {len(launch.hosts)} hosts"
    kept = {name: given[name] for name in wanted if name in given}
    new = {name: value for name, value in wanted.items() if name not in given}
    parts = [f"{LAUNCH_PREFIX}{place}, {launch.instance_type or 'instance type not told'}, processes={processes}"]
    if not launch.is_loopback:
        known = INSTANCE_TYPES.get(launch.instance_type or "")
        expected = "" if known is None or known.efa_interfaces is None else f" of {known.efa_interfaces}"
        parts.append(f"EFA interfaces: {len(glob.glob(pattern))}{expected}")
    for title, variables in (("set", new), ("left as given", kept)):
        if variables:
            parts.append(f"{title}: {' '.join(f'{name}={value}' for name, value in variables.items())}")
    return "; ".join(parts)
