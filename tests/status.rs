//! The health of an installation, derived from its Leases and pods.

use std::time::Duration;

use plimsoll::report::{
    status::{Facts, LeaseFacts, Level, PodFacts, build_report, text},
    style::{Glyphs, Style},
};
use plimsoll_core::api::role_health::{self, RoleHealth};
use plimsoll_core::types::Time;
use serde_json::{Value, json};

use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed,
        api_proxy::{self, ApiProxy},
        bulk_objects::{self, ApiWrite, collection},
        cpu_time, tier,
    },
};

const NOW: Time = Time::from_secs(1_800_000_000);

fn ago(seconds: i64) -> Time {
    Time::from_secs(1_800_000_000 - seconds)
}

/// The Lease of a healthy controller.
fn lease(role: &str, name: &str) -> LeaseFacts {
    let mut vitals = RoleHealth::new(role, 60.0);
    "1.0.0".clone_into(&mut vitals.version);
    vitals.last_pass = Some(ago(20));
    vitals.objects = 100;
    LeaseFacts {
        namespace: "kube-system".to_owned(),
        name: name.to_owned(),
        holder: format!("plimsoll-{role}-0_5f"),
        renewed: Some(ago(2)),
        seconds: 15,
        vitals: Some(vitals),
        unreadable: None,
    }
}

fn pod(role: &str) -> PodFacts {
    PodFacts {
        namespace: "kube-system".to_owned(),
        name: format!("plimsoll-{role}-0"),
        component: role.to_owned(),
        image: "plimsoll:1.0.0".to_owned(),
        is_ready: true,
        restarts: 0,
    }
}

fn well() -> Facts {
    Facts {
        cluster: "https://cluster".to_owned(),
        leases: vec![
            lease("watermark", "watermarkpodautoscaler-lock"),
            lease("recommender", "vpa-recommender-lease"),
        ],
        pods: vec![pod("watermark"), pod("recommender")],
        unread: Vec::new(),
    }
}

fn codes(facts: &Facts) -> Vec<(Level, &'static str)> {
    let report = build_report(facts, "1.0.0", NOW);
    report.findings.iter().map(|finding| (finding.level, finding.code)).collect()
}

#[test]
fn a_healthy_installation_has_no_findings_and_lists_its_roles_in_order() {
    let report = build_report(&well(), "1.0.0", NOW);
    assert_eq!(report.findings, []);
    let roles: Vec<_> = report.roles.iter().map(|role| (&*role.role, role.ready)).collect();
    assert_eq!(roles, [("recommender", 1), ("watermark", 1)]);
    assert_eq!(report.roles[0].loop_age_seconds, Some(20.0));
}

#[test]
fn each_problem_is_one_finding_with_its_own_code() {
    type Change = fn(&mut Facts);
    let changes: [(Change, Level, &str); 12] = [
        (|facts| facts.leases[1].holder.clear(), Level::Problem, "no_leader"),
        (|facts| facts.leases[1].renewed = Some(ago(60)), Level::Problem, "lease_is_old"),
        (|facts| of(facts).last_pass = Some(ago(300)), Level::Problem, "loop_is_late"),
        (
            |facts| of(facts).history = Some("loading".to_owned()),
            Level::Problem,
            "history_not_loaded",
        ),
        (|facts| of(facts).breaker_until = Some(ago(-60)), Level::Problem, "breaker_open"),
        (|facts| of(facts).held_workloads = 2, Level::Warning, "workloads_held"),
        (|facts| of(facts).stale = 11, Level::Warning, "stale_data"),
        (|facts| of(facts).version = "0.9.0".to_owned(), Level::Warning, "version_skew"),
        (|facts| facts.pods[1].image = "plimsoll:0.9.0".to_owned(), Level::Warning, "image_skew"),
        (|facts| facts.pods[1].is_ready = false, Level::Warning, "pod_not_ready"),
        (|facts| facts.unread.push("pods: forbidden".to_owned()), Level::Warning, "unreadable"),
        (
            |facts| {
                facts.leases.clear();
                facts.pods.clear();
            },
            Level::Problem,
            "nothing_runs",
        ),
    ];
    for (change, level, code) in changes {
        let mut facts = well();
        change(&mut facts);
        assert_eq!(codes(&facts), [(level, code)]);
    }
}

#[test]
fn the_horizontal_controller_is_listed_last_with_its_mode_and_objects() {
    let mut facts = well();
    let mut horizontal = lease("horizontal", "plimsoll-horizontal");
    let health = horizontal.vitals.as_mut().expect("it reports its health");
    health.mode = Some("shadow".to_owned());
    health.stale = 3;
    facts.leases.insert(0, horizontal);
    facts.pods.push(pod("horizontal"));
    let report = build_report(&facts, "1.0.0", NOW);
    assert_eq!(report.findings, []);
    let roles: Vec<_> = report.roles.iter().map(|role| (&*role.role, role.ready)).collect();
    assert_eq!(roles, [("recommender", 1), ("watermark", 1), ("horizontal", 1)]);
    assert_eq!(report.roles[2].mode.as_deref(), Some("shadow"));
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Ascii, command: "plimsoll".to_owned() };
    let screen = text::render(&report, &style);
    for words in [
        "horizontal   1/1   1.0.0    20s   100      3 unknown",
        "kube-system/plimsoll-horizontal: plimsoll-horizontal-0, mode shadow",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    let health = facts.leases[0].vitals.as_mut().expect("it reports its health");
    health.stale = 11;
    let report = build_report(&facts, "1.0.0", NOW);
    let messages: Vec<_> = report.findings.iter().map(|finding| &*finding.message).collect();
    assert_eq!(
        messages,
        ["11 of 100 objects of the horizontal controller have an unavailable metric"]
    );
    // A Lease without health is known by its name.
    facts.leases[0].vitals = None;
    let report = build_report(&facts, "1.0.0", NOW);
    assert_eq!((&*report.roles[2].role, &report.roles[2].mode), ("horizontal", &None));
}

fn of(facts: &mut Facts) -> &mut RoleHealth {
    facts.leases[1].vitals.as_mut().expect("it reports its health")
}

#[test]
fn a_past_or_small_problem_is_no_finding() {
    let mut facts = well();
    of(&mut facts).breaker_until = Some(ago(1));
    of(&mut facts).stale = 10;
    of(&mut facts).history = Some("absent".to_owned());
    assert_eq!(codes(&facts), []);
}

#[test]
fn upstreams_leases_are_recognized_by_name_and_report_no_state() {
    let mut facts = Facts { leases: vec![lease("recommender", "vpa-recommender-lease")], ..well() };
    facts.leases[0].vitals = None;
    facts.pods.clear();
    let report = build_report(&facts, "1.0.0", NOW);
    assert_eq!((report.roles.len(), report.findings.len()), (1, 0));
    assert_eq!((&*report.roles[0].role, report.roles[0].objects), ("recommender", None));
}

#[test]
fn the_status_output_fits_80_columns_and_needs_no_color() {
    let mut facts = well();
    facts.leases[1].holder.clear();
    of(&mut facts).stale = 50;
    of(&mut facts).history = Some("loaded".to_owned());
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Ascii, command: "plimsoll".to_owned() };
    let screen = text::render(&build_report(&facts, "1.0.0", NOW), &style);
    assert!(screen.lines().all(|line| line.chars().count() <= 80 && line.is_ascii()), "{screen}");
    for words in [
        "ROLE",
        "recommender  1/1   1.0.0",
        "loaded, 50 stale",
        "bad  the recommender has no leader",
        "watermarkpodautoscaler-lock: plimsoll-watermark-0",
        "[no_leader]",
    ] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
}

#[tokio::test]
async fn status_needs_little_cpu_and_few_requests_in_a_large_cluster() {
    let many: u64 = tier::cases(1_000, 10_000);
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let namespace = bed.namespace("many").await;
    bulk_objects::stop_controllers(&bed).await;
    let objects = (0..many).flat_map(|number| {
        let name = format!("web-{number}");
        let metadata = json!({"name": name, "labels": {"app": name}});
        let vpa = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": metadata,
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"containers": [{"name": "main", "image": "web"}]},
        });
        [
            ApiWrite::create(
                collection("autoscaling.k8s.io/v1", &namespace, "verticalpodautoscalers"),
                &vpa,
            ),
            ApiWrite::create(collection("v1", &namespace, "pods"), &pod),
        ]
    });
    bulk_objects::send(&bed.client(), objects).await;
    let vitals = RoleHealth {
        objects: many,
        ..lease("recommender", "").vitals.expect("it reports its health")
    };
    let vitals = serde_json::to_string(&vitals).expect("JSON");
    let of = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "vpa-recommender-lease", "annotations": {role_health::ANNOTATION: vitals}},
    });
    let leases = collection("coordination.k8s.io/v1", "kube-system", "leases");
    bulk_objects::send(&bed.client(), [ApiWrite::create(leases, &of)]).await;

    let proxy = ApiProxy::start(bed.client(), |_, _| api_proxy::pass_through()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, proxy.kubeconfig()).expect("writes");
    let mut status = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    status.args(["status", "--output=json", "--kubeconfig"]).arg(&kubeconfig);
    // The proxy runs on another thread.
    let run = tokio::task::spawn_blocking(move || cpu_time::run_and_measure(&mut status));
    let (output, spent) = run.await.expect("no panic");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["roles"][0]["objects"], many, "{report:#}");
    assert!(spent < Duration::from_secs(1), "{spent:?} of a core");
    assert!(proxy.request_count() <= 12, "{:#?}", proxy.requests());
    // Other pods are not ready, and would be findings if they were read.
    let read: Vec<_> = proxy.requests().into_iter().map(|(_, path)| path).collect();
    assert!(read.iter().all(|path| !path.contains("autoscaling.k8s.io")), "{read:#?}");
    let findings = report["findings"].as_array().expect("a list");
    assert!(findings.iter().all(|one| one["code"] != "pod_not_ready"), "{findings:#?}");
}
