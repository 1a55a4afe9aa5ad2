"""This module makes the user data of an instance: the host key that it presents and the client key that it accepts,
nothing else.

The host key is made for one slice, so that its public part is known before the first connection. User data can be read
on the machine and by every user of the account who may describe launch templates; it holds no other secret.
"""

from __future__ import annotations

import asyncssh

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
    """A new host key: the private and the public part, as OpenSSH writes them."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key().decode(), public_part(key)


def public_part(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key().decode().split()[:2])


def script(private: str, public: str, client: str, user: str) -> str:
    return _SCRIPT.format(private=private, public=public, client=client, user=user)
