//! Fixtures of the cases: records, permits, and a sink that collects what is loaded.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use async_trait::async_trait;

use super::{CaseError, TestBackend};
use plimsoll_core::{
    history::{
        BucketScheme, EncodedPlan, HistogramWeights, OomBump, Record, ReplicaState, Sample,
        SampleStats, Sink, Snapshot,
    },
    recommender::plan::{CpuPlanSettings, PeakWindowSettings, PlanProfile, PlanState},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{
    Error, LoadReport, LoadRequest, NotLeader, SaveReport, WritePermit, Writer,
    codec::encode_snapshot,
};

/// A record in which every field depends on `generation`, so that a mixture of two is detected. It is richer with each
/// generation. Its numbers are small integers, which every format can represent.
pub fn record(vpa: &ObjectKey, container: &str, generation: u32) -> Record {
    let at = Time::from_secs(1_790_000_000 + i64::from(generation) * 60);
    let weight = f64::from(generation);
    let weights = |bucket: u8| HistogramWeights {
        scheme: BucketScheme::Standard,
        reference: Some(at),
        total: 3.0 * weight,
        buckets: vec![(bucket, weight), (bucket + 3, 2.0 * weight)],
        span: Some((bucket, bucket + 3)),
    };
    let seen = SampleStats { count: u64::from(generation), first: Some(at), last: Some(at) };
    let snapshot = Snapshot {
        owner: Some("apps/Deployment/web".into()),
        cpu: weights(4),
        memory: weights(30),
        cpu_seen: seen,
        memory_seen: seen,
        last_alive: Some(at),
        replicas: vec![ReplicaState {
            name: "web-0".into(),
            last_cpu: Some(at),
            last_memory: Some(at),
            window_end: Some(at),
            usage_peak: Some(i64::from(generation)),
            bump_peak: None,
            last_kill: None,
        }],
        bump: Some(OomBump { at, base: 1, counted: i64::from(generation) }),
        plan: Some(plan(at, generation)),
        ..Snapshot::default()
    };
    Record::new(ContainerKey::new(vpa.clone(), container), snapshot)
}

/// The state of a plan with some samples.
fn plan(start: Time, generation: u32) -> EncodedPlan {
    let (cpu, memory) = (CpuPlanSettings::of(PlanProfile::Tide), PeakWindowSettings::default());
    let mut state = PlanState::new(start);
    for number in 0..=generation.min(300) {
        let (at, number) = (start.later(Duration::from_mins(number.into())), f64::from(number));
        assert!(state.cpu.add(&cpu, at, 0.1 + number / 7.0, Some(0.3)));
        assert!(state.memory.add(&memory, at, 1e8 + number));
    }
    state.encode()
}

/// A VPA in the namespace that most cases use.
pub fn vpa(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

/// Creates `count` records of different VPAs.
pub fn records(count: u32, generation: u32) -> Vec<Record> {
    (0..count).map(|n| record(&vpa(&format!("web-{n}")), "app", generation)).collect()
}

/// Records with extreme values.
pub fn extremes() -> Vec<Record> {
    let floats = [
        f64::MIN_POSITIVE,
        f64::from_bits(1),
        f64::MAX,
        f64::EPSILON,
        0.1 + 0.2,
        1e-9,
        1.0 / 3.0,
        (1_u64 << 53) as f64 - 1.0,
        0.0,
        -0.0,
    ];
    let full = HistogramWeights {
        scheme: BucketScheme::Fine,
        reference: Some(Time::from_nanos(i64::MAX)),
        total: f64::MAX,
        buckets: (0..=u8::MAX).map(|b| (b, floats[usize::from(b) % floats.len()])).collect(),
        span: Some((0, u8::MAX)),
    };
    let edge = SampleStats {
        count: u64::MAX,
        first: Some(Time::from_nanos(-2)),
        last: Some(Time::from_nanos(i64::MAX)),
    };
    let rich = Snapshot {
        owner: Some("".into()),
        cpu: full.clone(),
        memory: full.clone(),
        memory_closed: Some(HistogramWeights::default()),
        fleet: Some(full),
        cpu_seen: edge,
        memory_seen: edge,
        last_alive: Some(Time::EPOCH),
        replicas: (0..300)
            .map(|n| ReplicaState {
                name: format!("röplica-{n}-\u{1F6A2}").into(),
                last_cpu: None,
                last_memory: Some(Time::from_nanos(-1)),
                window_end: None,
                usage_peak: Some(i64::MAX),
                bump_peak: Some(i64::MIN),
                last_kill: Some(Time::from_nanos(-2)),
            })
            .collect(),
        bump: Some(OomBump { at: Time::EPOCH, base: i64::MIN, counted: i64::MAX }),
        ..Snapshot::default()
    };
    let named = |namespace: &str, name: &str, container: &str, snapshot: &Snapshot| {
        Record::new(ContainerKey::new(ObjectKey::new(namespace, name), container), snapshot.clone())
    };
    vec![
        named("shop", "full", "app", &rich),
        named("shop", "empty", "app", &Snapshot::default()),
        named("søk", "übersicht-\u{6D4B}\u{8BD5}", "c\u{301}-\u{1F6A2}", &rich),
        named("a", "b-c", "d", &Snapshot::default()),
        named("a", "b", "c-d", &rich),
        named("a-b", "c", "d", &Snapshot { owner: Some("x".into()), ..Snapshot::default() }),
    ]
}

/// Grants a limited number of writes.
pub struct LimitedPermit(AtomicUsize);

impl LimitedPermit {
    pub fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// Grants all writes.
    pub fn all() -> Self {
        Self::new(usize::MAX)
    }
}

#[async_trait]
impl WritePermit for LimitedPermit {
    async fn acquire(&self) -> Result<(), NotLeader> {
        let left = |left: usize| left.checked_sub(1);
        self.0
            .fetch_update(SeqCst, SeqCst, left)
            .map(|_| ())
            .map_err(|_| NotLeader("the permit is exhausted".into()))
    }
}

/// The result of a load.
#[derive(Default)]
pub struct LoadedRecords {
    pub snapshots: BTreeMap<ContainerKey, Snapshot>,
    pub report: LoadReport,
    duplicate: Option<ContainerKey>,
    samples: usize,
}

impl Sink for LoadedRecords {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        if self.snapshots.insert(key.clone(), snapshot).is_some() {
            self.duplicate = Some(key);
        }
    }

    fn sample(&mut self, _: &ContainerKey, _: Sample) {
        self.samples += 1;
    }
}

/// Loads the requested records, and checks that the report matches what the sink received.
pub async fn load(
    backend: &dyn TestBackend,
    wanted: &LoadRequest,
) -> Result<LoadedRecords, CaseError> {
    let mut loaded = LoadedRecords::default();
    let report = backend.storage().load(wanted, &mut loaded).await?;
    if let Some(key) = &loaded.duplicate {
        return Err(format!("{key} was loaded twice in one load").into());
    }
    let reported = (report.snapshots, report.samples);
    let received = (loaded.snapshots.len(), loaded.samples);
    if reported != received {
        return Err(
            format!("the report counts {reported:?}, the sink received {received:?}").into()
        );
    }
    loaded.report = report;
    Ok(loaded)
}

/// Loads everything and compares it with the expected records.
pub async fn expect_stored(
    backend: &dyn TestBackend,
    expected: &[Record],
) -> Result<(), CaseError> {
    let loaded = load(backend, &LoadRequest::All).await?;
    if let Some(skipped) = loaded.report.skipped.first() {
        return Err(format!("{} was skipped: {}", skipped.record, skipped.reason).into());
    }
    expect_loaded(backend, &loaded, expected)
}

/// Compares the loaded with the expected records exactly.
pub fn expect_loaded(
    backend: &dyn TestBackend,
    loaded: &LoadedRecords,
    expected: &[Record],
) -> Result<(), CaseError> {
    for record in expected {
        let Some(found) = loaded.snapshots.get(&record.key) else {
            return Err(format!("{} was saved but not loaded", record.key).into());
        };
        if !identical(found, &backend.expected_snapshot(record)) {
            return Err(format!(
                "{} was loaded with other content than it was saved with",
                record.key
            )
            .into());
        }
    }
    let known = |key: &ContainerKey| expected.iter().any(|record| record.key == *key);
    match loaded.snapshots.keys().find(|key| !known(key)) {
        Some(key) => Err(format!("{key} was loaded but should not exist").into()),
        None => Ok(()),
    }
}

/// Whether two snapshots are identical, including the signs of zeros.
pub fn identical(a: &Snapshot, b: &Snapshot) -> bool {
    encode_snapshot(a) == encode_snapshot(b)
}

/// Saves a batch that is expected to succeed.
pub async fn save(backend: &dyn TestBackend, batch: &[Record]) -> Result<SaveReport, CaseError> {
    let writer = writer(backend)?;
    Ok(writer.save(batch, &LimitedPermit::all()).await?)
}

/// Returns the writer, for cases that need one.
pub fn writer(backend: &dyn TestBackend) -> Result<&dyn Writer, CaseError> {
    backend.storage().writer().ok_or(CaseError::NotApplicable("the backend is read-only"))
}

/// Expects that the permit was refused.
pub fn expect_fenced<T>(result: Result<T, Error>) -> Result<(), CaseError> {
    match result {
        Err(Error::NotLeader(_)) => Ok(()),
        Err(other) => Err(format!("expected a refused permit, got: {other}").into()),
        Ok(_) => Err("the call succeeded without a permit".to_string().into()),
    }
}
