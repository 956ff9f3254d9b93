//! `plimsoll backtest` as a process: the figures of a life that is known, shards, and a server that is killed.

use std::{fs, path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use plimsoll::{
    cli::backtest_config,
    cluster::clock::Clock,
    report::{
        backtest::run::{BacktestError, Replay, run_backtest},
        recommend::run::{NoProgress, RecommendError},
    },
};
use plimsoll_core::{
    backtest::{Evaluation, Policy, PolicyRule, ReplaySettings, WorkloadRecording, replay::replay},
    recommender::{Settings, VpaSettings},
    sim::{
        Cluster, ContainerMinute, ContainerResources, ContainerSpec, ContainerType, CpuDemand, MIB,
        MemoryDemand, Recommender, ResourceAmounts, ResourceLimits, UpdatePolicy, Workload,
        WorkloadKind,
    },
    types::{
        ObjectKey, Time,
        units::{Bytes, MilliCpu},
    },
};
use serde_json::Value;

use crate::{
    prometheus::{
        backtest_recording::{DAYS, FROM, Life, MINUTES, scraped},
        label_flavors::CHART,
        proxy::{Fault, FaultyProxy},
        recommend::{
            process::{Finished, plimsoll},
            states::HASH,
        },
    },
    support::{
        prometheus_server::{History, PrometheusRelease, PrometheusServer},
        wait,
    },
};

const NO_KUBECONFIG: &str = "/nonexistent";
const HISTORY: &str = "/api/v1/query_range";
const LOGIN: &str = "<!doctype html><html><head><title>Sign in</title></head></html>";
/// Shards; more than there are workloads in some of them.
const SHARDS: u32 = 3;
const FORMS: [&str; 6] = ["json", "html", "csv", "markdown", "ndjson", "table"];

fn workload(name: &str, request: [i64; 2], cpu: CpuDemand, memory: MemoryDemand) -> Workload {
    let [milli, mebibytes] = request;
    let bytes = |mebibytes: i64| Bytes(mebibytes * MIB);
    let container = ContainerSpec {
        name: "main".into(),
        container_type: ContainerType::Main,
        resources: ContainerResources {
            request: ResourceAmounts { cpu: MilliCpu(milli), memory: bytes(mebibytes) },
            limit: ResourceLimits { cpu: None, memory: Some(bytes(mebibytes * 5 / 4)) },
        },
        cpu,
        memory,
    };
    Workload {
        namespace: "shop".into(),
        name: name.into(),
        workload_kind: WorkloadKind::Deployment { replicas: 2 },
        containers: vec![container],
    }
}

fn workloads() -> Vec<Workload> {
    let mib = |amount: i64| Bytes(amount * MIB);
    let steady = |milli| CpuDemand::Steady { level: MilliCpu(milli), spread: 0.3 };
    let diurnal = CpuDemand::Diurnal { night: MilliCpu(100), peak: MilliCpu(600), weekend: 0.5 };
    let flat = MemoryDemand::Steady { level: mib(300), spread: 0.05 };
    let leak = MemoryDemand::Leak { start: mib(200), per_hour: mib(5) };
    vec![
        workload("cart", [2_000, 2_048], steady(150), flat.clone()),
        workload("search", [200, 512], steady(400), flat.clone()),
        workload("web", [800, 1_024], diurnal, flat),
        workload("worker", [800, 320], steady(200), leak),
    ]
}

/// What the pods used while the recommender resized them.
fn life() -> Life {
    let workloads = workloads();
    // The leak has no VPA, so that it is killed again and again.
    let with_vpa = workloads.iter().filter(|of| &*of.name != "worker");
    let keys = with_vpa.map(|of| ObjectKey::new(of.namespace.clone(), of.name.clone()));
    let vpas = keys.map(|key| (key, VpaSettings::default()));
    let mut recommender = Recommender::new(Settings::default(), vpas);
    let mut cluster =
        Cluster::new(workloads, 11, FROM, UpdatePolicy::Recreate).expect("they are sound");
    let mut life = Life::new();
    for minute in 0..MINUTES {
        cluster.step(&mut |step: &ContainerMinute| {
            recommender.observe(step);
            life.entry(Arc::clone(&step.pod)).or_default().push(step.clone());
        });
        if minute % 10 == 0 {
            for found in recommender.recommend(cluster.now()) {
                let ObjectKey { namespace, name } = &found.workload;
                let container = &found.recommendation.container;
                cluster.set_recommendation(namespace, name, container, found.recommendation());
            }
        }
    }
    life
}

/// Adds what kube-state-metrics exposes about the owners of pods.
fn with_owners(mut history: History, life: &Life) -> History {
    let controls = ("owner_is_controller", "true");
    for of in workloads() {
        let (name, set) = (&*of.name, format!("{}-{HASH}", of.name));
        let object = [
            ("namespace", "shop"),
            ("replicaset", &*set),
            ("owner_kind", "Deployment"),
            ("owner_name", name),
            controls,
        ];
        history = CHART.state(history, "kube_replicaset_owner", &object, |_| Some(1.0));
        let object = [("namespace", "shop"), ("deployment", name)];
        history = CHART.state(history, "kube_deployment_spec_replicas", &object, |_| Some(2.0));
    }
    for (pod, minutes) in life {
        let set = format!("{}-{HASH}", minutes[0].workload);
        let (first, last) = (minutes[0].at.as_secs(), minutes[minutes.len() - 1].at.as_secs());
        let exists =
            move |at: Timestamp| (first..=last).contains(&at.as_second()).then_some(1.0_f64);
        let of_pod = [("namespace", "shop"), ("pod", &**pod)];
        let owner = [("owner_kind", "ReplicaSet"), ("owner_name", &*set), controls];
        let of_set = [&of_pod[..], &owner[..]].concat();
        history = CHART.state(history, "kube_pod_owner", &of_set, exists);
        history = CHART.state(history, "kube_pod_info", &of_pod, exists);
        let container = [&of_pod[..], &[("container", "main")]].concat();
        history = CHART.state(history, "kube_pod_container_info", &container, exists);
    }
    history
}

async fn server(life: &Life) -> Option<PrometheusServer> {
    let history = with_owners(scraped(life), life);
    PrometheusServer::with_history(PrometheusRelease::V3, history).await
}

fn until() -> Time {
    FROM.later(Duration::from_hours(24 * DAYS.unsigned_abs()))
}

/// The flags that all runs have in common: a day of warm-up, and the rest is evaluated.
fn flags(url: &str) -> Vec<String> {
    let days = DAYS - 1;
    vec![
        "--source=prometheus".to_owned(),
        format!("--prometheus-address={url}"),
        format!("--until={}", until()),
        "--warm-up=1d".to_owned(),
        format!("--days={days}"),
        "--policies=current,plimsoll,steady,krr-simple,oracle".to_owned(),
    ]
}

async fn run(flags: &[String], more: &[String]) -> Finished {
    let words: Vec<&str> =
        ["backtest"].into_iter().chain(flags.iter().chain(more).map(String::as_str)).collect();
    plimsoll(Path::new(NO_KUBECONFIG), &words).await
}

/// An output of each form, into a folder.
fn outputs(folder: &Path) -> Vec<String> {
    let file = |form: &&str| format!("--output={form}={}", folder.join(form).display());
    FORMS.iter().map(file).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_reproduces_a_life_and_shards_give_the_bytes_of_one_process() {
    let life = life();
    let Some(server) = server(&life).await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let whole = folder.path().join("whole");
    let flags = flags(&server.url());
    let finished = run(&flags, &outputs(&whole)).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let text = fs::read_to_string(whole.join("json")).expect("a report");
    compare(&serde_json::from_str(&text).expect("JSON"), &life);

    let mut files = Vec::new();
    let mut filled = 0;
    for index in (0..SHARDS).rev() {
        let file = folder.path().join(format!("{index}.json"));
        let shard =
            [format!("--shard={index}/{SHARDS}"), format!("--output=json={}", file.display())];
        let finished = run(&flags, &shard).await;
        assert_eq!((finished.code, &*finished.stdout), (Some(0), ""), "{finished:?}");
        let text = fs::read_to_string(&file).expect("accounts");
        let accounts: Value = serde_json::from_str(&text).expect("JSON");
        filled += usize::from(accounts["accounts"].as_array().is_some_and(|of| !of.is_empty()));
        files.push(file.display().to_string());
    }
    assert!(filled > 1, "all workloads are in one shard");
    let merged = folder.path().join("merged");
    let finished = run(&["merge".to_owned()], &[files.clone(), outputs(&merged)].concat()).await;
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for form in FORMS {
        let [one, other] =
            [&whole, &merged].map(|folder| fs::read(folder.join(form)).expect("written"));
        assert!(!one.is_empty() && one == other, "{form} differs");
    }
    let finished = run(&["merge".to_owned()], &files[1..]).await;
    assert_eq!((finished.code, &*finished.stdout), (Some(1), ""), "{finished:?}");
    assert!(finished.stderr.contains("is missing"), "{finished:?}");
}

/// Compares what was used and requested in the life, and its OOM kills, with the figures of the policy `current`.
fn compare(report: &Value, life: &Life) {
    let from = FROM.later(Duration::from_hours(24));
    let judged = || {
        life.values()
            .flatten()
            .filter(|minute| minute.running && minute.at > from && minute.at < until())
    };
    let hours = 24.0 * (DAYS - 1) as f64;
    let mean = |of: fn(&ContainerMinute) -> f64| judged().map(of).sum::<f64>() / 60.0 / hours;
    let current = &report["policies"][0];
    assert_eq!(current["name"], "current");
    let used = mean(|minute| minute.usage.cpu.as_cores());
    let days = current["days"].as_array().expect("days");
    let found: f64 = days.iter().filter_map(|day| day["cpuUsed"].as_f64()).sum();
    let found = found / days.len() as f64;
    assert!((found - used).abs() <= 0.02 * used, "used: {found} and not {used}");
    let requested = mean(|minute| minute.share.request.cpu.as_cores());
    let found: f64 = days.iter().filter_map(|day| day["cpuRequested"].as_f64()).sum();
    let found = found / days.len() as f64;
    assert!(
        (found - requested).abs() <= 0.02 * requested,
        "requested: {found} and not {requested}"
    );
    let kills = judged().filter(|minute| minute.oom_killed).count() as u64;
    assert!(kills > 0, "no OOM kill after the warm-up");
    assert_eq!(current["oomKills"].as_u64(), Some(kills), "OOM kills");
    let requests: std::collections::BTreeSet<i64> =
        judged().map(|minute| minute.share.request.cpu.0).collect();
    assert!(requests.len() > 4, "requests changed: {requests:?}");
}

#[tokio::test]
async fn a_server_that_fails_or_is_killed_leaves_no_figures() {
    let life = life();
    let Some(server) = server(&life).await else { return };
    let proxy = FaultyProxy::start(&server.url()).await;
    let flags = flags(proxy.url());
    let folder = tempfile::tempdir().expect("a folder");

    // A fault that is not retried, in the middle of the history.
    let healthy = run(&flags, &[]).await;
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    let requests = proxy.request_count();
    proxy.fail_matching(HISTORY, Fault::Replaced(200, "text/html", LOGIN), usize::MAX);
    let failed = run(&flags, &outputs(&folder.path().join("failed"))).await;
    assert_eq!((failed.code, &*failed.stdout), (Some(4), ""), "{failed:?}");
    assert!(failed.stderr.contains("there are no figures"), "{failed:?}");
    assert!(!folder.path().join("failed").exists(), "a report was written");

    // The process of the server is killed while its responses are sent slowly.
    proxy.fail_matching(HISTORY, Fault::None, usize::MAX);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let config = backtest_config(&flags).expect("valid flags");
    let clock = Clock::fake(until());
    let policies = [Policy::new(PolicyRule::Current)];
    let replay: Replay = Arc::new(move |recording: &WorkloadRecording, evaluation: Evaluation| {
        replay(recording, &evaluation, &policies, &ReplaySettings::default())
    });
    let mut progress = NoProgress;
    let work = Box::pin(run_backtest(&config, &clock, replay, &mut progress));
    let half = proxy.request_count() + requests / 2;
    proxy.fail_matching(HISTORY, Fault::Slow(256, Duration::from_millis(5)), usize::MAX);
    let kill = async {
        let is_half = || async { (proxy.request_count() >= half).then_some(()) };
        wait::until("half of the requests", is_half).await;
        server.process_guard().signal("prometheus", "KILL");
    };
    let (result, ()) = tokio::join!(proxy.without_pauses(work), kill);
    match result {
        // The server is asked for workloads first, and for their histories then.
        Err(
            error @ (BacktestError::Incomplete(_)
            | BacktestError::Source(RecommendError::Series { .. })),
        ) => assert!(!error.to_string().contains('\n'), "{error}"),
        other => panic!("{other:?}"),
    }
}
