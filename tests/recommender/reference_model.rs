//! A second implementation of the recommender's model, from upstream's published formulas. Of the product's code it
//! uses only the power of two, whose last bit differs between languages. Covers decaying histograms, memory windows,
//! OOM kills, percentile, margin, confidence, minimum, limits, and the weights of a checkpoint. Plain numbers, whole
//! seconds.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::recommender::go_math::exp2;
use serde_json::{Map, Value, json};

const BUCKETS: usize = 176;
/// A bucket with less weight counts as empty.
const LEAST: f64 = 0.001 * 0.1;
const GROWTH: f64 = 1.0 + 0.05;
const DAY: i64 = 86_400;
/// The largest possible amount, in millicores and in bytes.
const MOST: f64 = 1e14;

/// Weights by bucket, relative to the reference time.
#[derive(Clone, Debug)]
pub struct ReferenceHistogram {
    /// Width of the first bucket.
    first: f64,
    weights: Vec<f64>,
    total: f64,
    reference: Option<i64>,
}

/// The history of one container, aggregated over all pods.
#[derive(Clone, Debug)]
pub struct ReferenceContainer {
    cpu: ReferenceHistogram,
    memory: ReferenceHistogram,
    first: Option<i64>,
    last: Option<i64>,
    count: u64,
    pods: BTreeMap<String, Pod>,
    /// Length of a memory window in seconds.
    pub window: i64,
    /// The factor by which an OOM kill increases memory, and the minimum increase.
    pub bump: (f64, f64),
}

#[derive(Clone, Debug, Default)]
struct Pod {
    cpu: Option<i64>,
    memory: Option<i64>,
    end: Option<i64>,
    used: Option<i64>,
    bumped: Option<i64>,
}

/// The policy of a container, in millicores and bytes.
#[derive(Clone, Debug)]
pub struct ReferencePolicy {
    /// The container, or `*`.
    pub container: &'static str,
    /// Mode `Off`.
    pub off: bool,
    /// Whether CPU and memory are controlled.
    pub controlled: (bool, bool),
    /// `minAllowed` of CPU and memory.
    pub min: (Option<i64>, Option<i64>),
    /// `maxAllowed` of CPU and memory.
    pub max: (Option<i64>, Option<i64>),
    /// Length of a memory window in seconds.
    pub window: Option<i64>,
    /// The factor of an OOM kill, in tenths.
    pub bump_tenths: Option<i64>,
}

/// Lower bound, target, upper bound, uncapped target.
pub type Numbers = [i64; 4];

// === impl Histogram ===

impl ReferenceHistogram {
    fn new(first: f64) -> Self {
        Self { first, weights: vec![0.0; BUCKETS], total: 0.0, reference: None }
    }

    fn start(&self, bucket: usize) -> f64 {
        if bucket == 0 { 0.0 } else { self.first * (power(GROWTH, bucket) - 1.0) / (GROWTH - 1.0) }
    }

    fn find(&self, value: f64) -> usize {
        if value < self.first {
            return 0;
        }
        let bucket = (value * (GROWTH - 1.0) / self.first + 1.0).ln() / GROWTH.ln();
        (bucket.trunc() as usize).min(BUCKETS - 1)
    }

    /// The decay factor of a sample at `at`. The reference time is the midnight nearest to the first sample.
    fn factor(&mut self, at: i64) -> f64 {
        let nearest = (at + DAY / 2).div_euclid(DAY) * DAY;
        let reference = *self.reference.get_or_insert(nearest);
        assert!(at <= reference + 100 * DAY, "histories are short");
        exp2((at - reference) as f64 / DAY as f64)
    }

    fn add(&mut self, value: f64, weight: f64, at: i64) {
        let (weight, bucket) = (weight * self.factor(at), self.find(value));
        self.weights[bucket] += weight;
        self.total += weight;
    }

    fn subtract(&mut self, value: f64, weight: f64, at: i64) {
        let (weight, bucket) = (weight * self.factor(at), self.find(value));
        let left = |from: f64| if from - weight < LEAST { 0.0 } else { from - weight };
        self.total = left(self.total);
        self.weights[bucket] = left(self.weights[bucket]);
    }

    /// The first and the last bucket that are not empty.
    fn span(&self) -> Option<(usize, usize)> {
        let filled = |weight: &f64| *weight >= LEAST;
        Some((self.weights.iter().position(filled)?, self.weights.iter().rposition(filled)?))
    }

    fn percentile(&self, share: f64) -> f64 {
        let Some((first, last)) = self.span() else { return 0.0 };
        let (threshold, mut sum) = (share * self.total, 0.0);
        let mut bucket = first;
        while bucket < last {
            sum += self.weights[bucket];
            if sum >= threshold {
                break;
            }
            bucket += 1;
        }
        self.start((bucket + 1).min(BUCKETS - 1))
    }

    fn encoded(&self) -> Value {
        let mut buckets = Map::new();
        if let Some((first, last)) = self.span() {
            let heaviest = self.weights[first..=last].iter().copied().fold(0.0, f64::max);
            let ratio = 10_000.0 / heaviest;
            for bucket in first..=last {
                let parts = (self.weights[bucket] * ratio + 0.5).floor() as u64;
                if parts > 0 {
                    buckets.insert(bucket.to_string(), parts.into());
                }
            }
        }
        json!({
            "bucketWeights": buckets, "totalWeight": self.total,
            "referenceTimestamp": self.reference.map(time_text),
        })
    }
}

// === impl Container ===

impl ReferenceContainer {
    /// An empty history.
    pub fn new(policy: Option<&ReferencePolicy>) -> Self {
        Self {
            cpu: ReferenceHistogram::new(0.01),
            memory: ReferenceHistogram::new(1e7),
            first: None,
            last: None,
            count: 0,
            pods: BTreeMap::new(),
            window: policy.and_then(|policy| policy.window).unwrap_or(DAY),
            bump: (
                policy.and_then(|it| it.bump_tenths).map_or(1.2, |tenths| tenths as f64 / 10.0),
                104_857_600.0,
            ),
        }
    }

    /// Adds a sample of CPU and memory.
    pub fn take(&mut self, pod: &str, at: i64, millicores: i64, bytes: i64) {
        let known = self.pods.entry(pod.to_owned()).or_default();
        if known.cpu.is_none_or(|last| at > last) {
            known.cpu = Some(at);
            self.cpu.add(millicores as f64 / 1000.0, 0.1, at);
            self.first = Some(self.first.map_or(at, |first| first.min(at)));
            self.last = self.last.max(Some(at));
            self.count += 1;
        }
        if known.memory.is_none_or(|last| at >= last) {
            self.peak(pod, at, bytes, false);
        }
    }

    /// Adds an OOM kill.
    pub fn kill(&mut self, pod: &str, at: i64, request: i64) {
        let known = self.pods.entry(pod.to_owned()).or_default();
        let used = request.max(known.used.unwrap_or(0));
        let (ratio, least) = self.bump;
        let needed = (used + least as i64).max((used as f64 * ratio) as i64);
        self.peak(pod, at, needed, true);
    }

    fn peak(&mut self, pod: &str, at: i64, bytes: i64, is_bump: bool) {
        let known = self.pods.get_mut(pod).expect("is present");
        known.memory = known.memory.max(Some(at));
        let end = known.end.unwrap_or(at);
        if at < end {
            let peak = known.used.max(known.bumped).expect("a window has a peak");
            if bytes <= peak {
                return;
            }
            self.memory.subtract(peak as f64, 1.0, end);
        } else {
            known.end = Some(end + (at - end) / self.window * self.window + self.window);
            (known.used, known.bumped) = (None, None);
        }
        self.memory.add(bytes as f64, 1.0, known.end.expect("set"));
        *(if is_bump { &mut known.bumped } else { &mut known.used }) = Some(bytes);
    }

    /// Removes a pod; its usage stays.
    pub fn forget(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    /// The smaller of the days covered and the samples divided by the minutes of a day.
    fn confidence(&self) -> f64 {
        let lifespan = self.first.zip(self.last).map_or(0, |(first, last)| last - first);
        (lifespan as f64 / DAY as f64).min(self.count as f64 / 1440.0)
    }

    /// CPU in millicores, for one of `containers` containers with a recommendation.
    pub fn cpu(&self, containers: usize, policy: Option<&ReferencePolicy>) -> Numbers {
        let floor = scale(25, 1.0 / containers as f64);
        let limits = (policy.and_then(|it| it.min.0), policy.and_then(|it| it.max.0));
        self.chain(|share| clamp(self.cpu.percentile(share) * 1000.0), floor, limits)
    }

    /// Memory in bytes.
    pub fn memory(&self, containers: usize, policy: Option<&ReferencePolicy>) -> Numbers {
        let floor = scale(250 * 1024 * 1024, 1.0 / containers as f64);
        let limits = (policy.and_then(|it| it.min.1), policy.and_then(|it| it.max.1));
        self.chain(|share| clamp(self.memory.percentile(share)), floor, limits)
    }

    fn chain(
        &self,
        read: impl Fn(f64) -> i64,
        floor: i64,
        (min, max): (Option<i64>, Option<i64>),
    ) -> Numbers {
        let confidence = self.confidence();
        let with_margin = |share| {
            let read = read(share);
            read + scale(read, 0.15)
        };
        let narrow = 1.0 + 0.001 / confidence;
        let lower = scale(with_margin(0.5), 1.0 / (narrow * narrow)).max(floor);
        let target = with_margin(0.9).max(floor);
        let upper = scale(with_margin(0.95), 1.0 + 1.0 / confidence).max(floor);
        let capped = |value: i64| {
            let value = value.max(min.unwrap_or(value));
            value.min(max.unwrap_or(value))
        };
        [capped(lower), capped(target), capped(upper), target]
    }

    /// The status of the container's checkpoint, without the peaks of open windows.
    pub fn checkpoint(&self, now: i64) -> Value {
        let mut memory = self.memory.clone();
        for pod in self.pods.values() {
            if let (Some(end), Some(peak)) = (pod.end, pod.used.max(pod.bumped))
                && now < end
            {
                memory.subtract(peak as f64, 1.0, end);
            }
        }
        json!({
            "lastUpdateTime": time_text(now), "version": "v3",
            "cpuHistogram": self.cpu.encoded(), "memoryHistogram": memory.encoded(),
            "firstSampleStart": self.first.map(time_text), "lastSampleStart": self.last.map(time_text),
            "totalSamplesCount": self.count,
        })
    }
}

// === impl Policy ===

impl ReferencePolicy {
    /// An empty policy.
    pub const fn of(container: &'static str) -> Self {
        Self {
            container,
            off: false,
            controlled: (true, true),
            min: (None, None),
            max: (None, None),
            window: None,
            bump_tenths: None,
        }
    }

    /// The policy of a container: its own takes precedence over `*`.
    pub fn find<'a>(policies: &'a [Self], container: &str) -> Option<&'a Self> {
        let named = |name: &str| policies.iter().find(|policy| policy.container == name);
        named(container).or_else(|| named("*"))
    }

    /// The policy as JSON of a VPA.
    pub fn json(&self) -> Value {
        let list = |(cpu, memory): (Option<i64>, Option<i64>)| {
            let mut list = Map::new();
            list.extend(cpu.map(|it| ("cpu".to_owned(), cpu_text(it).into())));
            list.extend(memory.map(|it| ("memory".to_owned(), memory_text(it).into())));
            Value::from(list)
        };
        let controlled = [("cpu", self.controlled.0), ("memory", self.controlled.1)];
        let controlled: BTreeSet<&str> =
            controlled.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
        let mut policy = json!({
            "containerName": self.container, "mode": if self.off { "Off" } else { "Auto" },
            "minAllowed": list(self.min), "maxAllowed": list(self.max), "controlledResources": controlled,
        });
        if let Some(window) = self.window {
            policy["memoryAggregationIntervalSeconds"] = window.into();
        }
        if let Some(tenths) = self.bump_tenths {
            policy["oomBumpUpRatio"] = format!("{}.{}", tenths / 10, tenths % 10).into();
        }
        policy
    }
}

fn power(base: f64, exponent: usize) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            result *= square;
        }
        left /= 2;
        if left > 0 {
            square *= square;
        }
    }
    result
}

fn clamp(value: f64) -> i64 {
    value.clamp(0.0, MOST).trunc() as i64
}

fn scale(value: i64, factor: f64) -> i64 {
    clamp(value as f64 * factor)
}

/// CPU in the format of Kubernetes.
pub fn cpu_text(millicores: i64) -> String {
    decimal(millicores, &["m", "", "k", "M", "G", "T"])
}

/// Memory in the format of Kubernetes.
pub fn memory_text(bytes: i64) -> String {
    if bytes < 1024 {
        return decimal(bytes, &["", "k"]);
    }
    let (mut bytes, mut suffixes) = (bytes, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter());
    while bytes % 1024 == 0 {
        (bytes, _) = (bytes / 1024, suffixes.next());
    }
    format!("{bytes}{}", suffixes.next().unwrap_or_default())
}

fn decimal(amount: i64, suffixes: &[&str]) -> String {
    let (mut amount, mut step) = (amount, 0);
    while amount != 0 && amount % 1000 == 0 && step + 1 < suffixes.len() {
        (amount, step) = (amount / 1000, step + 1);
    }
    if amount == 0 { "0".to_owned() } else { format!("{amount}{}", suffixes[step]) }
}

/// A time in the format of Kubernetes.
pub fn time_text(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).expect("valid timestamp");
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
