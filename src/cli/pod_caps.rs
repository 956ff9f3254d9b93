//! The flags that limit what all containers of a pod may be told to request together: those who recommend and those
//! who explain have the same.

use clap::Args;

use super::go_values;
use plimsoll_core::{recommender::ResourceAmounts, types::quantity::Quantity};

/// The largest node, and limits by hand.
#[derive(Clone, Debug, Args)]
pub struct PodCapArgs {
    /// Keeps recommendations within the largest node
    #[arg(long)]
    #[arg(env = "PLIMSOLL_FLAG_CAP_TO_LARGEST_NODE", hide_short_help = true, hide_env = true)]
    cap_to_largest_node: bool,
    /// Most CPU for all containers of a pod together
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_POD_RECOMMENDATION_MAX_ALLOWED_CPU")]
    pod_recommendation_max_allowed_cpu: Option<Quantity>,
    /// Most memory for all containers of a pod together
    #[arg(long, value_name = "QUANTITY", value_parser = go_values::maximum)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_POD_RECOMMENDATION_MAX_ALLOWED_MEMORY")]
    pod_recommendation_max_allowed_memory: Option<Quantity>,
}

impl PodCapArgs {
    /// Whether the largest node is a limit.
    pub fn to_largest_node(&self) -> bool {
        self.cap_to_largest_node
    }

    /// The limits by hand; zero is none, as it is for a container's.
    pub fn pod(&self) -> ResourceAmounts {
        let limit = |most: Option<Quantity>| most.filter(|most| !most.is_zero());
        ResourceAmounts {
            cpu: limit(self.pod_recommendation_max_allowed_cpu),
            memory: limit(self.pod_recommendation_max_allowed_memory),
        }
    }
}
