// Types of the documents of the API, written by tools/api_types.py from OpenAPI: do not edit.

export type Status = {
  schema: "windlass.status/v1";
  seq: number;
  version: string;
  at: number;
  as_of: number;
  headline: string;
  summary: {
    waiting_tasks: number;
    waiting_demands: number;
    impossible_demands: number;
    oldest_wait_since: number | null;
    slices: number;
    busy: number;
    idle: number;
    coming: number;
    leaving: number;
    ceiling: number | null;
    unknown_sources: string[];
  };
  leader: {
    holder: string | null;
    epoch: number;
    alive: boolean;
    seen_at: number | null;
  };
  troubles: Record<string, string>;
  frozen: Record<string, string>;
  settings_differ: boolean;
  groups: {
    name: string;
    family: string | null;
    ready: number;
    coming: number;
    leaving: number;
    busy: number;
    states: {
      queued: number;
      requesting: number;
      booting: number;
      initializing: number;
      ready: number;
      cordoned: number;
      draining: number;
      terminating: number;
      terminated: number;
      launch_failed: number;
      launch_timeout: number;
      init_failed: number;
      lost: number;
      terminate_failed: number;
    };
    max: number | null;
    min: number | null;
    spare: number | null;
    hosts: number;
    resources: Record<string, string | number>;
    labels: Record<string, string>;
    price: number | null;
    preemptible: boolean;
    hourly_cost: number;
    availability: {
      state: string;
      until: number | null;
      why: string;
    };
    frozen_by: string | null;
    boot_seconds: number | null;
    next: {
      code: string | null;
      why: string;
    };
  }[];
  families: {
    name: string;
    min: number;
    max: number;
    spare: number;
    groups: string[];
    ready: number;
    coming: number;
    leaving: number;
    busy: number;
    hourly_cost: number;
    frozen_by: string | null;
    next: {
      code: string | null;
      why: string;
    };
  }[];
  slices: {
    ray_status: string;
    id: string;
    group: string;
    provider: string;
    state: string;
    since: number;
    tasks: number;
    code: string | null;
    why: string;
    ready_in: number | null;
    hourly_cost: number;
    until: number | null;
    then: string | null;
    use: number;
    cost: number;
    zone: string | null;
    hosts: number;
    phase: string | null;
  }[];
  demands: {
    id: string;
    tasks: number;
    since: number | null;
    parts: {
      tasks: number;
      code: string | null;
      why: string;
      slices: string[];
      starts_in: number | null;
    }[];
    needs: {
      count: number;
      needs: Record<string, string | number>;
    }[];
    gang: string | null;
    groups: Record<string, {
      code: string | null;
      why: string;
    }>;
    unblocks: {
      change: string;
      set: {
        path: string[];
        value: any;
      }[];
      hourly_cost: number;
      buys: Record<string, number>;
      for: Record<string, number>;
      for_demands: number;
      for_tasks: number;
    }[];
  }[];
  decision: {
    at: number;
    launch: Record<string, number>;
    routed: Record<string, {
      demands: Record<string, number>;
      tasks: number;
    }>;
    pending: Record<string, {
      slices: number;
      remaining: Record<string, string>;
      demands: Record<string, number>;
    }>;
    unmet: {
      demand: string;
      tasks: number;
      code: string;
    }[];
  };
  hourly_cost: {
    now: number;
    planned: number;
  };
  bill: {
    work: number;
    booting: number;
    idle: number;
    spare: number;
    draining: number;
    ending: number;
    total: number;
  };
  spent_since: number | null;
  jobs?: Record<string, any>[] | null;
};

export type Why = {
  schema: "windlass.why/v1";
  name: string;
  at: number;
  led: boolean;
  slice: {
    phase: string | null;
    id: string;
    group: string;
    provider: string;
    state: string;
    since: number;
    hourly_cost: number;
    started: {
      at: number;
      code: string;
      why: string;
      passed_over: Record<string, {
        code: string | null;
        why: string;
      }>;
      count: number | null;
    };
    life: {
      at: number;
      state: string;
      code: string;
      why: string;
    }[];
    refused: {
      at: number;
      code: string | null;
      why: string | null;
    }[];
    must_go: {
      at: number;
      code: string | null;
      why: string | null;
    } | null;
    cordoned: {
      at: number;
      code: string | null;
      why: string | null;
    } | null;
    trouble: string | null;
    now: {
      code: string | null;
      why: string;
      until: number | null;
      then: string | null;
    };
    certificate: {
      at: number;
      fence: number;
    } | null;
    dead: boolean;
    dead_hosts: {
      host: string;
      exit_code: number | null;
      last_lines: string[];
    }[];
    joined: boolean;
    leaving: string | null;
    final: boolean;
    nodes: number;
    tasks: number;
    ready_in: number | null;
  } | null;
  demand: {
    id: string;
    waits: boolean;
    since: number;
    until: number | null;
    tasks: number;
    needs: {
      count: number;
      needs: Record<string, string | number>;
    }[];
    gang: string | null;
    parts: {
      tasks: number;
      code: string | null;
      why: string;
      slices: string[];
      starts_in: number | null;
    }[];
    groups: Record<string, {
      code: string | null;
      why: string;
    }>;
    unblocks: {
      change: string;
      set: {
        path: string[];
        value: any;
      }[];
      hourly_cost: number;
      buys: Record<string, number>;
      for: Record<string, number>;
      for_demands: number;
      for_tasks: number;
    }[];
    launched: {
      at: number;
      group: string;
      slices: string[];
      why: string;
    }[];
    reasons: {
      at: number;
      code: string | null;
      why: string | null;
    }[];
  } | null;
  group: {
    name: string;
    provider: string | null;
    resources: Record<string, string | number>;
    hosts: number | null;
    min: number | null;
    max: number | null;
    spare: number | null;
    price: number | null;
    scales_down: boolean;
    idle_timeout: number | null;
    release: string[];
    slices: {
      counted: number;
      ready: number;
      coming: number;
      busy: number;
    };
    hourly_cost: number;
    frozen_by: string | null;
    availability: {
      state: string;
      until: number | null;
      why: string;
    };
    next: {
      code: string | null;
      why: string;
    } | null;
    health: number;
    failures: {
      at: number;
      code: string;
    }[];
    succeeded_at: number | null;
    boot_seconds: number | null;
    launches: {
      at: number;
      count: number;
      code: string;
      why: string;
    }[];
    refusals: {
      at: number;
      slice: string;
      code: string;
      why: string;
    }[];
  } | null;
  job?: Record<string, any> | null;
  family?: {
    name: string;
    frozen_by: string | null;
    min: number;
    max: number;
    spare: number;
    groups: {
      name: string;
      provider: string;
      price: number | null;
      counted: number;
      busy: number;
      hourly_cost: number;
      availability: {
        state: string;
        until: number | null;
        why: string;
      };
      next: {
        code: string | null;
        why: string;
      };
    }[];
  } | null;
};

export type Event_ = {
  schema: "windlass.event/v1";
  at: number;
  kind: string;
  code: string | null;
  text: string;
  subjects: string[];
  alarm: boolean;
  seq: number;
  epoch: number;
};

export type Events = {
  schema: "windlass.events/v1";
  events: {
    schema: "windlass.event/v1";
    at: number;
    kind: string;
    code: string | null;
    text: string;
    subjects: string[];
    alarm: boolean;
    seq: number;
    epoch: number;
  }[];
  next: number | null;
  previous: number | null;
};

export type List = {
  schema: "windlass.list/v1";
  items: {
    name: string;
    family: string | null;
    ready: number;
    coming: number;
    leaving: number;
    busy: number;
    states: {
      queued: number;
      requesting: number;
      booting: number;
      initializing: number;
      ready: number;
      cordoned: number;
      draining: number;
      terminating: number;
      terminated: number;
      launch_failed: number;
      launch_timeout: number;
      init_failed: number;
      lost: number;
      terminate_failed: number;
    };
    max: number | null;
    min: number | null;
    spare: number | null;
    hosts: number;
    resources: Record<string, string | number>;
    labels: Record<string, string>;
    price: number | null;
    preemptible: boolean;
    hourly_cost: number;
    availability: {
      state: string;
      until: number | null;
      why: string;
    };
    frozen_by: string | null;
    boot_seconds: number | null;
    next: {
      code: string | null;
      why: string;
    };
  } | {
    ray_status: string;
    id: string;
    group: string;
    provider: string;
    state: string;
    since: number;
    tasks: number;
    code: string | null;
    why: string;
    ready_in: number | null;
    hourly_cost: number;
    until: number | null;
    then: string | null;
    use: number;
    cost: number;
    zone: string | null;
    hosts: number;
    phase: string | null;
  } | {
    id: string;
    tasks: number;
    since: number | null;
    parts: {
      tasks: number;
      code: string | null;
      why: string;
      slices: string[];
      starts_in: number | null;
    }[];
    needs: {
      count: number;
      needs: Record<string, string | number>;
    }[];
    gang: string | null;
    groups: Record<string, {
      code: string | null;
      why: string;
    }>;
    unblocks: {
      change: string;
      set: {
        path: string[];
        value: any;
      }[];
      hourly_cost: number;
      buys: Record<string, number>;
      for: Record<string, number>;
      for_demands: number;
      for_tasks: number;
    }[];
  } | {
    id: string;
    slice: string;
    group: string | null;
    tasks: number;
    used: Record<string, string | number>;
    labels: Record<string, string>;
    healthy: boolean;
    idle_since: number | null;
  }[];
  total: number;
  next: string | null;
};

export type Lanes = {
  schema: "windlass.lanes/v1";
  since: number;
  until: number;
  slices: {
    id: string;
    group: string;
    price: number;
    cost: number;
    started: {
      code: string;
      why: string;
    };
    spans: {
      from: number;
      to: number | null;
      state: string;
      code: string;
      why: string;
      by: string | null;
    }[];
    use: {
      at: number;
      tasks: number;
      share: number;
    }[];
  }[];
  total: number;
  next: string | null;
};

export type Series = {
  schema: "windlass.series/v1";
  since: number;
  until: number;
  at: number[];
  waiting: Record<string, number[]>;
  slices: Record<string, number[]>;
  busy: number[];
  hourly_cost: number[];
  ceiling: (number | null)[];
};

export type Plan = {
  schema: "windlass.plan/v1";
};

export type Accounts = {
  schema: "windlass.accounts/v1";
  by: string;
  since: number;
  until: number;
  rows: {
    name: string;
    work: number;
    booting: number;
    idle: number;
    spare: number;
    draining: number;
    ending: number;
    total: number;
  }[];
  total: {
    name: string;
    work: number;
    booting: number;
    idle: number;
    spare: number;
    draining: number;
    ending: number;
    total: number;
  };
  difference: number;
};

export type Order = {
  schema: "windlass.order/v1";
  seq: number;
  at: number;
  what: string;
  subject: string;
  by: string;
  comment: string | null;
  heard: boolean;
  outcome: string;
};

export type Orders = {
  schema: "windlass.orders/v1";
  orders: {
    schema: "windlass.order/v1";
    seq: number;
    at: number;
    what: string;
    subject: string;
    by: string;
    comment: string | null;
    heard: boolean;
    outcome: string;
  }[];
};

export type Doctor = {
  schema: "windlass.doctor/v1";
  ok: boolean;
  checks: Record<string, any>[];
};

export type Settings = {
  schema: "windlass.settings/v1";
  seq: number;
  settings: Record<string, any>;
};

export type WhatIf = {
  schema: "windlass.what-if/v1";
  id: string;
  state: "waiting" | "running" | "done" | "failed";
  progress: number;
  answer: {
    schema: "windlass.replay/v1";
  } | null;
  problem: string | null;
};

export type Problem = {
  type: string;
  title: string;
  status: number;
  detail: string;
  did_you_mean?: string[];
  mistakes?: string[];
  retry_after?: number;
};

export type Who = {
  name: string;
  role: "viewer" | "operator";
};

export type Version = {
  version: string;
  schema_versions: Record<string, number>;
};

export type Started = {
  id: string;
};

export type GroupRow = Status["groups"][number];
export type SliceRow = Status["slices"][number];
export type DemandRow = Status["demands"][number];
export type Part = DemandRow["parts"][number];
export type Unblock = DemandRow["unblocks"][number];
export type WindlassEvent = Event_;
export type Lane = Lanes["slices"][number];
export type Span = Lane["spans"][number];
export type AccountRow = Accounts["rows"][number];
export type SliceWhy = NonNullable<Why["slice"]>;
export type DemandWhy = NonNullable<Why["demand"]>;
export type GroupWhy = NonNullable<Why["group"]>;

/** What GET of each path answers. */
export interface Documents {
  "/accounts": Accounts;
  "/demands": List;
  "/doctor": Doctor;
  "/events": Events;
  "/groups": List;
  "/lanes": Lanes;
  "/nodes": List;
  "/orders": Orders;
  [path: `/orders/${string}`]: Order;
  "/plan": Plan;
  "/series": Series;
  "/settings": Settings;
  "/slices": List;
  "/status": Status;
  "/version": Version;
  [path: `/what-if/${string}`]: WhatIf;
  "/whoami": Who;
  "/why": Why;
}
