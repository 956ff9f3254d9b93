//! A shop with its history: workloads that request too little and too much.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::Namespace,
};
use kube::{Api, api::PostParams};
use plimsoll_core::types::quantity::Quantity;
use serde_json::{Value, json};

use super::{USAGE, create};
use crate::{
    prometheus::{
        label_flavors::OPERATOR,
        recommend::states::{HASH, WorkloadStates},
    },
    support::{Testbed, prometheus_server::History},
};

/// A workload: kind, name, replicas, requests of CPU and memory, limit of memory, and what a pod uses on average: cores
/// and MiB.
pub type ShopWorkload = (&'static str, &'static str, u32, [&'static str; 3], [f64; 2]);

pub const SHOP: [ShopWorkload; 7] = [
    ("Deployment", "frontend", 10, ["500m", "512Mi", "512Mi"], [0.06, 140.0]),
    ("Deployment", "checkout", 6, ["100m", "256Mi", "512Mi"], [0.45, 430.0]),
    ("Deployment", "search", 12, ["2", "4Gi", "4Gi"], [0.35, 1_300.0]),
    ("Deployment", "cart", 4, ["250m", "256Mi", "256Mi"], [0.16, 170.0]),
    ("Deployment", "mail", 2, ["100m", "128Mi", "128Mi"], [0.01, 60.0]),
    ("StatefulSet", "sessions", 3, ["1", "2Gi", "2Gi"], [0.12, 1_500.0]),
    ("StatefulSet", "orders-db", 3, ["4", "16Gi", "16Gi"], [0.9, 6_100.0]),
];

/// The pods of a workload, by the names that its controllers give them.
pub fn pods(kind: &str, name: &str, replicas: u32) -> Vec<String> {
    let letters = "bcdfghjklmnpqrstvwxz".chars();
    let names = letters.enumerate().map(|(index, letter)| match kind {
        "StatefulSet" => format!("{name}-{index}"),
        _ => format!("{name}-{HASH}-x2x4{letter}"),
    });
    names.take(replicas as usize).collect()
}

/// The usage of the shop, with peaks every day, and what kube-state-metrics says about it. A pod of `checkout` was
/// killed for memory two days ago.
pub fn shop_history(mut history: History, end: Timestamp) -> History {
    let day = |at: Timestamp, phase: f64| {
        1.0 + 0.6 * (at.as_second() as f64 / 86_400.0 * std::f64::consts::TAU + phase).sin()
    };
    for (kind, name, replicas, [cpu, memory, limit], [cores, mebibytes]) in SHOP {
        let pods = pods(kind, name, replicas);
        let amount = |text: &str| text.parse::<Quantity>().expect("an amount").as_f64();
        let states = WorkloadStates {
            namespace: "shop",
            kind,
            name,
            pods: &pods,
            requests: [amount(cpu), amount(memory)],
            memory_limit: Some(amount(limit)),
        };
        history = states.add_to(history);
        for (index, pod) in pods.into_iter().enumerate() {
            let phase = index as f64 / 10.0;
            let labels = [("namespace", "shop"), ("pod", &*pod), ("container", "main")];
            // The integral of the rate, so that it is a counter.
            let seconds = move |at: Timestamp| {
                let t = (at.as_second() - 1_700_000_000) as f64;
                let turn = std::f64::consts::TAU / 86_400.0;
                Some(cores * (t - 0.6 / turn * (at.as_second() as f64 * turn + phase).cos()))
            };
            history = history.series(USAGE, &labels, seconds);
            let bytes = move |at: Timestamp| {
                Some((mebibytes * 1_048_576.0 * day(at, phase).sqrt()).round())
            };
            history = history.series("container_memory_working_set_bytes", &labels, bytes);
        }
    }
    let killed = end - SignedDuration::from_hours(2 * 24);
    let pod = format!("checkout-{HASH}-x2x4b");
    let labels = [("namespace", "shop"), ("pod", &*pod), ("uid", "1"), ("container", "main")];
    let restarts = move |at: Timestamp| Some(f64::from(u8::from(at >= killed)));
    history =
        OPERATOR.state(history, "kube_pod_container_status_restarts_total", &labels, restarts);
    let reason = [&labels[..], &[("reason", "OOMKilled")]].concat();
    let reason_since = move |at: Timestamp| (at >= killed).then_some(1.0);
    OPERATOR.state(
        history,
        "kube_pod_container_status_last_terminated_reason",
        &reason,
        reason_since,
    )
}

pub async fn create_shop(bed: &Testbed) {
    create_cluster_object::<Namespace>(bed, json!({"metadata": {"name": "shop"}})).await;
    for (kind, name, replicas, [cpu, memory, limit], _) in SHOP {
        let labels = json!({"app": name});
        let container = json!({"name": "main", "image": format!("registry.example/{name}"),
            "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}}});
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
        });
        if kind == "StatefulSet" {
            object["spec"]["serviceName"] = name.into();
            create::<StatefulSet>(bed.client(), "shop", &object).await;
        } else {
            create::<Deployment>(bed.client(), "shop", &object).await;
        }
    }
}

async fn create_cluster_object<K>(bed: &Testbed, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object");
    Api::<K>::all(bed.client()).create(&PostParams::default(), &object).await.expect("created");
}
