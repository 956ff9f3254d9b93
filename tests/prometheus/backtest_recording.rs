//! A life that is known, written to a real Prometheus: its recording gives the figures of the life itself.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use plimsoll::report::backtest::recording::record;
use plimsoll_core::{
    backtest::{
        ContainerRecording, Evaluation, PodContainer, PodRecording, Policy, PolicyRule,
        RecordedStep, ReplaySettings, WorkloadAccount, WorkloadRecording, replay,
    },
    rightsizing::survey::{Amounts, Container, Workload},
    sim::{
        self, Cluster, ContainerMinute, ContainerResources, ContainerSpec, ContainerType,
        CpuDemand, MIB, MemoryDemand, ResourceAmounts, ResourceLimits, UpdatePolicy, WorkloadKind,
    },
    types::{
        ObjectKey, Time,
        units::{Bytes, MilliCpu},
    },
};
use plimsoll_storage::prometheus::{
    history::{HistorySettings, PrometheusHistory},
    schema::{CPU_METRIC, MEMORY_METRIC},
    transport::WallClock,
};

use crate::{
    prometheus::{
        label_flavors::CHART,
        releases::releases,
        series_collector::{client, short_limits},
    },
    support::prometheus_server::{History, PrometheusRelease, PrometheusServer},
};

/// A whole number of days, so that container-days are whole.
pub(super) const FROM: Time = Time::from_secs(1_789_948_800);
const WARM_UP_DAYS: i64 = 1;
pub(super) const DAYS: i64 = 5;
pub(super) const MINUTES: i64 = DAYS * 1_440;

/// A value of a minute, beside the CPU seconds until then.
type Amount = fn(&(f64, ContainerMinute)) -> Option<f64>;

/// The minutes of each pod, in order of time.
pub(super) type Life = BTreeMap<Arc<str>, Vec<ContainerMinute>>;

fn evaluation() -> Evaluation {
    let day = |day: i64| FROM.later(Duration::from_hours(24 * day.unsigned_abs()));
    Evaluation { warm_up_from: FROM, from: day(WARM_UP_DAYS), until: day(DAYS) }
}

/// Two pods that follow the day, and whose memory grows until they are OOM killed.
fn life() -> Life {
    let amount = |cpu, mebibytes: i64| ResourceAmounts {
        cpu: MilliCpu(cpu),
        memory: Bytes(mebibytes * MIB),
    };
    let container = ContainerSpec {
        name: "main".into(),
        container_type: ContainerType::Main,
        resources: ContainerResources {
            request: amount(800, 400),
            limit: ResourceLimits { cpu: None, memory: Some(Bytes(500 * MIB)) },
        },
        cpu: CpuDemand::Diurnal { night: MilliCpu(100), peak: MilliCpu(600), weekend: 0.5 },
        memory: MemoryDemand::Leak { start: Bytes(200 * MIB), per_hour: Bytes(5 * MIB) },
    };
    let workload = sim::Workload {
        namespace: "shop".into(),
        name: "web".into(),
        workload_kind: WorkloadKind::Deployment { replicas: 2 },
        containers: vec![container],
    };
    let mut cluster =
        Cluster::new(vec![workload], 7, FROM, UpdatePolicy::Off).expect("it is sound");
    let mut life = Life::new();
    for _ in 0..MINUTES {
        cluster.step(&mut |step: &ContainerMinute| {
            life.entry(Arc::clone(&step.pod)).or_default().push(step.clone());
        });
    }
    life
}

fn amounts(of: ResourceAmounts) -> Amounts {
    Amounts { cpu: Some(of.cpu), memory: Some(of.memory) }
}

/// The recording that the life itself gives, by the definitions of the grid.
fn recording_of(life: &Life) -> WorkloadRecording {
    let seconds = |at: Time| at.nanos_since(FROM) / 1_000_000_000;
    let pods = life.iter().map(|(name, minutes)| {
        let mut container = PodContainer::default();
        let (mut cpu, mut memory) = (BTreeMap::new(), BTreeMap::new());
        for minute in minutes.iter().filter(|minute| minute.running) {
            let second = seconds(minute.at);
            cpu.insert(second / 60, minute.usage.cpu.as_cores() as f32);
            let peak: &mut f32 = memory.entry((second - 1) / 300).or_insert(0.0);
            *peak = peak.max(minute.usage.memory.as_f64() as f32);
            if minute.oom_killed {
                container.oom_kills.push(minute.at);
            }
        }
        // A minute that ends at the end of the backtest is not part of it.
        cpu.retain(|minute, _| *minute < MINUTES);
        let column =
            |first: Option<&i64>| u32::try_from(first.copied().unwrap_or(0)).expect("small");
        container.first_minute = column(cpu.keys().next());
        container.first_window = column(memory.keys().next());
        let values = |of: &BTreeMap<i64, f32>| -> Vec<f32> {
            let (Some((first, _)), Some((last, _))) = (of.first_key_value(), of.last_key_value())
            else {
                return Vec::new();
            };
            (*first..=*last).map(|at| of.get(&at).copied().unwrap_or(f32::NAN)).collect()
        };
        (container.cpu, container.memory) = (values(&cpu), values(&memory));
        let born = minutes[0].at.earlier(Duration::from_mins(1));
        let gone = minutes[minutes.len() - 1].at;
        PodRecording { name: (&**name).into(), born, gone, containers: vec![container] }
    });
    let share = life.values().next().expect("a pod")[0].share;
    let step = |amounts| vec![RecordedStep { at: FROM, amounts }];
    let limits = Amounts { cpu: share.limit.cpu, memory: share.limit.memory };
    WorkloadRecording {
        cluster: None,
        kind: "Deployment".into(),
        key: ObjectKey::new("shop", "web"),
        from: FROM,
        containers: vec![ContainerRecording {
            name: "main".into(),
            requests: step(amounts(share.request)),
            limits: step(limits),
            ..ContainerRecording::default()
        }],
        pods: pods.collect(),
    }
}

/// The series of a life: what cAdvisor and kube-state-metrics would have exposed about its containers, all named `main`.
pub(super) fn scraped(life: &Life) -> History {
    let at = |time: Time| Timestamp::from_nanosecond(i128::from(time.as_nanos())).expect("a time");
    let end = FROM.later(Duration::from_mins(MINUTES.unsigned_abs()));
    let mut history = History::new(at(FROM), at(end), SignedDuration::from_secs(60));
    for (pod, minutes) in life {
        let by_time: HashMap<i64, (f64, ContainerMinute)> = minutes
            .iter()
            .scan(0.0, |seconds, minute| {
                *seconds += minute.usage.cpu.as_cores() * 60.0;
                Some((minute.at.as_secs(), (*seconds, minute.clone())))
            })
            .collect();
        let by_time = Arc::new(by_time);
        let start = minutes[0].at.earlier(Duration::from_mins(1));
        let names = ["shop", &**pod, "main"];
        let of = |value: Amount| {
            let by_time = Arc::clone(&by_time);
            move |at: Timestamp| by_time.get(&at.as_second()).and_then(value)
        };
        let begins = {
            let counted = of(|(seconds, minute)| minute.running.then_some(*seconds));
            let start = start.as_secs();
            // The counter begins with the container.
            move |at: Timestamp| if at.as_second() == start { Some(0.0) } else { counted(at) }
        };
        history = CHART.usage(history, CPU_METRIC, names, begins);
        let memory = of(|(_, minute)| minute.running.then(|| minute.usage.memory.as_f64()));
        history = CHART.usage(history, MEMORY_METRIC, names, memory);
        let object = [("namespace", "shop"), ("pod", &**pod), ("container", "main")];
        let restarts =
            of(|(_, minute)| Some(f64::from(minute.restarts + u32::from(minute.oom_killed))));
        history =
            CHART.state(history, "kube_pod_container_status_restarts_total", &object, restarts);
        let killed: Vec<_> = object.into_iter().chain([("reason", "OOMKilled")]).collect();
        let reason = of(|(_, minute)| (minute.restarts > 0 || minute.oom_killed).then_some(1.0));
        history = CHART.state(
            history,
            "kube_pod_container_status_last_terminated_reason",
            &killed,
            reason,
        );
        let resources: [(&str, Amount, Amount); 2] = [
            (
                "cpu",
                |(_, minute)| Some(minute.share.request.cpu.as_cores()),
                |(_, minute)| minute.share.limit.cpu.map(MilliCpu::as_cores),
            ),
            (
                "memory",
                |(_, minute)| Some(minute.share.request.memory.as_f64()),
                |(_, minute)| minute.share.limit.memory.map(Bytes::as_f64),
            ),
        ];
        for (resource, request, limit) in resources {
            let object: Vec<_> = object.into_iter().chain([("resource", resource)]).collect();
            for (family, value) in [
                ("kube_pod_container_resource_requests", request),
                ("kube_pod_container_resource_limits", limit),
            ] {
                history = CHART.state(history, family, &object, of(value));
            }
        }
        let started = start.as_secs() as f64;
        let exists = of(|_| Some(1.0));
        let value = move |at: Timestamp| exists(at).map(|_| started);
        history = CHART.state(history, "kube_pod_start_time", &object[..2], value);
    }
    history
}

/// Requested and used core-hours, and OOM kills of a policy.
fn figures(account: &WorkloadAccount, policy: usize) -> ([f64; 2], u32) {
    let days = &account.policies[policy].days;
    let sum =
        |of: fn(&plimsoll_core::backtest::ContainerDay) -> f64| days.iter().map(of).sum::<f64>();
    let kills = days.iter().map(|day| day.oom_kills).sum();
    ([sum(|day| day.cpu_requested), sum(|day| day.cpu_used)], kills)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_from_a_real_server_gives_the_figures_of_the_life_itself() {
    let life = life();
    let kills = life.values().flatten().filter(|minute| minute.oom_killed).count();
    assert!(kills > 1, "only {kills} OOM kills");
    let expected = recording_of(&life);
    for release in releases() {
        compare(release, &life, &expected).await;
    }
}

async fn compare(release: PrometheusRelease, life: &Life, expected: &WorkloadRecording) {
    let Some(server) = PrometheusServer::with_history(release, scraped(life)).await else { return };
    let until = evaluation().until;
    let settings =
        HistorySettings { length: Duration::from_hours(24 * 10), ..HistorySettings::default() };
    let clock = WallClock::new(move || until);
    let client = client(&server.url(), short_limits());
    let history = PrometheusHistory::new(server.url(), client, settings, clock);
    let workload = Workload {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        pods: life.keys().map(|name| (&**name).into()).collect(),
        containers: [Container { name: "main".into(), ..Container::default() }].into(),
        ..Workload::default()
    };
    let recorded =
        record(&history, &[&workload], evaluation(), 96 << 20).await.expect("a recording");
    let recorded = &recorded[0];
    assert_eq!(recorded.containers, expected.containers, "requests and limits");
    assert_eq!(recorded.pods.len(), expected.pods.len());
    for (pod, known) in recorded.pods.iter().zip(&expected.pods) {
        assert_eq!((&pod.name, pod.born), (&known.name, known.born));
        let (found, known) = (&pod.containers[0], &known.containers[0]);
        // The time of a kill is known to a scrape.
        assert_eq!(found.oom_kills.len(), known.oom_kills.len(), "{}", pod.name);
        let sum = |values: &[f32]| -> f64 {
            values.iter().filter(|value| value.is_finite()).map(|value| f64::from(*value)).sum()
        };
        let is_close = |one: f64, other: f64| (one - other).abs() <= 0.005 * other;
        assert!(is_close(sum(&found.cpu), sum(&known.cpu)), "{}: CPU", pod.name);
        assert!(is_close(sum(&found.memory), sum(&known.memory)), "{}: memory", pod.name);
    }
    let policies = [PolicyRule::Current, PolicyRule::Plimsoll].map(Policy::new);
    let [found, known] = [recorded, expected]
        .map(|recording| replay(recording, &evaluation(), &policies, &ReplaySettings::default()));
    for (index, policy) in policies.iter().enumerate() {
        let ((found, found_kills), (known, known_kills)) =
            (figures(&found, index), figures(&known, index));
        for (found, known) in found.into_iter().zip(known) {
            assert!(
                (found - known).abs() <= 0.02 * known,
                "{}: {found} and not {known}",
                policy.name
            );
        }
        assert_eq!(found_kills, known_kills, "OOM kills under {}", policy.name);
    }
    let (_, current_kills) = figures(&found, 0);
    assert!(current_kills > 0, "the life has OOM kills");
}
