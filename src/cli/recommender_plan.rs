//! The flags of planned requests: the profile, and what can be changed of it.

use clap::Args;
use plimsoll_core::recommender::plan::{
    CpuPlanSettings, PeakWindowSettings, PlanSettings, RequestProfile,
};
use plimsoll_core::types::quantity::Quantity;

use super::go_values;

/// The flags of planned requests. Only `--help` shows them, not `-h`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Profile")]
pub struct PlanArgs {
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
    pub fn settings(&self) -> PlanSettings {
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
