"""What the JSON of each command holds; a test compares it with what the commands print."""

from __future__ import annotations

from typing import Final

_ORDER: Final = {
    "windlass.order/v1": {
        "schema": "`windlass.order/v1`",
        "what": "`freeze`, `resume`, `drain` or `undrain`",
        "subject": "the group or the slice; `*` is every group",
        "by": "who asked: user@host",
        "heard": "whether the controller has heard it; null if there was nothing to ask for",
        "outcome": "what became of it, as a sentence",
    }
}

_JOB: Final = {
    "name": "its name, by which `windlass why` knows it",
    "command": "the command and its arguments",
    "tasks": "how many tasks it has",
    "needs": "what each task needs",
    "retries": "how often a task that fails is run again",
    "submitted": "when it was submitted",
    "waiting": "tasks that wait",
    "running": "tasks that run",
    "done": "tasks that ended well",
    "failed": "tasks that failed, retries included",
    "cancelled": "tasks that were cancelled",
    "logs": "the directory with what its tasks wrote",
}

SCHEMAS: Final[dict[str, dict[str, dict[str, str]]]] = {
    "status": {
        "windlass.status/v1": {
            "schema": "`windlass.status/v1`",
            "seq": "the number of the last journal record in it",
            "version": "of Windlass",
            "at": "when it was asked, in seconds since 1970, as all times",
            "as_of": "the instant that countdowns count from: now, or when the controller was last seen",
            "headline": "the state of the cluster in a sentence or two",
            "summary": "`waiting_tasks`, `waiting_demands`, `impossible_demands`, `oldest_wait_since`, `slices`, "
            "`busy`, `idle`, `coming`, `leaving`, `ceiling`, `unknown_sources`",
            "leader": "`holder`, `epoch`, `alive`, `seen_at`",
            "troubles": "what is in trouble, by name (`workload`, `provider NAME`, `slice ID`), and how",
            "frozen": "frozen groups (`*` is all), and who froze them",
            "settings_differ": "whether the file says something else than the controller goes by",
            "groups": "`name`, `family`, `ready`, `coming`, `leaving`, `busy`, `states` (how many by state; those that "
            "failed or ended within the last hour by how they ended), `max`, `min`, `spare`, `hosts`, `resources`, "
            "`labels`, `price`, `preemptible`, `hourly_cost`, `availability` (`state`, `until`, `why`), `frozen_by`, "
            "`boot_seconds`, `next` (`code`, `why`; why one more cannot be had now, or null)",
            "families": "limits over several groups: `name`, `min`, `max`, `spare`, `groups` (their names), `ready`, "
            "`coming`, `leaving`, `busy`, `hourly_cost`",
            "slices": "`id`, `group`, `provider`, `state`, `since`, `tasks`, `code`, `why`, `ready_in`, `hourly_cost`, "
            "`until`, `then`, `use` (0 to 1), `cost`, `zone`, `hosts`, `ray_status`, `phase`",
            "demands": "`id`, `tasks`, `since`, `needs`, `gang`, `groups`, `unblocks` (`change`, `set`, `hourly_cost`, "
            "`buys`, `for`: the demand and up to 10 others, `for_demands` and `for_tasks`: how many in all), "
            "`parts`: some of its tasks each (`tasks`, `code`, `why`, `slices`, `starts_in`)",
            "decision": "the last routing: `at`, `launch` (by group), `routed` (by group: `demands`, `tasks`), "
            "`pending` (by group with slices in flight or planned: `slices`, `remaining`, `demands`), `unmet` "
            "(`demand`, `tasks`, `code`)",
            "hourly_cost": "dollars per hour: `now`, `planned`",
            "bill": "dollars so far: `total`, and its parts `work`, `booting`, `idle`, `spare`, `draining`, `ending`",
            "spent_since": "when the accounts begin; null: nothing is recorded yet",
            "jobs": "null (the workload is no queue), or `name`, `state`, `tasks`, `waiting`, `running`, `done`, "
            "`failed`, `cancelled`, `submitted`",
        }
    },
    "why": {
        "windlass.why/v1": {
            "schema": "`windlass.why/v1`",
            "name": "what was asked about",
            "at": "the instant of the answer",
            "led": "whether a controller runs",
            "slice": "null, or `id`, `group`, `provider`, `state`, `phase`, `since`, `hourly_cost`, `started` (`at`, "
            "`code`, `why`, `passed_over`, `count`), `life`, `refused`, `must_go`, `cordoned`, `trouble`, "
            "`now` (`code`, `why`, `until`, `then`), `certificate` (`at`, `fence`), `dead`, "
            "`dead_hosts` (`host`, `exit_code`, `last_lines`), `joined`, "
            "`leaving`, `nodes`, `tasks`, `ready_in`",
            "demand": "null, or `id`, `waits`, `since`, `until`, `tasks`, `needs`, `gang`, `parts`, `groups`, "
            "`unblocks`, `launched`, `reasons`",
            "group": "null, or `name`, `provider`, `resources`, `hosts`, `min`, `max`, `spare`, `price`, "
            "`scales_down`, `idle_timeout`, `release`, `slices`, `hourly_cost`, `frozen_by`, `availability`, `next`, "
            "`health`, `failures`, `succeeded_at`, `boot_seconds`, `launches`, `refusals`",
            "family": "null, or `name`, `min`, `max`, `spare`, `groups` (`name`, `provider`, `price`, `counted`, "
            "`busy`, `hourly_cost`, `availability`, `next`; the cheapest first)",
            "job": "null, or `name`, `state`, `tasks`, `waiting`, `running`, `done`, `failed`, `cancelled`, "
            "`submitted`, `nodes`, `failures` (`task`, `exit_code`, `node`, `log`, `last_lines`)",
        }
    },
    "events": {
        "windlass.event/v1": {
            "schema": "`windlass.event/v1`, on every line",
            "at": "when it happened",
            "kind": "`settings`, `order`, `frozen`, `trouble`, `mistake`, `refused`, `launch`, `slice`, `waiting`",
            "code": "its reason code, or null",
            "text": "what happened, as a sentence",
            "subjects": "the slices, demands or groups that it is about",
            "alarm": "whether a person should look",
            "seq": "the number of the last journal record of the pass in which it happened",
            "epoch": "of the controller that wrote it",
        }
    },
    "freeze": _ORDER,
    "resume": _ORDER,
    "drain": _ORDER,
    "submit": {
        "windlass.job/v1": {"schema": "`windlass.job/v1`", **_JOB},
    },
    "cancel": {
        "windlass.cancel/v1": {
            "schema": "`windlass.cancel/v1`",
            "name": "the job",
            "outcome": "what became of it, as a sentence",
            "tasks": "how many tasks it has",
            "waiting": "tasks that wait: none",
            "running": "tasks that are being ended",
            "done": "tasks that ended well before",
            "failed": "tasks that failed before",
            "cancelled": "tasks that were cancelled so far",
        }
    },
    "down": {
        "windlass.down/v1": {
            "schema": "`windlass.down/v1`",
            "nothing_left": "whether every provider lists no machine of this cluster any more",
            "slices": "how many slices were ended",
            "left": "by provider: the slices that it still lists; null if it gave no answer",
            "controller_runs": "whether a controller still runs; it buys nothing until `windlass resume`",
            "outcome": "what became of it, as a sentence",
        }
    },
    "jobs": {
        "windlass.jobs/v1": {
            "schema": "`windlass.jobs/v1`",
            "jobs": f"the oldest first: {', '.join(f'`{key}`' for key in _JOB)}",
        }
    },
    "replay": {
        "windlass.replay/v1": {
            "schema": "`windlass.replay/v1`",
            "journal": "its address",
            "since": "when the first pass happened that was made again; null if there is none",
            "until": "when the last one did",
            "passes": "how many were made again",
            "decisions": "transitions, launches and reasons in them",
            "differing": "passes that came out otherwise; under other settings, that would have done something else",
            "first": "null, or the first of these: `number`, `at`, `seq`, `recorded`, `again`",
            "unmarked": "passes that an older version recorded, and that cannot be made again",
            "began_at": "the number of the record at which the state was saved that it begins with; 0: the first one",
            "versions": "of Windlass, that recorded them",
            "what_if": "null, or `changes`, `seed`, `recorded`, `model_as_recorded`, `model_as_changed` (null if the "
            "settings are the same; each with `hours`, `dollars`, `accounts`, `node_hours`, `utilization`, `wait_p50`, "
            "`wait_p95`, `wait_max`, `tasks`, `waiting`, `launches`, `stops`, `refused`), `assumptions`",
        }
    },
    "doctor": {
        "windlass.doctor/v1": {
            "schema": "`windlass.doctor/v1`",
            "ok": "whether there is no problem",
            "checks": "`verdict` (`ok`, `problem`, `note`), `about`, `text`, `remedy`",
        }
    },
}
