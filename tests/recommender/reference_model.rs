//! Owns the recommender's numbers worked out a second time, from upstream's published formulas and from nothing of the
//! program but two to a power, whose last bit differs between languages: histograms that decay, windows of memory peaks,
//! out-of-memory kills, percentile, margin, confidence, floor, limits, and the weights of a checkpoint. Plain numbers,
//! whole seconds.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::recommender::go_math::exp2;
use serde_json::{Map, Value, json};

const BUCKETS: usize = 176;
/// A bucket that weighs less is empty.
const LEAST: f64 = 0.001 * 0.1;
const GROWTH: f64 = 1.0 + 0.05;
const DAY: i64 = 86_400;
/// The largest amount there is, in millicores and in bytes.
const MOST: f64 = 1e14;

/// Weights by bucket, as they count at the reference.
#[derive(Clone, Debug)]
pub struct ReferenceHistogram {
    /// Width of the first bucket.
    first: f64,
    weights: Vec<f64>,
    total: f64,
    reference: Option<i64>,
}

/// What is known of one container over all pods.
#[derive(Clone, Debug)]
pub struct ReferenceContainer {
    cpu: ReferenceHistogram,
    memory: ReferenceHistogram,
    first: Option<i64>,
    last: Option<i64>,
    count: u64,
    pods: BTreeMap<String, Pod>,
    /// Length of a window of memory peaks.
    pub window: i64,
    /// By what a kill multiplies, and what it adds at least.
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

/// What a policy says of a container; limits in millicores and bytes.
#[derive(Clone, Debug)]
pub struct ReferencePolicy {
    /// The container, or `*`.
    pub container: &'static str,
    /// Mode `Off`.
    pub off: bool,
    /// What is controlled: CPU, memory.
    pub controlled: (bool, bool),
    /// The least of both.
    pub min: (Option<i64>, Option<i64>),
    /// The most of both.
    pub max: (Option<i64>, Option<i64>),
    /// Seconds of a window of memory peaks.
    pub window: Option<i64>,
    /// By what a kill multiplies, in tenths.
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

    /// What a sample of that time counts for. The reference is the midnight nearest to the first one.
    fn factor(&mut self, at: i64) -> f64 {
        let nearest = (at + DAY / 2).div_euclid(DAY) * DAY;
        let reference = *self.reference.get_or_insert(nearest);
        assert!(at <= reference + 100 * DAY, "these lives are short");
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

    /// The buckets from the first that is not empty to the last.
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
    /// Nothing is known yet.
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

    /// A sample of both.
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

    /// A kill for lack of memory.
    pub fn kill(&mut self, pod: &str, at: i64, request: i64) {
        let known = self.pods.entry(pod.to_owned()).or_default();
        let used = request.max(known.used.unwrap_or(0));
        let (ratio, least) = self.bump;
        let needed = (used + least as i64).max((used as f64 * ratio) as i64);
        self.peak(pod, at, needed, true);
    }

    fn peak(&mut self, pod: &str, at: i64, bytes: i64, is_bump: bool) {
        let known = self.pods.get_mut(pod).expect("it was entered");
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

    /// The pod is gone; what it used stays.
    pub fn forget(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    /// Time covered against a day, and number against one a minute.
    fn confidence(&self) -> f64 {
        let lifespan = self.first.zip(self.last).map_or(0, |(first, last)| last - first);
        (lifespan as f64 / DAY as f64).min(self.count as f64 / 1440.0)
    }

    /// The numbers of CPU in millicores, one of `containers` that are recommended for.
    pub fn cpu(&self, containers: usize, policy: Option<&ReferencePolicy>) -> Numbers {
        let floor = scale(25, 1.0 / containers as f64);
        let limits = (policy.and_then(|it| it.min.0), policy.and_then(|it| it.max.0));
        self.chain(|share| clamp(self.cpu.percentile(share) * 1000.0), floor, limits)
    }

    /// The numbers of memory in bytes.
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

    /// The status of its checkpoint: peaks of windows that are open are left out.
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
    /// One that says nothing.
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

    /// The one for a container: its own goes before `*`.
    pub fn find<'a>(policies: &'a [Self], container: &str) -> Option<&'a Self> {
        let named = |name: &str| policies.iter().find(|policy| policy.container == name);
        named(container).or_else(|| named("*"))
    }

    /// As a VPA says it.
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

/// As Kubernetes prints an amount of CPU.
pub fn cpu_text(millicores: i64) -> String {
    decimal(millicores, &["m", "", "k", "M", "G", "T"])
}

/// As Kubernetes prints an amount of memory.
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

/// As objects tell a time.
pub fn time_text(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds).expect("a time");
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
