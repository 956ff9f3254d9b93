//! Scrapes of a simulated workload by metrics-server and Prometheus, and the results of the bootstrap's queries.

use super::simulated_workload::{ContainerRun, SPAN, SimulatedPod, SimulatedWorkload};
use crate::recommender_model::workload_mix::Random;

/// Interval and offset of a scraper.
#[derive(Clone, Copy, Debug)]
pub struct ScrapeSchedule {
    pub every: i64,
    pub offset: i64,
    /// One in this many scrapes fails; 0 for none.
    pub fails: i64,
}

/// One scrape of one container.
#[derive(Clone, Copy, Debug)]
pub struct Scrape {
    pub at: i64,
    /// Counter of CPU seconds.
    pub counter: f64,
    /// In bytes.
    pub memory: f64,
}

/// The scrapes of one run, which is a separate series, as with cAdvisor's `id` label.
pub type Series = Vec<Scrape>;

impl ScrapeSchedule {
    /// The scrapes of each run of a pod.
    pub fn scrape(
        &self,
        pod: &SimulatedPod,
        workload: &SimulatedWorkload,
        seed: u64,
    ) -> Vec<Series> {
        let mut noise = Random::new(seed);
        let is_dark =
            |at: i64| workload.unmeasured.iter().any(|(from, to)| (*from..*to).contains(&at));
        let mut scrape_run = |run: &ContainerRun| {
            let mut series = Series::new();
            let first = (run.start - self.offset).div_euclid(self.every) + 1;
            let mut at = first * self.every + self.offset;
            while at <= run.end() {
                let failed = self.fails > 0 && noise.below(self.fails) == 0;
                if let Some((counter, memory)) = run.at(at).filter(|_| !failed && !is_dark(at)) {
                    series.push(Scrape { at, counter, memory });
                }
                at += self.every;
            }
            series
        };
        pod.runs.iter().map(&mut scrape_run).collect()
    }
}

/// What metrics-server returns: usage from its last two scrapes, with the time of the later one. A container that was
/// not scraped for two rounds is dropped.
pub fn usage_at(series: &Series, now: i64, every: i64) -> Option<(i64, f64, f64)> {
    let after = series.partition_point(|scrape| scrape.at <= now);
    let [before, last] = series.get(after.checked_sub(2)?..after)? else { return None };
    if now - last.at >= 2 * every {
        return None;
    }
    let cores = (last.counter - before.counter) / (last.at - before.at) as f64;
    Some((last.at, cores, last.memory))
}

/// How the bootstrap queries CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateFunction {
    /// `irate` over a window.
    Last(i64),
    /// `rate` over a window.
    Mean(i64),
}

/// `max by (namespace, pod, container) (irate(...))` or `rate`, at each step that has a result.
pub fn cpu(runs: &[Series], ask: RateFunction, step: i64) -> Vec<(i64, f64)> {
    let mut answers: Vec<(i64, f64)> = Vec::new();
    for series in runs {
        let (Some(first), Some(last)) = (series.first(), series.last()) else { continue };
        let (RateFunction::Last(window) | RateFunction::Mean(window)) = ask;
        let mut at = first.at / step * step + step;
        while at <= (last.at + window).min(SPAN) {
            if let Some(value) = in_window(series, at, window, ask) {
                match answers.last_mut() {
                    Some((known, most)) if *known == at => *most = most.max(value),
                    _ => answers.push((at, value)),
                }
            }
            at += step;
        }
    }
    answers.sort_by_key(|(at, _)| *at);
    answers.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 = earlier.1.max(later.1);
        }
        same
    });
    answers
}

fn in_window(series: &Series, at: i64, window: i64, ask: RateFunction) -> Option<f64> {
    // Left-open, as from release 3 on.
    let from = series.partition_point(|scrape| scrape.at <= at - window);
    let to = series.partition_point(|scrape| scrape.at <= at);
    let samples = &series[from..to];
    let (first, last) = (samples.first()?, samples.last()?);
    match ask {
        RateFunction::Last(_) => {
            let [.., before, last] = samples else { return None };
            Some((last.counter - before.counter) / (last.at - before.at) as f64)
        }
        RateFunction::Mean(_) => {
            if samples.len() < 2 {
                return None;
            }
            // Prometheus extrapolates samples to the edges of the window.
            let span = (last.at - first.at) as f64;
            let between = span / (samples.len() - 1) as f64;
            let edge =
                |gap: i64| if gap as f64 >= between * 1.1 { between / 2.0 } else { gap as f64 };
            let increase = last.counter - first.counter;
            let mut before = edge(first.at - (at - window));
            if increase > 0.0 && first.counter >= 0.0 {
                before = before.min(span * first.counter / increase);
            }
            let stretched = span + before + edge(at - last.at);
            Some(increase * stretched / span / window as f64)
        }
    }
}

/// `max by (namespace, pod, container) (max_over_time(...))` over each step.
pub fn memory(runs: &[Series], step: i64) -> Vec<(i64, f64)> {
    let mut answers: Vec<(i64, f64)> = Vec::new();
    for scrape in runs.iter().flatten() {
        let at = (scrape.at + step - 1).div_euclid(step) * step;
        match answers.last_mut() {
            Some((known, most)) if *known == at => *most = most.max(scrape.memory),
            _ => answers.push((at, scrape.memory)),
        }
    }
    answers.retain(|(at, _)| *at <= SPAN);
    answers
}
