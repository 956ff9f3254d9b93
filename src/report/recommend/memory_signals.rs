//! What else history shows about memory: how much is page cache, and what a Java virtual machine uses. One query finds out
//! whether there are such series, so that servers without them are asked nothing more.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use plimsoll_core::{
    rightsizing::{
        daily_peaks::DailyPeaks, evidence::MemoryPeak, page_cache::NeededMemory,
        runtime_bounds::JvmMemory, survey::Unread,
    },
    types::{ObjectKey, units::Bytes},
};
use plimsoll_storage::prometheus::{
    history::{HistoryLoad, JvmFigure, PodQuery, PodValueReport, PrometheusHistory, jvm_families},
    schema::{ACTIVE_FILE_METRIC, MAPPED_FILE_METRIC, RSS_METRIC},
};

use super::history::{HistoryWorkload, describe};

/// The step of peaks without page cache and of figures of virtual machines.
const STEP: Duration = Duration::from_hours(1);
/// The step of samples of page cache in use, of which the median counts.
const ACTIVE_FILE_STEP: Duration = Duration::from_hours(6);

/// A workload and a container. The container is empty if the series do not have it.
type ContainerName = (ObjectKey, Box<str>);

/// What else is known of the memory of containers.
#[derive(Clone, Debug, Default)]
pub struct MemorySignals {
    needed: HashMap<ContainerName, NeededMemory>,
    jvm: HashMap<ContainerName, JvmFigures>,
}

/// The largest value of each figure; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct JvmFigures([Option<f64>; JvmFigure::ALL.len()]);

impl JvmFigures {
    fn get(&self, figure: JvmFigure) -> Option<f64> {
        self.0[index_of(figure)]
    }

    fn add(&mut self, figure: JvmFigure, value: f64) {
        let known = &mut self.0[index_of(figure)];
        *known = Some(known.map_or(value, |known| known.max(value)));
    }

    /// Without memory besides the heap or threads nothing is known: their sum would be too small.
    fn memory(&self) -> Option<JvmMemory> {
        let bytes = |figure: JvmFigure| self.get(figure).map(Bytes::from_f64);
        // Collectors that have not run a full collection yet report no data.
        let live = bytes(JvmFigure::LiveData).filter(|live| live.0 > 0);
        Some(JvmMemory {
            non_heap: bytes(JvmFigure::NonHeapCommitted)?,
            threads: self.get(JvmFigure::Threads)?.clamp(0.0, f64::from(u32::MAX)) as u32,
            thread_stack: None,
            direct_buffers: bytes(JvmFigure::DirectBuffers),
            live_data: live.or_else(|| bytes(JvmFigure::HeapUsed)),
            collection_share: self.get(JvmFigure::CollectionShare),
        })
    }
}

fn index_of(figure: JvmFigure) -> usize {
    JvmFigure::ALL.iter().position(|known| *known == figure).unwrap_or_default()
}

impl MemorySignals {
    /// The memory of a container without page cache; `None` if unknown.
    pub fn needed(&self, key: &ObjectKey, container: &str) -> Option<&NeededMemory> {
        self.needed.get(&(key.clone(), container.into()))
    }

    /// What a Java virtual machine uses. `is_only` is whether series without a container are those of this one.
    pub fn jvm(&self, key: &ObjectKey, container: &str, is_only: bool) -> Option<JvmMemory> {
        let of = |container: &str| self.jvm.get(&(key.clone(), container.into()));
        of(container).or_else(|| of("").filter(|_| is_only))?.memory()
    }
}

/// Reads what else is known of memory in the time of a load that has not begun.
pub async fn read_memory_signals(
    history: &PrometheusHistory,
    load: &HistoryLoad,
    workloads: &[HistoryWorkload],
    unread: &mut Vec<Unread>,
) -> MemorySignals {
    let mut signals = MemorySignals::default();
    let java: HashSet<&ObjectKey> =
        workloads.iter().filter(|workload| workload.has_java()).map(|of| &of.key).collect();
    let wanted = [RSS_METRIC, MAPPED_FILE_METRIC, ACTIVE_FILE_METRIC].into_iter();
    let wanted: Vec<&str> = wanted.chain(jvm_families().filter(|_| !java.is_empty())).collect();
    let namespaces: BTreeSet<&str> = workloads.iter().map(|of| &*of.key.namespace).collect();
    let families = match history.present_families(&wanted, &Vec::from_iter(namespaces)).await {
        Ok(families) => families,
        Err(error) => {
            let what = "page cache and memory of Java virtual machines".to_owned();
            unread.push(Unread { what, why: error.to_string() });
            return signals;
        }
    };
    let has = |family: &str| families.contains(family);
    if has(RSS_METRIC) && has(MAPPED_FILE_METRIC) {
        let mut queries = vec![PodQuery::NeededMemory { step: STEP }];
        queries.extend(
            has(ACTIVE_FILE_METRIC).then_some(PodQuery::ActiveFile { step: ACTIVE_FILE_STEP }),
        );
        let mut active_file: HashMap<ContainerName, DailyPeaks> = HashMap::new();
        let report = load
            .pod_values(&queries, &|_| true, &mut |found| {
                let key = (found.vpa.clone(), found.container.into());
                let peak = MemoryPeak { bytes: Bytes::from_f64(found.value), at: found.at };
                match found.query {
                    0 => signals.needed.entry(key).or_default().needed.add(peak),
                    _ => active_file.entry(key).or_default().add(peak),
                }
            })
            .await;
        for (key, days) in active_file {
            if let Some(needed) = signals.needed.get_mut(&key) {
                needed.active_file = days.percentile(0.5);
            }
        }
        unread.extend(failure(&report, "page cache"));
    }
    let figures: Vec<JvmFigure> =
        JvmFigure::ALL.iter().copied().filter(|figure| figure.is_in(&families)).collect();
    if !figures.is_empty() {
        let queries: Vec<PodQuery> =
            figures.iter().map(|figure| PodQuery::Jvm { figure: *figure, step: STEP }).collect();
        let report = load
            .pod_values(&queries, &|vpa| java.contains(vpa), &mut |found| {
                let key = (found.vpa.clone(), found.container.into());
                signals.jvm.entry(key).or_default().add(figures[found.query], found.value);
            })
            .await;
        unread.extend(failure(&report, "memory of Java virtual machines"));
    }
    signals
}

fn failure(report: &PodValueReport, what: &str) -> Option<Unread> {
    let (_, failure) = report.failure.as_ref()?;
    let what = format!("{what} of {}", describe(report.failed_vpas.iter()));
    Some(Unread { what, why: failure.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(known: &[(JvmFigure, f64)]) -> JvmFigures {
        let mut figures = JvmFigures::default();
        for (figure, value) in known {
            figures.add(*figure, *value);
        }
        figures
    }

    #[test]
    fn a_missing_figure_is_not_zero() {
        use JvmFigure::{
            CollectionShare, DirectBuffers, HeapUsed, LiveData, NonHeapCommitted, Threads,
        };
        let all = [
            (NonHeapCommitted, 100.0),
            (Threads, 40.0),
            (DirectBuffers, 7.0),
            (LiveData, 300.0),
            (HeapUsed, 900.0),
            (CollectionShare, 0.02),
        ];
        let memory = figures(&all).memory().expect("all are known");
        assert_eq!((memory.non_heap, memory.threads), (Bytes(100), 40));
        assert_eq!((memory.direct_buffers, memory.live_data), (Some(Bytes(7)), Some(Bytes(300))));
        assert_eq!(memory.collection_share, Some(0.02));
        let without = |left_out: &[JvmFigure]| {
            let rest: Vec<_> =
                all.iter().filter(|(figure, _)| !left_out.contains(figure)).copied().collect();
            figures(&rest).memory()
        };
        assert_eq!(without(&[NonHeapCommitted]), None);
        assert_eq!(without(&[Threads]), None);
        assert_eq!(without(&[DirectBuffers]).and_then(|memory| memory.direct_buffers), None);
        assert_eq!(without(&[LiveData]).and_then(|memory| memory.live_data), Some(Bytes(900)));
        let neither = without(&[LiveData, HeapUsed]).expect("the rest is known");
        assert_eq!(neither.live_data, None);
    }

    #[test]
    fn the_largest_value_counts_and_no_live_data_is_unknown() {
        let known = figures(&[
            (JvmFigure::Threads, 3.0),
            (JvmFigure::Threads, 9.0),
            (JvmFigure::Threads, 5.0),
            (JvmFigure::NonHeapCommitted, 1.0),
            (JvmFigure::LiveData, 0.0),
        ]);
        let memory = known.memory().expect("enough is known");
        assert_eq!((memory.threads, memory.live_data), (9, None));
    }

    #[test]
    fn series_without_a_container_are_those_of_the_only_java_container() {
        let key = ObjectKey::new("shop", "Deployment/web");
        let known = figures(&[(JvmFigure::Threads, 3.0), (JvmFigure::NonHeapCommitted, 1.0)]);
        let mut signals = MemorySignals::default();
        signals.jvm.insert((key.clone(), "".into()), known);
        assert!(signals.jvm(&key, "main", true).is_some());
        assert!(signals.jvm(&key, "main", false).is_none());
        assert!(signals.jvm(&ObjectKey::new("shop", "Deployment/api"), "main", true).is_none());
    }
}
