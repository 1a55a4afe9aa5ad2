"""Real Ray clusters with a token and TLS, and a head that is restarted: each needs a head of its own."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.workloads.ray_cluster import Scaled, group
from tests.workloads.ray_stage import HOST, VERSIONS, RayHead

pytestmark = pytest.mark.ray

CODE = """
@ray.remote(num_cpus=1)
def work():
    return ray.get_runtime_context().get_node_id()
"""
TOKEN = "windlass-test-token-0123456789"


@pytest.fixture
def tls(tmp_path):
    """A certificate that signs itself, as Ray and Windlass take it."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with; install it")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    names = f"subjectAltName=IP:{HOST},IP:127.0.0.1,DNS:localhost"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ray"]
    subprocess.run([*words, "-addext", names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return {"ca_file": str(cert), "cert": str(cert), "key": str(key)}


@pytest.mark.parametrize("which", VERSIONS)
def test_a_head_with_tls_and_a_token_that_is_restarted(which, tls):
    """With both TLS and a token workers join, the token is written nowhere, and after its restart the head is another
    cluster, which is served from then on. Ray 2.48 knows no token."""
    environment = {
        "RAY_USE_TLS": "1",
        "RAY_TLS_CA_CERT": tls["ca_file"],
        "RAY_TLS_SERVER_CERT": tls["cert"],
        "RAY_TLS_SERVER_KEY": tls["key"],
    }
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN} if which == "RAY_NEW" else {}
    head = RayHead(which, environment={**environment, **secret})
    again = RayHead(which, port=head.port, environment={**environment, **secret})
    cluster = Scaled(head, None, {"worker": group(max=2, idle="1h")})
    try:
        head.start()
        cluster.write()
        assert "cannot be reached" in cluster.windlass("doctor", "--json")
        cluster.workload["tls"] = tls
        cluster.write()
        if secret:
            assert "wants a token" in cluster.windlass("doctor", "--json")
            cluster.environment["RAY_AUTH_TOKEN"] = TOKEN
        cluster.run()
        cluster.driver.run(CODE + "result = ray.get(work.remote(), timeout=300)")
        (first,) = cluster.slices("ready")
        if secret:
            assert_hidden(cluster)
        cluster.driver.close()
        head.crash()
        driver = again.start().driver()
        assert driver.run(CODE + "result = ray.get(work.remote(), timeout=300)")
        assert f"{first['id']} lost: its cluster is gone: the head has been restarted" in cluster.log()
        driver.close()
    finally:
        cluster.stop()
        head.stop()
        again.stop()


def assert_hidden(cluster):
    """The token is in no output, and in no file but the one for the worker, which only its user can read."""
    assert TOKEN not in cluster.windlass("status", "--json") + cluster.windlass("events", "--json") + cluster.log()
    assert files_with(TOKEN, cluster.home) == []
    found = files_with(TOKEN, *Path("/tmp").glob("wr-*.token"))
    assert found
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    workers = [path.with_suffix("") for path in found]
    assert files_with(TOKEN, *workers) == []


def files_with(text, *places):
    every = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    return [path for path in every if path.is_file() and text.encode() in path.read_bytes()]
