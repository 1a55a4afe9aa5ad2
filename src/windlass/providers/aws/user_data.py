"""This module writes the user data of an instance: its host key and the client key that it accepts, nothing else.

The host key is made for one slice, so that its public part is known before the first connection. User data can be read
on the machine and by every user of the account who may describe launch templates; it has no other secret.

A machine that joins a Kubernetes cluster by itself gets the script of its settings instead, with the name and labels of
its node. We open no connection to it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

import asyncssh

from windlass.providers.protocol import InvalidRequest

MOST_BYTES: Final = 16_384
"""The longest user data that EC2 accepts."""
_PLACE: Final = re.compile(r"\$\{(WINDLASS_NODE_[A-Z]+)\}")

_SCRIPT = """\
#!/bin/bash
set -eu
umask 077
cat > /etc/ssh/ssh_host_ed25519_key <<'KEY'
{private}KEY
cat > /etc/ssh/ssh_host_ed25519_key.pub <<'KEY'
{public}
KEY
chmod 600 /etc/ssh/ssh_host_ed25519_key
chmod 644 /etc/ssh/ssh_host_ed25519_key.pub
home="$(getent passwd {user} | cut -d: -f6)"
mkdir -p "$home/.ssh"
cat >> "$home/.ssh/authorized_keys" <<'KEY'
{client}
KEY
chmod 700 "$home/.ssh"; chmod 600 "$home/.ssh/authorized_keys"
chown -R {user}: "$home/.ssh" || true
systemctl restart ssh 2>/dev/null || systemctl restart sshd 2>/dev/null || true
"""


def make_host_key() -> tuple[str, str]:
    """Make a host key; return the private and the public part in OpenSSH's format."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key().decode(), public_part(key)


def public_part(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


def script(private: str, public: str, client: str, user: str) -> str:
    return _SCRIPT.format(private=private, public=public, client=client, user=user)


def joining_script(own: str, environment: Mapping[str, str]) -> str:
    """Add the name and labels of the node to the script of the settings.

    A shell script gets exported variables; in any other text ``${WINDLASS_NODE_...}`` is replaced.
    """
    if own.startswith("#!"):
        first, _, rest = own.partition("\n")
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()))
        text = f"{first}\n{exports}{rest}"
    else:
        text = _PLACE.sub(lambda found: environment.get(found[1], found[0]), own)
    if len(text.encode()) > MOST_BYTES:
        raise InvalidRequest(
            f"user_data has {len(text.encode())} bytes with the node's variables, and EC2 accepts {MOST_BYTES}; "
            "shorten it, for example by fetching a script"
        )
    return text
