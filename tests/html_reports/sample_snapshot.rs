//! A made-up cluster for the web page: each kind of object, and hostile names.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll::{
    report::status::{Facts, LeaseFacts, build_report},
    ui::{
        facts::{AutoscalerFacts, ConditionFacts, HeldBack, MetricFacts, VpaContainer, VpaFacts},
        pages::WorkloadDetails,
        quota::{QuotaAmount, QuotaFacts},
        replica_timeline::{MetricChart, ReplicaTimeline, Restriction},
        snapshot::{NamespacePreview, PodPreview, Snapshot, SnapshotParts, WorkloadPreview},
        timeline::{EventKind, Point, Timeline, TimelineChart, TimelineEvent},
        timeline_reader::{ReplicaKind, ReplicaSubject},
    },
};
use plimsoll_core::{
    rightsizing::{
        report::Report,
        survey::{Amounts, Resource},
    },
    types::{
        ObjectKey, Time,
        units::{Bytes, MilliCpu},
    },
};

use super::sample_report::{self, HOSTILE};

/// Text that looks like other text where directions are followed.
pub(crate) const BIDI: &str = "safe\u{202e}gnp.exe";

fn condition(status: &str, message: &str, at: Time) -> ConditionFacts {
    ConditionFacts {
        kind: "UpdatesHeldBack".into(),
        status: status.into(),
        reason: "cool_down".into(),
        message: message.into(),
        since: Some(at),
    }
}

fn vpa(name: &str, held: bool, at: Time) -> VpaFacts {
    let message = format!("cooling down {HOSTILE} {BIDI}");
    VpaFacts {
        namespace: "shop".into(),
        name: name.into(),
        target_kind: "Deployment".into(),
        target_name: name.into(),
        update_mode: "Recreate".into(),
        recommender: "default".into(),
        held_back: held.then(|| {
            Box::new(HeldBack {
                reason: "cool_down".into(),
                message: message.as_str().into(),
                since: Some(at.earlier(std::time::Duration::from_mins(50))),
                until: None,
            })
        }),
        conditions: [condition(if held { "True" } else { "False" }, &message, at)].into(),
        containers: [VpaContainer {
            name: "main".into(),
            target: Amounts { cpu: Some(MilliCpu(240)), memory: Some(Bytes(1 << 30)) },
            lower: Amounts::default(),
            upper: Amounts::default(),
        }]
        .into(),
    }
}

fn autoscalers(at: Time) -> Vec<AutoscalerFacts> {
    let earlier = |minutes| at.earlier(std::time::Duration::from_mins(minutes));
    let wpa = AutoscalerFacts {
        kind: "WatermarkPodAutoscaler".to_owned(),
        namespace: "shop".to_owned(),
        name: "checkout".to_owned(),
        target_kind: "Deployment".to_owned(),
        target_name: "checkout".to_owned(),
        mode: "active".to_owned(),
        min: 2,
        max: 10,
        current: 6,
        desired: 6,
        proposal: Some(9),
        limited: Some(8),
        last_change: Some(earlier(4)),
        up_allowed_at: Some(at.later(std::time::Duration::from_mins(1))),
        down_allowed_at: None,
        held_until: Some(at.later(std::time::Duration::from_mins(1))),
        restrictions: vec!["forbidden_window".to_owned()],
        metrics: vec![MetricFacts {
            name: format!("requests{{service=\"{HOSTILE}\"}}"),
            value: Some("1200".to_owned()),
            low: Some("400".to_owned()),
            high: Some("900".to_owned()),
            position: Some("above".to_owned()),
            proposal: Some(9),
            chosen: true,
            ..MetricFacts::default()
        }],
        conditions: vec![condition("True", BIDI, at)],
        findings: vec![format!("a finding with {HOSTILE}")],
    };
    let hpa = AutoscalerFacts {
        kind: "HorizontalPodAutoscaler".to_owned(),
        name: "search".to_owned(),
        target_name: "search".to_owned(),
        mode: "shadow".to_owned(),
        last_change: None,
        up_allowed_at: None,
        held_until: None,
        restrictions: Vec::new(),
        metrics: vec![MetricFacts {
            name: "cpu".to_owned(),
            target: Some("60%".to_owned()),
            error: Some("the status has no value".to_owned()),
            ..MetricFacts::default()
        }],
        findings: Vec::new(),
        ..wpa.clone()
    };
    let other =
        AutoscalerFacts { namespace: "data".to_owned(), name: "kafka".to_owned(), ..hpa.clone() };
    vec![wpa, hpa, other]
}

fn preview(at: Time) -> NamespacePreview {
    let pod = |pod: &str, action: &str, step: Option<usize>| PodPreview {
        pod: pod.to_owned(),
        action: action.to_owned(),
        step,
        need: Some("outside_range".to_owned()),
        reason: None,
        message: "it would be evicted now, and the new pod gets the recommended resources"
            .to_owned(),
        held_back: false,
    };
    let held = PodPreview {
        reason: Some("disruption_budget".to_owned()),
        message: format!("a PodDisruptionBudget {HOSTILE} allows no eviction"),
        held_back: true,
        ..pod("search-6d5f-b", "none", None)
    };
    NamespacePreview {
        at,
        workloads: vec![WorkloadPreview {
            vpa: "search".to_owned(),
            kind: "Deployment".to_owned(),
            name: "search".to_owned(),
            pods: 3,
            candidates: 2,
            decisions: vec![
                pod("search-6d5f-a", "evict", Some(1)),
                held,
                pod(HOSTILE, "none", None),
            ],
            left_out: 0,
        }],
        notes: vec![format!("a note with {HOSTILE}")],
    }
}

fn parts(report: Report) -> SnapshotParts {
    let at = report.at;
    let facts = Facts {
        cluster: "https://prod-eu.example:6443".to_owned(),
        leases: vec![LeaseFacts {
            namespace: "kube-system".to_owned(),
            name: "vpa-recommender-lease".to_owned(),
            holder: format!("recommender-{HOSTILE}"),
            renewed: Some(at),
            seconds: 15,
            ..LeaseFacts::default()
        }],
        unread: vec!["failed to list pods: forbidden".to_owned()],
        ..Facts::default()
    };
    SnapshotParts {
        cluster: "prod-eu".to_owned(),
        at,
        history_at: Some(at.earlier(std::time::Duration::from_mins(7))),
        history_error: None,
        vpas: BTreeMap::new(),
        autoscalers: Vec::new(),
        preview: BTreeMap::new(),
        status: Some(build_report(&facts, "0.1.0", at)),
        quotas: quotas(),
        unread: Vec::new(),
        report,
    }
}

/// One quota that is too small for the targets, one of a namespace that not everybody may see.
fn quotas() -> Vec<QuotaFacts> {
    let quota = |namespace: &str, name: &str, hard: i64| QuotaFacts {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        is_scoped: false,
        amounts: vec![QuotaAmount {
            name: "requests.memory".to_owned(),
            resource: Resource::Memory,
            hard,
            used: Some(3 << 30),
            needed: None,
        }],
    };
    vec![quota("shop", "compute", 4 << 30), quota("data", "kafka-secret", 1 << 40)]
}

/// What the cluster is made from.
pub(crate) fn all_parts() -> SnapshotParts {
    let mut report = sample_report::sample();
    for workload in &mut report.workloads {
        if workload.name == "checkout" {
            workload.vpa = Some("checkout".to_owned());
        }
    }
    let at = report.at;
    let mut parts = parts(report);
    for facts in [vpa("checkout", true, at), vpa("search", false, at)] {
        parts.vpas.insert(ObjectKey::new("shop", &*facts.name), Arc::new(facts));
    }
    parts.autoscalers = autoscalers(at).into_iter().map(Arc::new).collect();
    parts.preview = BTreeMap::from([("shop".to_owned(), Arc::new(preview(at)))]);
    parts
}

/// The cluster.
pub(crate) fn snapshot() -> Snapshot {
    Snapshot::new(all_parts())
}

/// The timeline of an autoscaler.
pub(crate) fn replica_timeline(subject: &ReplicaSubject, at: Time) -> ReplicaTimeline {
    let step = 180;
    let until = at.as_secs() / step * step;
    let points = |value: &dyn Fn(f64) -> f64| -> Vec<Point> {
        (0..480_i64).map(|index| (until - (479 - index) * step, value(index as f64))).collect()
    };
    let time = |index: i64| Time::from_secs(until - (479 - index) * step);
    let restriction = |reason: &str, from: i64, to: i64| Restriction {
        reason: reason.to_owned(),
        from: time(from),
        until: time(to),
    };
    let load = |at: f64| 650.0 + 420.0 * (at / 55.0).sin() + 40.0 * (at / 4.0).cos();
    let proposal = move |at: f64| (load(at) / 130.0).ceil();
    let is_wpa = subject.kind == ReplicaKind::Wpa;
    let requests = MetricChart {
        metric: if is_wpa { format!("requests {HOSTILE} {BIDI}") } else { "cpu".to_owned() },
        value: points(&load),
        low: points(&|_| 400.0),
        high: points(&|_| 900.0),
        target: if is_wpa { Vec::new() } else { points(&|_| 600.0) },
        proposal: points(&proposal),
    };
    ReplicaTimeline {
        from: Time::from_secs(until - 480 * step),
        until: Time::from_secs(until),
        step_seconds: step.unsigned_abs(),
        server: "monitoring/prometheus-operated:9090".to_owned(),
        metrics: vec![requests],
        effective: points(&|at| proposal((at / 12.0).floor() * 12.0).clamp(3.0, 8.0)),
        min: points(&|_| 2.0),
        max: points(&|_| 8.0),
        restrictions: vec![
            restriction("at_max_replicas", 60, 118),
            restriction("at_max_replicas", 405, 450),
            restriction("forbidden_window", 40, 62),
            restriction("forbidden_window", 380, 402),
            restriction("forbidden_window", 452, 479),
        ],
        problems: Vec::new(),
    }
}

/// What is read for the page of one workload.
pub(crate) fn details(at: Time) -> WorkloadDetails {
    let step = 180;
    let until = at.as_secs() / step * step;
    let points = |value: fn(f64) -> f64| -> Vec<Point> {
        let steps = 0..480_i64;
        steps.map(|index| (until - (479 - index) * step, value(index as f64))).collect()
    };
    let mi = f64::from(1 << 20);
    let memory = TimelineChart {
        usage: points(|at| (330.0 + 120.0 * (at / 40.0).sin() + at / 8.0) * 1_048_576.0),
        request: points(|at| if at < 300.0 { 512.0 } else { 844.0 } * 1_048_576.0),
        limit: points(|_| 1024.0 * 1_048_576.0),
        target: points(|at| if at < 260.0 { 560.0 } else { 844.0 } * 1_048_576.0),
        lower: points(|_| 480.0 * 1_048_576.0),
        upper: vec![(until - 479 * step, 900.0 * mi), (until, 960.0 * mi)],
        ..TimelineChart::new("main", Resource::Memory)
    };
    let cpu = TimelineChart {
        usage: points(|at| 0.3 + 0.2 * (at / 30.0).cos()),
        request: points(|_| 0.5),
        ..TimelineChart::new("main", Resource::Cpu)
    };
    let event = |index: i64, what, container: Option<&str>| TimelineEvent {
        at: Time::from_secs(until - index * step),
        what,
        container: container.map(ToOwned::to_owned),
        count: 1,
    };
    WorkloadDetails {
        explanation: Some(Err(format!("checkpoint of {HOSTILE} not found"))),
        timeline: Some(Ok(Timeline {
            from: Time::from_secs(until - 480 * step),
            until: Time::from_secs(until),
            step_seconds: step.unsigned_abs(),
            server: "monitoring/prometheus-operated:9090".to_owned(),
            charts: vec![cpu, memory],
            events: vec![
                event(300, EventKind::OomKill, Some("main")),
                event(180, EventKind::Eviction, None),
                event(100, EventKind::Resize, None),
            ],
            problems: Vec::new(),
        })),
    }
}
