"""This package has machines for tests of providers: hosts with a real sshd, and an EC2 whose instances are such hosts.

``SshHosts`` starts hosts on this computer. With root each host is a network and process namespace: it has its own
address, its network can be cut, and it can be killed with all of its processes. Without root each host is an sshd on a
loopback port. Both use the real SSH protocol.

    with SshHosts(3) as hosts:
        provider = SSHProvider([host.spec for host in hosts], key_file=hosts.key_file, known_hosts=hosts.known_hosts)

``FakeEC2`` is moto's server behind a layer that adds what moto leaves out: capacity, quotas, throttling, idempotency
tokens, delayed states, lost answers, lagging lists and spot notices. Its instances are hosts that run their user data.
"""

from __future__ import annotations

from windlass.testing.clouds.ec2 import EC2Faults, FakeEC2, missing_for_ec2
from windlass.testing.clouds.hosts import SshHost, SshHosts, missing_for_hosts

__all__ = ["EC2Faults", "FakeEC2", "SshHost", "SshHosts", "missing_for_ec2", "missing_for_hosts"]
