//! Memory of all controllers in one process compared with one process each; and an API server that hangs for minutes.

use std::{collections::BTreeMap, fs, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;

use super::{ALL, flags, value, vpa};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed, hollow_nodes::is_ready, http_get::http_get, manifests,
        metrics_server::UsageValue, plimsoll_process::PlimsollProcesses,
        process_guard::ProcessState, wait,
    },
};

/// Longer than any timeout in the program.
const OUTAGE: Duration = Duration::from_mins(6);

/// Resident memory of a process, in MiB.
fn own_memory(bed: &Testbed, name: &str) -> f64 {
    let Some(ProcessState::Running(id)) = bed.process_guard().state(name) else {
        panic!("{name} has ended\n{}", bed.process_guard().log_tail(name, 15));
    };
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kibibytes / 1024.0
}

#[tokio::test]
async fn one_process_with_all_roles_needs_less_memory_than_four() {
    let Some(bed) = Testbed::private().await else { return };
    create_definitions(&bed).await;
    let _usage = MetricsServer::serve(&bed).await;
    let ours = PlimsollProcesses::new(&bed);
    let ready = async |name: &str, port: u16| {
        let address = format!("http://127.0.0.1:{port}/metrics");
        wait::often(Duration::from_millis(100), wait::PATIENCE, "it serves metrics", || async {
            ours.assert_running(name);
            let page = http_get(&address).await.ok_or(format!("{name} does not answer"))?;
            let page = String::from_utf8_lossy(&page).into_owned();
            let synced = value(&page, "plimsoll_feed_synced{feed=\"replicasets\"}");
            let pods = value(&page, "plimsoll_feed_synced{feed=\"pods\"}");
            if synced.or(pods) == Some(1.0) { Ok(()) } else { Err(format!("{name} reads")) }
        })
        .await;
    };
    let lease = "--leader-elect=false";
    let recommender = ours.start("recommender", &[lease]);
    let updater = ours.updater("updater", &[lease]);
    ours.webhook("webhook", &[]);
    let lock = "--enable-leader-election=false";
    let watermark = ours.watermark("watermark", &[lock]);
    for (name, port) in
        [("recommender", recommender), ("updater", updater), ("watermark", watermark)]
    {
        ready(name, port).await;
    }
    let names = ["recommender", "updater", "webhook", "watermark"];
    let apart: f64 = names.map(|name| own_memory(&bed, name)).iter().sum();
    for name in names {
        bed.process_guard().signal(name, "KILL");
    }
    let flags = flags(&[]);
    let flags: Vec<&str> = flags[2..].iter().map(String::as_str).collect();
    let port = ours.all_in_one("together", ALL, &[&flags[..], &[lease, lock]].concat());
    ready("together", port).await;
    let together = own_memory(&bed, "together");
    assert!(together < apart / 2.0, "{together:.1} MiB together, {apart:.1} MiB apart");
}

/// Creates a workload with a VPA, and waits until it has a recommendation.
async fn recommended(bed: &Testbed, usage: &MetricsServer, namespace: &str, name: &str) {
    let deployment = manifests::deployment(name, 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), namespace, &deployment).await;
    bed.nodes().pods(namespace, name, 1, "is ready", is_ready).await;
    usage.set_all(namespace, name, "main", UsageValue { cpu: 0.25, memory: 100 << 20 });
    manifests::create::<VerticalPodAutoscaler>(bed.client(), namespace, &vpa(name)).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(bed.client(), namespace);
    wait::until("there is a recommendation", || async {
        let status = vpas.get(name).await.ok()?.status?;
        status.recommendation.filter(|it| !it.container_recommendations.is_empty())
    })
    .await;
}

/// The uids of all objects of a kind in a namespace, by name.
async fn uids<K>(bed: &Testbed, namespace: &str) -> BTreeMap<String, Option<String>>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let api = Api::<K>::namespaced(bed.client(), namespace);
    let all = api.list(&ListParams::default()).await.expect("the API server answers");
    all.items.into_iter().map(|one| (one.name_any(), one.uid())).collect()
}

#[tokio::test]
async fn a_long_hang_and_replacement_of_the_api_server_loses_no_history_and_no_pod() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    bed.nodes().add("node", "64", "256Gi").await;
    let namespace = bed.namespace("outage").await;
    let usage = MetricsServer::serve(&bed).await;
    let ours = PlimsollProcesses::new(&bed);
    // Without an owner reference the garbage collector would delete them soon.
    let flags = flags(&["--checkpoints-gc-interval=5s"]);
    let flags: Vec<&str> = flags[2..].iter().map(String::as_str).collect();
    let replicas = ["one", "two"];
    let ports = replicas.map(|name| ours.all_in_one(name, ALL, &flags));
    for name in ["stays", "goes"] {
        recommended(&bed, &usage, &namespace, name).await;
    }
    let checkpoints = wait::until("both histories are stored", || async {
        let stored = uids::<Checkpoint>(&bed, &namespace).await;
        (stored.len() == 2).then_some(stored)
    })
    .await;
    let pods = uids::<Pod>(&bed, &namespace).await;

    bed.process_guard().signal("kube-apiserver", "STOP");
    tokio::time::sleep(OUTAGE).await;
    for (name, port) in replicas.iter().zip(ports) {
        ours.assert_running(name);
        http_get(&format!("http://127.0.0.1:{port}/metrics")).await.expect("it answers");
    }
    bed.control_plane().kill_api_server().await;
    bed.control_plane().restart_api_server().await;
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(bed.client(), &namespace);
    vpas.delete("goes", &DeleteParams::default()).await.expect("it exists");

    // One leader reads everything again: new VPAs get recommendations, and only deleted ones are garbage-collected.
    recommended(&bed, &usage, &namespace, "later").await;
    let stored = wait::until("the checkpoint of the deleted VPA is deleted", || async {
        let stored = uids::<Checkpoint>(&bed, &namespace).await;
        let names: Vec<&str> = stored.keys().map(String::as_str).collect();
        (names == ["later-main", "stays-main"]).then_some(stored)
    })
    .await;
    assert_eq!(stored["stays-main"], checkpoints["stays-main"], "it was never deleted");
    let after = uids::<Pod>(&bed, &namespace).await;
    for (name, uid) in &pods {
        assert_eq!(after.get(name), Some(uid), "{name} was evicted");
    }
    for (name, port) in replicas.iter().zip(ports) {
        ours.assert_running(name);
        wait::until("every feed is up to date", || async {
            let page = http_get(&format!("http://127.0.0.1:{port}/metrics")).await?;
            let page = String::from_utf8_lossy(&page).into_owned();
            let mut silences =
                page.lines().filter(|line| line.starts_with("plimsoll_feed_silence_seconds"));
            silences
                .all(|line| line.rsplit(' ').next().and_then(|age| age.parse().ok()) < Some(150.0))
                .then_some(())
        })
        .await;
    }
    let lease = Api::<Lease>::namespaced(bed.client(), "kube-system");
    let holder = lease.get("vpa-recommender-lease").await.expect("it exists").spec;
    assert!(holder.and_then(|spec| spec.holder_identity).is_some_and(|holder| !holder.is_empty()));
}
