//! Proof that the suite of backends that only read has teeth: one defect fails exactly the cases that are about it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use plimsoll_core::{
    history::{Measurement, Sample, Sink, Skipped},
    types::{Key, Time},
};
use plimsoll_storage::{
    Error, LoadReport, Storage, Wanted, Writer,
    conformance::{Case, Life, Source, check_reading, failed, not_applicable, table},
};

const STEP: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Loses an hour in the middle.
    LosesAnHour,
    /// Hands the last two samples on in the wrong order.
    Disorders,
    /// Hands each sample on twice.
    Doubles,
    /// Tells pods by how their names begin.
    TakesOthers,
    /// Does not say of what it has come to the end.
    IsNeverWhole,
    /// Says so before the end.
    IsWholeTooEarly,
    /// Passes over what it cannot tell without a word.
    SkipsInSilence,
    /// Brings less the second time.
    Forgets,
}

/// A backend that does everything right but for its defect.
struct Archive {
    defect: Defect,
    lives: Vec<Life>,
    loads: AtomicUsize,
}

impl Archive {
    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn owns(&self, owner: &str, life: &Life) -> bool {
        let name = owner.rsplit('/').next().expect("a name");
        if self.has(Defect::TakesOthers) { life.pod.starts_with(name) } else { life.owner == owner }
    }

    fn hand_on(&self, key: &Key, life: &Life, sink: &mut dyn Sink) -> usize {
        let mut samples = Vec::new();
        let mut at = life.from.later(STEP);
        let (mut left, mut steps) = (self.loads.load(SeqCst), 0);
        while at <= life.to {
            for measurement in
                [Measurement::CpuCores(life.cores), Measurement::MemoryBytes(life.bytes)]
            {
                let is_lost = self.has(Defect::LosesAnHour) && (30..42).contains(&steps);
                let is_forgotten = self.has(Defect::Forgets) && left > 0;
                left = left.saturating_sub(usize::from(is_forgotten));
                if is_lost || is_forgotten {
                    continue;
                }
                let replica = life.pod.into();
                let sample = Sample { replica, at, covers: Some(STEP), measurement };
                if self.has(Defect::Doubles) {
                    samples.push(sample.clone());
                }
                samples.push(sample);
            }
            at = at.later(STEP);
            steps += 1;
        }
        if self.has(Defect::Disorders) {
            let end = samples.len();
            samples.swap(end - 1, end - 3);
        }
        let count = samples.len();
        for (index, sample) in samples.into_iter().enumerate() {
            if self.has(Defect::IsWholeTooEarly) && index + 1 == count {
                sink.whole(&key.vpa);
            }
            sink.sample(key, sample);
        }
        count
    }
}

#[async_trait]
impl Storage for Archive {
    fn name(&self) -> &'static str {
        "archive"
    }

    async fn load(&self, wanted: &Wanted, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let Wanted::Vpas(wanted) = wanted else { return Ok(LoadReport::default()) };
        let mut report = LoadReport::default();
        for (vpa, owner) in wanted {
            let Some(owner) = owner else {
                if !self.has(Defect::SkipsInSilence) {
                    let why = "its target is not known".to_owned();
                    report.skipped.push(Skipped { what: vpa.to_string(), why });
                }
                continue;
            };
            for life in self.lives.iter().filter(|life| *life.namespace == *vpa.namespace) {
                if self.owns(owner, life) {
                    let key = Key::new(vpa.clone(), life.container);
                    report.samples += self.hand_on(&key, life, sink);
                }
            }
            if !matches!(self.defect, Defect::IsNeverWhole | Defect::IsWholeTooEarly) {
                sink.whole(vpa);
            }
        }
        self.loads.fetch_add(1, SeqCst);
        Ok(report)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        None
    }
}

struct Shelves(Defect);

#[async_trait]
impl Source for Shelves {
    async fn filled(&self, lives: &[Life]) -> Result<Arc<dyn Storage>, String> {
        let loads = AtomicUsize::new(0);
        Ok(Arc::new(Archive { defect: self.0, lives: lives.to_vec(), loads }))
    }

    fn now(&self) -> Time {
        Time::from_secs(1_790_000_000)
    }
}

#[tokio::test]
async fn a_reader_with_a_defect_fails_what_is_about_it_and_nothing_else() {
    let all = Case::READING;
    for (defect, expected) in [
        (Defect::None, &[][..]),
        (Defect::LosesAnHour, &all),
        (Defect::Disorders, &all),
        (Defect::Doubles, &all),
        (Defect::TakesOthers, &[Case::OthersStayOut]),
        (Defect::IsNeverWhole, &all),
        (Defect::IsWholeTooEarly, &all),
        (Defect::SkipsInSilence, &[Case::OthersStayOut]),
        (Defect::Forgets, &[Case::SamplesComeAgain]),
    ] {
        let outcomes = check_reading(&Shelves(defect)).await;
        assert_eq!(failed(&outcomes), expected, "{defect:?}:\n{}", table(&outcomes));
        assert_eq!(not_applicable(&outcomes), []);
    }
}
