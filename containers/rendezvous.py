"""Where a job's processes meet: torchrun's under one port of the first host, the launchers under another."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from containers.launch_errors import LaunchError
from containers.variables import port_variable

HOST, PORT, HOSTS_PORT = "LANGADAPT_RENDEZVOUS_HOST", "LANGADAPT_RENDEZVOUS_PORT", "LANGADAPT_HOSTS_PORT"
DEFAULT_RENDEZVOUS_PORT = 7777
LOOPBACK = "127.0.0.1"


def first_host(hosts: Sequence[str]) -> str:
    """The host that the others look for: LANGADAPT_RENDEZVOUS_HOST, else the first."""
    return os.environ.get(HOST) or hosts[0]


def rendezvous_host(hosts: Sequence[str]) -> str:
    """Where torchrun's processes meet: the first host, which a job of one host need not be able to look up."""
    return first_host(hosts) if len(hosts) > 1 or os.environ.get(HOST) else LOOPBACK


def rendezvous_port() -> int:
    """LANGADAPT_RENDEZVOUS_PORT, else 7777."""
    return port_variable(PORT, DEFAULT_RENDEZVOUS_PORT)


def hosts_port() -> int:
    """LANGADAPT_HOSTS_PORT, else the port behind torchrun's. Raises LaunchError where it is torchrun's."""
    port = port_variable(HOSTS_PORT, rendezvous_port() + 1)
    if port == rendezvous_port():
        raise LaunchError(f"{HOSTS_PORT}: {port}; limit another port than {PORT}. Name a port that is free.")
    return port


def take_port(variable: str, port: int, host: str, address: str = "") -> socket.socket:
    """A socket of its own under a port, as torchrun takes one: what has ended does not hold it.

    host: tells IPv6 from IPv4. address: all of this machine's by default. Raises LaunchError where the port is taken.
    """
    taken = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((address, port))
    except OSError as error:
        taken.close()
        raise LaunchError(f"{variable}: {port}: {error.strerror}. Name a port that is free.") from error
    return taken


def check_rendezvous(hosts: Sequence[str], host_index: int) -> None:
    """Raises LaunchError where torchrun's processes could not meet: it would say so in a traceback, or not at all."""
    host = rendezvous_host(hosts)
    if host_index == 0:
        take_port(PORT, rendezvous_port(), host).close()
    check_name(host)


def check_name(host: str) -> None:
    """Raises LaunchError for a host that cannot be resolved."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no name of a host"
        subject = HOST if os.environ.get(HOST) else "hosts"
        raise LaunchError(f"{subject}: {host:.200} cannot be resolved: {why}. Name a host of this network.") from error
