//! From the target of a VPA to its pods on a real API server: requests, their number, and messages.

mod fixture;
mod lookup_cost;

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::{Api, ListParams, Patch, PatchParams};
use plimsoll::cluster::cache::selector::Selector;
use plimsoll::cluster::cache::ttl_cache::{Cached, Fetch, TtlCache};
use plimsoll::cluster::target::scale::{CacheLifetimes, RequestGate};
use plimsoll::cluster::target::{TargetResolution, TargetResolver};
use serde_json::json;

use self::fixture::{
    Fixture, cron_job, found, job, owned, target, workload, workload_selecting_itself,
};
use crate::support::{Testbed, manifests, wait};

#[tokio::test]
async fn well_known_kinds_resolve_to_their_pods_without_requests() {
    let Some(bed) = Testbed::shared().await else { return };
    let fixture = Fixture::new(bed, CacheLifetimes::default()).await;
    let (client, namespace) = (fixture.bed.client(), &fixture.namespace);
    let none = format!("replicas: 0, {}", workload_selecting_itself("a"));
    let create = |yaml: &str| yaml.replace("app: a}", "app: a, tier: x}");
    manifests::create::<Deployment>(client.clone(), namespace, &create(&workload("a", "", &none)))
        .await;
    manifests::create::<ReplicaSet>(client.clone(), namespace, &create(&workload("a", "", &none)))
        .await;
    let set = create(&workload("a", "", &format!("serviceName: a, {none}")));
    manifests::create::<StatefulSet>(client.clone(), namespace, &set).await;
    let daemons = workload("a", "", &workload_selecting_itself("a"))
        .replace("containers:", "nodeSelector: {nowhere: to-run}, containers:");
    manifests::create::<DaemonSet>(client.clone(), namespace, &create(&daemons)).await;
    let replication = workload("a", "", "replicas: 0, selector: {app: a}");
    manifests::create::<ReplicationController>(client.clone(), namespace, &create(&replication))
        .await;
    let run = manifests::create::<Job>(client.clone(), namespace, &job("a", "")).await;
    manifests::create::<CronJob>(client.clone(), namespace, &cron_job("a")).await;

    let unread = fixture.targets.resolve_known(namespace, &target("apps/v1", "Deployment", "a"));
    assert!(matches!(unread, Ok(TargetResolution::Unavailable { .. })), "{unread:?}");
    fixture.read().await;
    let run = run.spec.and_then(|spec| spec.selector?.match_labels).expect("the server makes it");
    for (api_version, kind, selector, owner) in [
        ("apps/v1", "DaemonSet", "app=a,tier=x", "apps/DaemonSet/a"),
        ("apps/v1", "Deployment", "app=a,tier=x", "apps/Deployment/a"),
        ("extensions/v1beta1", "Deployment", "app=a,tier=x", "apps/Deployment/a"),
        ("", "ReplicaSet", "app=a,tier=x", "apps/ReplicaSet/a"),
        ("apps/v1", "StatefulSet", "app=a,tier=x", "apps/StatefulSet/a"),
        ("v1", "ReplicationController", "app=a,tier=x", "core/ReplicationController/a"),
        ("batch/v1", "Job", &Selector::from_labels(&run).to_string(), "batch/Job/a"),
        ("batch/v1", "CronJob", "app=a", "batch/CronJob/a"),
    ] {
        let outcome = fixture.targets.resolve_known(namespace, &target(api_version, kind, "a"));
        assert_eq!(outcome, Ok(found(selector, owner)), "{kind}");
        assert_eq!(fixture.resolve(api_version, kind, "a").await, found(selector, owner));
        let complaint = fixture.resolve_error(api_version, kind, "ghost").await;
        let expected =
            format!("Cannot read targetRef. Reason: {kind} {namespace}/ghost does not exist");
        assert_eq!(complaint, expected);
    }
    assert_eq!(fixture.calls(), 0);
}

#[tokio::test]
async fn a_target_with_a_controller_is_rejected_with_the_name_of_its_parent() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let fixture = Fixture::new(bed, CacheLifetimes::default()).await;
    let (client, namespace) = (fixture.bed.client(), &fixture.namespace);
    let none = |name| format!("replicas: 0, {}", workload_selecting_itself(name));
    manifests::create::<Deployment>(client.clone(), namespace, &workload("web", "", &none("web")))
        .await;
    let sets = Api::<ReplicaSet>::namespaced(client.clone(), namespace);
    let set = wait::until("the Deployment has its ReplicaSet", || async {
        sets.list(&ListParams::default()).await.expect("readable").items.pop()?.metadata.name
    })
    .await;
    let cron = manifests::create::<CronJob>(client.clone(), namespace, &cron_job("nightly")).await;
    let owner = owned("batch/v1", "CronJob", "nightly", &cron.metadata.uid.expect("created"));
    manifests::create::<Job>(client.clone(), namespace, &job("run", &owner)).await;
    // Two objects that own each other: neither is topmost.
    let first = manifests::create::<Deployment>(
        client.clone(),
        namespace,
        &workload("one", "", &none("one")),
    )
    .await;
    let owner = owned("apps/v1", "Deployment", "one", &first.metadata.uid.expect("created"));
    let second = manifests::create::<Deployment>(
        client.clone(),
        namespace,
        &workload("two", &owner, &none("two")),
    )
    .await;
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "two",
        "uid": second.metadata.uid.expect("created"), "controller": true}]}});
    Api::<Deployment>::namespaced(client, namespace)
        .patch("one", &PatchParams::default(), &Patch::Merge(owner))
        .await
        .expect("an owner");
    fixture.read().await;

    for (api_version, kind, name) in
        [("apps/v1", "ReplicaSet", set.as_str()), ("batch/v1", "Job", "run")]
    {
        assert_eq!(
            fixture.resolve_error(api_version, kind, name).await,
            format!(
                "The target {api_version}.{kind}/{name} has a parent controller but it should point to a topmost \
                 well-known or scalable controller"
            ),
        );
    }
    assert_eq!(
        fixture.resolve_error("apps/v1", "Deployment", "one").await,
        "Error checking if target apps/v1.Deployment/one is a topmost well-known or scalable controller: \
         cycle detected in ownership chain",
    );
    assert_eq!(fixture.calls(), 0);
}

#[tokio::test]
async fn concurrent_lookups_of_a_custom_scale_share_one_request() {
    let Some(bed) = Testbed::shared().await else { return };
    let fixture = Fixture::new(bed, CacheLifetimes::default()).await;
    let group = "once.plimsoll.test";
    fixture.define(group, "Rollout", true).await;
    let uid =
        fixture.create_custom_object(group, "Rollout", "web", "app=web,track notin (canary)").await;
    let owner = owned("once.plimsoll.test/v1", "Rollout", "web", &uid);
    let set =
        workload("web-1", &owner, &format!("replicas: 0, {}", workload_selecting_itself("web-1")));
    manifests::create::<ReplicaSet>(fixture.bed.client(), &fixture.namespace, &set).await;
    fixture.read().await;
    let before = fixture.scale_request_count(group).await;

    let version = "once.plimsoll.test/v1";
    let many = join_all((0..50).map(|_| fixture.resolve(version, "Rollout", "web"))).await;
    let expected = found("app=web,track!=canary", "once.plimsoll.test/Rollout/web");
    assert!(many.iter().all(|outcome| *outcome == expected), "{:?}", many[0]);
    assert_eq!(fixture.calls(), 3, "the group, its version, the scale");
    let parent = "has a parent controller but it should point to a topmost well-known or scalable controller";
    assert_eq!(
        fixture.resolve_error("apps/v1", "ReplicaSet", "web-1").await,
        format!("The target apps/v1.ReplicaSet/web-1 {parent}"),
    );
    for _ in 0..100 {
        assert_eq!(fixture.resolve(version, "Rollout", "web").await, expected);
    }
    assert_eq!(fixture.calls(), 3, "everything was cached");
    assert_eq!(
        fixture.scale_request_count(group).await - before,
        1,
        "the API server counts the same"
    );
}

#[tokio::test]
async fn an_unresolvable_target_has_an_error_message_in_upstreams_wording() {
    let Some(bed) = Testbed::shared().await else { return };
    let fixture = Fixture::new(bed, CacheLifetimes::default()).await;
    let group = "nowhere.plimsoll.test";
    fixture.define(group, "Scaled", true).await;
    fixture.define(group, "Fixed", false).await;
    fixture.create_custom_object(group, "Scaled", "empty", "").await;
    fixture.create_custom_object(group, "Scaled", "odd", "app in web").await;
    let fixed = fixture.create_custom_object(group, "Fixed", "box", "").await;
    let scaled = fixture.create_custom_object(group, "Scaled", "parent", "app=parent").await;
    for (name, kind, owner, uid) in
        [("in-a-box", "Fixed", "box", &fixed), ("scaled", "Scaled", "parent", &scaled)]
    {
        let owner = owned("nowhere.plimsoll.test/v1", kind, owner, uid);
        let yaml =
            workload(name, &owner, &format!("replicas: 0, {}", workload_selecting_itself(name)));
        manifests::create::<Deployment>(fixture.bed.client(), &fixture.namespace, &yaml).await;
    }
    fixture.read().await;

    let (version, namespace) = ("nowhere.plimsoll.test/v1", &fixture.namespace);
    for (api_version, kind, name, why) in [
        (version, "Fixed", "box", "the server could not find the requested resource".to_owned()),
        (version, "Unheard", "x", format!("no matches for kind \"Unheard\" in group \"{group}\"")),
        (
            "gone.test/v1",
            "Unheard",
            "x",
            "no matches for kind \"Unheard\" in group \"gone.test\"".to_owned(),
        ),
        (version, "Scaled", "ghost", format!("scaleds.{group} \"ghost\" not found")),
        (
            version,
            "Scaled",
            "empty",
            format!("resource {namespace}/empty has an empty selector for scale sub-resource"),
        ),
        (version, "Scaled", "odd", "\"app in web\" is not a label key".to_owned()),
        ("v1", "Pod", "x", "the server could not find the requested resource".to_owned()),
        ("v1", "Node", "x", "the server could not find the requested resource".to_owned()),
    ] {
        let complaint = fixture.resolve_error(api_version, kind, name).await;
        let expected = format!(
            "Cannot read targetRef. Reason: unhandled targetRef {api_version} / {kind} / {name}, last error {why}"
        );
        assert!(complaint.starts_with(&expected), "{complaint}\n{expected}");
    }
    assert_eq!(
        fixture.resolve_error("a/b/c", "Scaled", "x").await,
        "Cannot read targetRef. Reason: unexpected GroupVersion string: a/b/c",
    );
    // Its controller cannot be scaled, so it is topmost itself; its owner is requested without a watch.
    assert_eq!(
        fixture.resolve("apps/v1", "Deployment", "in-a-box").await,
        found("app=in-a-box", "apps/Deployment/in-a-box"),
    );
    assert!(
        fixture
            .resolve_error("apps/v1", "Deployment", "scaled")
            .await
            .contains("has a parent controller")
    );
    let calls = fixture.calls();
    fixture.resolve_error(version, "Scaled", "ghost").await;
    fixture.resolve_error(version, "Fixed", "box").await;
    assert_eq!(fixture.calls(), calls, "missing objects are cached too");
}

#[tokio::test]
async fn a_missing_kind_or_object_is_found_once_it_exists() {
    let Some(bed) = Testbed::shared().await else { return };
    let missing = Duration::from_millis(200);
    let fixture = Fixture::new(bed, CacheLifetimes { missing, ..CacheLifetimes::default() }).await;
    let (group, version) = ("late.plimsoll.test", "late.plimsoll.test/v1");
    assert!(fixture.resolve_error(version, "Scaled", "web").await.contains("no matches for kind"));
    fixture.define(group, "Scaled", true).await;
    wait::until("the kind is known", || async {
        fixture.resolve_error(version, "Scaled", "web").await.contains("not found").then_some(())
    })
    .await;
    // Another kind of a known group.
    assert!(fixture.resolve_error(version, "Other", "web").await.contains("no matches for kind"));
    fixture.define(group, "Other", true).await;
    wait::until("the other kind is known", || async {
        fixture.resolve_error(version, "Other", "web").await.contains("not found").then_some(())
    })
    .await;
    fixture.create_custom_object(group, "Scaled", "web", "app=web").await;
    wait::until("the object is found", || async {
        let outcome = fixture.resolve(version, "Scaled", "web").await;
        (outcome == found("app=web", "late.plimsoll.test/Scaled/web")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cached_lookup_is_refreshed_without_blocking() {
    let Some(bed) = Testbed::shared().await else { return };
    // Revalidation starts at once.
    let lifetimes = CacheLifetimes {
        found: Duration::from_mins(1),
        missing: Duration::ZERO,
        ..CacheLifetimes::default()
    };
    let fixture = Fixture::new(bed, lifetimes).await;
    let (group, version) = ("renewed.plimsoll.test", "renewed.plimsoll.test/v1");
    fixture.define(group, "Scaled", true).await;
    fixture.create_custom_object(group, "Scaled", "web", "app=blue").await;
    let resolve = || fixture.resolve(version, "Scaled", "web");
    let [blue, green] =
        ["app=blue", "app=green"].map(|it| found(it, "renewed.plimsoll.test/Scaled/web"));
    assert_eq!(resolve().await, blue);

    fixture.set_selector(group, "Scaled", "web", "app=green").await;
    fixture.open.send_replace(false);
    let before = fixture.calls();
    fixture.targets.revalidate(&fixture.namespace, &target(version, "Scaled", "web")).await;
    wait::until("it is requested again", || async { (fixture.calls() > before).then_some(()) })
        .await;
    for _ in 0..10 {
        fixture.targets.revalidate(&fixture.namespace, &target(version, "Scaled", "web")).await;
        assert_eq!(resolve().await, blue, "lookups do not wait for the new value");
    }
    fixture.open.send_replace(true);
    wait::until("the new value is available", || async {
        (resolve().await == green).then_some(())
    })
    .await;
    assert_eq!(fixture.calls(), before + 1, "it was requested once");
}

#[tokio::test]
async fn a_cached_value_stays_until_a_definite_one_replaces_it() {
    let answers = TtlCache::<&str, u32>::new(10, 1);
    let (requests, minute) = (Arc::new(AtomicUsize::new(0)), Duration::from_mins(1));
    let ask = |value, definite| -> Fetch<u32> {
        let requests = Arc::clone(&requests);
        Box::new(move |_| {
            requests.fetch_add(1, Ordering::Relaxed);
            ready(Cached { value, lifetime: minute, is_definite: definite }).boxed()
        })
    };
    let all = join_all((0..20).map(|value| answers.get(&"web", ask(value, true)))).await;
    assert!(all.iter().all(|value| *value == all[0]), "{all:?}");
    assert_eq!(requests.load(Ordering::Relaxed), 1, "concurrent lookups share one request");

    answers.revalidate(&"web", Duration::ZERO, ask(100, false)).await;
    wait::until("it is requested again", || async {
        (requests.load(Ordering::Relaxed) == 2).then_some(())
    })
    .await;
    // A definite value replaces the older one, whenever the revalidation runs.
    wait::until("a definite value is available", || async {
        answers.revalidate(&"web", Duration::ZERO, ask(200, true)).await;
        let value = answers.get(&"web", ask(300, true)).await;
        assert!(value == all[0] || value == 200, "{value}");
        (value == 200).then_some(())
    })
    .await;
    answers.revalidate(&"web", minute, ask(400, true)).await;
    assert_eq!(answers.get(&"web", ask(400, true)).await, 200, "it is young");
    assert_eq!(answers.get_with_max_age(&"web", Duration::ZERO, ask(500, true)).await, 500);
}

#[tokio::test]
async fn an_unavailable_api_server_does_not_change_a_cached_lookup() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    let soon = Duration::from_millis(200);
    let lifetimes =
        CacheLifetimes { missing: soon, failed: soon, found: soon, ..CacheLifetimes::default() };
    let fixture = Fixture::new(bed, lifetimes).await;
    let (group, version) = ("away.plimsoll.test", "away.plimsoll.test/v1");
    fixture.define(group, "Scaled", true).await;
    fixture.create_custom_object(group, "Scaled", "web", "app=web").await;
    let expected = found("app=web", "away.plimsoll.test/Scaled/web");
    assert_eq!(fixture.resolve(version, "Scaled", "web").await, expected);

    fixture.bed.control_plane().kill_api_server().await;
    let message = wait::until("the failure is reported", || async {
        match fixture.resolve(version, "Scaled", "web").await {
            TargetResolution::Unavailable { message } => Some(message),
            outcome => {
                assert_eq!(outcome, expected, "nothing else has changed");
                None
            }
        }
    })
    .await;
    let start = format!(
        "Cannot read targetRef. Reason: unhandled targetRef {version} / Scaled / web, last error "
    );
    assert!(message.starts_with(&start), "{message}");
    let unknown = fixture.resolve("never.asked.test/v1", "Scaled", "web").await;
    assert!(matches!(unknown, TargetResolution::Unavailable { .. }), "{unknown:?}");

    fixture.bed.control_plane().restart_api_server().await;
    wait::until("the value is available again", || async {
        match fixture.resolve(version, "Scaled", "web").await {
            TargetResolution::Unsupported { message } => panic!("nothing was certain: {message}"),
            outcome => (outcome == expected).then_some(()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_missing_permission_is_reported_as_unavailable() {
    let Some(bed) = Testbed::shared().await else { return };
    let fixture = Fixture::new(bed, CacheLifetimes::default()).await;
    let group = "denied.plimsoll.test";
    fixture.define(group, "Scaled", true).await;
    fixture.create_custom_object(group, "Scaled", "web", "app=web").await;
    let account = fixture.bed.service_account(&fixture.namespace, "nobody").await;
    let gate: RequestGate = Arc::new(|_| async {}.boxed());
    let controllers = Arc::clone(&fixture.controllers);
    let targets = TargetResolver::new(account.client, controllers, gate, CacheLifetimes::default());
    let outcome = targets
        .resolve(&fixture.namespace, &target("denied.plimsoll.test/v1", "Scaled", "web"))
        .await;
    let TargetResolution::Unavailable { message } = outcome else { panic!("{outcome:?}") };
    assert!(message.contains("is forbidden"), "{message}");
}
