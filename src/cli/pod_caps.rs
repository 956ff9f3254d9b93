//! The flags that cap the recommendation for all containers of a pod together. The recommender and `explain vpa` share them.

use clap::Args;

use super::go_values;
use plimsoll_core::{recommender::ResourceAmounts, types::quantity::Quantity};

/// The largest node, and explicit limits.
#[derive(Clone, Debug, Args)]
pub struct PodCapArgs {
    /// Caps recommendations to the largest node
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_CAP_TO_LARGEST_NODE", hide_short_help = true, hide_env = true)]
    cap_to_largest_node: bool,
    /// Maximum CPU of all containers of a pod together
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_POD_RECOMMENDATION_MAX_ALLOWED_CPU")]
    pod_recommendation_max_allowed_cpu: Option<Quantity>,
    /// Maximum memory of all containers of a pod together
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_POD_RECOMMENDATION_MAX_ALLOWED_MEMORY")]
    pod_recommendation_max_allowed_memory: Option<Quantity>,
}

impl PodCapArgs {
    /// Whether recommendations are capped to the largest node.
    pub fn to_largest_node(&self) -> bool {
        self.cap_to_largest_node
    }

    /// The explicit limits; zero means no limit, as for a container.
    pub fn pod(&self) -> ResourceAmounts {
        let limit = |max: Option<Quantity>| max.filter(|quantity| !quantity.is_zero());
        ResourceAmounts {
            cpu: limit(self.pod_recommendation_max_allowed_cpu),
            memory: limit(self.pod_recommendation_max_allowed_memory),
        }
    }
}
