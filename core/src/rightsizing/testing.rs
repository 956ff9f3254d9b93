//! Inputs of tests: evidence, containers, workloads.

use super::{
    evidence::ContainerEvidence,
    survey::{Amounts, Container, Workload},
};
use crate::{
    recommender::{
        ContainerRecommendation, Explanation, RecommendationReason, ResourceAmounts,
        ResourceExplanation,
        explanation::{EstimateStep, Evidence, Floor, Resource, Rounding},
        policy::Cap,
    },
    types::{
        Quantity, Time,
        units::{Bytes, MilliCpu},
    },
};

/// Seconds of an hour.
pub const HOUR: i64 = 3600;

/// Bytes of a mebibyte.
pub const MI: i64 = 1 << 20;

pub fn explained(first: Time, last: Time, samples: u64) -> ResourceExplanation {
    let step = EstimateStep {
        percentile: 0.9,
        read: 1.0,
        largest_replica: None,
        stretch: None,
        decided_by: RecommendationReason::Usage,
    };
    ResourceExplanation {
        evidence: Evidence {
            of: Resource::Cpu,
            samples,
            first: Some(first),
            last: Some(last),
            interval: 86_400.0,
            confidence: 8.0,
        },
        margin: 0.15,
        floor: Floor { amount: 0, split_among: None },
        rounding: Rounding { multiple: 1, humanized: false, whole_cores: false },
        cap: Cap::default(),
        upper_bound_factor: None,
        throttled: None,
        bump: None,
        plan: None,
        lower: step,
        target: step,
        upper: step,
    }
}

/// A history of eight days with these lower bounds, targets and upper bounds, in millicores and bytes.
pub fn evidence(cpu: [i64; 3], memory: [i64; 3]) -> ContainerEvidence {
    let amounts = |index: usize| ResourceAmounts {
        cpu: Some(Quantity::cpu(MilliCpu(cpu[index]))),
        memory: Some(Quantity::memory(Bytes(memory[index]))),
    };
    let explanation = explained(Time::EPOCH, Time::from_secs(8 * 24 * HOUR), 11_520);
    let recommendation = ContainerRecommendation {
        container: "main".into(),
        target: amounts(1),
        lower: amounts(0),
        upper: amounts(2),
        uncapped: amounts(1),
        explanation: Explanation { cpu: Some(explanation.clone()), memory: Some(explanation) },
    };
    ContainerEvidence {
        recommendation: Some(Box::new(recommendation)),
        ..ContainerEvidence::default()
    }
}

/// CPU in millicores and memory in bytes.
pub fn amounts(cpu: Option<i64>, memory: Option<i64>) -> Amounts {
    Amounts { cpu: cpu.map(MilliCpu), memory: memory.map(Bytes) }
}

/// A container named `main` with these requests and limits.
pub fn container(requests: Amounts, limits: Amounts) -> Container {
    Container { name: "main".into(), requests, limits, ..Container::default() }
}

/// A Deployment in the namespace `shop`.
pub fn deployment(name: &str, replicas: u32, containers: Vec<Container>) -> Workload {
    Workload {
        namespace: "shop".into(),
        api_version: Some("apps/v1".into()),
        kind: "Deployment".into(),
        name: name.into(),
        replicas: Some(replicas),
        containers: containers.into(),
        ..Workload::default()
    }
}
