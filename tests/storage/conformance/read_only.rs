//! The cases for read-only backends. Nothing can be saved first, so the test fixture provides the data: containers with
//! constant usage.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;

use super::{Case, CaseError, CaseOutcome};
use plimsoll_core::{
    history::{Measurement, Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{LoadReport, LoadRequest, Storage};

/// Provides a read-only backend with data.
#[async_trait]
pub trait ReadOnlyFixture: Send + Sync {
    /// Creates a backend with the data of exactly these containers. An error fails the case.
    async fn backend_with(&self, lives: &[ContainerLifetime]) -> Result<Arc<dyn Storage>, String>;

    /// The time of the load. Containers end then or before.
    fn now(&self) -> Time;
}

/// The lifetime of one container of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerLifetime {
    /// Namespace of the pod.
    pub namespace: &'static str,
    /// Name of the pod, as its controller would generate it.
    pub pod: &'static str,
    /// Name of the container.
    pub container: &'static str,
    /// The topmost owner of the pod, as in [`Snapshot::owner`].
    pub owner: &'static str,
    /// CPU usage in cores.
    pub cores: f64,
    /// Memory usage in bytes.
    pub bytes: f64,
    /// Start of the container.
    pub start: Time,
    /// End of the container.
    pub end: Time,
}

/// Relative tolerance of values, for rounding in formats.
const PRECISION: f64 = 1e-6;
/// Relative tolerance of the covered time, for the steps of a backend.
const DURATION_TOLERANCE: f64 = 0.05;
/// How long after its end a container may have a sample: the longest step.
const MAX_SAMPLE_DELAY: Duration = Duration::from_mins(5);

/// Runs every case for read-only backends.
pub async fn run_read_only_suite(fixture: &dyn ReadOnlyFixture) -> Vec<CaseOutcome> {
    let mut outcomes = Vec::with_capacity(Case::READ_ONLY.len());
    for case in Case::READ_ONLY {
        let result = match case {
            Case::SamplesAreWhole => samples_are_whole(fixture).await,
            Case::OthersStayOut => others_stay_out(fixture).await,
            _ => samples_come_again(fixture).await,
        };
        outcomes.push(CaseOutcome { case, result });
    }
    outcomes
}

/// The lifetime of a container in the namespace `shop`, in hours ago.
fn lifetime(
    fixture: &dyn ReadOnlyFixture,
    pod: &'static str,
    (from, to): (u64, u64),
) -> ContainerLifetime {
    let ago = |hours| fixture.now().earlier(Duration::from_hours(hours));
    ContainerLifetime {
        namespace: "shop",
        pod,
        container: "app",
        owner: "apps/StatefulSet/db",
        cores: 0.25,
        bytes: 1e8,
        start: ago(from),
        end: ago(to),
    }
}

fn vpa(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

fn load_request(vpas: &[(&str, Option<&str>)]) -> LoadRequest {
    let vpas = vpas.iter().map(|(name, owner)| (vpa(name), owner.map(Box::from)));
    LoadRequest::Vpas(vpas.collect())
}

/// A workload with running pods, a deleted one, and one with two containers; two VPAs target it.
async fn samples_are_whole(fixture: &dyn ReadOnlyFixture) -> Result<(), CaseError> {
    let lives = [
        lifetime(fixture, "db-0", (12, 0)),
        ContainerLifetime { cores: 1.5, bytes: 3e9, ..lifetime(fixture, "db-1", (12, 6)) },
        ContainerLifetime { cores: 0.002, bytes: 5e6, ..lifetime(fixture, "db-2", (6, 0)) },
        ContainerLifetime {
            container: "sidecar",
            cores: 0.0,
            bytes: 7e7,
            ..lifetime(fixture, "db-2", (6, 0))
        },
    ];
    let storage = read_only_backend(fixture, &lives).await?;
    let both = [("db", Some(lives[0].owner)), ("again", Some(lives[0].owner))];
    let loaded = load(&*storage, &load_request(&both)).await?;
    loaded.expect(&lives, &["again", "db"])?;
    match loaded.report.skipped.as_slice() {
        [] => Ok(()),
        other => Err(format!("expected no skipped records, got {other:?}").into()),
    }
}

/// Pods of other workloads and of another namespace; VPAs without pods and without a target.
async fn others_stay_out(fixture: &dyn ReadOnlyFixture) -> Result<(), CaseError> {
    let lives = [
        lifetime(fixture, "db-0", (6, 0)),
        ContainerLifetime {
            owner: "apps/StatefulSet/db-main",
            ..lifetime(fixture, "db-main-0", (6, 0))
        },
        ContainerLifetime {
            owner: "apps/StatefulSet/my-db",
            ..lifetime(fixture, "my-db-0", (6, 0))
        },
        ContainerLifetime { namespace: "bank", bytes: 9e9, ..lifetime(fixture, "db-0", (6, 0)) },
    ];
    let storage = read_only_backend(fixture, &lives).await?;
    let others =
        [("db", Some(lives[0].owner)), ("gone", Some("apps/StatefulSet/gone")), ("lost", None)];
    let loaded = load(&*storage, &load_request(&others)).await?;
    loaded.expect(&lives[..1], &["db", "gone"])?;
    match loaded.report.skipped.as_slice() {
        [one] if one.record.contains("lost") && !one.reason.is_empty() => {}
        other => {
            let why = format!("expected the VPA without a target to be skipped, got {other:?}");
            return Err(why.into());
        }
    }
    let empty = load(&*storage, &LoadRequest::Vpas(HashMap::new())).await?;
    empty.expect(&[], &[])
}

async fn samples_come_again(fixture: &dyn ReadOnlyFixture) -> Result<(), CaseError> {
    let lives = [lifetime(fixture, "db-0", (6, 0)), lifetime(fixture, "db-1", (6, 3))];
    let storage = read_only_backend(fixture, &lives).await?;
    let wanted = load_request(&[("db", Some(lives[0].owner))]);
    let first = load(&*storage, &wanted).await?;
    first.expect(&lives, &["db"])?;
    let second = load(&*storage, &wanted).await?;
    if first.samples == second.samples && first.report == second.report {
        return Ok(());
    }
    Err("the second load differs from the first".to_owned().into())
}

async fn read_only_backend(
    fixture: &dyn ReadOnlyFixture,
    lives: &[ContainerLifetime],
) -> Result<Arc<dyn Storage>, CaseError> {
    let storage = fixture.backend_with(lives).await?;
    if storage.writer().is_some() {
        return Err(CaseError::NotApplicable("the backend is writable"));
    }
    Ok(storage)
}

/// The result of a load.
#[derive(Debug, Default)]
struct LoadedSamples {
    samples: BTreeMap<(ContainerKey, Box<str>), Vec<Sample>>,
    complete: Vec<ObjectKey>,
    /// The first violation by the backend.
    fault: Option<String>,
    count: usize,
    report: LoadReport,
}

impl Sink for LoadedSamples {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        self.fault.get_or_insert(format!("{key}: unexpected snapshot"));
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        if self.complete.contains(&key.vpa) {
            self.fault.get_or_insert(format!("{key}: a sample arrived after completion"));
        }
        self.count += 1;
        self.samples.entry((key.clone(), (&*sample.replica).into())).or_default().push(sample);
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        self.complete.push(vpa.clone());
    }
}

async fn load(storage: &dyn Storage, wanted: &LoadRequest) -> Result<LoadedSamples, CaseError> {
    let mut loaded = LoadedSamples::default();
    let report = storage.load(wanted, &mut loaded).await?;
    if let Some(fault) = loaded.fault.take() {
        return Err(fault.into());
    }
    if (report.snapshots, report.samples) != (0, loaded.count) {
        let (reported, received) = ((report.snapshots, report.samples), loaded.count);
        return Err(format!(
            "the report counts {reported:?}, the sink received {received} samples"
        )
        .into());
    }
    loaded.report = report;
    Ok(loaded)
}

impl LoadedSamples {
    /// Expects exactly the samples of these containers for each of these VPAs, and that all VPAs are complete.
    fn expect(&self, lives: &[ContainerLifetime], vpas: &[&str]) -> Result<(), CaseError> {
        let mut complete = self.complete.clone();
        complete.sort();
        if !complete.iter().map(|vpa| &*vpa.name).eq(vpas.iter().copied()) {
            return Err(
                format!("expected {vpas:?} to be complete once each, got {complete:?}").into()
            );
        }
        let mut unexpected: Vec<_> = self.samples.keys().collect();
        // This VPA has no pods.
        for name in vpas.iter().filter(|name| **name != "gone") {
            for life in lives {
                let key = (ContainerKey::new(vpa(name), life.container), Box::from(life.pod));
                let Some(samples) = self.samples.get(&key) else {
                    return Err(format!("no samples of {} in {}", life.pod, key.0).into());
                };
                unexpected.retain(|other| **other != key);
                let is_cpu =
                    |sample: &&Sample| matches!(sample.measurement, Measurement::CpuCores(_));
                let (cpu, memory): (Vec<_>, Vec<_>) = samples.iter().partition(is_cpu);
                for (resource, value, samples) in
                    [("CPU", life.cores, cpu), ("memory", life.bytes, memory)]
                {
                    check_samples(life, value, &samples).map_err(|why| {
                        CaseError::Failed(format!("{resource} of {} in {}: {why}", life.pod, key.0))
                    })?;
                }
            }
        }
        match unexpected.first() {
            Some((key, pod)) => {
                Err(format!("{pod} was loaded for {key}, but does not belong to it").into())
            }
            None => Ok(()),
        }
    }
}

/// Checks the samples of one resource of a container.
fn check_samples(life: &ContainerLifetime, value: f64, samples: &[&Sample]) -> Result<(), String> {
    let mut covered = 0.0;
    let mut previous: Option<Time> = None;
    for sample in samples {
        let (Measurement::CpuCores(actual) | Measurement::MemoryBytes(actual)) = sample.measurement
        else {
            return Err("unexpected OOM kill".to_owned());
        };
        if (actual - value).abs() > PRECISION * value.max(PRECISION) {
            return Err(format!("{actual} at {}, expected {value}", sample.at));
        }
        if previous.is_some_and(|previous| previous >= sample.at) {
            return Err(format!("{} is not after the previous sample", sample.at));
        }
        if sample.at < life.start || sample.at > life.end.later(MAX_SAMPLE_DELAY) {
            return Err(format!("{} is not within {} to {}", sample.at, life.start, life.end));
        }
        let covers = sample.covers.unwrap_or_default();
        if previous.is_some_and(|previous| sample.at.earlier(covers) < previous) {
            return Err(format!("the time that {} covers was covered already", sample.at));
        }
        covered += covers.as_secs_f64();
        previous = Some(sample.at);
    }
    let length = life.end.nanos_since(life.start) as f64 / 1e9;
    let is_point = samples.iter().all(|sample| sample.covers.is_none());
    if samples.is_empty() || (!is_point && (covered / length - 1.0).abs() > DURATION_TOLERANCE) {
        return Err(format!("{covered}s of {length}s are covered"));
    }
    Ok(())
}
