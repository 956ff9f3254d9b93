//! Each check has one change of a healthy cluster that only it finds.

mod healthy_cluster;

use std::sync::Arc;

use serde_json::json;
use strum::VariantArray as _;

use self::healthy_cluster::{
    DAY, MIB, after, budget, healthy, lease, limit_range, node, quota, right, scaler, updater, vpa,
    webhook,
};
use super::{
    CheckId, ClusterFacts, Level, diagnose,
    facts::{
        BudgetFacts, CgroupNodes, HpaFacts, LeaseFacts, LivePod, MetricsApiFacts, NodeFacts,
        QuotaFacts, SampleFacts, SeriesFacts, ServedCrd, VpaFacts,
    },
};
use crate::{
    rightsizing::survey::{Resource, RuntimeHint, Unread, Workload},
    types::units::Bytes,
};

/// The checks that are not ok.
fn found(facts: &ClusterFacts) -> Vec<(CheckId, Level)> {
    let findings = diagnose(facts).into_iter();
    findings.filter(|one| one.level != Level::Ok).map(|one| (one.id, one.level)).collect()
}

fn series(facts: &mut ClusterFacts) -> &mut SeriesFacts {
    facts.series.as_mut().expect("known")
}

fn metrics_api(facts: &mut ClusterFacts) -> &mut MetricsApiFacts {
    facts.metrics_api.as_mut().expect("known")
}

fn samples(facts: &mut ClusterFacts) -> &mut SampleFacts {
    metrics_api(facts).samples.as_mut().expect("known")
}

fn workload(facts: &mut ClusterFacts) -> &mut Workload {
    Arc::make_mut(&mut facts.survey.workloads[0])
}

fn set_runtime(facts: &mut ClusterFacts, runtime: RuntimeHint) {
    Arc::make_mut(&mut workload(facts).containers)[0].runtime = Some(Box::new(runtime));
}

fn go(mebibytes: i64, follows_limit: bool) -> RuntimeHint {
    let memory_limit = Some(Bytes(mebibytes * MIB));
    RuntimeHint::Go { known_by: "GOMEMLIMIT".to_owned(), memory_limit, follows_limit }
}

fn jvm(mebibytes: i64) -> RuntimeHint {
    let max_heap = Some(Bytes(mebibytes * MIB));
    RuntimeHint::Jvm { known_by: "-Xmx".to_owned(), max_heap, max_heap_percent: None }
}

fn push<T>(list: &mut Result<Vec<T>, String>, object: T) {
    list.as_mut().expect("known").push(object);
}

#[test]
fn a_healthy_cluster_passes_every_check() {
    let findings = diagnose(&healthy());
    let ids: Vec<_> = findings.iter().map(|finding| finding.id).collect();
    assert_eq!(ids, CheckId::VARIANTS, "each check has one finding, in order");
    assert_eq!(found(&healthy()), []);
}

type Change = fn(&mut ClusterFacts);

/// What only one check is about, and the level that it has then.
const FAULTS: &[(CheckId, Level, Change)] = &[
    (CheckId::ApiVersion, Level::Problem, |facts| facts.api_version = Ok("v1.29.9".to_owned())),
    (CheckId::CrdsServed, Level::Problem, |facts| facts.crds[0].served = Ok(None)),
    (CheckId::CrdsServed, Level::Problem, |facts| {
        facts.crds[0].served = Ok(Some(ServedCrd::default()));
    }),
    (CheckId::CrdsServed, Level::Warning, |facts| {
        let missing_fields = vec!["spec.startupBoost".to_owned()];
        facts.crds[0].served = Ok(Some(ServedCrd { has_version: true, missing_fields }));
    }),
    (CheckId::ResizeSupported, Level::Warning, |facts| facts.resize_served = Ok(false)),
    (CheckId::ResizeSupported, Level::Warning, |facts| facts.nodes = Ok(vec![node("v1.32.1")])),
    (CheckId::NodesCgroup2, Level::Warning, |facts| {
        series(facts).cgroup = Ok(CgroupNodes { v1: 1, v2: 0 });
    }),
    (CheckId::NodesPsi, Level::Warning, |facts| series(facts).psi_nodes = Ok(0)),
    (CheckId::ClockSkew, Level::Warning, |facts| facts.api_time = Ok(after(6))),
    (CheckId::ClockSkew, Level::Warning, |facts| {
        facts.leases.as_mut().expect("known")[0].renewed = Some(after(60));
    }),
    (CheckId::MetricsApi, Level::Problem, |facts| {
        metrics_api(facts).unavailable = Some("MissingEndpoints".to_owned());
    }),
    (CheckId::MetricsApi, Level::Problem, |facts| samples(facts).newest = Some(after(-400))),
    (CheckId::MetricsApi, Level::Warning, |facts| {
        samples(facts).pods_without = Ok(vec!["shop/web-0".to_owned()]);
    }),
    (CheckId::KsmFamilies, Level::Warning, |facts| {
        series(facts).missing_families = Ok(Some(vec!["kube_pod_labels".to_owned()]));
    }),
    (CheckId::KsmFamilies, Level::Warning, |facts| series(facts).missing_families = Ok(None)),
    (CheckId::VpaTargetMissing, Level::Warning, |facts| {
        facts.vpas.as_mut().expect("known")[0].target_exists = Ok(false);
    }),
    (CheckId::TwoVpasOneWorkload, Level::Problem, |facts| {
        push(&mut facts.vpas, vpa("web-2", &json!({})));
    }),
    (CheckId::TwoVpasOneWorkload, Level::Warning, |facts| {
        push(&mut facts.vpas, vpa("a", &json!({"updatePolicy": {"updateMode": "Off"}})));
    }),
    (CheckId::HpaSameMetric, Level::Problem, |facts| {
        let utilization = vec![(Resource::Cpu, Some("main".into()))];
        push(&mut facts.hpas, HpaFacts { scaler: scaler("web", "web"), utilization });
    }),
    (CheckId::WpaAndHpa, Level::Problem, |facts| push(&mut facts.wpas, scaler("api", "api"))),
    (CheckId::SingleReplicaSkipped, Level::Warning, |facts| {
        workload(facts).replicas = Some(1);
    }),
    (CheckId::PdbBlocksAll, Level::Warning, |facts| facts.budgets = Ok(vec![budget(3)])),
    (CheckId::QuotaWithoutRoom, Level::Warning, |facts| facts.quotas = Ok(vec![quota("9950m")])),
    (CheckId::LimitrangeFights, Level::Warning, |facts| {
        facts.limit_ranges = Ok(vec![limit_range("900Mi")]);
    }),
    (CheckId::GomemlimitStatic, Level::Warning, |facts| set_runtime(facts, go(950, false))),
    (CheckId::XmxAboveLimit, Level::Problem, |facts| set_runtime(facts, jvm(1601))),
    (CheckId::WebhookRegistered, Level::Problem, |facts| facts.webhooks = Ok(Vec::new())),
    (CheckId::WebhookRegistered, Level::Problem, |facts| {
        let webhooks = facts.webhooks.as_mut().expect("known");
        webhooks[1].without_endpoints = Some(Ok("kube-system/vpa-webhook".to_owned()));
    }),
    (CheckId::WebhookAnswers, Level::Problem, |facts| {
        let pod = "shop/web-0".to_owned();
        facts.live_pod = Some(Ok(LivePod { pod, is_changed: false }));
    }),
    (CheckId::WebhookOrder, Level::Warning, |facts| {
        push(&mut facts.webhooks, webhook("vpa-x-sidecar-injector", false));
    }),
    (CheckId::CaExpiring, Level::Warning, |facts| {
        facts.webhooks.as_mut().expect("known")[1].ca_expires = Ok(after(29 * DAY));
    }),
    (CheckId::CaExpiring, Level::Problem, |facts| {
        facts.webhooks.as_mut().expect("known")[1].ca_expires = Ok(after(6 * DAY));
    }),
    (CheckId::CaExpiring, Level::Problem, |facts| {
        facts.webhooks.as_mut().expect("known")[1].ca_expires = Err("empty".to_owned());
    }),
    (CheckId::Leases, Level::Problem, |facts| {
        facts.leases.as_mut().expect("known")[0].holder.clear();
    }),
    (CheckId::Leases, Level::Problem, |facts| {
        facts.leases.as_mut().expect("known")[1].renewed = Some(after(-21));
    }),
    (CheckId::TwoUpdaters, Level::Problem, |facts| {
        push(&mut facts.updaters, updater("kube-system/vpa-updater-0", false));
    }),
    (CheckId::VersionSkew, Level::Warning, |facts| facts.version = "1.1.0".to_owned()),
    (CheckId::Rights, Level::Problem, |facts| {
        push(&mut facts.rights, right("create pods/eviction", true, false));
    }),
    (CheckId::Rights, Level::Warning, |facts| {
        push(&mut facts.rights, right("create pods/exec", false, true));
    }),
];

#[test]
fn each_check_finds_what_only_it_is_about() {
    for (id, level, change) in FAULTS {
        let mut facts = healthy();
        change(&mut facts);
        assert_eq!(found(&facts), [(*id, *level)], "{id}");
        let finding = diagnose(&facts).into_iter().find(|one| one.id == *id).expect("it is found");
        assert!(finding.next.is_some() || finding.wanted.is_some(), "{id} says what to do");
    }
    let tested: std::collections::BTreeSet<_> = FAULTS.iter().map(|(id, ..)| *id).collect();
    assert_eq!(tested.len(), CheckId::VARIANTS.len(), "a check is never broken");
}

/// What looks like a fault, and is none.
const NO_FAULTS: &[(&str, Change)] = &[
    ("an optional definition", |facts| {
        facts.crds[0].is_optional = true;
        facts.crds[0].served = Ok(None);
    }),
    ("a Windows node", |facts| {
        push(&mut facts.nodes, NodeFacts { is_linux: false, ..node("v1.20.0") });
    }),
    ("cgroup v2 by pressure stall information", |facts| {
        series(facts).cgroup = Ok(CgroupNodes::default());
    }),
    ("a clock at the limit", |facts| facts.api_time = Ok(after(-5))),
    ("a VPA of another namespace", |facts| {
        push(&mut facts.vpas, VpaFacts { namespace: "ops".into(), ..vpa("web", &json!({})) });
    }),
    ("a VPA that controls another resource than the HPA", |facts| {
        let policy = json!({"containerName": "*", "controlledResources": ["memory"]});
        let policy = json!({"resourcePolicy": {"containerPolicies": [policy]}});
        facts.vpas = Ok(vec![vpa("web", &policy)]);
        let utilization = vec![(Resource::Cpu, None)];
        push(&mut facts.hpas, HpaFacts { scaler: scaler("web", "web"), utilization });
    }),
    ("an HPA without a utilization", |facts| {
        let utilization = Vec::new();
        push(&mut facts.hpas, HpaFacts { scaler: scaler("web", "web"), utilization });
    }),
    ("one replica with minReplicas 1", |facts| {
        workload(facts).replicas = Some(1);
        facts.vpas = Ok(vec![vpa("web", &json!({"updatePolicy": {"minReplicas": 1}}))]);
    }),
    ("a budget without evictions", |facts| {
        facts.budgets = Ok(vec![budget(3)]);
        facts.vpas = Ok(vec![vpa("web", &json!({"updatePolicy": {"updateMode": "InPlace"}}))]);
    }),
    ("a budget whose status is old", |facts| {
        facts.budgets = Ok(vec![BudgetFacts { is_observed: false, ..budget(3) }]);
    }),
    ("a quota of another namespace", |facts| {
        facts.quotas = Ok(vec![QuotaFacts { namespace: "ops".into(), ..quota("10") }]);
    }),
    ("a quota with just enough room", |facts| facts.quotas = Ok(vec![quota("9900m")])),
    ("a limit range of a VPA that is off", |facts| {
        facts.limit_ranges = Ok(vec![limit_range("900Mi")]);
        facts.vpas = Ok(vec![vpa("web", &json!({"updatePolicy": {"updateMode": "Off"}}))]);
    }),
    ("GOMEMLIMIT that follows the limit", |facts| set_runtime(facts, go(950, true))),
    ("a heap as large as the limit", |facts| set_runtime(facts, jvm(1600))),
    ("no webhook without VPAs", |facts| {
        facts.webhooks = Ok(Vec::new());
        facts.vpas = Ok(Vec::new());
    }),
    ("an injector behind a webhook that is called again", |facts| {
        push(&mut facts.webhooks, webhook("vpa-x-sidecar-injector", false));
        facts.webhooks.as_mut().expect("known")[1].is_reinvoked = true;
    }),
    ("a policy behind the webhook", |facts| {
        push(&mut facts.webhooks, webhook("zz-policy", false));
    }),
    ("the status Lease of the admission controller", |facts| {
        let renewed = Some(after(-60));
        push(&mut facts.leases, LeaseFacts { renewed, ..lease("admission-controller") });
    }),
    ("upstream's updater alone", |facts| {
        facts.updaters = Ok(vec![updater("kube-system/vpa-updater-0", false)]);
    }),
    ("a Lease of another project", |facts| {
        push(&mut facts.leases, LeaseFacts { version: None, ..lease("recommender") });
    }),
    ("nothing is installed", |facts| {
        facts.leases = Ok(Vec::new());
        facts.rights = Ok(Vec::new());
        facts.updaters = Ok(Vec::new());
    }),
];

#[test]
fn each_check_is_silent_about_what_only_looks_like_it() {
    for (name, change) in NO_FAULTS {
        let mut facts = healthy();
        change(&mut facts);
        assert_eq!(found(&facts), [], "{name}");
    }
}

#[test]
fn what_could_not_be_read_is_unknown_and_never_ok() {
    let why = || "forbidden".to_owned();
    let mut facts = ClusterFacts {
        api_version: Err(why()),
        api_time: Err(why()),
        resize_served: Err(why()),
        nodes: Err(why()),
        series: Err(why()),
        metrics_api: Err(why()),
        vpas: Err(why()),
        hpas: Err(why()),
        wpas: Err(why()),
        limit_ranges: Err(why()),
        quotas: Err(why()),
        budgets: Err(why()),
        webhooks: Err(why()),
        live_pod: Some(Err(why())),
        leases: Err(why()),
        updaters: Err(why()),
        rights: Err(why()),
        ..healthy()
    };
    facts.crds[0].served = Err(why());
    facts.survey.unread = vec![Unread { what: "pods of the cluster".to_owned(), why: why() }];
    let findings = diagnose(&facts);
    assert_eq!(findings.len(), CheckId::VARIANTS.len());
    for finding in &findings {
        assert_eq!(finding.level, Level::Unknown, "{}", finding.id);
        // Why there are no series of a Prometheus is said once.
        let reason = match finding.id {
            CheckId::NodesPsi | CheckId::KsmFamilies => "see nodes_cgroup2",
            _ => "forbidden",
        };
        assert!(finding.message.contains(reason), "{}: {}", finding.id, finding.message);
    }
    let of_prometheus = [CheckId::NodesCgroup2, CheckId::NodesPsi, CheckId::KsmFamilies];
    let mut found = findings.iter().filter(|finding| of_prometheus.contains(&finding.id));
    assert_eq!(found.next().map(|first| first.id), Some(CheckId::NodesCgroup2));
}

#[test]
fn without_a_live_pod_the_webhook_is_not_judged() {
    let facts = ClusterFacts { live_pod: None, ..healthy() };
    assert!(diagnose(&facts).iter().all(|finding| finding.id != CheckId::WebhookAnswers));
}

#[test]
fn findings_name_few_objects_and_count_all() {
    let mut facts = healthy();
    let missing = |number: i32| {
        let target = json!({"kind": "Deployment", "name": format!("gone-{number}")});
        let vpa = vpa(&format!("vpa-{number}"), &json!({"targetRef": target}));
        VpaFacts { target_exists: Ok(false), ..vpa }
    };
    facts.vpas.as_mut().expect("known").extend((0..25).map(missing));
    let findings = diagnose(&facts);
    let finding = findings.iter().find(|one| one.id == CheckId::VpaTargetMissing).expect("found");
    assert_eq!((finding.objects.len(), finding.object_count), (super::MAX_OBJECTS, 25));
}
