"""Wrong values for every setting: each is refused with its place, in one short line, before anything is started."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from windlass.config import ConfigError, read_config
from windlass.config.build import build_components
from windlass.config.reference import settings

DASK = {"type": "dask", "scheduler": "tcp://10.0.0.7:8786"}
RAY = {"type": "ray", "address": "10.0.0.7:6379"}
GOOD: dict[str, Any] = {
    "groups": {"g": {"resources": {"cpu": 4}, "max": 2, "price": 1}},
    "providers": {"p": {"type": "local"}},
    "workload": {"type": "queue"},
}
PROVIDERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ssh": ({"hosts": ["ada@gpu1"], "connect": "direct"}, DASK),
    "aws": ({"connect": "direct"}, DASK),
    "ray-node-provider": ({"module": "pkg.Class"}, RAY),
    "kuberay": ({"namespace": "ml", "cluster": "train"}, RAY),
    "simulated": ({}, {"type": "simulated"}),
    "local": ({}, {"type": "queue"}),
}
WORKLOADS = {"dask": DASK, "ray": RAY, "queue": {"type": "queue"}}
VALUES: tuple[Any, ...] = (
    "",
    -1,
    float("nan"),
    True,
    [],
    ["x"],
    [[1]],
    {"x": "y"},
    {"": ""},
    "\0",
    "a b",
    "x" * 5000,
    10**40,
    "~nobody9/x",
)
NAMES = {"groups": "g", "providers": "p"}


def base(path: str, kind: str | None) -> dict[str, Any] | None:
    """A good configuration in which a setting can be given; None where the sweep does not go."""
    data = copy.deepcopy(GOOD)
    if path.startswith("providers."):
        if kind not in PROVIDERS:
            return None
        more, data["workload"] = copy.deepcopy(PROVIDERS[kind])
        data["providers"]["p"] = {"type": kind, **more}
    elif path.startswith("workload."):
        if kind not in WORKLOADS:
            return None
        data["workload"] = dict(WORKLOADS[kind])
    elif path.startswith("groups.NAME.image"):
        data["providers"]["p"], data["workload"] = {"type": "ssh", **PROVIDERS["ssh"][0]}, dict(DASK)
    return data


def given(data: dict[str, Any], path: str, value: object) -> str:
    """The text of a configuration with one setting."""
    *parents, last = path.replace("NAME", NAMES.get(path.partition(".")[0], "x")).split(".")
    at: Any = data
    for name in parents:
        at = at.setdefault(name.removesuffix("[]"), [{}] if name.endswith("[]") else {})
        at = at[0] if isinstance(at, list) else at
    at[last] = value
    return json.dumps(data)


def mistakes(text: str) -> tuple[str, ...]:
    try:
        build_components(read_config(text, path="windlass.yaml"), read_only=True)
    except ConfigError as error:
        return error.mistakes
    return ()


KEYS = [(one["path"], one["type"]) for one in settings() if base(one["path"], one["type"]) and "[]" not in one["path"]]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_a_wrong_value_of_any_setting_is_refused_in_one_short_line_with_its_place(value):
    assert len(KEYS) > 120
    for path, kind in KEYS:
        data = base(path, kind)
        assert data is not None
        for mistake in mistakes(given(data, path, value)):
            place, _, words = mistake.partition(": ")
            assert place.partition(".")[0].partition("[")[0] in (path.partition(".")[0], "groups"), mistake
            assert words, mistake
            assert mistake.isprintable(), mistake
            assert len(mistake) < 500, mistake


@pytest.mark.parametrize(
    ("path", "kind", "value", "words"),
    [
        ("providers.NAME.config", "ray-node-provider", "abc", "providers.p.config: must be a mapping"),
        ("providers.NAME.module", "ray-node-provider", "abc", "such as pkg.Class"),
        ("providers.NAME.hosts", "ssh", ["a:22", 1], "providers.p.hosts[1]: must be an address"),
        ("providers.NAME.hosts", "ssh", ["a:22", 1], "providers.p.hosts[0]: must not have a port"),
        ("groups.NAME.image.pip_index", None, "a b", "groups.g.image.pip_index: must be the URL"),
        ("groups.NAME.image.python", None, "bin/python", "a full path, is 'bin/python'"),
        ("groups.NAME.image.env", None, {"a b": 1}, "is not the name of a variable"),
        ("groups.NAME.image.includes", None, ["~nobody9/x"], "groups.g.image.includes[0]: is not the path"),
        ("groups.NAME.image.setup", None, ["a\0b"], "groups.g.image.setup[0]: must be text without"),
        ("server.allowed_origins", None, ["x"], "server.allowed_origins[0]: must be such as https://"),
        ("server.allowed_hosts", None, ["http://x"], "server.allowed_hosts[0]: must be a name such as"),
        ("notify[].secret_env", None, "5 minutes", "notify[0].secret_env: must be the name of an environment variable"),
    ],
)
def test_a_wrong_value_is_refused(path, kind, value, words):
    data = base(path, kind)
    assert data is not None
    if path.startswith("notify"):
        data["notify"] = [{"url": "https://example.org/"}]
    assert any(words in one for one in mistakes(given(data, path, value))), mistakes(given(data, path, value))
