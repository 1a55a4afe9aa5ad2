"""The agent is the program that a controller installs on a machine. It stores which slice uses the machine, prepares
the machine and starts the slice's program.

    python3 agent.pyz session DIRECTORY      requests on stdin, answers on stdout, one JSON object a line
    python3 agent.pyz supervise DIRECTORY    started by a session; the program's order comes on stdin

Everything that must outlast a controller is in DIRECTORY (`machine_store`), whose files only this user can read. A
machine is assigned to one slice at a time. A request with an epoch below the highest one is refused.

Needs Linux and Python 3.8 or later; the standard library only.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from windlass.providers.remote.machine_store import OrderRefused, Store, alive, kill_marked, secrets_of, without
from windlass.providers.remote.supervisor import supervise

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
NOTICES = (("interruption", "spot/instance-action"), ("rebalance", "events/recommendations/rebalance"))
PHASE = "::windlass:: "
"""The prefix of an output line with which a bootstrap script names its next phase."""
LAST_LINES = 20
LONGEST_LINE = 16_384
SHOWN_LINE = 400
SHOWN = 1500
"""Characters of a line and of all lines in the reason of a failure; the reason begins with the phase."""


class Session:
    """Answers the requests of one connection. Each runs in a thread of its own."""

    def __init__(self, directory: str) -> None:
        self._store = Store(directory)
        self._writing = threading.Lock()
        self._bootstraps: list[subprocess.Popen[bytes]] = []
        self._notice: tuple[float, dict[str, Any] | None] = (0.0, None)

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            threading.Thread(target=self._answer, args=(request,), daemon=True).start()
        # The connection is lost. No controller follows this bootstrap; the next one restarts it.
        for process in self._bootstraps:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _say(self, answer: dict[str, Any]) -> None:
        with self._writing:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()

    def _answer(self, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            for name in ("cluster", "slice"):
                if name in request and not NAME.match(request[name]):
                    raise OrderRefused("invalid", f"{request[name]!r} is not a valid {name} name")
            self._store.note_contact(request["cluster"])
            answer["result"] = getattr(self, "do_" + request["op"])(request)
        except OrderRefused as error:
            answer["refused"] = [error.kind, str(error)]
        except Exception as error:  # noqa: BLE001  # one request that fails must not end the session
            answer["refused"] = ["failed", f"{type(error).__name__}: {error}"]
        self._say(answer)

    def do_status(self, request: dict[str, Any]) -> dict[str, Any]:
        """Report the assignment, the state of the program, and what is installed."""
        store = self._store
        assignment, supervisor = store.assignment, store.supervisor()
        if assignment is not None and assignment["cluster"] != request["cluster"] and store.is_abandoned(assignment):
            assignment = None
        return {
            "assignment": assignment,
            "running": alive(supervisor) and "exited" not in (supervisor or {}),
            "exited": (supervisor or {}).get("exited"),
            "epoch": store.epoch(request["cluster"]),
            "ended": [name for name in request.get("ids", ()) if store.has_ended(request["cluster"], name)],
            "images": sorted(path.parent.name for path in store.root.glob("images/*/done")),
            "clock": time.time(),
            "notice": self._metadata(request["metadata"]) if request.get("metadata") else None,
        }

    def do_facts(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Report the machine's resources and its Python versions."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {
            "cpus": len(os.sched_getaffinity(0)),
            "memory": memory,
            "accelerators": _accelerators(),
            "pythons": _pythons(),
            "uv": shutil.which("uv") is not None,
            "disk": shutil.disk_usage(str(self._store.root)).free,
            "architecture": os.uname().machine,
        }

    def do_assign(self, request: dict[str, Any]) -> dict[str, Any]:
        """Assign the machine to a slice, unless another slice uses it."""
        store = self._store
        with store.changing():
            store.check_epoch(request["cluster"], request["epoch"])
            if store.has_ended(request["cluster"], request["slice"]):
                raise OrderRefused("ended", "slice {} has ended; an id is used once".format(request["slice"]))
            assignment = store.assignment
            if assignment is not None:
                if (assignment["cluster"], assignment["slice"]) == (request["cluster"], request["slice"]):
                    return {"new": False}
                if not store.is_abandoned(assignment):
                    raise OrderRefused("busy", "in use by {slice} of cluster {cluster}".format(**assignment))
                store.release(assignment)
            keys = ("cluster", "slice", "group", "host", "hosts", "epoch", "lease", "cluster_name")
            assignment = {key: request[key] for key in keys}
            assignment["assigned_at"] = request.get("assigned_at")
            store.assign({**assignment, "taken": time.time(), "phase": "connecting"})
        return {"new": True}

    def do_unassign(self, request: dict[str, Any]) -> dict[str, Any]:
        """Undo an assignment because other hosts of the slice have no machine. The id may be launched again."""
        store = self._store
        with store.changing():
            store.check_epoch(request["cluster"], request["epoch"])
            store.assignment_of(request)
            if store.supervisor() is None:
                store.assign(None)
        return {}

    def do_put(self, request: dict[str, Any]) -> dict[str, Any]:
        """Store a piece of a file for the next bootstrap."""
        path = self._store.root / "incoming" / Path(request["name"]).name
        with path.open("r+b" if request["offset"] else "wb") as file:
            file.seek(request["offset"])
            file.write(base64.b64decode(request["data"]))
        return {}

    def do_bootstrap(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a bootstrap script. Each phase is stored and reported as it begins; a failure has the last lines."""
        store = self._store
        with store.changing():
            store.check_epoch(request["cluster"], request["epoch"])
            store.assignment_of(request)
        script = store.root / "incoming" / "bootstrap.sh"
        script.write_text(request["script"], encoding="utf-8")
        environment = {**os.environ, **request["environment"], "WINDLASS_HOME": str(store.root)}
        process = subprocess.Popen(
            ["bash", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        self._bootstraps.append(process)
        timer = threading.Timer(request["limit_seconds"], lambda: os.killpg(process.pid, signal.SIGKILL))
        timer.start()
        lines: deque[str] = deque(maxlen=LAST_LINES)
        hidden = secrets_of(request["environment"])
        phase, is_whole = "starting", True
        try:
            assert process.stdout is not None
            for raw in iter(partial(process.stdout.readline, 4096), b""):
                text = raw.decode("utf-8", "replace").rstrip("\n")
                begun, is_whole = not is_whole, raw.endswith(b"\n")
                if begun and lines:  # the rest of a long line, so that no secret is cut in two
                    lines[-1] = (lines[-1] + text)[-LONGEST_LINE:]
                elif text.startswith(PHASE):
                    phase = text[len(PHASE) :]
                    self._phase(request, phase)
                    self._say({"id": request["id"], "event": {"phase": phase}})
                else:
                    lines.append(text)
            code = process.wait()
        finally:
            timer.cancel()
            self._bootstraps.remove(process)
        if code:
            limit = request["limit_seconds"]
            said = "\n".join(without(line, hidden)[-SHOWN_LINE:] for line in lines)[-SHOWN:]
            why = f"took longer than {limit:g} s" if code == -signal.SIGKILL else f"ended with code {code}"
            raise OrderRefused("bootstrap", f"phase '{phase}' {why}: {said}")
        return {}

    def do_failed(self, request: dict[str, Any]) -> dict[str, Any]:
        """Store the reason why the slice cannot start here; it is listed as dead until it is terminated."""
        with self._store.changing():
            self._store.check_epoch(request["cluster"], request["epoch"])
            self._store.assign({**self._store.assignment_of(request), "failed": request["text"]})
        return {}

    def _phase(self, request: dict[str, Any], phase: str) -> None:
        with self._store.changing(), contextlib.suppress(OrderRefused):
            self._store.assign({**self._store.assignment_of(request), "phase": phase, "phase_at": time.time()})

    def do_start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start the program under a supervisor, unless it has been started."""
        store = self._store
        with store.changing():
            store.check_epoch(request["cluster"], request["epoch"])
            store.assignment_of(request)
            if store.supervisor() is not None:
                return self._started()
            shutil.rmtree(str(store.run), ignore_errors=True)
            store.run.mkdir(mode=0o700)
            with open(str(store.run / "supervisor.log"), "ab") as log:  # noqa: PTH123
                supervisor = subprocess.Popen(
                    [sys.executable, "-I", sys.argv[0], "supervise", str(store.root)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    cwd=str(store.run),
                )
            assert supervisor.stdin is not None
            assert supervisor.stdout is not None
            supervisor.stdin.write(json.dumps(request).encode() + b"\n")
            supervisor.stdin.close()
            said = supervisor.stdout.readline()
        threading.Thread(target=supervisor.wait, daemon=True).start()
        if not said:
            words = (store.run / "supervisor.log").read_text(errors="replace")[-2000:]
            raise OrderRefused("failed", f"the supervisor did not start: {words}")
        with store.changing(), contextlib.suppress(OrderRefused):
            store.assign({**store.assignment_of(request), "phase": "", "started": time.time()})
        return self._started()

    def _started(self) -> dict[str, Any]:
        supervisor = self._store.supervisor() or {}
        return {"socket": str(self._store.run / "mux.sock"), "tunnels": supervisor.get("tunnels", {})}

    def do_end(self, request: dict[str, Any]) -> dict[str, Any]:
        """End a slice and all of its processes. Does nothing if the slice is not here."""
        store = self._store
        with store.changing():
            store.check_epoch(request["cluster"], request["epoch"])
            try:
                assignment = store.assignment_of(request)
            except OrderRefused:
                return {"was": False}
            with contextlib.suppress(OSError):  # on a full disk the slice ends as well
                store.assign({**assignment, "ending": True})
        for process in list(self._bootstraps):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        supervisor = store.supervisor()
        deadline = time.monotonic() + request.get("grace", 5.0) + 5.0
        if supervisor is not None and alive(supervisor):
            os.kill(supervisor["pid"], signal.SIGTERM)
            while alive(supervisor):
                if time.monotonic() > deadline:
                    os.kill(supervisor["pid"], signal.SIGKILL)
                time.sleep(0.02)
        while kill_marked(str(store.run)):
            time.sleep(0.02)
        with store.changing():
            left = store.assignment
            if left is not None and (left["cluster"], left["slice"]) == (request["cluster"], request["slice"]):
                store.release(left)
        return {"was": True}

    def _metadata(self, url: str) -> dict[str, Any] | None:
        """Read the cloud's notice of an interruption from its metadata service, at most every 2 s."""
        asked, notice = self._notice
        if time.monotonic() - asked < 2.0:
            return notice
        notice = None
        with contextlib.suppress(OSError, ValueError):
            token = _http(url + "/latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
            headers = {"X-aws-ec2-metadata-token": token}
            for kind, path in NOTICES:
                with contextlib.suppress(OSError, ValueError):
                    data = json.loads(_http(f"{url}/latest/meta-data/{path}", "GET", headers))
                    notice = {"kind": kind, "time": str(data.get("time") or data.get("noticeTime"))[:40]}
                    break
        self._notice = (time.monotonic(), notice)
        return notice


def _http(url: str, method: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=1) as answer:
        text: str = answer.read(10_000).decode("utf-8", "replace")
        return text


def _accelerators() -> list[str]:
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]


def _pythons() -> dict[str, str]:
    """Find each minor version of Python on PATH, with its path."""
    found: dict[str, str] = {}
    for name in ("python3", *(f"python3.{minor}" for minor in range(9, 20))):
        path = shutil.which(name)
        if path is None:
            continue
        command = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
            version = done.stdout.decode().strip()
            if done.returncode == 0 and version:
                found.setdefault(version, path)
    return found


def main() -> None:
    os.umask(0o077)
    what, directory = sys.argv[1], os.path.expanduser(sys.argv[2])  # noqa: PTH111
    if what == "supervise":
        supervise(directory)
    else:
        Session(directory).serve()


if __name__ == "__main__":
    main()
