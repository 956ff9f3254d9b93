//! What the cases save and load: records, permits of all tempers, and a sink that remembers.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use async_trait::async_trait;

use super::{CaseError, TestBackend};
use crate::{Error, LoadReport, LoadRequest, NotLeader, WritePermit};
use plimsoll_core::{
    history::{
        BucketScheme, HistogramWeights, OomBump, Record, ReplicaState, Sample, SampleStats, Sink,
        Snapshot,
    },
    types::{ContainerKey, ObjectKey, Time},
};

/// A record whose every part tells of `generation`, so that a mixture of two shows. Richer with each
/// generation; its numbers are small whole ones, which every format can keep.
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
        ..Snapshot::default()
    };
    Record::new(ContainerKey::new(vpa.clone(), container), snapshot)
}

/// A VPA of the namespace that most cases use.
pub fn vpa(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

/// `count` records of different VPAs.
pub fn records(count: u32, generation: u32) -> Vec<Record> {
    (0..count).map(|n| record(&vpa(&format!("web-{n}")), "app", generation)).collect()
}

/// Records at the borders of what a snapshot can hold.
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

/// Grants this many writes, then none.
pub struct LimitedPermit(AtomicUsize);

impl LimitedPermit {
    pub fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// As many as are asked for.
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
            .map_err(|_| NotLeader("no more".into()))
    }
}

/// What a load brought.
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

/// Loads what is wanted, and checks that the report tells of what the sink got.
pub async fn load(
    subject: &dyn TestBackend,
    wanted: &LoadRequest,
) -> Result<LoadedRecords, CaseError> {
    let mut loaded = LoadedRecords::default();
    let report = subject.storage().load(wanted, &mut loaded).await?;
    if let Some(key) = &loaded.duplicate {
        return Err(format!("{key} was loaded twice in one load").into());
    }
    let counted = (report.snapshots, report.samples);
    let came = (loaded.snapshots.len(), loaded.samples);
    if counted != came {
        return Err(format!("the report counts {counted:?}, the sink was given {came:?}").into());
    }
    loaded.report = report;
    Ok(loaded)
}

/// Loads everything and compares it with what was saved.
pub async fn expect_stored(
    subject: &dyn TestBackend,
    expected: &[Record],
) -> Result<(), CaseError> {
    let loaded = load(subject, &LoadRequest::All).await?;
    if let Some(skipped) = loaded.report.skipped.first() {
        return Err(format!("{} was skipped: {}", skipped.record, skipped.reason).into());
    }
    expect_loaded(subject, &loaded, expected)
}

/// Compares what was loaded with what was saved, number by number.
pub fn expect_loaded(
    subject: &dyn TestBackend,
    loaded: &LoadedRecords,
    expected: &[Record],
) -> Result<(), CaseError> {
    for record in expected {
        let Some(found) = loaded.snapshots.get(&record.key) else {
            return Err(format!("{} was saved and not loaded", record.key).into());
        };
        if !identical(found, &subject.expected_snapshot(record)) {
            return Err(format!("{} was loaded otherwise than it was saved", record.key).into());
        }
    }
    let known = |key: &ContainerKey| expected.iter().any(|record| record.key == *key);
    match loaded.snapshots.keys().find(|key| !known(key)) {
        Some(key) => Err(format!("{key} was loaded and should not be there").into()),
        None => Ok(()),
    }
}

/// Whether two snapshots are the same to the last bit, signs of zeros included.
pub fn identical(a: &Snapshot, b: &Snapshot) -> bool {
    crate::codec::encode_snapshot(a) == crate::codec::encode_snapshot(b)
}

/// Saves, expecting it to go through.
pub async fn save(
    subject: &dyn TestBackend,
    batch: &[Record],
) -> Result<crate::SaveReport, CaseError> {
    let writer = writer(subject)?;
    Ok(writer.save(batch, &LimitedPermit::all()).await?)
}

/// The writing half, for the cases that need one.
pub fn writer(subject: &dyn TestBackend) -> Result<&dyn crate::Writer, CaseError> {
    subject.storage().writer().ok_or(CaseError::NotApplicable("the backend is read-only"))
}

/// Expects that the right to write was missed.
pub fn expect_fenced<T>(result: Result<T, Error>) -> Result<(), CaseError> {
    match result {
        Err(Error::NotLeader(_)) => Ok(()),
        Err(other) => Err(format!("expected the refusal of the permit, got: {other}").into()),
        Ok(_) => Err("the permit refused and the call still succeeded".to_string().into()),
    }
}
