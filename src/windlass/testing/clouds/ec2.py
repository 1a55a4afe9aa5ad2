"""This module runs an EC2 for tests: moto's server behind a layer of faults, whose instances run their user data.

The layer adds what moto leaves out: idempotency tokens of CreateFleet, capacity by machine type, quotas, throttling,
delayed states, lost answers, lagging lists, and spot notices by a metadata service. Each instance is an ``SshHost``: it
boots, runs its user data as the script that it is, and is killed when it is terminated. Clients are the real boto3 and
asyncssh.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import parse_qs

from windlass.testing.clouds.hosts import SshHost, SshHosts, missing_for_hosts, namespaces_work

REGION: Final = "us-east-1"


def missing_for_ec2() -> str:
    """Return what this computer lacks for the fake EC2, with the remedy; empty if nothing is missing."""
    try:
        import boto3  # noqa: F401
        import moto.server  # noqa: F401
    except ImportError as error:
        return f"the fake EC2 needs {error.name}: pip install '.[aws]' 'moto[server,ec2]' (in your clone of Windlass)"
    if not namespaces_work():
        return "the hosts of the fake EC2 need root, ip and unshare: run as root in a container that allows namespaces"
    return missing_for_hosts()


@dataclass
class EC2Faults:
    """The faults. They can be changed while the fake runs."""

    capacity: dict[str, int] = field(default_factory=dict)
    """The most instances at once by machine type; other types have no limit."""
    spot_capacity: int | None = None
    """The most spot instances at once."""
    quota: int | None = None
    """The most instances at once over all types."""
    throttle: int = 0
    """How many of the next calls are refused with RequestLimitExceeded."""
    lose_answers: int = 0
    """How many of the next answers of CreateFleet are lost: the call is carried out, and the client gets an error."""
    pending_seconds: float = 0.0
    """For how many seconds a new instance is pending."""
    lag_seconds: float = 0.0
    """For how many seconds a new instance is missing from lists."""
    unused_address_seconds: float = 0.0
    """For how many seconds a new instance is listed with an address at which no machine answers."""
    unauthorized: tuple[str, ...] = ()
    """The API actions that are refused."""


@dataclass
class _Instance:
    id: str
    type: str
    launched: float
    host: SshHost | None = None
    booting: threading.Thread | None = None
    terminated: float | None = None
    spot: bool = False
    notice: dict[str, Any] | None = None
    template: str = ""

    @property
    def slice_id(self) -> str:
        """The slice in the name of its launch template."""
        return self.template.split("-", 2)[-1]


class FakeEC2:
    """A fake EC2, used as a context manager. ``url`` is its endpoint; ``instances`` are its instances."""

    def __init__(self, faults: EC2Faults | None = None) -> None:
        self.faults = faults or EC2Faults()
        self.calls: Counter[str] = Counter()
        self.instances: dict[str, _Instance] = {}
        self.user_data: dict[str, str] = {}
        """By launch template, of all that ever were."""
        self.templates: set[str] = set()
        """The existing launch templates."""
        self.requests: list[str] = []
        """The bodies of all calls, for tests that search for secrets."""
        self.spot_prices: dict[tuple[str, str], float] | None = None
        """Dollars per hour by machine type and zone; None: moto's own."""
        self.on_demand_prices: dict[tuple[str, str], float] | None = None
        """Dollars per hour by machine type and region, for the Price List; None: it may not be read."""
        self.most_at_once = 0
        """The highest number of instances at once."""
        self._answers: dict[str, tuple[str, list[tuple[str, str]], bytes]] = {}
        self._lock = threading.RLock()
        self._fleets = threading.Lock()
        self.hosts = SshHosts(0)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def __enter__(self) -> FakeEC2:
        if missing := missing_for_ec2():
            raise RuntimeError(missing)
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            def log(self, type: str, message: str, *args: Any) -> None:
                pass

        self.hosts.__enter__()
        self._moto: Callable[..., Iterable[bytes]] = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=Quiet)
        self._metadata = ThreadingHTTPServer((self.hosts.gateway, 0), self._metadata_handler())
        for server in (self._server, self._metadata):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self._inner("POST", "/moto-api/reset", b"", "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for instance in list(self.instances.values()):
            if instance.booting is not None:
                instance.booting.join()
        for server in (self._server, self._metadata):
            server.shutdown()
            server.server_close()
        self.hosts.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def metadata_url(self) -> str:
        """The URL of the metadata service for the hosts."""
        return f"http://{self.hosts.gateway}:{self._metadata.server_port}"

    def provider_settings(self, directory: Path) -> dict[str, Any]:
        """Return the settings of a configuration's provider that buys here; its SSH key goes to the directory."""
        return {
            "type": "aws",
            "endpoint_url": self.url,
            "metadata_url": self.metadata_url,
            "image_id": "ami-12c6146b",
            "security_group": "sg-12345678",
            "user": "root",
            "key_file": str(directory / "ssh_key"),
        }

    @property
    def live(self) -> list[_Instance]:
        return [one for one in self.instances.values() if one.terminated is None]

    # -- actions for tests --------------------------------------------------------------------------------------------

    def give_notice(self, instance_id: str, seconds: float = 120.0, kind: str = "interruption") -> None:
        """Publish an interruption notice in the metadata service of an instance."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
        field_name = "time" if kind == "interruption" else "noticeTime"
        self.instances[instance_id].notice = {"kind": kind, "action": "terminate", field_name: at}

    def take_away(self, instance_id: str) -> None:
        """Terminate an instance without a request, as EC2 does with a spot instance."""
        body = f"Action=TerminateInstances&Version=2016-11-15&InstanceId.1={instance_id}".encode()
        self._terminated([instance_id])
        self._inner("POST", "/", body, "")

    def crash(self, instance_id: str) -> None:
        """Kill a machine; EC2 still lists it as running."""
        host = self.instances[instance_id].host
        if host is not None:
            host.crash()

    # -- the layer ----------------------------------------------------------------------------------------------------

    def _serve(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        action = form.get("Action", "") or environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        with self._lock:
            self.calls[action] += 1
            self.requests.append(body.decode("utf-8", "replace"))
            if self.faults.throttle > 0:
                self.faults.throttle -= 1
                return _error(start, 503, "RequestLimitExceeded", "Request limit exceeded.")
            if action in self.faults.unauthorized:
                return _error(start, 403, "UnauthorizedOperation", f"You are not authorized to perform {action}.")
        environ["wsgi.input"] = io.BytesIO(body)
        match action:
            case "CreateFleet":
                with self._fleets:
                    return self._create_fleet(environ, start, form)
            case "CreateLaunchTemplate":
                data = form.get("LaunchTemplateData.UserData", "")
                name = form.get("LaunchTemplateName", "")
                if name not in self.templates:
                    self.templates.add(name)
                    self.user_data[name] = base64.b64decode(data).decode("utf-8", "replace")
            case "DeleteLaunchTemplate":
                if (name := form.get("LaunchTemplateName", "")) not in self.templates:
                    code = "InvalidLaunchTemplateName.NotFoundException"
                    return _error(start, 400, code, "The specified launch template does not exist.")
                self.templates.discard(name)
            case "TerminateInstances":
                self._terminated([value for name, value in form.items() if name.startswith("InstanceId.")])
            case "DescribeSpotPriceHistory" if self.spot_prices is not None:
                return _answer(start, "200 OK", [("Content-Type", "text/xml")], self._price_history(form))
            case "GetProducts":
                return _answer(start, *self._price_list(json.loads(body)))
            case "DescribeInstances":
                status, headers, answer = self._through(environ)
                return _answer(start, status, headers, self._listed(answer))
        return self._moto(environ, start)

    def _create_fleet(
        self, environ: dict[str, Any], start: Callable[..., Any], form: Mapping[str, str]
    ) -> Iterable[bytes]:
        token = form.get("ClientToken", "")
        if token not in self._answers:
            refusal = self._refused(form)
            if refusal is not None:
                return _answer(start, "200 OK", [("Content-Type", "text/xml")], refusal)
            self._answers[token] = self._through(environ)
            self._booted(form, self._answers[token][2].decode())
        if self.faults.lose_answers > 0:
            self.faults.lose_answers -= 1
            return _error(start, 500, "InternalError", "An internal error has occurred")
        return _answer(start, *self._answers[token])

    def _refused(self, form: Mapping[str, str]) -> bytes | None:
        """Return the answer of a fleet without instances if there is no capacity or no quota."""
        wanted = int(form.get("TargetCapacitySpecification.TotalTargetCapacity", "1"))
        kinds = [form[name] for name in sorted(form) if name.endswith(".InstanceType")]
        spot = form.get("TargetCapacitySpecification.DefaultTargetCapacityType") == "spot"
        code = ""
        if self.faults.quota is not None and len(self.live) + wanted > self.faults.quota:
            code, text = "VcpuLimitExceeded", "You have requested more vCPU capacity than your current limit allows."
        elif (
            self.faults.spot_capacity is not None
            and spot
            and sum(one.spot for one in self.live) + wanted > (self.faults.spot_capacity)
        ):
            code, text = "UnfulfillableCapacity", "Unable to fulfill capacity due to your request configuration."
        else:
            used = Counter(one.type for one in self.live)
            short = [kind for kind in kinds if used[kind] + wanted > self.faults.capacity.get(kind, 10**9)]
            if kinds and len(short) == len(kinds):
                code, text = "InsufficientInstanceCapacity", "We currently do not have sufficient capacity in the zone."
        if not code:
            return None
        errors = "".join(
            f"<item><errorCode>{code}</errorCode><errorMessage>{text}</errorMessage><lifecycle>on-demand</lifecycle>"
            f"<launchTemplateAndOverrides><overrides><instanceType>{kind}</instanceType></overrides>"
            "</launchTemplateAndOverrides></item>"
            for kind in kinds or ["any"]
        )
        return (
            '<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>'
            f"<fleetId>fleet-0</fleetId><errorSet>{errors}</errorSet><fleetInstanceSet/></CreateFleetResponse>"
        ).encode()

    def _price_list(self, request: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        """Answer for the Price List service, in the form of its reference."""
        headers = [("Content-Type", "application/x-amz-json-1.1")]
        if self.on_demand_prices is None:
            refusal = {"__type": "AccessDeniedException", "message": "not authorized to perform: pricing:GetProducts"}
            return "400 Bad Request", headers, json.dumps(refusal).encode()
        wanted = {one["Field"]: one["Value"] for one in request["Filters"]}
        dollars = self.on_demand_prices.get((wanted["instanceType"], wanted["regionCode"]))
        dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{dollars}"}}
        product = {"terms": {"OnDemand": {"T": {"priceDimensions": {"T.D": dimension}}}}}
        answer = {"FormatVersion": "aws_v1", "PriceList": [json.dumps(product)] if dollars is not None else []}
        return "200 OK", headers, json.dumps(answer).encode()

    def _price_history(self, form: Mapping[str, str]) -> bytes:
        wanted = {value for name, value in form.items() if name.startswith("InstanceType.")}
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{price:.6f}</spotPrice><timestamp>2026-01-01T00:00:00.000Z</timestamp>"
            f"<availabilityZone>{zone}</availabilityZone></item>"
            for (kind, zone), price in (self.spot_prices or {}).items()
            if kind in wanted
        )
        return (
            '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<requestId>r</requestId><spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken/>"
            "</DescribeSpotPriceHistoryResponse>"
        ).encode()

    def _booted(self, form: Mapping[str, str], answer: str) -> None:
        names = [
            value for name, value in form.items() if name.endswith("LaunchTemplateSpecification.LaunchTemplateName")
        ]
        script = self.user_data.get(names[0], "") if names else ""
        spot = form.get("TargetCapacitySpecification.DefaultTargetCapacityType") == "spot"
        for found in re.findall(r"<instanceIds>(.*?)</instanceIds>.*?<instanceType>(.*?)</instanceType>", answer, re.S):
            for name in re.findall(r"i-[0-9a-f]+", found[0]):
                instance = self.instances[name] = _Instance(
                    name, found[1], time.monotonic(), spot=spot, template=names[0] if names else ""
                )
                instance.host = self.hosts.add(user_data=script, wait=False, trusted=False)
        self.most_at_once = max(self.most_at_once, len(self.live))

    def _terminated(self, names: list[str]) -> None:
        for name in names:
            instance = self.instances.get(name)
            if instance is not None and instance.terminated is None:
                instance.terminated = time.monotonic()
                if instance.host is not None:
                    self.hosts.remove(instance.host)

    def _listed(self, answer: bytes) -> bytes:
        """Return a list with the hosts' addresses, without lagging instances, and with delayed states."""
        now = time.monotonic()
        root = ET.fromstring(answer)
        space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
        for listed in root.iter(f"{space}instancesSet"):
            for item in list(listed):
                instance = self.instances.get(item.findtext(f"{space}instanceId", ""))
                age = math.inf if instance is None else now - instance.launched
                if age < self.faults.lag_seconds:
                    listed.remove(item)
                    continue
                # Without a machine it has no address: moto's is not of our network.
                address = instance.host.address if instance is not None and instance.host is not None else ""
                if age < self.faults.unused_address_seconds:
                    address = self.hosts.unused_address
                for tag in ("privateIpAddress", "ipAddress"):
                    for found in item.iter(f"{space}{tag}"):
                        found.text = address
                state = item.find(f"{space}instanceState")
                if instance is not None and instance.terminated is None and age < self.faults.pending_seconds:
                    for part in state if state is not None else ():
                        part.text = "pending" if part.tag.endswith("name") else "0"
        return ET.tostring(root)

    def _through(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        seen: list[Any] = []
        body = b"".join(self._moto(environ, lambda status, headers, _=None: seen.extend((status, headers))))
        return seen[0], [(name, value) for name, value in seen[1] if name.lower() != "content-length"], body

    def _inner(self, method: str, path: str, body: bytes, kind: str) -> None:
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": f"ec2.{REGION}.amazonaws.com",
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": kind or "application/x-www-form-urlencoded",
            "wsgi.input": io.BytesIO(body),
            "wsgi.url_scheme": "http",
        }
        self._through(environ)

    def _metadata_handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Metadata(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_PUT(self) -> None:
                self._send(200, "token" if self.path == "/latest/api/token" else "")

            def do_GET(self) -> None:
                if self.headers.get("X-aws-ec2-metadata-token") != "token":
                    self._send(401, "")
                    return
                address = self.client_address[0]
                notice = next((one.notice for one in fake.live if one.host and one.host.address == address), None)
                wanted = "rebalance" if self.path.endswith("rebalance") else "interruption"
                if notice is None or notice["kind"] != wanted:
                    self._send(404, "")
                    return
                self._send(200, json.dumps(notice))

            def _send(self, status: int, text: str) -> None:
                with suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text.encode())

        return Metadata


def _answer(start: Callable[..., Any], status: str, headers: list[tuple[str, str]], body: bytes) -> Iterable[bytes]:
    start(status, [*headers, ("Content-Length", str(len(body)))])
    return [body]


def _error(start: Callable[..., Any], status: int, code: str, text: str) -> Iterable[bytes]:
    body = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors>"
        "<RequestID>r</RequestID></Response>"
    ).encode()
    return _answer(start, f"{status} Error", [("Content-Type", "text/xml")], body)
