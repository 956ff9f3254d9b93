//! Temporary directories, generated records, and helpers to load and save them.

use std::{collections::BTreeMap, path::Path};

use plimsoll_core::{
    history::{HistogramWeights, Record, Sample, SampleStats, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{
    LoadReport, LoadRequest, LocalStorage, NotLeader, Storage, WritePermit, Writer,
};
use tempfile::TempDir;

/// A temporary directory.
pub fn temp_directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("storage-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("target directory is writable")
}

/// A temporary directory in memory, if available: for tests that open thousands of files and do not depend on the
/// disk.
pub fn memory_directory() -> TempDir {
    let memory = tempfile::Builder::new().prefix("plimsoll-storage-").tempdir_in("/dev/shm");
    memory.unwrap_or_else(|_| temp_directory())
}

/// Runs a future to its end.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("runtime without IO")
        .block_on(future)
}

/// A permit that is always granted.
pub struct AlwaysPermitted;

#[async_trait::async_trait]
impl WritePermit for AlwaysPermitted {
    async fn acquire(&self) -> Result<(), NotLeader> {
        Ok(())
    }
}

/// A record whose every number depends on its generation; each generation has more samples.
pub fn record(n: usize, generation: u64) -> Record {
    let value = generation as f64 / 3.0;
    let at = Time::from_secs(1_790_000_000 + generation as i64);
    let weights = HistogramWeights {
        reference: Some(at),
        total: value * 7.0,
        buckets: (10..22).map(|bucket| (bucket, value + f64::from(bucket))).collect(),
        span: Some((10, 21)),
        ..HistogramWeights::default()
    };
    let seen = SampleStats { count: generation, first: Some(Time::EPOCH), last: Some(at) };
    let snapshot = Snapshot {
        cpu: weights.clone(),
        memory: weights,
        cpu_seen: seen,
        memory_seen: seen,
        ..Snapshot::default()
    };
    Record::new(ContainerKey::new(ObjectKey::new("shop", format!("web-{n}")), "app"), snapshot)
}

/// `count` records of one generation.
pub fn records(count: usize, generation: u64) -> Vec<Record> {
    (0..count).map(|n| record(n, generation)).collect()
}

/// All snapshots of a load.
#[derive(Default)]
pub struct LoadedSnapshots(pub BTreeMap<ContainerKey, Snapshot>);

impl Sink for LoadedSnapshots {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        assert!(self.0.insert(key, snapshot).is_none(), "duplicate key in a load");
    }

    fn sample(&mut self, key: &ContainerKey, _: Sample) {
        panic!("{key}: local has no samples");
    }
}

/// Loads everything.
pub fn load(local: &LocalStorage) -> (BTreeMap<ContainerKey, Snapshot>, LoadReport) {
    let mut loaded = LoadedSnapshots::default();
    let report = run(local.load(&LoadRequest::All, &mut loaded)).expect("local loads");
    (loaded.0, report)
}

/// Saves and expects success.
pub fn save(local: &LocalStorage, batch: &[Record]) {
    run(local.save(batch, &AlwaysPermitted)).expect("local saves");
}

/// Opens a store that must be undamaged.
pub fn open(directory: &Path) -> LocalStorage {
    let (local, report) = LocalStorage::open(directory).expect("local opens");
    assert_eq!(report.damage, None, "the history is undamaged");
    local
}

/// Records by their key.
pub fn by_key(records: &[Record]) -> BTreeMap<ContainerKey, Snapshot> {
    records.iter().map(|record| (record.key.clone(), record.snapshot.clone())).collect()
}

/// Compares two states and reports only the first difference, because a full dump would be too long.
pub fn assert_same(
    found: &BTreeMap<ContainerKey, Snapshot>,
    expected: &BTreeMap<ContainerKey, Snapshot>,
) {
    for key in expected.keys().chain(found.keys()) {
        assert_eq!(found.get(key), expected.get(key), "{key}");
    }
}

/// Pseudo-random numbers that are the same in every run (SplitMix64).
pub struct SeededRandom(pub u64);

impl SeededRandom {
    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
