//! A cluster in which everything that is checked exists, and nothing is wrong.

use serde_json::json;

use crate::{
    api::vpa::TargetRef,
    diagnosis::{
        ClusterFacts,
        facts::{
            BudgetFacts, CgroupNodes, CrdFacts, HpaFacts, LeaseFacts, LimitRangeFacts, LivePod,
            MetricsApiFacts, NodeFacts, QuotaFacts, RightFacts, SampleFacts, ScalerFacts,
            SeriesFacts, ServedCrd, UpdaterFacts, VpaFacts, WebhookFacts,
        },
    },
    rightsizing::survey::{Amounts, Container, Resource, Survey, Workload},
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

pub(super) const NOW: Time = Time::from_secs(1_800_000_000);
pub(super) const DAY: i64 = 86_400;
pub(super) const MIB: i64 = 1 << 20;

pub(super) fn after(seconds: i64) -> Time {
    Time::from_secs(NOW.as_secs() + seconds)
}

pub(super) fn vpa(name: &str, spec: &serde_json::Value) -> VpaFacts {
    let mut merged =
        json!({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
    for (key, value) in spec.as_object().expect("an object") {
        merged[key] = value.clone();
    }
    VpaFacts {
        namespace: "shop".into(),
        name: name.into(),
        spec: serde_json::from_value(merged).expect("a spec"),
        targets: vec![("main".into(), amounts(500, 1000))],
        target_exists: Ok(true),
    }
}

pub(super) fn amounts(cpu: i64, mebibytes: i64) -> Amounts {
    Amounts { cpu: Some(MilliCpu(cpu)), memory: Some(Bytes(mebibytes * MIB)) }
}

pub(super) fn workload() -> Workload {
    let container = Container {
        name: "main".into(),
        requests: amounts(400, 800),
        limits: amounts(800, 1600),
        ..Container::default()
    };
    Workload {
        namespace: "shop".into(),
        api_version: Some("apps/v1".into()),
        kind: "Deployment".into(),
        name: "web".into(),
        replicas: Some(3),
        containers: [container].into(),
        ..Workload::default()
    }
}

pub(super) fn scaler(name: &str, target: &str) -> ScalerFacts {
    let target = TargetRef {
        api_version: Some("apps/v1".to_owned()),
        kind: "Deployment".to_owned(),
        name: target.to_owned(),
    };
    ScalerFacts { namespace: "shop".into(), name: name.into(), target }
}

pub(super) fn webhook(name: &str, is_admission_controller: bool) -> WebhookFacts {
    WebhookFacts {
        name: name.into(),
        is_admission_controller,
        mutates_pods: true,
        is_reinvoked: false,
        without_endpoints: None,
        ca_expires: Ok(after(300 * DAY)),
    }
}

pub(super) fn lease(role: &str) -> LeaseFacts {
    LeaseFacts {
        lease: format!("kube-system/{role}"),
        role: role.to_owned(),
        holder: format!("{role}-0"),
        renewed: Some(after(-2)),
        seconds: 15,
        version: Some("1.0.0".to_owned()),
    }
}

pub(super) fn right(permission: &str, is_needed: bool, is_granted: bool) -> RightFacts {
    RightFacts {
        role: "updater".to_owned(),
        account: "system:serviceaccount:kube-system:plimsoll-updater".to_owned(),
        permission: permission.to_owned(),
        is_needed,
        is_granted: Ok(is_granted),
    }
}

pub(super) fn quota(used: &str) -> QuotaFacts {
    QuotaFacts {
        namespace: "shop".into(),
        name: "all".into(),
        hard: serde_json::from_value(json!({"requests.cpu": "10"})).expect("a list"),
        used: serde_json::from_value(json!({"requests.cpu": used})).expect("a list"),
    }
}

pub(super) fn limit_range(max: &str) -> LimitRangeFacts {
    let item = json!({"type": "Container", "max": {"memory": max}});
    LimitRangeFacts {
        namespace: "shop".into(),
        name: "containers".into(),
        items: vec![serde_json::from_value(item).expect("an item")],
    }
}

pub(super) fn budget(desired_healthy: i32) -> BudgetFacts {
    BudgetFacts {
        namespace: "shop".into(),
        name: "web".into(),
        expected_pods: 3,
        desired_healthy,
        is_observed: true,
    }
}

pub(super) fn node(kubelet: &str) -> NodeFacts {
    NodeFacts { name: "node-1".into(), kubelet: kubelet.into(), is_linux: true }
}

pub(super) fn crd(name: &str, served: Option<ServedCrd>) -> CrdFacts {
    CrdFacts { name: name.to_owned(), is_optional: false, served: Ok(served) }
}

pub(super) fn complete_crd() -> ServedCrd {
    ServedCrd { has_version: true, missing_fields: Vec::new() }
}

pub(super) fn updater(pod: &str, is_plimsoll: bool) -> UpdaterFacts {
    UpdaterFacts { pod: pod.to_owned(), is_plimsoll }
}

/// A cluster in which everything that is checked exists, and nothing is wrong.
pub(super) fn healthy() -> ClusterFacts {
    let samples = SampleFacts { pods: 3, newest: Some(after(-20)), pods_without: Ok(Vec::new()) };
    let series = SeriesFacts {
        server: "monitoring/prometheus:9090".to_owned(),
        missing_families: Ok(Some(Vec::new())),
        nodes: Ok(1),
        psi_nodes: Ok(1),
        cgroup: Ok(CgroupNodes { v1: 0, v2: 1 }),
    };
    let utilization = vec![(Resource::Cpu, None)];
    ClusterFacts {
        now: NOW,
        version: "1.0.0".to_owned(),
        api_version: Ok("v1.36.3".to_owned()),
        api_time: Ok(NOW),
        crds: vec![crd("verticalpodautoscalers.autoscaling.k8s.io", Some(complete_crd()))],
        resize_served: Ok(true),
        nodes: Ok(vec![node("v1.36.3")]),
        series: Ok(series),
        metrics_api: Ok(MetricsApiFacts { unavailable: None, samples: Ok(samples) }),
        vpas: Ok(vec![vpa("web", &json!({}))]),
        hpas: Ok(vec![HpaFacts { scaler: scaler("api", "api"), utilization }]),
        wpas: Ok(vec![scaler("queue", "queue")]),
        survey: Survey { workloads: vec![workload().into()], ..Survey::default() },
        limit_ranges: Ok(vec![limit_range("4Gi")]),
        quotas: Ok(vec![quota("2")]),
        budgets: Ok(vec![budget(2)]),
        webhooks: Ok(vec![webhook("aaa-istio", false), webhook("vpa-webhook-config", true)]),
        live_pod: Some(Ok(LivePod { pod: "shop/web-0".to_owned(), is_changed: true })),
        leases: Ok(vec![lease("recommender"), lease("updater")]),
        updaters: Ok(vec![updater("kube-system/plimsoll-updater-0", true)]),
        rights: Ok(vec![
            right("patch pods/resize", true, true),
            right("list secrets", false, false),
        ]),
    }
}
