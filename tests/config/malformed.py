"""Wrong configurations by hand: what is written, and what one message must say (all parts in the same line)."""

from __future__ import annotations

from windlass.providers.registry import PROVIDER_TYPES
from windlass.workloads.registry import WORKLOAD_TYPES

SELLERS = ", ".join(PROVIDER_TYPES)
WORKLOADS = ", ".join(WORKLOAD_TYPES)
GROUPS = "groups: {g: {resources: {cpu: 4, gpu: 4}, max: 5}}\n"
PROVIDERS = "providers: {here: {type: local}}\n"
WORKLOAD = "workload: {type: queue}\n"
GOOD = GROUPS + PROVIDERS + WORKLOAD


def group(entries: str) -> str:
    return f"groups: {{g: {{resources: {{cpu: 4, gpu: 4}}, max: 5, {entries}}}}}\n{PROVIDERS}{WORKLOAD}"


def provider(entries: str) -> str:
    return f"{GROUPS}{WORKLOAD}providers: {{p: {entries}}}\n"


def workload(entries: str) -> str:
    return f"{GROUPS}{PROVIDERS}workload: {entries}\n"


def policy(entries: str) -> str:
    return f"{GOOD}policy: {{{entries}}}\n"


def journal(entries: str) -> str:
    return f"{GOOD}journal: {entries}\n"


def leader(entries: str) -> str:
    return f"{GOOD}leader: {{{entries}}}\n"


MALFORMED: dict[str, tuple[str, ...]] = {
    # -- the whole file ------------------------------------------------------------------------------------------
    "": ("configuration", "empty", "groups, providers and a workload"),
    "# only a comment\n": ("configuration", "is nothing"),
    "[]": ("configuration", "a list"),
    "42": ("configuration", "42"),
    "{}": ("groups", "required"),
    GROUPS + WORKLOAD: ("providers", "required in a configuration"),
    GROUPS + PROVIDERS: ("workload", "required in a configuration"),
    "groups: {a: {": ("configuration", "not YAML", "line"),
    '{"groups": ': ("configuration", "not JSON", "line 1"),
    "groups: !thing {}": ("configuration", "tag"),
    "groups: " + "[" * 500: ("configuration", "nested"),
    GOOD + "server: {port: 80}\n": ("server", "unknown key"),
    GOOD + "provider: {}\n": ("provider:", "did you mean providers?"),
    GOOD + "slices: []\n": ("slices", "unknown key"),
    GOOD + "now: 5\n": ("now", "unknown key"),
    GOOD + WORKLOAD: ("workload", "is given twice"),
    GOOD + "now: 5\n" + WORKLOAD: ("workload", "is given twice"),
    group("max: 6"): ("groups.g.max", "is given twice"),
    group("frozen: true, max: 6"): ("groups.g.max", "is given twice"),
    group("provider: here, provider: there"): ("groups.g.provider", "is given twice"),
    # -- cluster and groups, as in a scenario ----------------------------------------------------------------------
    GOOD + "cluster: {max_nods: 5}": ("cluster.max_nods", "did you mean max_nodes?"),
    GOOD + "cluster: {max_nodes: -1}": ("cluster.max_nodes", "at least 0"),
    GOOD + "cluster: {choose: cheapest}": ("groups.g.price", "cluster.choose is cheapest"),
    GOOD + "cluster: []": ("cluster", "a list"),
    f"groups: []\n{PROVIDERS}{WORKLOAD}": ("groups", "must be a mapping"),
    f"groups: {{g: 3}}\n{PROVIDERS}{WORKLOAD}": ("groups.g", "must be a group", "3"),
    f"groups: {{g: {{max: 1}}}}\n{PROVIDERS}{WORKLOAD}": ("groups.g.resources", "required"),
    f"groups: {{g: {{resources: {{cpu: 1}}}}}}\n{PROVIDERS}{WORKLOAD}": ("groups.g.max", "required"),
    f"groups: {{g: {{resources: {{cpu: many}}, max: 1}}}}\n{PROVIDERS}{WORKLOAD}": ("groups.g.resources.cpu", "'many'"),
    group("min: 7"): ("groups.g.max", "at least min (7)", "is 5"),
    group("prise: 7"): ("groups.g.prise", "did you mean price?"),
    group("hosts: 0"): ("groups.g.hosts", "at least 1"),
    group("taints: [{value: x}]"): ("groups.g.taints[0].key", "required"),
    group("scale_down: {idle_timeout: soon}"): ("groups.g.scale_down.idle_timeout", "30d", "'soon'"),
    group("scale_down: {idle_timeout: -1}"): ("groups.g.scale_down.idle_timeout", "at least 0s"),
    group("scale_down: {idle_timout: 5}"): ("groups.g.scale_down.idle_timout", "did you mean idle_timeout?"),
    group("boot_seconds: 5y"): ("groups.g.boot_seconds", "'5y'"),
    group("availability: {state: backoff}"): ("groups.g.availability", "observed by the controller"),
    group("provider: their"): ("groups.g.provider", "'their'", "did you mean here?"),
    group("provider: zzz"): ("groups.g.provider", "there are here"),
    group("provider: [here]"): ("groups.g.provider", "a list"),
    group("settings: 5"): ("groups.g.settings", "a mapping of settings", "5"),
    group("settings: [a]"): ("groups.g.settings", "a list"),
    group("settings: {a: {b: 1, b: 2}}"): ("groups.g.settings.a.b", "is given twice"),
    group("settings: {a: [{b: 1, b: 2}]}"): ("groups.g.settings.a[0].b", "is given twice"),
    f"{GROUPS}{WORKLOAD}providers: {{a: {{type: local}}, b: {{type: local}}}}": (
        "groups.g.provider",
        "several",
        "a, b",
    ),
    # -- providers -------------------------------------------------------------------------------------------------
    f"{GROUPS}{WORKLOAD}providers: {{}}": ("providers", "at least one"),
    f"{GROUPS}{WORKLOAD}providers: [local]": ("providers", "must be a mapping", "a list"),
    f"{GROUPS}{WORKLOAD}providers: {{'': {{type: local}}}}": ("providers", "named ''"),
    provider("local"): ("providers.p", f"must be a provider with a type ({SELLERS})", "is 'local'"),
    provider(""): ("providers.p", "must be a provider", "nothing"),
    provider("{}"): ("providers.p.type", f"is required in a provider: one of {SELLERS}"),
    provider("{type: 3}"): ("providers.p.type", f"must be one of {SELLERS}, is 3", "installed package"),
    provider("{type: locl}"): ("providers.p.type", f"must be one of {SELLERS}, is 'locl'; did you mean local?"),
    provider("{type: zzz}"): ("providers.p.type", f"must be one of {SELLERS}, is 'zzz'", "installed package"),
    provider("{type: local, seed: 3}"): ("providers.p.seed", "unknown key"),
    provider("{type: local, directry: x}"): ("providers.p.directry", "did you mean directory?"),
    provider("{type: local, directory: 1.5}"): ("providers.p.directory", "1.5"),
    provider("{type: local, directory: ''}"): ("providers.p.directory", "visible text"),
    provider("{type: local, directory: ~no-such-user-here/x}"): ("providers.p.directory", "home directory"),
    provider("{type: local, boot_delay: -1}"): ("providers.p.boot_delay", "at least 0s"),
    provider("{type: local, grace: 2h}"): ("providers.p.grace", "at most 1h", "'2h'"),
    provider("{type: simulated, seed: -1}"): ("providers.p.seed", "at least 0"),
    provider("{type: simulated, seed: x}"): ("providers.p.seed", "whole number", "'x'"),
    # -- workload --------------------------------------------------------------------------------------------------
    workload("ray"): ("workload", f"must be a workload with a type ({WORKLOADS})", "is 'ray'"),
    workload("{}"): ("workload.type", f"is required in a workload: one of {WORKLOADS}"),
    workload("{type: ray}"): ("workload.address", "required"),
    workload("{type: ray, address: 'ray://here:6379'}"): ("workload.address", "HOST:PORT", "'ray://here:6379'"),
    workload("{type: ray, address: 'here:x'}"): ("workload.address", "HOST:PORT", "'here:x'"),
    workload("{type: ray, address: 'h:1', start: --verbose}"): ("workload.start", "list"),
    workload("{type: ray, address: 'h:1', poll: 0}"): ("workload.poll", "at least 0.01s"),
    workload("{type: ray, address: 'h:1', tls: {ca: x}}"): ("workload.tls.ca", "unknown key"),
    leader("") + "cluster: {max_concurrent_launches: 0}\n": ("cluster.max_concurrent_launches", "at least 1"),
    group("upscaling_speed: -1"): ("groups.g.upscaling_speed", "from 0 on"),
    group("upscaling_speed: fast"): ("groups.g.upscaling_speed", "from 0 on", "'fast'"),
    workload("{type: dask}"): ("workload.scheduler", "required"),
    workload("{type: dask, scheduler: 'here:8786'}"): ("workload.scheduler", "tcp://HOST:PORT", "'here:8786'"),
    workload("{type: dask, scheduler: 'tcp://here:0'}"): ("workload.scheduler", "tls://HOST:PORT", "'tcp://here:0'"),
    workload("{type: dask, scheduler: 'tcp://h:1', tls: {ca: x}}"): ("workload.tls.ca", "unknown key"),
    workload("{type: dask, scheduler: 'tcp://h:1', heartbeat_timeout: 0}"): ("workload.heartbeat_timeout", "1s"),
    workload("{type: queu}"): ("workload.type", f"must be one of {WORKLOADS}, is 'queu'; did you mean queue?"),
    workload("{type: queue, directory: [x]}"): ("workload.directory", "a list"),
    workload("{type: simulated, duration: x}"): ("workload.duration", "'x'"),
    workload("{type: simulated, file: x}"): ("workload.file", "unknown key"),
    # -- journal ---------------------------------------------------------------------------------------------------
    journal("5"): ("journal", "must be a mapping with location, retention", "5"),
    journal("mysql://user:secret@host/db"): ("journal.location", "'mysql://...'"),
    journal("postgresql://"): ("journal.location", "server or a database"),
    journal("sqlite://"): ("journal.location", "must be a path"),
    journal("{path: x}"): ("journal.path", "unknown key"),
    journal("{location: {}}"): ("journal.location", "a mapping"),
    journal("{retention: forever}"): ("journal.retention", "30d", "'forever'"),
    journal("{retention: 5s}"): ("journal.retention", "at least 1m", "'5s'"),
    journal("{retention: 99999d}"): ("journal.retention", "at most 10 years"),
    journal("{retention: .nan}"): ("journal.retention", "nan"),
    journal("{retention: true}"): ("journal.retention", "true"),
    # -- policy ----------------------------------------------------------------------------------------------------
    GOOD + "policy: 5": ("policy", "must be a mapping with evaluation_interval", "5"),
    policy("drain_timout: 5"): ("policy.drain_timout", "did you mean drain_timeout?"),
    policy("evaluation_interval: 5"): ("policy.evaluation_interval", "min, max", "5"),
    policy("evaluation_interval: {min: 9}"): ("policy.evaluation_interval.max", "at least min (9s)", "is 5s"),
    policy("evaluation_interval: {min: 0}"): ("policy.evaluation_interval.min", "at least 0.01s"),
    policy("evaluation_interval: {mean: 1}"): ("policy.evaluation_interval.mean", "unknown key"),
    policy("observe_timeout: 0"): ("policy.observe_timeout", "at least 0.1s"),
    policy("requesting_timeout: 0"): ("policy.requesting_timeout", "at least 1s"),
    policy("boot_timeout: [1]"): ("policy.boot_timeout", "a list"),
    policy("initializing_timeout: 1w"): ("policy.initializing_timeout", "'1w'"),
    policy("cordon_timeout: -5s"): ("policy.cordon_timeout", "'-5s'"),
    policy("drain_timeout: .inf"): ("policy.drain_timeout", "at most 10 years"),
    policy("terminate_timeout: 1" + "0" * 60): ("policy.terminate_timeout", "too large"),
    policy("launch_concurrency: 0"): ("policy.launch_concurrency", "at least 1"),
    policy("launch_rate: 1.5"): ("policy.launch_rate", "whole number"),
    policy("allow_eviction: 1"): ("policy.allow_eviction", "true or false"),
    policy("vanish_timeout: x"): ("policy.vanish_timeout", "'x'"),
    policy("backoff: 0.7"): ("policy.backoff", "must be a mapping with factor"),
    policy("backoff: {factor: 1}"): ("policy.backoff.factor", "below 1", "1"),
    policy("backoff: {factor: 0}"): ("policy.backoff.factor", "above 0"),
    policy("backoff: {factor: '0.7'}"): ("policy.backoff.factor", "'0.7'"),
    policy("backoff: {floor: 1.5}"): ("policy.backoff.floor", "up to 1", "1.5"),
    policy("backoff: {floor: true}"): ("policy.backoff.floor", "true"),
    policy("backoff: {windw: 5}"): ("policy.backoff.windw", "did you mean window?"),
    # -- leader ----------------------------------------------------------------------------------------------------
    leader("lease: 0"): ("leader.lease", "at least 1s"),
    leader("lease: 2h"): ("leader.lease", "at most 1h"),
    leader("holder: [me]"): ("leader.holder", "a list"),
    leader("holder: ' me'"): ("leader.holder", "without blanks"),
    leader("leese: 5"): ("leader.leese", "did you mean lease?"),
}
