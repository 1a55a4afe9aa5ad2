"""What the JSON of each command holds; a test compares it with what the commands print."""

from __future__ import annotations

from typing import Final

_ORDER: Final = {
    "windlass.order/v1": {
        "schema": "`windlass.order/v1`",
        "what": "`freeze`, `resume`, `drain` or `undrain`",
        "subject": "the group or the slice; `*` is every group",
        "by": "who gave the order: user@host",
        "heard": "whether the controller has read the order; null if there was nothing to order",
        "outcome": "the result, as a sentence",
    }
}

_JOB: Final = {
    "name": "its name, for example for `windlass why NAME`",
    "command": "the command and its arguments",
    "tasks": "how many tasks it has",
    "needs": "what each task needs",
    "gang": "whether all tasks start together or not at all",
    "retries": "how often a failed task runs again",
    "submitted": "when it was submitted",
    "waiting": "tasks that wait",
    "running": "tasks that run",
    "done": "tasks that succeeded",
    "failed": "tasks that failed and are not retried",
    "cancelled": "tasks that were cancelled",
    "logs": "the directory with the output of its tasks",
}

SCHEMAS: Final[dict[str, dict[str, dict[str, str]]]] = {
    "status": {
        "windlass.status/v1": {
            "schema": "`windlass.status/v1`",
            "seq": "the number of the last journal record that is included",
            "version": "the version of Windlass",
            "at": "when the status was made; like all times in seconds since 1970",
            "as_of": "the time of the shown state: now, or when the controller was last seen",
            "headline": "the state of the cluster in a sentence or two",
            "summary": "`waiting_tasks`, `waiting_demands`, `impossible_demands`, `oldest_wait_since`, `slices`, "
            "`busy`, `idle`, `coming`, `leaving`, `ceiling`, `unknown_sources`",
            "leader": "`holder`, `epoch`, `alive`, `seen_at`",
            "troubles": "problems, by the name of what has them (`workload`, `provider NAME`, `slice ID`)",
            "frozen": "frozen groups (`*`: all), and who froze them",
            "settings_differ": "whether the file differs from the settings that the controller uses",
            "groups": "`name`, `family`, `ready`, `coming`, `leaving`, `busy`, `states` (machines by state; those "
            "that failed or ended within the last hour by how they ended), `max`, `min`, `spare`, `hosts`, "
            "`resources`, `labels`, `price`, `preemptible`, `hourly_cost`, `availability` (`state`, `until`, `why`), "
            "`frozen_by`, `boot_seconds`, `next` (`code`, `why`: why one more machine cannot be launched now; null: "
            "it can)",
            "families": "limits over several groups: `name`, `min`, `max`, `spare`, `groups` (their names), `ready`, "
            "`coming`, `leaving`, `busy`, `hourly_cost`",
            "slices": "`id`, `group`, `provider`, `state`, `since`, `tasks`, `code`, `why`, `ready_in`, `hourly_cost`, "
            "`until`, `then`, `use` (0 to 1), `cost`, `zone`, `hosts`, `ray_status`, `phase`",
            "demands": "`id`, `tasks`, `since`, `needs`, `gang`, `groups`, `unblocks` (`change`, `set`, `hourly_cost`, "
            "`buys`, `for`: the demand and up to 10 others that it helps, `for_demands` and `for_tasks`: their total), "
            "`parts`: its tasks by reason (`tasks`, `code`, `why`, `slices`, `starts_in`)",
            "decision": "the last plan: `at`, `launch` (by group), `routed` (by group: `demands`, `tasks`), "
            "`pending` (by group with slices in flight or planned: `slices`, `remaining`, `demands`), `unmet` "
            "(`demand`, `tasks`, `code`)",
            "hourly_cost": "dollars per hour: `now`, `planned`",
            "bill": "dollars so far: `total`, and its parts `work`, `booting`, `idle`, `spare`, `draining`, `ending`",
            "spent_since": "when the accounts begin; null if nothing is recorded yet",
            "jobs": "null if the workload is not a queue, or `name`, `state`, `tasks`, `waiting`, `running`, `done`, "
            "`failed`, `cancelled`, `submitted`",
        }
    },
    "why": {
        "windlass.why/v1": {
            "schema": "`windlass.why/v1`",
            "name": "the name in the question",
            "at": "the time of the answer",
            "led": "whether a controller runs",
            "slice": "null, or `id`, `group`, `provider`, `state`, `phase`, `since`, `hourly_cost`, `started` (`at`, "
            "`code`, `why`, `passed_over`, `count`), `life`, `refused`, `must_go`, `cordoned`, `trouble`, "
            "`now` (`code`, `why`, `until`, `then`), `certificate` (`at`, `fence`), `dead`, "
            "`dead_hosts` (`host`, `exit_code`, `last_lines`), `joined`, "
            "`leaving`, `final` (its drain cannot be withdrawn), `nodes`, `tasks`, `ready_in`",
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
            "subjects": "the slices, demands or groups that it concerns",
            "alarm": "whether it needs the attention of an operator",
            "seq": "the number of the last journal record of the pass in which it happened",
            "epoch": "the epoch (term of leadership) of the controller that wrote it",
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
            "outcome": "the result, as a sentence",
            "tasks": "how many tasks it has",
            "waiting": "waiting tasks: always 0",
            "running": "tasks that are being ended",
            "done": "tasks that had succeeded",
            "failed": "tasks that had failed",
            "cancelled": "tasks that are cancelled so far",
        }
    },
    "down": {
        "windlass.down/v1": {
            "schema": "`windlass.down/v1`",
            "nothing_left": "whether no provider lists a machine of this cluster any more",
            "slices": "how many slices were ended",
            "left": "by provider: the slices that it still lists; null if it did not answer",
            "controller_runs": "whether a controller still runs; it buys nothing until `windlass resume`",
            "outcome": "the result, as a sentence",
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
            "journal": "the path or address of the journal",
            "since": "the time of the first repeated pass; null if there is none",
            "until": "the time of the last repeated pass",
            "passes": "the number of repeated passes",
            "decisions": "the number of transitions, launches and reasons in them",
            "differing": "passes with a different result; with changed settings, passes that would decide differently",
            "first": "null, or the first differing pass: `number`, `at`, `seq`, `recorded`, `again`",
            "unmarked": "passes that an older version recorded and that cannot be repeated",
            "began_at": "the number of the journal record of the checkpoint that the replay starts from; 0: the first",
            "versions": "the versions of Windlass that recorded them",
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
