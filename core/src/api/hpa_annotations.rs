//! The table of annotations that users may set on a HorizontalPodAutoscaler.
//!
//! Those that a WatermarkPodAutoscaler has too have the same names, and here their values for this kind.

use super::annotations::{self, AnnotationKey, DURATION_UP_TO_AN_HOUR, QUERY, read_by};

const HORIZONTAL: AnnotationKey = read_by(&["horizontal"]);

pub const EXTRA_QUERY: AnnotationKey = AnnotationKey {
    name: QUERY.name,
    expected: "a PromQL query with a numeric result, with a target in `target.plimsoll.dev/<metric>`, for at most 16 metrics",
    effect: "a metric besides those of the spec: the samples of the result are summed and compared with the target. As with any other metric, the largest proposal wins, and without a value nothing is removed",
    ..HORIZONTAL
};

pub const EXTRA_TARGET: AnnotationKey = AnnotationKey {
    name: "target.plimsoll.dev/<metric>",
    expected: "a quantity above 0 per pod such as `100`, or for the whole such as `value: 100`, with a query in `query.plimsoll.dev/<metric>`",
    effect: "what the result of that query is compared with: divided by the number of pods, or with `value:` as it is",
    ..HORIZONTAL
};

pub const PARTIAL_METRICS: AnnotationKey = AnnotationKey {
    name: annotations::PARTIAL_METRICS.name,
    expected: "`upscale` or `hold`",
    effect: "whether replicas are added if some metrics ask for it while others are not available: by default they are (`upscale`), as by the HPA controller; none are removed either way",
    ..HORIZONTAL
};

pub const FALLBACK: AnnotationKey = AnnotationKey {
    effect: "replicas that a workload has at least, within bounds and rate limits, after some metric was not available for this many periods. More of them stay, and if the other metrics ask for more, they are added; a workload with zero replicas stays at zero",
    applied_by: HORIZONTAL.applied_by,
    ..annotations::FALLBACK
};

pub const SCALE_TO_ZERO: AnnotationKey = AnnotationKey {
    effect: "scales from `minReplicas` to zero when all metrics are available, and those of type Object and External and the queried ones all ask for zero for the whole stabilization window; back up when one asks for more. A workload that something else scaled to zero is not scaled. It needs no feature gate, and a metric that is queried from Prometheus: the HPA controller reads none while there are no replicas",
    applied_by: HORIZONTAL.applied_by,
    ..annotations::SCALE_TO_ZERO
};

pub const SYNC_PERIOD: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/sync-period",
    expected: "a duration from 5s to 1h",
    effect: "time between two decisions about this object",
    overridden_flags: &["horizontal-pod-autoscaler-sync-period"],
    ..HORIZONTAL
};

pub const CPU_INITIALIZATION: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/cpu-initialization",
    expected: DURATION_UP_TO_AN_HOUR,
    effect: "time after the start of a pod in which its CPU usage counts only if it is ready, and was for the whole sample",
    overridden_flags: &["horizontal-pod-autoscaler-cpu-initialization-period"],
    ..HORIZONTAL
};

pub const INITIAL_READINESS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/initial-readiness",
    expected: DURATION_UP_TO_AN_HOUR,
    effect: "time after the start of a pod in which a change of its readiness still belongs to its start",
    overridden_flags: &["horizontal-pod-autoscaler-initial-readiness-delay"],
    ..HORIZONTAL
};

pub const TOLERANCE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/tolerance",
    expected: "a share from 0 to 1 such as `0.05`, or a number of pods such as `1 pod`; for one direction or both as in `up 1 pod, down 0.2`",
    effect: "how far a metric may be from its target before replicas change, as a share of the target or as what so many pods do; in place of `spec.behavior` too",
    overridden_flags: &["horizontal-pod-autoscaler-tolerance"],
    ..HORIZONTAL
};

pub const PODS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/pods",
    expected: "`own` or `selected`",
    effect: "whether only pods count that the target owns (the default), or all that its selector matches",
    ..HORIZONTAL
};

pub const UTILIZATION_OF: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/utilization-of",
    expected: "`request`, `limit` or `template`",
    effect: "what a target of type `Utilization` is a percentage of: the requests of the pods, their limits, or the requests in the pod template of the target. By default the requests of the pods, and those in the template if a VerticalPodAutoscaler changes the requests and only Plimsoll sets the replicas",
    ..HORIZONTAL
};

pub const SCHEDULE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/schedule",
    expected: "at most 32 entries such as `0 8 * * mon-fri, 10h, 5, 20` (cron, duration up to 168h, minimum from 1 on, and optionally a maximum), each optionally after `CRON_TZ=ZONE` with a zone such as `+01:00`, separated by `;`",
    effect: "minimum for the whole duration from each time that the cron fields match, and a maximum above which metrics add nothing. Of entries at the same time the highest counts. Never above `maxReplicas`; a maximum removes nothing while a metric is not available",
    ..HORIZONTAL
};

pub const PAUSED: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/paused",
    expected: "`up`, `down` or `all`, optionally with `at REPLICAS` from 1 on and with `until TIME`, such as `down at 5 until 2030-01-02T15:04:05Z`",
    effect: "until then, replicas are not added (`up`), not removed (`down`), or neither, except to stay within bounds. With `at`, none are added above or removed below that number, and `all at` sets it, whatever the metrics ask for",
    ..HORIZONTAL
};

pub const HOLD_WHILE: AnnotationKey = AnnotationKey {
    effect: "replicas are not changed by this controller, except to stay within bounds, while that alert of the object's own namespace is firing in the Prometheus server of `--prometheus-address`, or its state is unknown; of any namespace if `--prometheus-unrestricted-namespaces` lists the object's",
    applied_by: HORIZONTAL.applied_by,
    ..annotations::HOLD_WHILE
};

pub const MISSING_PODS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/missing-pods",
    expected: "a percentage from 0% to 50%",
    effect: "share of the pods up to which those without a sample count like the average of the others. By default, and above it, they count as idle when replicas would be added, and as fully used when replicas would be removed",
    ..HORIZONTAL
};

/// All annotations of a HorizontalPodAutoscaler that change how it is decided.
pub const HPA_KEYS: [AnnotationKey; 15] = [
    EXTRA_QUERY,
    EXTRA_TARGET,
    PARTIAL_METRICS,
    FALLBACK,
    SCALE_TO_ZERO,
    SYNC_PERIOD,
    CPU_INITIALIZATION,
    INITIAL_READINESS,
    TOLERANCE,
    PODS,
    UTILIZATION_OF,
    SCHEDULE,
    PAUSED,
    HOLD_WHILE,
    MISSING_PODS,
];
