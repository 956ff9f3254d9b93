//! The number of pods that the averages in a status are of. The controller that wrote it divided by the replicas at the time
//! of its pass, and the status does not contain them: multiplied by the replicas of a later time, the values would be wrong.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerStatus, MetricStatus};

use super::observed::ScaleValues;
use crate::types::{Quantity, Time};

/// The averages of a status, and the number of pods that they are of.
#[derive(Clone, Debug)]
struct Reported {
    averages: Vec<Option<Quantity>>,
    replicas: i32,
    /// Until when averages that do not change are of as many pods as before. After that the other controller has had a
    /// pass with the current replicas, in which they were the same.
    until: Time,
}

/// What is known of the number of pods that the averages in the statuses of an object are of.
#[derive(Clone, Debug, Default)]
pub struct ReportedReplicas(Option<Reported>);

impl ReportedReplicas {
    /// The number of pods that the averages of this status are of. `period` is the time between two passes of the controller
    /// that wrote it.
    pub fn observe(
        &mut self,
        scale: &ScaleValues,
        status: &HorizontalPodAutoscalerStatus,
        period: Duration,
        now: Time,
    ) -> i32 {
        let entries = status.current_metrics.iter().flatten();
        let averages: Vec<_> = entries.map(average).collect();
        let until = now.later(2 * period);
        if let Some(known) = &mut self.0
            && known.averages == averages
            && now < known.until
        {
            if known.replicas == scale.status_replicas {
                known.until = until;
            }
            return known.replicas;
        }
        // `currentReplicas` are those of the spec. If they have changed since, so have the pods.
        let of_pass = status.current_replicas.filter(|replicas| *replicas != scale.replicas);
        let replicas = of_pass.unwrap_or(scale.status_replicas);
        self.0 = Some(Reported { averages, replicas, until });
        replicas
    }
}

/// The average per pod of a metric that is not usage.
fn average(entry: &MetricStatus) -> Option<Quantity> {
    let pods = entry.pods.as_ref().map(|entry| &entry.current);
    let object = || entry.object.as_ref().map(|entry| &entry.current);
    let external = || entry.external.as_ref().map(|entry| &entry.current);
    let current = pods.or_else(object).or_else(external)?;
    current.average_value.as_ref()?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    #[test]
    fn averages_are_of_the_replicas_of_the_pass_that_reported_them() {
        let mut reported = ReportedReplicas::default();
        // Seconds, average, replicas of the pass, replicas of spec and status, expected.
        for (second, average, of_pass, replicas, status_replicas, expected) in [
            (0, 45, 2, 2, 2, 2),
            // The load doubles, the other controller scales, and the pods are created.
            (15, 90, 2, 4, 4, 2),
            // It has read the scale before they were created.
            (30, 90, 4, 4, 4, 2),
            (40, 45, 4, 4, 4, 4),
            (55, 45, 4, 4, 4, 4),
            (70, 45, 4, 4, 4, 4),
            // A pod more, and the same average after three passes: the load has grown.
            (85, 45, 4, 4, 5, 4),
            (99, 45, 4, 4, 5, 4),
            (100, 45, 4, 4, 5, 5),
            // Another client changes the replicas.
            (115, 45, 4, 8, 8, 5),
            (130, 28, 8, 8, 8, 8),
        ] {
            let status = json!({"desiredReplicas": 4, "currentReplicas": of_pass,
                "currentMetrics": [{"type": "External", "external": {"metric": {"name": "jobs"},
                    "current": {"averageValue": average.to_string()}}}]});
            let status = serde_json::from_value(status).expect("a status");
            let scale = ScaleValues { replicas, status_replicas, selector: String::new() };
            let now = NOW.later(Duration::from_secs(second));
            let replicas = reported.observe(&scale, &status, Duration::from_secs(15), now);
            assert_eq!(replicas, expected, "after {second} s");
        }
    }
}
