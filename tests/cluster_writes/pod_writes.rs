//! Single writes to pods with all outcomes on the real API server: evictions, resizes, annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LimitRange, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams};
use plimsoll::cluster::write::ContainerResize;
use plimsoll::cluster::write::stats::{WriteKind, WriteOutcome, WriteStats};
use plimsoll::cluster::{
    leader::Fence,
    write::{
        Permit, PodRef, RateLimiter, WriteContext, WriteError, annotate_pod, evict, resize,
        workload_state::UPDATER_FIELD_MANAGER,
    },
};

use super::count;
use crate::support::hollow_nodes::is_ready;
use crate::support::{Testbed, manifests, wait};

fn open_permit() -> Permit {
    Permit::new(Fence::open(), RateLimiter::new(-1.0, 1))
}

fn reference(pod: &Pod) -> PodRef {
    let text = |text: &Option<String>| text.as_deref().expect("set by the server").into();
    let metadata = &pod.metadata;
    PodRef {
        namespace: text(&metadata.namespace),
        name: text(&metadata.name),
        uid: text(&metadata.uid),
        resource_version: text(&metadata.resource_version),
    }
}

/// A running pod without an owner.
async fn running_pod(bed: &Testbed, namespace: &str, name: &str) -> Pod {
    let yaml = manifests::pod(name, "Always", "100m", "64Mi");
    manifests::create::<Pod>(bed.client(), namespace, &yaml).await;
    bed.nodes().pod(namespace, name, "is ready", is_ready).await
}

async fn read(client: &Client, namespace: &str, name: &str) -> Pod {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    api.get(name).await.expect("it exists")
}

fn is_conflict(result: &Result<Box<str>, WriteError>) -> bool {
    matches!(result, Err(WriteError::Conflict(_)))
}

fn writer<'a>(client: &'a Client, permit: &'a Permit, stats: &'a WriteStats) -> WriteContext<'a> {
    WriteContext { client, permit, stats, field_manager: UPDATER_FIELD_MANAGER }
}

fn desired_resources(cpu: &str) -> [(String, ContainerResize); 1] {
    let requests = BTreeMap::from([("cpu".to_owned(), cpu.to_owned())]);
    [("main".to_owned(), ContainerResize { requests, limits: BTreeMap::new() })]
}

#[tokio::test]
async fn an_eviction_applies_only_to_the_pod_with_the_same_uid() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("evict").await;
    let (client, stats) = (bed.client(), WriteStats::default());
    let first = reference(&running_pod(&bed, &namespace, "one").await);
    assert_eq!(evict(writer(&client, &open_permit(), &stats), &first).await, Ok(()));
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    wait::until("the pod is gone", || async {
        pods.get_opt("one").await.expect("readable").is_none().then_some(())
    })
    .await;
    let gone = Err(WriteError::NotFound);
    assert_eq!(
        evict(writer(&client, &open_permit(), &stats), &first).await,
        gone,
        "there is none of its name"
    );

    let second = running_pod(&bed, &namespace, "one").await;
    assert_eq!(
        evict(writer(&client, &open_permit(), &stats), &first).await,
        gone,
        "another has its name"
    );
    let closed = Permit::new(Fence::closed(), RateLimiter::new(-1.0, 1));
    let fenced = evict(writer(&client, &closed, &stats), &reference(&second)).await;
    assert_eq!(fenced, Err(WriteError::NotLeader));
    let stranger = bed.service_account(&namespace, "stranger").await.client;
    let refused = evict(writer(&stranger, &open_permit(), &stats), &reference(&second)).await;
    let Err(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.code(), Some(403), "{error}");
    let still = read(&client, &namespace, "one").await;
    assert_eq!(still.metadata.deletion_timestamp, None, "only the first pod was evicted");

    // A pod that was updated since is still evicted.
    let stale = PodRef { resource_version: "1".into(), ..reference(&second) };
    assert_eq!(evict(writer(&client, &open_permit(), &stats), &stale).await, Ok(()));
    let of = |answer| count(&stats, WriteKind::Eviction, answer);
    assert_eq!(
        [of(WriteOutcome::Code(201)), of(WriteOutcome::Code(409)), of(WriteOutcome::NotLeader)],
        [2, 1, 1]
    );
}

#[tokio::test]
async fn a_pdb_rejection_is_returned_without_retries() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("blocked").await;
    let (client, stats) = (bed.client(), WriteStats::default());
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<k8s_openapi::api::apps::v1::Deployment>(bed.client(), &namespace, &web)
        .await;
    let budget = "
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";
    manifests::create::<PodDisruptionBudget>(bed.client(), &namespace, budget).await;
    let pods = bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    let blocked = evict(writer(&client, &open_permit(), &stats), &reference(&pods[0])).await;
    let Err(error) = blocked else { panic!("{blocked:?}") };
    assert!(error.is_blocked_by_budget(), "{error:?}");
    assert!(error.message().contains("disruption budget"), "{error}");
    assert_eq!(count(&stats, WriteKind::Eviction, WriteOutcome::Code(429)), 1, "one request");
}

#[tokio::test]
async fn each_outcome_of_a_resize_is_distinguished() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("resize").await;
    let (client, stats, none) = (bed.client(), WriteStats::default(), []);
    let pod = running_pod(&bed, &namespace, "one").await;
    let before = reference(&pod);
    let accepted =
        resize(writer(&client, &open_permit(), &stats), &before, &desired_resources("200m"), &none)
            .await;
    assert!(accepted.is_ok(), "{accepted:?}");
    let is_done = |pod: &Pod| {
        let of_all = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let resources = of_all.and_then(|all| all.first()?.resources.as_ref()?.requests.as_ref());
        resources.is_some_and(|requests| requests["cpu"].0 == "200m")
    };
    let pod = bed.nodes().pod(&namespace, "one", "has its resources", is_done).await;

    let stale =
        resize(writer(&client, &open_permit(), &stats), &before, &desired_resources("300m"), &none)
            .await;
    assert!(is_conflict(&stale), "the pod has changed since: {stale:?}");
    let gone = PodRef { name: "two".into(), ..reference(&pod) };
    let gone =
        resize(writer(&client, &open_permit(), &stats), &gone, &desired_resources("300m"), &none)
            .await;
    assert_eq!(gone, Err(WriteError::NotFound));
    // The same amounts for all resources would change the QoS class.
    let mut other_class = desired_resources("100m");
    let main = &mut other_class[0].1;
    let amounts = [("cpu", "100m"), ("memory", "64Mi")];
    main.requests = amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into();
    main.limits = main.requests.clone();
    let now = || async { reference(&read(&client, &namespace, "one").await) };
    let refused =
        resize(writer(&client, &open_permit(), &stats), &now().await, &other_class, &none).await;
    let Err(error) = &refused else { panic!("{refused:?}") };
    assert!(error.message().to_lowercase().contains("qos"), "{error}");

    let limits = "
metadata: {name: small}
spec: {limits: [{type: Container, max: {cpu: 500m}}]}
";
    manifests::create::<LimitRange>(bed.client(), &namespace, limits).await;
    // The server's cache of LimitRanges is updated a moment later.
    let beyond = async || {
        let mut too_much = desired_resources("600m");
        too_much[0].1.limits = too_much[0].1.requests.clone();
        let refused =
            resize(writer(&client, &open_permit(), &stats), &now().await, &too_much, &none).await;
        match refused {
            Err(error) if error.message().contains("maximum cpu") => Ok(()),
            other => {
                let (now, before) = (now().await, desired_resources("200m"));
                let _ = resize(writer(&client, &open_permit(), &stats), &now, &before, &none).await;
                Err(format!("{other:?}"))
            }
        }
    };
    let patience = Duration::from_secs(90);
    wait::often(Duration::from_secs(1), patience, "the LimitRange is why it is refused", beyond)
        .await;
    let stranger = bed.service_account(&namespace, "stranger").await.client;
    let refused = resize(
        writer(&stranger, &open_permit(), &stats),
        &now().await,
        &desired_resources("250m"),
        &none,
    )
    .await;
    let Err(error) = refused else { panic!("{refused:?}") };
    assert_eq!(error.code(), Some(403), "{error}");
}

#[tokio::test]
async fn containers_are_resized_in_any_order_of_names() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("order").await;
    let (client, stats, none) = (bed.client(), WriteStats::default(), []);
    let container = |name: &str| {
        format!("{{name: {name}, image: example/any, resources: {{requests: {{cpu: 100m}}}}}}")
    };
    let names = ["web", "agent", "mesh"];
    let yaml = format!(
        "metadata: {{name: three}}\nspec: {{containers: [{}]}}\n",
        names.map(container).join(", ")
    );
    manifests::create::<Pod>(bed.client(), &namespace, &yaml).await;
    bed.nodes().pod(&namespace, "three", "is ready", is_ready).await;
    for some in [&["web", "agent", "mesh"][..], &["web", "mesh"], &["agent", "mesh"], &["mesh"]] {
        let cpu = format!("{}m", 200 + some.len());
        let [(_, resources)] = desired_resources(&cpu);
        let of: Vec<_> = some.iter().map(|&name| (name.to_owned(), resources.clone())).collect();
        // The node agent updates the pod concurrently.
        wait::until_ok("the server accepts the write", || async {
            let now = reference(&read(&client, &namespace, "three").await);
            match resize(writer(&client, &open_permit(), &stats), &now, &of, &none).await {
                Ok(_) => Ok(()),
                stale if is_conflict(&stale) => Err("it has changed".to_owned()),
                other => panic!("{some:?}: {other:?}"),
            }
        })
        .await;
        let spec = read(&client, &namespace, "three").await.spec.expect("it has one");
        let order: Vec<_> = spec.containers.iter().map(|one| &*one.name).collect();
        assert_eq!(order, names);
    }
}

#[tokio::test]
async fn a_resize_beyond_every_node_is_distinguished_from_a_deferred_one() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("large").await;
    bed.nodes().add("small", "2", "4Gi").await;
    let pod = running_pod(&bed, &namespace, "one").await;
    let (client, stats, none) = (bed.client(), WriteStats::default(), []);
    let beyond = resize(
        writer(&client, &open_permit(), &stats),
        &reference(&pod),
        &desired_resources("3"),
        &none,
    )
    .await;
    let Err(error) = beyond else { panic!("{beyond:?}") };
    assert!(error.is_beyond_node_capacity(), "{error:?}");
}

#[tokio::test]
async fn pod_annotations_are_set_and_removed_unless_the_pod_has_changed() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("annotate").await;
    let (client, stats) = (bed.client(), WriteStats::default());
    let before = reference(&running_pod(&bed, &namespace, "one").await);
    let set = BTreeMap::from([("vpaInPlaceUpdated".to_owned(), Some("true".to_owned()))]);
    let done = annotate_pod(writer(&client, &open_permit(), &stats), &before, &set).await;
    let Ok(resource_version) = done else { panic!("{done:?}") };
    let stored = read(&client, &namespace, "one").await;
    let annotations = stored.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("vpaInPlaceUpdated").map(String::as_str), Some("true"));
    assert_eq!(stored.metadata.resource_version.as_deref(), Some(&*resource_version));

    let removed = BTreeMap::from([("vpaInPlaceUpdated".to_owned(), None)]);
    let stale = annotate_pod(writer(&client, &open_permit(), &stats), &before, &removed).await;
    assert!(matches!(stale, Err(WriteError::Conflict(_))), "{stale:?}");
    let done =
        annotate_pod(writer(&client, &open_permit(), &stats), &reference(&stored), &removed).await;
    assert!(done.is_ok(), "{done:?}");
    let annotations = read(&client, &namespace, "one").await.metadata.annotations;
    assert!(!annotations.unwrap_or_default().contains_key("vpaInPlaceUpdated"));
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    pods.delete("one", &DeleteParams::default()).await.expect("deleted");
}
