"""The OpenAPI document, and random requests against what it promises."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from tests.cli.clusters import Cluster, one_waits
from tests.server.served import served


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    directory = tmp_path_factory.mktemp("openapi")
    cluster = Cluster(directory)
    cluster.live(one_waits)
    with served(cluster, directory, write_rate=100_000) as found:
        yield found


def test_every_route_of_the_api_is_in_the_document(api):
    document = api.get("/openapi.json", role=None).data
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {
        "/accounts", "/demands", "/doctor", "/events", "/groups", "/lanes", "/nodes", "/openapi.json", "/orders",
        "/orders/{seq}", "/plan", "/series", "/session", "/settings", "/slices", "/status", "/stream", "/version",
        "/what-if", "/what-if/{id}", "/whoami", "/why",
    }  # fmt: skip


@pytest.mark.slow
def test_random_requests_get_answers_that_match_the_document(api):
    """Every path but the stream, which has no end: no server error, a status and a content type of the document, and a
    body that matches its schema."""
    schemathesis = pytest.importorskip("schemathesis", reason="pip install schemathesis")
    from hypothesis import HealthCheck, given, settings
    from schemathesis.specs.openapi import checks

    document = api.get("/openapi.json", role=None).data
    paths = {path: one for path, one in document["paths"].items() if path != "/stream"}
    paths["/session"] = paths.pop("/session")  # the last: wrong tokens slow their address down
    schema = schemathesis.openapi.from_dict({**document, "paths": paths})
    schema.config.base_url = f"http://{api.host}/api/v1"
    headers = {"Authorization": f"Bearer {api.secrets['operator']}"}
    held = [
        schemathesis.checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    served_well: set[str] = set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(operation.as_strategy())
        def check(case):
            answer = case.call(headers=headers)
            case.validate_response(answer, checks=held, headers=headers)
            if answer.status_code < 300:
                served_well.add(case.path)

        check()
    lists = {"/groups", "/slices", "/demands", "/nodes", "/status", "/events", "/lanes", "/series", "/accounts"}
    assert lists | {"/plan", "/settings", "/orders", "/whoami", "/version", "/openapi.json"} <= served_well
