//! The flags of the recommender's model, of planned requests, and of caps for all containers of a pod together, with upstream's
//! names where they exist. The recommender and `explain vpa` share them.

use std::time::Duration;

use clap::{Args, builder::BoolishValueParser};
use plimsoll_core::{
    history::BucketScheme,
    recommender::{
        HistoryWeighting, Percentiles, ResourceAmounts, Settings,
        plan::{CpuPlanSettings, PeakWindowSettings, PlanSettings, RequestProfile},
    },
    types::{
        compat::{Compat, Fix, Fixes},
        quantity::Quantity,
    },
};

use super::go_values;

/// The flags of the model. Only `--help` shows them, not `-h`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag of its own")]
pub struct ModelArgs {
    /// Compatibility mode: `plimsoll`, or `upstream` including its bugs
    #[arg(long, value_name = "MODE", default_value = "plimsoll")]
    pub compat: Compat,
    /// Disables a fix of an upstream bug (repeatable; the names are in docs/compatibility.md)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    disable_fix: Vec<Fix>,
    /// Share added to every percentile
    #[arg(long, value_name = "SHARE", default_value = "0.15", value_parser = margin)]
    recommendation_margin_fraction: f64,
    /// Minimum CPU of a pod in millicores, split among its containers
    #[arg(long, value_name = "MILLICORES", default_value = "25", value_parser = from_zero)]
    pod_recommendation_min_cpu_millicores: f64,
    /// Minimum memory of a pod in MiB, split among its containers
    #[arg(long, value_name = "MIB", default_value = "250", value_parser = from_zero)]
    pod_recommendation_min_memory_mb: f64,
    /// Share of the CPU samples that the target covers
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = go_values::fraction)]
    target_cpu_percentile: f64,
    /// Share of the CPU samples that the lower bound covers
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = go_values::fraction)]
    recommendation_lower_bound_cpu_percentile: f64,
    /// Share of the CPU samples that the upper bound covers
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = go_values::fraction)]
    recommendation_upper_bound_cpu_percentile: f64,
    /// Share of the memory peaks that the target covers
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = go_values::fraction)]
    target_memory_percentile: f64,
    /// Share of the memory peaks that the lower bound covers
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = go_values::fraction)]
    recommendation_lower_bound_memory_percentile: f64,
    /// Share of the memory peaks that the upper bound covers
    #[arg(long, value_name = "SHARE", default_value = "0.95", value_parser = go_values::fraction)]
    recommendation_upper_bound_memory_percentile: f64,
    /// Time that counts as one unit of confidence in CPU numbers
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = span)]
    confidence_interval_cpu: Duration,
    /// Time that counts as one unit of confidence in memory numbers
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = span)]
    confidence_interval_memory: Duration,
    /// Time after which a CPU sample counts half
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = span)]
    cpu_histogram_decay_half_life: Duration,
    /// Time after which a memory peak counts half
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = span)]
    memory_histogram_decay_half_life: Duration,
    /// Length of a memory window; the peak of each window is one sample
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = span)]
    memory_aggregation_interval: Duration,
    /// Number of memory windows in the history
    #[arg(long, value_name = "COUNT", default_value = "8")]
    #[arg(value_parser = go_values::integer_between(1_u32, u32::MAX))]
    memory_aggregation_interval_count: u32,
    /// Factor by which memory is increased after an OOM kill
    #[arg(long, value_name = "FACTOR", default_value = "1.2", value_parser = from_one)]
    oom_bump_up_ratio: f64,
    /// Minimum increase of memory in bytes after an OOM kill
    #[arg(long, value_name = "BYTES", default_value = "1.048576e+08", value_parser = from_zero)]
    oom_min_bump_up_bytes: f64,
    /// Rounds CPU up to a multiple of this number of millicores
    #[arg(long, value_name = "MILLICORES", default_value = "1")]
    #[arg(value_parser = go_values::integer_between(1_i64, 1_000_000))]
    round_cpu_millicores: i64,
    /// Rounds memory up to a multiple of this number of bytes
    #[arg(long, value_name = "BYTES", default_value = "1")]
    #[arg(value_parser = go_values::integer_between(1_i64, 1_000_000_000_000))]
    round_memory_bytes: i64,
    /// Prints memory with two decimals and a binary suffix
    #[arg(long, value_parser = BoolishValueParser::new())]
    humanize_memory: bool,
    /// Lets VPAs request whole cores by annotation
    #[arg(long, value_parser = BoolishValueParser::new())]
    cpu_integer_post_processor_enabled: bool,
    /// Maximum CPU of a container whose policy sets none
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum, allow_hyphen_values = true)]
    container_recommendation_max_allowed_cpu: Option<Quantity>,
    /// Maximum memory of a container whose policy sets none
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum, allow_hyphen_values = true)]
    container_recommendation_max_allowed_memory: Option<Quantity>,
    /// How long a container may be missing from live pods before its recommendation is removed
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = span)]
    stale_container_grace: Duration,
    /// First buckets of 1 m and 1 MiB instead of 10 m and 10 MB
    #[arg(long, value_parser = BoolishValueParser::new())]
    fine_buckets: bool,
    /// Recommends memory for the largest replica instead of the aggregate of all replicas
    #[arg(long, value_parser = BoolishValueParser::new())]
    per_replica_peaks: bool,
    /// Limits the upper bound to this multiple of the target
    #[arg(long, value_name = "FACTOR", value_parser = from_one)]
    upper_bound_factor: Option<f64>,
    /// Lets VPAs set percentile, margin, half-life and floor by annotation
    #[arg(long, value_parser = BoolishValueParser::new())]
    per_vpa_tuning: bool,
    /// Raises CPU for containers that are throttled in more than this share of their periods (such as 0.1)
    #[arg(long, value_name = "SHARE", value_parser = go_values::fraction)]
    cpu_throttling_target: Option<f64>,
    /// Weight of samples of a stored history: the time they cover (`duration`), or 1 each (`upstream`)
    #[arg(long, value_name = "RULE")]
    history_weighting: Option<HistoryWeighting>,
    #[command(flatten)]
    plan: PlanArgs,
}

impl ModelArgs {
    pub fn settings(&self) -> Settings {
        let fixes =
            self.disable_fix.iter().copied().fold(Fixes::for_compat(self.compat), Fixes::without);
        Settings {
            fixes,
            cpu: Percentiles {
                lower: self.recommendation_lower_bound_cpu_percentile,
                target: self.target_cpu_percentile,
                upper: self.recommendation_upper_bound_cpu_percentile,
                confidence_interval: self.confidence_interval_cpu,
                half_life: self.cpu_histogram_decay_half_life,
            },
            memory: Percentiles {
                lower: self.recommendation_lower_bound_memory_percentile,
                target: self.target_memory_percentile,
                upper: self.recommendation_upper_bound_memory_percentile,
                confidence_interval: self.confidence_interval_memory,
                half_life: self.memory_histogram_decay_half_life,
            },
            margin: self.recommendation_margin_fraction,
            pod_floor_millicores: self.pod_recommendation_min_cpu_millicores,
            pod_floor_mebibytes: self.pod_recommendation_min_memory_mb,
            interval: self.memory_aggregation_interval,
            interval_count: self.memory_aggregation_interval_count,
            oom_ratio: self.oom_bump_up_ratio,
            oom_min_bump: self.oom_min_bump_up_bytes,
            per_vpa_config: false,
            round_millicores: self.round_cpu_millicores,
            round_bytes: self.round_memory_bytes,
            humanize_memory: self.humanize_memory,
            integer_cpu: self.cpu_integer_post_processor_enabled,
            max_cpu: self.container_recommendation_max_allowed_cpu.filter(is_some_amount),
            max_memory: self.container_recommendation_max_allowed_memory.filter(is_some_amount),
            stale_after: self.stale_container_grace,
            scheme: if self.fine_buckets { BucketScheme::Fine } else { BucketScheme::Standard },
            per_replica_peaks: self.per_replica_peaks,
            upper_bound_factor: self.upper_bound_factor,
            per_vpa_tuning: self.per_vpa_tuning,
            cpu_throttling_target: self.cpu_throttling_target,
            history_weighting: self
                .history_weighting
                .unwrap_or(HistoryWeighting::for_compat(self.compat)),
            plan: self.plan.settings(),
            ..Settings::for_compat(self.compat)
        }
    }
}

/// As in upstream, a maximum of zero means no maximum.
fn is_some_amount(max: &Quantity) -> bool {
    *max > Quantity::default()
}

/// Parses the margin, with the same range as the annotation.
fn margin(text: &str) -> Result<f64, String> {
    go_values::number_between(text, 0.0, 10.0, "from 0 to 10")
}

fn from_zero(text: &str) -> Result<f64, String> {
    go_values::number_between(text, 0.0, 1e14, "of at least 0")
}

fn from_one(text: &str) -> Result<f64, String> {
    go_values::number_between(text, 1.0, 1e6, "of at least 1")
}

fn span(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_hours(24 * 366 * 10);
    let span = go_values::duration(text)?;
    if (Duration::from_secs(1)..=longest).contains(&span) {
        return Ok(span);
    }
    Err("give a duration of at least 1s, such as 90s, 24h or 1h30m".to_owned())
}

/// The flags of planned requests. Only `--help` shows them, not `-h`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Profile")]
struct PlanArgs {
    /// How requests are determined: `vpa` (percentiles), or planned: `steady`, `balanced` or `tide`
    #[arg(long, value_name = "NAME", default_value = "vpa")]
    profile: RequestProfile,
    /// What a change of CPU must save, as a share of a day's usage [profile: 0.05, 0.03, 0.005]
    #[arg(long, value_name = "SHARE", value_parser = price)]
    price_change: Option<f64>,
    /// Cost of a missing core, relative to an idle one
    #[arg(long, value_name = "FACTOR", default_value = "4", value_parser = price)]
    price_short: f64,
    /// Cost of an hour with usage above the request, relative to an hour's usage
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = price)]
    price_above: f64,
    /// Days after which a planned CPU sample counts half
    #[arg(long, value_name = "DAYS", default_value = "3", value_parser = days)]
    cpu_memory_days: f64,
    /// Days, today included, whose highest CPU usage limits planned requests
    #[arg(long, value_name = "DAYS", default_value = "3")]
    #[arg(value_parser = go_values::integer_between(1_u32, CpuPlanSettings::MAX_FORGET_DAYS))]
    cpu_forget_days: u32,
    /// Minimum of planned CPU requests
    #[arg(long, value_name = "QUANTITY", default_value = "1m", value_parser = go_values::maximum)]
    cpu_floor: Quantity,
    /// Complete days besides today whose highest memory usage counts
    #[arg(long, value_name = "DAYS", default_value = "5")]
    #[arg(value_parser = go_values::integer_between(1_u32, PeakWindowSettings::MAX_DAYS))]
    memory_days: u32,
    /// Share added to the highest memory usage
    #[arg(long, value_name = "SHARE", default_value = "0.2", value_parser = price)]
    memory_margin: f64,
}

impl PlanArgs {
    fn settings(&self) -> PlanSettings {
        PlanSettings {
            profile: self.profile,
            price_change: self.price_change,
            price_short: self.price_short,
            price_above: self.price_above,
            cpu_memory_days: self.cpu_memory_days,
            cpu_forget_days: self.cpu_forget_days,
            cpu_floor_cores: self.cpu_floor.as_f64(),
            memory: PeakWindowSettings {
                days: self.memory_days,
                margin: self.memory_margin,
                ..PeakWindowSettings::default()
            },
        }
    }
}

fn price(text: &str) -> Result<f64, String> {
    go_values::number_between(text, 0.0, 1000.0, "from 0 to 1000")
}

fn days(text: &str) -> Result<f64, String> {
    go_values::number_between(text, 0.1, 366.0, "of days from 0.1 to 366")
}

/// The largest node, and explicit limits.
#[derive(Clone, Debug, Args)]
pub struct PodCapArgs {
    /// Caps recommendations to the largest node
    #[arg(long, hide_short_help = true)]
    pub cap_to_largest_node: bool,
    /// Maximum CPU of all containers of a pod together
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum, hide_short_help = true)]
    pod_recommendation_max_allowed_cpu: Option<Quantity>,
    /// Maximum memory of all containers of a pod together
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum, hide_short_help = true)]
    pod_recommendation_max_allowed_memory: Option<Quantity>,
}

impl PodCapArgs {
    /// The explicit limits; zero means no limit, as for a container.
    pub fn pod(&self) -> ResourceAmounts {
        let limit = |max: Option<Quantity>| max.filter(|quantity| !quantity.is_zero());
        ResourceAmounts {
            cpu: limit(self.pod_recommendation_max_allowed_cpu),
            memory: limit(self.pod_recommendation_max_allowed_memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use strum::VariantArray as _;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        model: ModelArgs,
    }

    fn settings(flags: &[&str]) -> Result<Settings, String> {
        let flags = std::iter::once("test").chain(flags.iter().copied());
        Cli::try_parse_from(flags)
            .map(|cli| cli.model.settings())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn without_flags_the_settings_are_the_defaults() {
        let (typed, default) = (settings(&[]).expect("is fine"), Settings::default());
        assert_eq!(format!("{typed:?}"), format!("{default:?}"));
        let upstream = settings(&["--compat=upstream"]).expect("is fine");
        assert_eq!(
            format!("{upstream:?}"),
            format!("{:?}", Settings::for_compat(Compat::Upstream))
        );
    }

    #[test]
    fn each_mode_has_its_default_history_weighting() {
        use HistoryWeighting::{Duration, Upstream};
        for (flags, expected) in [
            (&[][..], Duration),
            (&["--compat=upstream"], Upstream),
            (&["--compat=upstream", "--history-weighting=duration"], Duration),
            (&["--history-weighting=upstream"], Upstream),
        ] {
            let weighting = settings(flags).expect("is fine").history_weighting;
            assert_eq!(weighting, expected, "{flags:?}");
        }
        assert!(settings(&["--history-weighting=fair"]).is_err());
    }

    #[test]
    fn fixes_can_be_disabled_one_by_one() {
        let flags =
            ["--disable-fix", "stale-containers-leave", "--disable-fix=oom-keeps-sample-order"];
        let fixes = settings(&flags).expect("is fine").fixes;
        let all = Fix::VARIANTS.iter().copied();
        let off: Vec<Fix> = all.filter(|fix| !fixes.has(*fix)).collect();
        assert_eq!(off, [Fix::StaleContainersLeave, Fix::OomKeepsSampleOrder]);
    }

    #[test]
    fn a_maximum_of_zero_is_no_maximum() {
        let settings =
            settings(&["--container-recommendation-max-allowed-cpu=0"]).expect("is fine");
        assert_eq!(settings.max_cpu, None);
    }

    #[test]
    fn invalid_values_are_rejected_with_a_remedy() {
        for (flag, remedy) in [
            ("--compat=vpa", "`upstream` or `plimsoll`"),
            ("--profile=fast", "`steady`, `balanced` or `tide`"),
            ("--price-change=-1", "from 0 to 1000"),
            ("--cpu-forget-days=0", "1"),
            ("--memory-days=100", "60"),
            ("--disable-fix=none", "stale-containers-leave"),
            ("--target-cpu-percentile=90", "from 0 to 1"),
            ("--target-cpu-percentile=NaN", "from 0 to 1"),
            ("--recommendation-margin-fraction=-1", "from 0 to 10"),
            ("--recommendation-margin-fraction=1e14", "from 0 to 10"),
            ("--oom-bump-up-ratio=0.9", "of at least 1"),
            ("--memory-aggregation-interval=0s", "24h"),
            ("--memory-aggregation-interval=8d", "24h"),
            ("--round-cpu-millicores=0", "1"),
            ("--container-recommendation-max-allowed-cpu=many", "many"),
            ("--container-recommendation-max-allowed-cpu=-1", "must not be negative"),
            ("--container-recommendation-max-allowed-memory=-5Mi", "must not be negative"),
        ] {
            let error = settings(&[flag]).expect_err(flag);
            assert!(error.contains(remedy), "{flag}: {error}");
        }
    }
}
