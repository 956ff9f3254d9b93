//! The flags of the HPA controller that a decision depends on, with upstream's names.

use std::time::Duration;

use clap::Args;
use plimsoll_core::hpa::Config;

use super::{go_values, parsed_flags::NoEffect};

/// Settings of the HPA controller. They have to be the same as in the cluster.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "HPA controller of the cluster")]
#[expect(clippy::struct_field_names, reason = "they are named as the flags are")]
pub struct HpaControllerArgs {
    /// Ratios of value and target that differ from 1 by at most this change nothing
    #[arg(long, value_name = "FRACTION", default_value = "0.1", value_parser = go_values::number)]
    #[arg(hide_short_help = true)]
    horizontal_pod_autoscaler_tolerance: f64,
    /// How long a past recommendation delays scaling down
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// How long CPU usage of a new pod counts only if it was measured while the pod was ready
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// A pod that became unready within this time after its start counts as never ready
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    horizontal_pod_autoscaler_initial_readiness_delay: Duration,
    /// Accepted, without effect: stabilization windows have replaced it in kube-controller-manager
    #[arg(long, value_name = "DURATION", default_value = "3m", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::duration))]
    horizontal_pod_autoscaler_upscale_delay: NoEffect,
    /// Accepted, without effect: stabilization windows have replaced it in kube-controller-manager
    #[arg(long, value_name = "DURATION", default_value = "5m", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::duration))]
    horizontal_pod_autoscaler_downscale_delay: NoEffect,
    /// Accepted, without effect: the metrics APIs are always used
    #[arg(long, value_name = "BOOL", default_value = "true", hide_short_help = true)]
    #[arg(value_parser = NoEffect::checked(go_values::boolean))]
    horizontal_pod_autoscaler_use_rest_clients: NoEffect,
}

impl HpaControllerArgs {
    pub fn config(&self) -> Config {
        Config {
            tolerance: self.horizontal_pod_autoscaler_tolerance,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            initial_readiness_delay: self.horizontal_pod_autoscaler_initial_readiness_delay,
            ..Config::default()
        }
    }
}
