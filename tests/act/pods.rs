//! Single writes to pods, each outcome on the real API server: evictions, resizes, annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LimitRange, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams};
use plimsoll::act::pod::Unwritten;
use plimsoll::act::resize::ContainerResources;
use plimsoll::act::writes::{Answer, WriteKind, WriteStats};
use plimsoll::act::{
    Annotated, Evicted, Fence, Limiter, Permit, PodRef, Resized, annotate, evict, resize,
};

use crate::support::nodes::is_ready;
use crate::support::{Bed, objects, wait};

fn open() -> Permit {
    Permit::new(Fence::open(), Limiter::new(-1.0, 1))
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

/// A running pod that nobody owns.
async fn running(bed: &Bed, namespace: &str, name: &str) -> Pod {
    let yaml = objects::pod(name, "Always", "100m", "64Mi");
    objects::create::<Pod>(bed.client(), namespace, &yaml).await;
    bed.nodes().pod(namespace, name, "is ready", is_ready).await
}

async fn read(client: &Client, namespace: &str, name: &str) -> Pod {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    api.get(name).await.expect("it is there")
}

fn wanted(cpu: &str) -> [(String, ContainerResources); 1] {
    let requests = BTreeMap::from([("cpu".to_owned(), cpu.to_owned())]);
    [("main".to_owned(), ContainerResources { requests, limits: BTreeMap::new() })]
}

#[tokio::test]
async fn an_eviction_takes_the_pod_that_was_meant_and_no_successor_of_its_name() {
    let Some(bed) = Bed::shared().await.filter(Bed::is_complete) else { return };
    let namespace = bed.namespace("evict").await;
    let (client, stats) = (bed.client(), WriteStats::default());
    let first = reference(&running(&bed, &namespace, "one").await);
    assert_eq!(evict(&client, &open(), &stats, &first).await, Evicted::Done);
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    wait::until("the pod is gone", || async {
        pods.get_opt("one").await.expect("readable").is_none().then_some(())
    })
    .await;
    let gone = Evicted::Unwritten(Unwritten::Gone);
    assert_eq!(evict(&client, &open(), &stats, &first).await, gone, "there is none of its name");

    let second = running(&bed, &namespace, "one").await;
    assert_eq!(evict(&client, &open(), &stats, &first).await, gone, "another has its name");
    let closed = Permit::new(Fence::closed(), Limiter::new(-1.0, 1));
    let fenced = evict(&client, &closed, &stats, &reference(&second)).await;
    assert_eq!(fenced, Evicted::Unwritten(Unwritten::Fenced));
    let stranger = bed.account(&namespace, "stranger").await.client;
    let refused = evict(&stranger, &open(), &stats, &reference(&second)).await;
    let Evicted::Unwritten(Unwritten::Failed { why, .. }) = refused else { panic!("{refused:?}") };
    assert!(why.contains("was not evicted: 403"), "{why}");
    let still = read(&client, &namespace, "one").await;
    assert_eq!(still.metadata.deletion_timestamp, None, "nobody but the first was evicted");

    // A pod that changed since is evicted all the same.
    let stale = PodRef { resource_version: "1".into(), ..reference(&second) };
    assert_eq!(evict(&client, &open(), &stats, &stale).await, Evicted::Done);
    let of = |answer| stats.of(WriteKind::Eviction, answer).writes;
    assert_eq!([of(Answer::Code(201)), of(Answer::Code(409)), of(Answer::Fenced)], [2, 1, 1]);
}

#[tokio::test]
async fn a_disruption_budget_is_an_answer_and_comes_at_once() {
    let Some(bed) = Bed::shared().await.filter(Bed::is_complete) else { return };
    let namespace = bed.namespace("blocked").await;
    let (client, stats) = (bed.client(), WriteStats::default());
    let web = objects::deployment("web", 1, "100m", "64Mi");
    objects::create::<k8s_openapi::api::apps::v1::Deployment>(bed.client(), &namespace, &web).await;
    let budget = "
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
";
    objects::create::<PodDisruptionBudget>(bed.client(), &namespace, budget).await;
    let pods = bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    let blocked = evict(&client, &open(), &stats, &reference(&pods[0])).await;
    let Evicted::Blocked { why, .. } = blocked else { panic!("{blocked:?}") };
    assert!(why.contains("disruption budget"), "{why}");
    assert_eq!(stats.of(WriteKind::Eviction, Answer::Code(429)).writes, 1, "asked once");
}

#[tokio::test]
async fn each_outcome_of_a_resize_is_told_apart() {
    let Some(bed) = Bed::shared().await.filter(Bed::is_complete) else { return };
    let namespace = bed.namespace("resize").await;
    let (client, stats, none) = (bed.client(), WriteStats::default(), []);
    let pod = running(&bed, &namespace, "one").await;
    let before = reference(&pod);
    let accepted = resize(&client, &open(), &stats, &before, &wanted("200m"), &none).await;
    assert!(matches!(accepted, Resized::Accepted { .. }), "{accepted:?}");
    let is_done = |pod: &Pod| {
        let of_all = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let resources = of_all.and_then(|all| all.first()?.resources.as_ref()?.requests.as_ref());
        resources.is_some_and(|requests| requests["cpu"].0 == "200m")
    };
    let pod = bed.nodes().pod(&namespace, "one", "has its resources", is_done).await;

    let stale = resize(&client, &open(), &stats, &before, &wanted("300m"), &none).await;
    assert_eq!(stale, Resized::Unwritten(Unwritten::Changed), "the pod has changed since");
    let gone = PodRef { name: "two".into(), ..reference(&pod) };
    let gone = resize(&client, &open(), &stats, &gone, &wanted("300m"), &none).await;
    assert_eq!(gone, Resized::Unwritten(Unwritten::Gone));
    // The same for all resources would make another QoS class of it.
    let mut other_class = wanted("100m");
    let main = &mut other_class[0].1;
    let amounts = [("cpu", "100m"), ("memory", "64Mi")];
    main.requests = amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into();
    main.limits = main.requests.clone();
    let now = || async { reference(&read(&client, &namespace, "one").await) };
    let refused = resize(&client, &open(), &stats, &now().await, &other_class, &none).await;
    let Resized::Refused { why } = &refused else { panic!("{refused:?}") };
    assert!(why.to_lowercase().contains("qos"), "{why}");

    let limits = "
metadata: {name: small}
spec: {limits: [{type: Container, max: {cpu: 500m}}]}
";
    objects::create::<LimitRange>(bed.client(), &namespace, limits).await;
    // The server's own list of LimitRanges follows a moment later.
    let beyond = async || {
        let mut too_much = wanted("600m");
        too_much[0].1.limits = too_much[0].1.requests.clone();
        let refused = resize(&client, &open(), &stats, &now().await, &too_much, &none).await;
        match refused {
            Resized::Refused { why } if why.contains("maximum cpu") => Ok(()),
            other => {
                resize(&client, &open(), &stats, &now().await, &wanted("200m"), &none).await;
                Err(format!("{other:?}"))
            }
        }
    };
    let patience = Duration::from_secs(90);
    wait::often(Duration::from_secs(1), patience, "the LimitRange is why it is refused", beyond)
        .await;
    let stranger = bed.account(&namespace, "stranger").await.client;
    let refused = resize(&stranger, &open(), &stats, &now().await, &wanted("250m"), &none).await;
    let Resized::Unwritten(Unwritten::Failed { why, .. }) = refused else { panic!("{refused:?}") };
    assert!(why.contains("was not resized: 403"), "{why}");
}

#[tokio::test]
async fn containers_are_resized_whatever_the_order_of_their_names() {
    let Some(bed) = Bed::shared().await.filter(Bed::is_complete) else { return };
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
    objects::create::<Pod>(bed.client(), &namespace, &yaml).await;
    bed.nodes().pod(&namespace, "three", "is ready", is_ready).await;
    for some in [&["web", "agent", "mesh"][..], &["web", "mesh"], &["agent", "mesh"], &["mesh"]] {
        let cpu = format!("{}m", 200 + some.len());
        let [(_, resources)] = wanted(&cpu);
        let of: Vec<_> = some.iter().map(|&name| (name.to_owned(), resources.clone())).collect();
        // Whoever runs the pod writes to it, too.
        wait::until_ok("the server takes it", || async {
            let now = reference(&read(&client, &namespace, "three").await);
            match resize(&client, &open(), &stats, &now, &of, &none).await {
                Resized::Accepted { .. } => Ok(()),
                Resized::Unwritten(Unwritten::Changed) => Err("it has changed".to_owned()),
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
async fn a_resize_beyond_every_node_is_told_apart_from_one_that_may_come_true() {
    let Some(bed) = Bed::private().await.filter(Bed::is_complete) else { return };
    let namespace = bed.namespace("large").await;
    bed.nodes().add("small", "2", "4Gi").await;
    let pod = running(&bed, &namespace, "one").await;
    let (client, stats, none) = (bed.client(), WriteStats::default(), []);
    let beyond = resize(&client, &open(), &stats, &reference(&pod), &wanted("3"), &none).await;
    assert!(matches!(beyond, Resized::BeyondNode { .. }), "{beyond:?}");
}

#[tokio::test]
async fn annotations_of_a_pod_are_set_and_taken_away_unless_it_has_changed() {
    let Some(bed) = Bed::shared().await.filter(Bed::is_complete) else { return };
    let namespace = bed.namespace("annotate").await;
    let (client, stats) = (bed.client(), WriteStats::default());
    let before = reference(&running(&bed, &namespace, "one").await);
    let set = BTreeMap::from([("vpaInPlaceUpdated".to_owned(), Some("true".to_owned()))]);
    let done = annotate(&client, &open(), &stats, &before, &set).await;
    let Annotated::Done { resource_version } = done else { panic!("{done:?}") };
    let stored = read(&client, &namespace, "one").await;
    let annotations = stored.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations.get("vpaInPlaceUpdated").map(String::as_str), Some("true"));
    assert_eq!(stored.metadata.resource_version.as_deref(), Some(&*resource_version));

    let removed = BTreeMap::from([("vpaInPlaceUpdated".to_owned(), None)]);
    let stale = annotate(&client, &open(), &stats, &before, &removed).await;
    assert_eq!(stale, Annotated::Unwritten(Unwritten::Changed));
    let done = annotate(&client, &open(), &stats, &reference(&stored), &removed).await;
    assert!(matches!(done, Annotated::Done { .. }), "{done:?}");
    let annotations = read(&client, &namespace, "one").await.metadata.annotations;
    assert!(!annotations.unwrap_or_default().contains_key("vpaInPlaceUpdated"));
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
    pods.delete("one", &DeleteParams::default()).await.expect("deleted");
}
