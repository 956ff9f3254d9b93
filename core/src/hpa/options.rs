//! Options from the annotations of an object, beyond its spec.

use std::{collections::BTreeMap, time::Duration};

use super::{
    config::{Config, Tolerance},
    fixes::{Fix, Fixes},
    pause::Pause,
    schedule::Schedule,
    spec::{Metric, MetricId, Source, Target},
    tolerance_option::ToleranceOption,
};
use crate::{
    api::{
        annotations::{AnnotationKey, InvalidAnnotation, MAX_VALUE_BYTES},
        hpa_annotations::{
            CPU_INITIALIZATION, EXTRA_QUERY, EXTRA_TARGET, FALLBACK, INITIAL_READINESS,
            MISSING_PODS, PARTIAL_METRICS, PAUSED, PODS, SCALE_TO_ZERO, SCHEDULE, SYNC_PERIOD,
            TOLERANCE, UTILIZATION_OF,
        },
    },
    scaling::Fallback,
    types::Quantity,
};

/// The most metrics that an object may have besides those of its spec. Each is a query in every period.
pub const MAX_EXTRA_METRICS: usize = 16;

const MIN_PERIOD: Duration = Duration::from_secs(5);
const MAX_DURATION: Duration = Duration::from_hours(1);
/// The largest share of pods whose samples may be missing.
const MAX_MISSING_PERCENT: u8 = 50;

/// The options of an object. The defaults change nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HpaOptions {
    /// The time between two passes, in place of that of the flag.
    pub sync_period: Option<Duration>,
    /// In place of [`Config::cpu_initialization_period`].
    pub cpu_initialization: Option<Duration>,
    /// In place of [`Config::initial_readiness_delay`].
    pub initial_readiness: Option<Duration>,
    /// In place of the tolerances of flag and spec.
    pub tolerance: ToleranceOption,
    /// Which pods count, in place of [`Fix::OnlyOwnPodsCount`].
    pub pods: Option<CountedPods>,
    /// What utilization is relative to; `None` if the object does not say.
    pub utilization_of: Option<UtilizationOf>,
    /// Bounds at recurring times.
    pub schedule: Schedule,
    /// The pause of scaling.
    pub pause: Option<Pause>,
    /// Percentage of pods up to which those without a sample count like the average.
    pub missing_pods_percent: u8,
    /// Replicas are not added while some metrics are not available.
    pub partial_metrics_hold: bool,
    /// The fallback while metrics are not available.
    pub fallback: Option<Fallback>,
    /// The target may be scaled to zero, below the minimum.
    pub scale_to_zero: bool,
    /// Metrics besides those of the spec.
    pub metrics: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedPods {
    /// Those that the target owns.
    Own,
    /// All that its selector matches.
    Selected,
}

/// What utilization is relative to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UtilizationOf {
    /// The requests of the pods.
    #[default]
    Request,
    /// The limits of the pods.
    Limit,
    /// The requests in the pod template.
    Template,
}

impl UtilizationOf {
    /// Reads the annotation of an object; `None` if it does not say.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, InvalidAnnotation> {
        UTILIZATION_OF.read(annotations, |text| match text {
            "request" => Some(Self::Request),
            "limit" => Some(Self::Limit),
            "template" => Some(Self::Template),
            _ => None,
        })
    }
}

/// Options that change nothing.
pub static NO_OPTIONS: HpaOptions = HpaOptions {
    sync_period: None,
    cpu_initialization: None,
    initial_readiness: None,
    tolerance: ToleranceOption { up: None, down: None },
    pods: None,
    utilization_of: None,
    schedule: Schedule::NONE,
    pause: None,
    missing_pods_percent: 0,
    partial_metrics_hold: false,
    fallback: None,
    scale_to_zero: false,
    metrics: Vec::new(),
};

impl HpaOptions {
    /// Ignores the permission to scale to zero unless a metric is queried, because the values in the status end at zero
    /// replicas. Returns whether it was ignored.
    pub fn require_query_for_zero(&mut self) -> bool {
        let is_ignored = self.scale_to_zero && self.metrics.is_empty();
        self.scale_to_zero &= !is_ignored;
        is_ignored
    }

    /// Reads the annotations of an object, and returns the invalid ones, which are ignored. `period` is that of the flag.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
        period: Duration,
    ) -> (Self, Vec<InvalidAnnotation>) {
        let mut reader = Reader { annotations, invalid: Vec::new() };
        let sync_period =
            reader.read(&SYNC_PERIOD, |text| parse_duration(text).filter(|at| *at >= MIN_PERIOD));
        let period = sync_period.unwrap_or(period);
        let options = Self {
            sync_period,
            cpu_initialization: reader.read(&CPU_INITIALIZATION, parse_duration),
            initial_readiness: reader.read(&INITIAL_READINESS, parse_duration),
            tolerance: reader.read(&TOLERANCE, |text| text.parse().ok()).unwrap_or_default(),
            pods: reader
                .choose(&PODS, [("own", CountedPods::Own), ("selected", CountedPods::Selected)]),
            utilization_of: reader.accept(UtilizationOf::read(annotations)),
            schedule: reader.read(&SCHEDULE, |text| text.parse().ok()).unwrap_or_default(),
            pause: reader.read(&PAUSED, |text| text.parse().ok()),
            missing_pods_percent: reader.read(&MISSING_PODS, parse_percent).unwrap_or_default(),
            partial_metrics_hold: reader.is_set(&PARTIAL_METRICS, ["upscale", "hold"]),
            fallback: reader.read(&FALLBACK, |text| Fallback::parse(text, period)),
            scale_to_zero: reader.is_set(&SCALE_TO_ZERO, ["false", "true"]),
            metrics: reader.read_metrics(),
        };
        (options, reader.invalid)
    }

    /// The flags for this object.
    pub fn config(&self, flags: &Config) -> Config {
        Config {
            cpu_initialization_period: self
                .cpu_initialization
                .unwrap_or(flags.cpu_initialization_period),
            initial_readiness_delay: self
                .initial_readiness
                .unwrap_or(flags.initial_readiness_delay),
            ..*flags
        }
    }

    /// The fixes for this object.
    pub fn fixes(&self, fixes: Fixes) -> Fixes {
        match self.pods {
            None => fixes,
            Some(CountedPods::Own) => fixes.with(Fix::OnlyOwnPodsCount),
            Some(CountedPods::Selected) => fixes.without(Fix::OnlyOwnPodsCount),
        }
    }

    /// The tolerance for this object, given that of flag and spec.
    pub fn tolerance(&self, without: Tolerance, replicas: i32) -> Tolerance {
        self.tolerance.apply(without, replicas)
    }
}

/// Reads annotations, and collects the invalid ones.
struct Reader<'a> {
    annotations: &'a BTreeMap<String, String>,
    invalid: Vec<InvalidAnnotation>,
}

impl Reader<'_> {
    fn read<T>(&mut self, key: &AnnotationKey, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let read = key.read(self.annotations, parse);
        self.accept(read)
    }

    fn accept<T>(&mut self, read: Result<Option<T>, InvalidAnnotation>) -> Option<T> {
        read.unwrap_or_else(|invalid| {
            self.invalid.push(invalid);
            None
        })
    }

    fn choose<T: Copy, const N: usize>(
        &mut self,
        key: &AnnotationKey,
        values: [(&str, T); N],
    ) -> Option<T> {
        self.read(key, |text| {
            values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
        })
    }

    /// Whether an annotation has the second of two values. The first is the default.
    fn is_set(&mut self, key: &AnnotationKey, [unset, set]: [&str; 2]) -> bool {
        self.choose(key, [(unset, false), (set, true)]).unwrap_or(false)
    }

    /// The metrics that have both a query and a target.
    fn read_metrics(&mut self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for (key, query) in self.annotations {
            let Some(name) = EXTRA_QUERY.metric_of(key) else { continue };
            let target = self.annotations.get(&EXTRA_TARGET.key_of(name));
            let length = query.trim().len();
            let is_query = !name.is_empty() && (1..=MAX_VALUE_BYTES).contains(&length);
            let fits = metrics.len() < MAX_EXTRA_METRICS;
            if target.is_none() || !is_query || !fits {
                self.reject(&EXTRA_QUERY, key, query);
                continue;
            }
            let Some(parsed) = target.and_then(|target| parse_target(target.trim())) else {
                let text = target.map(String::as_str).unwrap_or_default();
                self.reject(&EXTRA_TARGET, &EXTRA_TARGET.key_of(name), text);
                continue;
            };
            metrics.push(Metric {
                type_name: "Prometheus".to_owned(),
                source: Source::Prometheus {
                    metric: MetricId { name: name.to_owned(), selector: None },
                    query: query.trim().to_owned(),
                    target: parsed,
                },
            });
        }
        for (key, target) in self.annotations {
            let name = EXTRA_TARGET.metric_of(key);
            if name.is_some_and(|name| !self.annotations.contains_key(&EXTRA_QUERY.key_of(name))) {
                self.reject(&EXTRA_TARGET, key, target);
            }
        }
        metrics
    }

    /// Reports an annotation whose key ends in the name of a metric.
    fn reject(&mut self, annotation: &AnnotationKey, key: &str, value: &str) {
        self.invalid.push(annotation.invalid(&format!("{key}: {value}")));
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let duration: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(duration).ok().filter(|duration| *duration <= MAX_DURATION)
}

fn parse_percent(text: &str) -> Option<u8> {
    let digits = text.strip_suffix('%')?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|percent| is_plain && *percent <= MAX_MISSING_PERCENT)
}

fn parse_target(text: &str) -> Option<Target> {
    let whole = text.strip_prefix("value:");
    let quantity: Quantity = whole.unwrap_or(text).trim().parse().ok()?;
    let milli = Some(quantity.milli_value()).filter(|milli| *milli > 0)?;
    let target = |type_name: &str| Target { type_name: type_name.to_owned(), ..Target::default() };
    Some(match whole {
        Some(_) => Target { value: Some(milli), ..target("Value") },
        None => Target { average_value: Some(milli), ..target("AverageValue") },
    })
}

#[cfg(test)]
mod tests;
