//! Tests the conformance suite of read-only backends: a reader with one defect fails exactly the cases about it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use plimsoll_core::{
    history::{Measurement, Sample, Sink, SkippedRecord},
    types::{ContainerKey, Time},
};
use plimsoll_storage::{Error, LoadReport, LoadRequest, Storage, Writer};

use super::conformance::{
    Case, ContainerLifetime, ReadOnlyFixture, failed_cases, format_table, not_applicable_cases,
    run_read_only_suite,
};

const STEP: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Loses an hour in the middle.
    LosesAnHour,
    /// Emits the last two samples in the wrong order.
    Disorders,
    /// Emits each sample twice.
    Doubles,
    /// Identifies pods by a prefix of their names.
    TakesOthers,
    /// Does not report completed VPAs.
    NeverCompletes,
    /// Reports completion too early.
    CompletesTooEarly,
    /// Skips ambiguous series silently.
    SkipsSilently,
    /// Emits fewer samples on the second load.
    LosesSamplesOnReload,
}

/// A reader that is correct except for its defect.
struct DefectiveReader {
    defect: Defect,
    lifetimes: Vec<ContainerLifetime>,
    loads: AtomicUsize,
}

impl DefectiveReader {
    fn has_defect(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn owns(&self, owner: &str, lifetime: &ContainerLifetime) -> bool {
        let name = owner.rsplit('/').next().expect("a name");
        if self.has_defect(Defect::TakesOthers) {
            lifetime.pod.starts_with(name)
        } else {
            lifetime.owner == owner
        }
    }

    fn send_samples(
        &self,
        key: &ContainerKey,
        lifetime: &ContainerLifetime,
        sink: &mut dyn Sink,
    ) -> usize {
        let mut samples = Vec::new();
        let mut at = lifetime.start.later(STEP);
        let (mut left, mut steps) = (self.loads.load(SeqCst), 0);
        while at <= lifetime.end {
            for measurement in
                [Measurement::CpuCores(lifetime.cores), Measurement::MemoryBytes(lifetime.bytes)]
            {
                let is_lost = self.has_defect(Defect::LosesAnHour) && (30..42).contains(&steps);
                let is_forgotten = self.has_defect(Defect::LosesSamplesOnReload) && left > 0;
                left = left.saturating_sub(usize::from(is_forgotten));
                if is_lost || is_forgotten {
                    continue;
                }
                let replica = lifetime.pod.into();
                let sample = Sample { replica, at, covers: Some(STEP), measurement };
                if self.has_defect(Defect::Doubles) {
                    samples.push(sample.clone());
                }
                samples.push(sample);
            }
            at = at.later(STEP);
            steps += 1;
        }
        if self.has_defect(Defect::Disorders) {
            let end = samples.len();
            samples.swap(end - 1, end - 3);
        }
        let count = samples.len();
        for (index, sample) in samples.into_iter().enumerate() {
            if self.has_defect(Defect::CompletesTooEarly) && index + 1 == count {
                sink.complete(&key.vpa);
            }
            sink.sample(key, sample);
        }
        count
    }
}

#[async_trait]
impl Storage for DefectiveReader {
    fn name(&self) -> &'static str {
        "archive"
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let LoadRequest::Vpas(wanted) = wanted else { return Ok(LoadReport::default()) };
        let mut report = LoadReport::default();
        for (vpa, owner) in wanted {
            let Some(owner) = owner else {
                if !self.has_defect(Defect::SkipsSilently) {
                    let why = "its target is not known".to_owned();
                    report.skipped.push(SkippedRecord { record: vpa.to_string(), reason: why });
                }
                continue;
            };
            for lifetime in
                self.lifetimes.iter().filter(|lifetime| *lifetime.namespace == *vpa.namespace)
            {
                if self.owns(owner, lifetime) {
                    let key = ContainerKey::new(vpa.clone(), lifetime.container);
                    report.samples += self.send_samples(&key, lifetime, sink);
                }
            }
            if !matches!(self.defect, Defect::NeverCompletes | Defect::CompletesTooEarly) {
                sink.complete(vpa);
            }
        }
        self.loads.fetch_add(1, SeqCst);
        Ok(report)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        None
    }
}

struct DefectiveReaderSource(Defect);

#[async_trait]
impl ReadOnlyFixture for DefectiveReaderSource {
    async fn backend_with(
        &self,
        lifetimes: &[ContainerLifetime],
    ) -> Result<Arc<dyn Storage>, String> {
        let loads = AtomicUsize::new(0);
        Ok(Arc::new(DefectiveReader { defect: self.0, lifetimes: lifetimes.to_vec(), loads }))
    }

    fn now(&self) -> Time {
        Time::from_secs(1_790_000_000)
    }
}

#[tokio::test]
async fn a_defective_reader_fails_only_the_cases_about_its_defect() {
    let all = Case::READ_ONLY;
    for (defect, expected) in [
        (Defect::None, &[][..]),
        (Defect::LosesAnHour, &all),
        (Defect::Disorders, &all),
        (Defect::Doubles, &all),
        (Defect::TakesOthers, &[Case::OthersStayOut]),
        (Defect::NeverCompletes, &all),
        (Defect::CompletesTooEarly, &all),
        (Defect::SkipsSilently, &[Case::OthersStayOut]),
        (Defect::LosesSamplesOnReload, &[Case::SamplesComeAgain]),
    ] {
        let outcomes = run_read_only_suite(&DefectiveReaderSource(defect)).await;
        assert_eq!(failed_cases(&outcomes), expected, "{defect:?}:\n{}", format_table(&outcomes));
        assert_eq!(not_applicable_cases(&outcomes), []);
    }
}
