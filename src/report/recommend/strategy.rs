//! Rules of other tools, computed from the same samples: for comparison with the model, and marked so in every output.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use plimsoll_core::{
    history::{Resource, SampleBatch},
    recommender::{ContainerRecommendation, Explanation, ResourceAmounts},
    types::units::{Bytes, MilliCpu, round_up_to_multiple},
};

use super::history::ContainerUsage;

const MEBIBYTE: i64 = 1 << 20;
/// The share that krr adds to the largest memory.
const KRR_MEMORY_BUFFER: f64 = 0.15;
const KRR_MIN_CPU: i64 = 10;
const KRR_MIN_MEMORY: i64 = 100 * MEBIBYTE;
const MAX_MIN_CPU: i64 = 10;
const MAX_MIN_MEMORY: i64 = 20 * MEBIBYTE;

/// The rule by which numbers are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Strategy {
    /// The model of the recommender.
    #[default]
    Plimsoll,
    /// `simple` of krr: CPU is the largest 95th percentile of the pods, memory the maximum and 15 %.
    KrrSimple,
    /// `simple_limit` of krr: CPU is the 66th percentile of the samples of all pods, and the upper bound the 96th.
    KrrSimpleLimit,
    /// The maximum divided by this share.
    Max(f64),
}

impl Strategy {
    /// Whether the numbers are not those of the recommender.
    pub fn is_foreign(self) -> bool {
        self != Self::Plimsoll
    }

    /// Whether the rule also says what limits should be: none for CPU, and the request for memory.
    pub fn has_limits(self) -> bool {
        matches!(self, Self::KrrSimple | Self::KrrSimpleLimit)
    }

    /// An empty distribution, if the rule needs one.
    pub fn distribution(self) -> Option<UsageDistribution> {
        self.is_foreign().then(UsageDistribution::default)
    }

    /// Replaces the numbers of a recommendation by those of the rule. They have no explanation and no bounds.
    pub fn apply(
        self,
        recommendation: ContainerRecommendation,
        usage: &ContainerUsage,
    ) -> ContainerRecommendation {
        let (cpu, upper_cpu, memory) = match self {
            Self::Plimsoll => return recommendation,
            Self::KrrSimple => {
                let cpu = usage.distribution().and_then(|known| known.largest_percentile(0.95));
                let cpu = cpu.map(krr_cpu);
                (cpu, cpu, krr_memory(usage))
            }
            Self::KrrSimpleLimit => {
                let pooled = |share| usage.distribution()?.pooled_percentile(share).map(krr_cpu);
                (pooled(0.66), pooled(0.96), krr_memory(usage))
            }
            Self::Max(share) => {
                let cpu = usage.distribution().and_then(UsageDistribution::max_cpu);
                let cpu = cpu.map(|cores| MilliCpu(up_cpu(cores / share).0.max(MAX_MIN_CPU)));
                let memory = usage.memory_peak.map(|peak| {
                    Bytes(((peak.bytes.as_f64() / share).ceil() as i64).max(MAX_MIN_MEMORY))
                });
                (cpu, cpu, memory)
            }
        };
        let amounts = |cpu: Option<MilliCpu>| ResourceAmounts {
            cpu: cpu.map(Into::into),
            memory: memory.map(Into::into),
        };
        let target = amounts(cpu);
        ContainerRecommendation {
            target,
            lower: target,
            upper: amounts(upper_cpu),
            uncapped: target,
            explanation: Explanation::default(),
            ..recommendation
        }
    }
}

fn up_cpu(cores: f64) -> MilliCpu {
    // 0.95 cores are 950 millicores, and not 950.0000000000001.
    MilliCpu((cores * 1000.0 - 1e-6).ceil() as i64)
}

fn krr_cpu(cores: f64) -> MilliCpu {
    MilliCpu(up_cpu(cores).0.max(KRR_MIN_CPU))
}

fn krr_memory(usage: &ContainerUsage) -> Option<Bytes> {
    let peak = usage.memory_peak?.bytes.as_f64() * (1.0 + KRR_MEMORY_BUFFER);
    let whole = round_up_to_multiple(peak.ceil() as i64, MEBIBYTE).unwrap_or(i64::MAX);
    Some(Bytes(whole.max(KRR_MIN_MEMORY)))
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plimsoll => f.write_str("plimsoll"),
            Self::KrrSimple => f.write_str("krr-simple"),
            Self::KrrSimpleLimit => f.write_str("krr-simple-limit"),
            Self::Max(share) => write!(f, "max:{share}"),
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || {
            "use plimsoll, krr-simple, krr-simple-limit or max:SHARE with a share above 0 and up to 1, such as max:0.65"
                .to_owned()
        };
        match text {
            "plimsoll" => Ok(Self::Plimsoll),
            "krr-simple" => Ok(Self::KrrSimple),
            "krr-simple-limit" => Ok(Self::KrrSimpleLimit),
            _ => {
                let share = text.strip_prefix("max:").and_then(|share| share.parse::<f64>().ok());
                let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
                share.map(Self::Max).ok_or_else(wanted)
            }
        }
    }
}

/// CPU samples of the pods of a container, in buckets that are a four-thousandth wide. So a percentile differs from the
/// exact one by less than 0.03 %, in little memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsageDistribution {
    pods: Vec<(Arc<str>, Buckets)>,
    max_cpu: Option<f64>,
}

/// Samples by bucket.
type Buckets = BTreeMap<u32, Bucket>;

/// The samples of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bucket {
    count: u32,
    sum: f64,
}

impl Bucket {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    fn mean(self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// The bits of a float that are not part of its bucket.
const DROPPED_BITS: u32 = 11;

impl UsageDistribution {
    pub fn add(&mut self, batch: SampleBatch<'_>) {
        if batch.gauge != Resource::Cpu {
            return;
        }
        let known = self.pods.iter().position(|(pod, _)| pod == batch.replica);
        let index = known.unwrap_or_else(|| {
            self.pods.push((Arc::clone(batch.replica), Buckets::new()));
            self.pods.len() - 1
        });
        for &(_, cores) in batch.points {
            let sample = Bucket { count: 1, sum: cores };
            self.pods[index].1.entry(bucket(cores)).or_default().add(sample);
            self.max_cpu = Some(self.max_cpu.map_or(cores, |known| known.max(cores)));
        }
    }

    /// The largest CPU sample, in cores.
    pub fn max_cpu(&self) -> Option<f64> {
        self.max_cpu
    }

    /// The largest percentile of the pods.
    pub fn largest_percentile(&self, share: f64) -> Option<f64> {
        self.pods.iter().filter_map(|(_, counts)| percentile(counts, share)).reduce(f64::max)
    }

    /// The percentile of the samples of all pods.
    pub fn pooled_percentile(&self, share: f64) -> Option<f64> {
        let mut pooled = Buckets::new();
        for (index, bucket) in self.pods.iter().flat_map(|(_, buckets)| buckets) {
            pooled.entry(*index).or_default().add(*bucket);
        }
        percentile(&pooled, share)
    }
}

fn bucket(cores: f64) -> u32 {
    (cores.max(0.0) as f32).to_bits() >> DROPPED_BITS
}

/// The percentile between the two nearest samples, as Prometheus computes it.
fn percentile(buckets: &Buckets, share: f64) -> Option<f64> {
    let total: u64 = buckets.values().map(|bucket| u64::from(bucket.count)).sum();
    let rank = share * total.checked_sub(1)? as f64;
    let at = |rank: u64| {
        let mut before = 0;
        let found = buckets.values().find(|bucket| {
            before += u64::from(bucket.count);
            rank < before
        });
        found.map(|bucket| bucket.mean())
    };
    let (low, high) = (at(rank.floor() as u64)?, at(rank.ceil() as u64)?);
    Some(low + (high - low) * (rank - rank.floor()))
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{rightsizing::evidence::MemoryPeak, types::Time};

    use super::*;

    fn usage(pods: &[&[f64]], strategy: Strategy) -> ContainerUsage {
        let mut usage = ContainerUsage::new(None, strategy.distribution());
        for (index, cores) in pods.iter().enumerate() {
            let replica: Arc<str> = format!("web-{index}").into();
            let points: Vec<_> = cores
                .iter()
                .enumerate()
                .map(|(minute, cores)| (Time::from_secs(60 * minute as i64), *cores))
                .collect();
            let gauge = Resource::Cpu;
            usage.add_batch(SampleBatch {
                replica: &replica,
                gauge,
                covers: None,
                points: &points,
            });
        }
        let bytes = Bytes(200 * MEBIBYTE + 1);
        usage.memory_peak = Some(MemoryPeak { bytes, at: Time::EPOCH });
        usage
    }

    fn target(strategy: Strategy, pods: &[&[f64]]) -> (i64, i64) {
        let model = ContainerRecommendation {
            container: "main".into(),
            target: ResourceAmounts::default(),
            lower: ResourceAmounts::default(),
            upper: ResourceAmounts::default(),
            uncapped: ResourceAmounts::default(),
            explanation: Explanation::default(),
        };
        let target = strategy.apply(model, &usage(pods, strategy)).target;
        let amounts = target.cpu.zip(target.memory).expect("amounts");
        (amounts.0.milli_value(), amounts.1.value())
    }

    #[test]
    fn each_strategy_has_its_percentile_buffer_and_minimum() {
        let rising: Vec<f64> = (0..=100).map(|percent| f64::from(percent) * 0.01).collect();
        let low = [0.001; 3];
        let pods: [&[f64]; 2] = [&rising, &low];
        let (mebibytes, peak) = (MEBIBYTE, 200 * MEBIBYTE + 1);
        let krr_memory = 231 * mebibytes;
        assert_eq!(target(Strategy::KrrSimple, &pods), (950, krr_memory));
        assert_eq!(target(Strategy::KrrSimple, &[&low]).0, KRR_MIN_CPU);
        // 104 samples: the rank is 67.98, and the first three are low.
        assert_eq!(target(Strategy::KrrSimpleLimit, &pods), (650, krr_memory));
        let memory = (peak as f64 / 0.5).ceil() as i64;
        assert_eq!(target(Strategy::Max(0.5), &pods), (2000, memory));
    }

    #[test]
    fn percentiles_of_buckets_are_close_to_exact_ones() {
        for seed in 1..50_u64 {
            let values: Vec<f64> = (0..=seed * 7)
                .map(|index| ((index * 2_654_435_761 + seed) % 9973) as f64 / 2500.0)
                .collect();
            let mut buckets = Buckets::new();
            for value in &values {
                let sample = Bucket { count: 1, sum: *value };
                buckets.entry(bucket(*value)).or_default().add(sample);
            }
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            for share in [0.0, 0.5, 0.66, 0.95, 1.0] {
                let rank = share * (sorted.len() - 1) as f64;
                let (low, high) = (sorted[rank as usize], sorted[rank.ceil() as usize]);
                let exact = low + (high - low) * rank.fract();
                let found = percentile(&buckets, share).expect("samples");
                assert!((found - exact).abs() <= 3e-4 * exact + 1e-9, "{found} {exact}");
            }
        }
        assert_eq!(percentile(&Buckets::new(), 0.5), None);
    }

    #[test]
    fn strategies_are_parsed_and_printed() {
        for text in ["plimsoll", "krr-simple", "krr-simple-limit", "max:0.65"] {
            assert_eq!(text.parse::<Strategy>().expect(text).to_string(), text);
        }
        for text in ["krr", "max", "max:", "max:0", "max:1.1", "max:NaN", "max:-1"] {
            assert!(text.parse::<Strategy>().is_err(), "{text}");
        }
    }
}
