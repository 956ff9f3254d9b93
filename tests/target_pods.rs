//! From the target of a VPA to its pods, on a real API server: what is asked, how often, and what is said.

mod fixture;
mod lookup_cost;

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
use plimsoll::cluster::cache::ttl_cache::{Cached, TtlCache};
use plimsoll::cluster::target::scale::{CacheLifetimes, RequestGate};
use plimsoll::cluster::target::{TargetResolution, TargetResolver};
use serde_json::json;

use self::fixture::{
    Fixture, cron_job, found, job, owned, target, workload, workload_selecting_itself,
};
use crate::support::{Testbed, manifests, wait};

#[tokio::test]
async fn every_well_known_kind_leads_to_its_pods_without_a_request() {
    let Some(bed) = Testbed::shared().await else { return };
    let rig = Fixture::new(bed, CacheLifetimes::default()).await;
    let (client, namespace) = (rig.bed.client(), &rig.namespace);
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

    let unread = rig.targets.resolve_known(namespace, &target("apps/v1", "Deployment", "a"));
    assert!(matches!(unread, Some(TargetResolution::Unavailable { .. })), "{unread:?}");
    rig.read().await;
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
        let outcome = rig.targets.resolve_known(namespace, &target(api_version, kind, "a"));
        assert_eq!(outcome, Some(found(selector, owner)), "{kind}");
        assert_eq!(rig.resolve(api_version, kind, "a").await, found(selector, owner));
        let complaint = rig.resolve_error(api_version, kind, "ghost").await;
        let expected =
            format!("Cannot read targetRef. Reason: {kind} {namespace}/ghost does not exist");
        assert_eq!(complaint, expected);
    }
    assert_eq!(rig.calls(), 0);
}

#[tokio::test]
async fn a_target_that_is_controlled_is_sent_to_its_parent() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let rig = Fixture::new(bed, CacheLifetimes::default()).await;
    let (client, namespace) = (rig.bed.client(), &rig.namespace);
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
    // Two that own each other: neither is the topmost.
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
    rig.read().await;

    for (api_version, kind, name) in
        [("apps/v1", "ReplicaSet", set.as_str()), ("batch/v1", "Job", "run")]
    {
        assert_eq!(
            rig.resolve_error(api_version, kind, name).await,
            format!(
                "The target {api_version}.{kind}/{name} has a parent controller but it should point to a topmost \
                 well-known or scalable controller"
            ),
        );
    }
    assert_eq!(
        rig.resolve_error("apps/v1", "Deployment", "one").await,
        "Error checking if target apps/v1.Deployment/one is a topmost well-known or scalable controller: \
         cycle detected in ownership chain",
    );
    assert_eq!(rig.calls(), 0);
}

#[tokio::test]
async fn a_custom_resource_with_a_scale_is_asked_once_for_all_who_need_it() {
    let Some(bed) = Testbed::shared().await else { return };
    let rig = Fixture::new(bed, CacheLifetimes::default()).await;
    let group = "once.plimsoll.test";
    rig.define(group, "Rollout", true).await;
    let uid =
        rig.create_custom_object(group, "Rollout", "web", "app=web,track notin (canary)").await;
    let owner = owned("once.plimsoll.test/v1", "Rollout", "web", &uid);
    let set =
        workload("web-1", &owner, &format!("replicas: 0, {}", workload_selecting_itself("web-1")));
    manifests::create::<ReplicaSet>(rig.bed.client(), &rig.namespace, &set).await;
    rig.read().await;
    let before = rig.scale_request_count(group).await;

    let version = "once.plimsoll.test/v1";
    let many = join_all((0..50).map(|_| rig.resolve(version, "Rollout", "web"))).await;
    let expected = found("app=web,track!=canary", "once.plimsoll.test/Rollout/web");
    assert!(many.iter().all(|outcome| *outcome == expected), "{:?}", many[0]);
    assert_eq!(rig.calls(), 3, "the group, its version, the scale");
    let parent = "has a parent controller but it should point to a topmost well-known or scalable controller";
    assert_eq!(
        rig.resolve_error("apps/v1", "ReplicaSet", "web-1").await,
        format!("The target apps/v1.ReplicaSet/web-1 {parent}"),
    );
    for _ in 0..100 {
        assert_eq!(rig.resolve(version, "Rollout", "web").await, expected);
    }
    assert_eq!(rig.calls(), 3, "everything was known");
    assert_eq!(rig.scale_request_count(group).await - before, 1, "the API server counts the same");
}

#[tokio::test]
async fn a_target_that_leads_nowhere_is_told_why_in_the_words_users_know() {
    let Some(bed) = Testbed::shared().await else { return };
    let rig = Fixture::new(bed, CacheLifetimes::default()).await;
    let group = "nowhere.plimsoll.test";
    rig.define(group, "Scaled", true).await;
    rig.define(group, "Fixed", false).await;
    rig.create_custom_object(group, "Scaled", "empty", "").await;
    rig.create_custom_object(group, "Scaled", "odd", "app in web").await;
    let fixed = rig.create_custom_object(group, "Fixed", "box", "").await;
    let scaled = rig.create_custom_object(group, "Scaled", "parent", "app=parent").await;
    for (name, kind, owner, uid) in
        [("in-a-box", "Fixed", "box", &fixed), ("scaled", "Scaled", "parent", &scaled)]
    {
        let owner = owned("nowhere.plimsoll.test/v1", kind, owner, uid);
        let yaml =
            workload(name, &owner, &format!("replicas: 0, {}", workload_selecting_itself(name)));
        manifests::create::<Deployment>(rig.bed.client(), &rig.namespace, &yaml).await;
    }
    rig.read().await;

    let (version, namespace) = ("nowhere.plimsoll.test/v1", &rig.namespace);
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
        let complaint = rig.resolve_error(api_version, kind, name).await;
        let expected = format!(
            "Cannot read targetRef. Reason: unhandled targetRef {api_version} / {kind} / {name}, last error {why}"
        );
        assert!(complaint.starts_with(&expected), "{complaint}\n{expected}");
    }
    assert_eq!(
        rig.resolve_error("a/b/c", "Scaled", "x").await,
        "Cannot read targetRef. Reason: unexpected GroupVersion string: a/b/c",
    );
    // Who controls it cannot be scaled, so it is the topmost itself; no watch is needed to ask about its owner.
    assert_eq!(
        rig.resolve("apps/v1", "Deployment", "in-a-box").await,
        found("app=in-a-box", "apps/Deployment/in-a-box"),
    );
    assert!(
        rig.resolve_error("apps/v1", "Deployment", "scaled")
            .await
            .contains("has a parent controller")
    );
    let calls = rig.calls();
    rig.resolve_error(version, "Scaled", "ghost").await;
    rig.resolve_error(version, "Fixed", "box").await;
    assert_eq!(rig.calls(), calls, "that something is missing is remembered too");
}

#[tokio::test]
async fn what_was_missing_is_found_when_it_comes() {
    let Some(bed) = Testbed::shared().await else { return };
    let missing = Duration::from_millis(200);
    let rig = Fixture::new(bed, CacheLifetimes { missing, ..CacheLifetimes::default() }).await;
    let (group, version) = ("late.plimsoll.test", "late.plimsoll.test/v1");
    assert!(rig.resolve_error(version, "Scaled", "web").await.contains("no matches for kind"));
    rig.define(group, "Scaled", true).await;
    wait::until("the kind is known", || async {
        rig.resolve_error(version, "Scaled", "web").await.contains("not found").then_some(())
    })
    .await;
    // One more kind of a group that is known already.
    assert!(rig.resolve_error(version, "Other", "web").await.contains("no matches for kind"));
    rig.define(group, "Other", true).await;
    wait::until("the other kind is known", || async {
        rig.resolve_error(version, "Other", "web").await.contains("not found").then_some(())
    })
    .await;
    rig.create_custom_object(group, "Scaled", "web", "app=web").await;
    wait::until("the object is found", || async {
        let outcome = rig.resolve(version, "Scaled", "web").await;
        (outcome == found("app=web", "late.plimsoll.test/Scaled/web")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_answer_is_renewed_without_anybody_waiting() {
    let Some(bed) = Testbed::shared().await else { return };
    // Whoever doubts an answer is heard at once.
    let lifetimes = CacheLifetimes {
        found: Duration::from_mins(1),
        missing: Duration::ZERO,
        ..CacheLifetimes::default()
    };
    let rig = Fixture::new(bed, lifetimes).await;
    let (group, version) = ("renewed.plimsoll.test", "renewed.plimsoll.test/v1");
    rig.define(group, "Scaled", true).await;
    rig.create_custom_object(group, "Scaled", "web", "app=blue").await;
    let resolve = || rig.resolve(version, "Scaled", "web");
    let [blue, green] =
        ["app=blue", "app=green"].map(|it| found(it, "renewed.plimsoll.test/Scaled/web"));
    assert_eq!(resolve().await, blue);

    rig.set_selector(group, "Scaled", "web", "app=green").await;
    rig.open.send_replace(false);
    let asked = rig.calls();
    rig.targets.revalidate(&rig.namespace, &target(version, "Scaled", "web")).await;
    wait::until("it is asked anew", || async { (rig.calls() > asked).then_some(()) }).await;
    for _ in 0..10 {
        rig.targets.revalidate(&rig.namespace, &target(version, "Scaled", "web")).await;
        assert_eq!(resolve().await, blue, "nobody waits for the new answer");
    }
    rig.open.send_replace(true);
    wait::until("the new answer is there", || async { (resolve().await == green).then_some(()) })
        .await;
    assert_eq!(rig.calls(), asked + 1, "and it was asked for once");
}

#[tokio::test]
async fn an_older_answer_stays_while_nobody_knows_a_better_one() {
    let answers = TtlCache::<&str, u32>::new(10);
    let (asked, minute) = (Arc::new(AtomicUsize::new(0)), Duration::from_mins(1));
    let ask = |value, definite| {
        let asked = Arc::clone(&asked);
        move |_| async move {
            asked.fetch_add(1, Ordering::Relaxed);
            Cached { value, lifetime: minute, is_definite: definite }
        }
    };
    let all = join_all((0..20).map(|value| answers.get(&"web", ask(value, true)))).await;
    assert!(all.iter().all(|value| *value == all[0]), "{all:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 1, "one asks, all hear");

    answers.revalidate(&"web", Duration::ZERO, ask(100, false)).await;
    wait::until("it is asked again", || async {
        (asked.load(Ordering::Relaxed) == 2).then_some(())
    })
    .await;
    // What is certain takes the place of the older one, whenever the doubt is heard.
    wait::until("there is a better answer", || async {
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
async fn an_api_server_that_is_away_is_no_answer() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    let soon = Duration::from_millis(200);
    let lifetimes =
        CacheLifetimes { missing: soon, failed: soon, found: soon, ..CacheLifetimes::default() };
    let rig = Fixture::new(bed, lifetimes).await;
    let (group, version) = ("away.plimsoll.test", "away.plimsoll.test/v1");
    rig.define(group, "Scaled", true).await;
    rig.create_custom_object(group, "Scaled", "web", "app=web").await;
    let expected = found("app=web", "away.plimsoll.test/Scaled/web");
    assert_eq!(rig.resolve(version, "Scaled", "web").await, expected);

    rig.bed.control_plane().kill_api_server().await;
    let message = wait::until("it is said that nobody knows", || async {
        match rig.resolve(version, "Scaled", "web").await {
            TargetResolution::Unavailable { message } => Some(message),
            outcome => {
                assert_eq!(outcome, expected, "nothing else was learnt");
                None
            }
        }
    })
    .await;
    let start = format!(
        "Cannot read targetRef. Reason: unhandled targetRef {version} / Scaled / web, last error "
    );
    assert!(message.starts_with(&start), "{message}");
    let unknown = rig.resolve("never.asked.test/v1", "Scaled", "web").await;
    assert!(matches!(unknown, TargetResolution::Unavailable { .. }), "{unknown:?}");

    rig.bed.control_plane().restart_api_server().await;
    wait::until("the answer is back", || async {
        match rig.resolve(version, "Scaled", "web").await {
            TargetResolution::Unsupported { message } => panic!("nothing was certain: {message}"),
            outcome => (outcome == expected).then_some(()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_no_answer() {
    let Some(bed) = Testbed::shared().await else { return };
    let rig = Fixture::new(bed, CacheLifetimes::default()).await;
    let group = "denied.plimsoll.test";
    rig.define(group, "Scaled", true).await;
    rig.create_custom_object(group, "Scaled", "web", "app=web").await;
    let account = rig.bed.service_account(&rig.namespace, "nobody").await;
    let gate: RequestGate = Arc::new(|| async {}.boxed());
    let controllers = Arc::clone(&rig.controllers);
    let targets = TargetResolver::new(account.client, controllers, gate, CacheLifetimes::default());
    let outcome =
        targets.resolve(&rig.namespace, &target("denied.plimsoll.test/v1", "Scaled", "web")).await;
    let TargetResolution::Unavailable { message } = outcome else { panic!("{outcome:?}") };
    assert!(message.contains("is forbidden"), "{message}");
}
