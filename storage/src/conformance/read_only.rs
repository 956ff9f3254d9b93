//! The cases of backends that only read what others have seen. Nothing can be saved first, so what they read from is
//! filled from outside: with the lives of containers that use the same all the time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;

use super::{Case, CaseError, CaseOutcome, outcome};
use crate::{LoadReport, LoadRequest, Storage};
use plimsoll_core::{
    history::{Measurement, Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};

/// What a backend reads from, and how it is filled.
#[async_trait]
pub trait ReadOnlyFixture: Send + Sync {
    /// A backend that finds these lives, and nothing else. An error ends the case as failed.
    async fn backend_with(&self, lives: &[ContainerLifetime]) -> Result<Arc<dyn Storage>, String>;

    /// When the backend is asked; lives end then or before.
    fn now(&self) -> Time;
}

/// The life of one container of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerLifetime {
    /// Namespace of the pod.
    pub namespace: &'static str,
    /// Name of the pod, as its controller would make it.
    pub pod: &'static str,
    /// Name of the container.
    pub container: &'static str,
    /// The topmost owner of the pod, as in [`Snapshot::owner`].
    pub owner: &'static str,
    /// CPU that it uses.
    pub cores: f64,
    /// Memory that it uses.
    pub bytes: f64,
    /// When it began.
    pub start: Time,
    /// When it ended.
    pub end: Time,
}

/// How far a number may be off: formats have decimals.
const PRECISION: f64 = 1e-6;
/// How much of a life may be missing or doubled, at its ends: backends have steps.
const DURATION_TOLERANCE: f64 = 0.05;
/// How long after its end a life may be heard of: the longest step.
const MAX_SAMPLE_DELAY: Duration = Duration::from_mins(5);

/// Runs every case of backends that only read.
pub async fn run_read_only_suite(source: &dyn ReadOnlyFixture) -> Vec<CaseOutcome> {
    let mut outcomes = Vec::with_capacity(Case::READ_ONLY.len());
    for case in Case::READ_ONLY {
        let ended = match case {
            Case::SamplesAreWhole => samples_are_whole(source).await,
            Case::OthersStayOut => others_stay_out(source).await,
            _ => samples_come_again(source).await,
        };
        outcomes.push(outcome(case, ended));
    }
    outcomes
}

/// The life of a container of a pod in `shop`, from so many hours ago to so many.
fn lifetime(
    source: &dyn ReadOnlyFixture,
    pod: &'static str,
    (from, to): (u64, u64),
) -> ContainerLifetime {
    let ago = |hours| source.now().earlier(Duration::from_hours(hours));
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

/// A workload with pods that are alive, one that is gone, and one with two containers; two VPAs that want it.
async fn samples_are_whole(source: &dyn ReadOnlyFixture) -> Result<(), CaseError> {
    let lives = [
        lifetime(source, "db-0", (12, 0)),
        ContainerLifetime { cores: 1.5, bytes: 3e9, ..lifetime(source, "db-1", (12, 6)) },
        ContainerLifetime { cores: 0.002, bytes: 5e6, ..lifetime(source, "db-2", (6, 0)) },
        ContainerLifetime {
            container: "sidecar",
            cores: 0.0,
            bytes: 7e7,
            ..lifetime(source, "db-2", (6, 0))
        },
    ];
    let storage = read_only_backend(source, &lives).await?;
    let both = [("db", Some(lives[0].owner)), ("again", Some(lives[0].owner))];
    let taken = load(&*storage, &load_request(&both)).await?;
    taken.expect(&lives, &["again", "db"])?;
    match taken.report.skipped.as_slice() {
        [] => Ok(()),
        other => Err(format!("nothing was to be skipped, not {other:?}").into()),
    }
}

/// Pods of another workload, and of another namespace; VPAs without pods and without a target.
async fn others_stay_out(source: &dyn ReadOnlyFixture) -> Result<(), CaseError> {
    let lives = [
        lifetime(source, "db-0", (6, 0)),
        ContainerLifetime {
            owner: "apps/StatefulSet/db-main",
            ..lifetime(source, "db-main-0", (6, 0))
        },
        ContainerLifetime {
            owner: "apps/StatefulSet/my-db",
            ..lifetime(source, "my-db-0", (6, 0))
        },
        ContainerLifetime { namespace: "bank", bytes: 9e9, ..lifetime(source, "db-0", (6, 0)) },
    ];
    let storage = read_only_backend(source, &lives).await?;
    let others =
        [("db", Some(lives[0].owner)), ("gone", Some("apps/StatefulSet/gone")), ("lost", None)];
    let taken = load(&*storage, &load_request(&others)).await?;
    taken.expect(&lives[..1], &["db", "gone"])?;
    match taken.report.skipped.as_slice() {
        [one] if one.record.contains("lost") && !one.reason.is_empty() => {}
        other => {
            let why = format!("a VPA without a target was to be skipped by name, not {other:?}");
            return Err(why.into());
        }
    }
    let nobody = load(&*storage, &LoadRequest::Vpas(HashMap::new())).await?;
    nobody.expect(&[], &[])
}

async fn samples_come_again(source: &dyn ReadOnlyFixture) -> Result<(), CaseError> {
    let lives = [lifetime(source, "db-0", (6, 0)), lifetime(source, "db-1", (6, 3))];
    let storage = read_only_backend(source, &lives).await?;
    let wanted = load_request(&[("db", Some(lives[0].owner))]);
    let first = load(&*storage, &wanted).await?;
    first.expect(&lives, &["db"])?;
    let second = load(&*storage, &wanted).await?;
    if first.samples == second.samples && first.report == second.report {
        return Ok(());
    }
    Err("the second load brought something else than the first".to_owned().into())
}

async fn read_only_backend(
    source: &dyn ReadOnlyFixture,
    lives: &[ContainerLifetime],
) -> Result<Arc<dyn Storage>, CaseError> {
    let storage = source.backend_with(lives).await?;
    if storage.writer().is_some() {
        return Err(CaseError::NotApplicable("the backend can be written to"));
    }
    Ok(storage)
}

/// What a load brought.
#[derive(Debug, Default)]
struct LoadedSamples {
    samples: BTreeMap<(ContainerKey, Box<str>), Vec<Sample>>,
    whole: Vec<ObjectKey>,
    /// The first thing that a backend must not do.
    fault: Option<String>,
    count: usize,
    report: LoadReport,
}

impl Sink for LoadedSamples {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        self.fault.get_or_insert(format!("{key}: a snapshot came, of which there are none"));
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        if self.whole.contains(&key.vpa) {
            self.fault.get_or_insert(format!("{key}: a sample came after all of it had come"));
        }
        self.count += 1;
        self.samples.entry((key.clone(), (&*sample.replica).into())).or_default().push(sample);
    }

    fn abandon(&mut self, vpa: &ObjectKey) {
        self.fault.get_or_insert(format!("{vpa} was discarded though all of it is there"));
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        self.whole.push(vpa.clone());
    }
}

async fn load(storage: &dyn Storage, wanted: &LoadRequest) -> Result<LoadedSamples, CaseError> {
    let mut taken = LoadedSamples::default();
    let report = storage.load(wanted, &mut taken).await?;
    if let Some(fault) = taken.fault.take() {
        return Err(fault.into());
    }
    if (report.snapshots, report.samples) != (0, taken.count) {
        let (told, came) = ((report.snapshots, report.samples), taken.count);
        return Err(format!("the report counts {told:?}, the sink was given {came} samples").into());
    }
    taken.report = report;
    Ok(taken)
}

impl LoadedSamples {
    /// These lives for each of these VPAs, if it is of their namespace, and nothing else; and all of it.
    fn expect(&self, lives: &[ContainerLifetime], vpas: &[&str]) -> Result<(), CaseError> {
        let mut whole = self.whole.clone();
        whole.sort();
        if !whole.iter().map(|vpa| &*vpa.name).eq(vpas.iter().copied()) {
            return Err(format!("{vpas:?} were to be whole, once each, not {whole:?}").into());
        }
        let mut left: Vec<_> = self.samples.keys().collect();
        // What is gone has no pods.
        for name in vpas.iter().filter(|name| **name != "gone") {
            for life in lives {
                let of = (ContainerKey::new(vpa(name), life.container), Box::from(life.pod));
                let Some(samples) = self.samples.get(&of) else {
                    return Err(format!("nothing came of {} in {}", life.pod, of.0).into());
                };
                left.retain(|key| **key != of);
                let is_cpu =
                    |sample: &&Sample| matches!(sample.measurement, Measurement::CpuCores(_));
                let (cpu, memory): (Vec<_>, Vec<_>) = samples.iter().partition(is_cpu);
                for (what, value, samples) in
                    [("CPU", life.cores, cpu), ("memory", life.bytes, memory)]
                {
                    check_samples(life, value, &samples).map_err(|why| {
                        CaseError::Failed(format!("{what} of {} in {}: {why}", life.pod, of.0))
                    })?;
                }
            }
        }
        match left.first() {
            Some((key, pod)) => Err(format!("{pod} came for {key}, whose it is not").into()),
            None => Ok(()),
        }
    }
}

/// Whether these samples, of one kind, are what can be seen of a life.
fn check_samples(life: &ContainerLifetime, value: f64, samples: &[&Sample]) -> Result<(), String> {
    let mut stands_for = 0.0;
    let mut before: Option<Time> = None;
    for sample in samples {
        let (Measurement::CpuCores(seen) | Measurement::MemoryBytes(seen)) = sample.measurement
        else {
            return Err("it was killed, and never was".to_owned());
        };
        if (seen - value).abs() > PRECISION * value.max(PRECISION) {
            return Err(format!("{seen} at {} is not {value}", sample.at));
        }
        if before.is_some_and(|before| before >= sample.at) {
            return Err(format!("{} does not come after the one before it", sample.at));
        }
        if sample.at < life.start || sample.at > life.end.later(MAX_SAMPLE_DELAY) {
            return Err(format!("{} is not within {} to {}", sample.at, life.start, life.end));
        }
        let covers = sample.covers.unwrap_or_default();
        if before.is_some_and(|before| sample.at.earlier(covers) < before) {
            return Err(format!("what {} stands for has come already", sample.at));
        }
        stands_for += covers.as_secs_f64();
        before = Some(sample.at);
    }
    let length = life.end.nanos_since(life.start) as f64 / 1e9;
    let is_point = samples.iter().all(|sample| sample.covers.is_none());
    if samples.is_empty() || (!is_point && (stands_for / length - 1.0).abs() > DURATION_TOLERANCE) {
        return Err(format!("{stands_for} s came of {length} s"));
    }
    Ok(())
}
