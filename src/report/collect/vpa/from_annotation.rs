//! Uses the explanation that the recommender stored on the VPA when its history is not readable.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::{
    api::{ResourceList, VerticalPodAutoscaler, vpa},
    history::SkippedRecord,
    recommender::{
        ContainerRecommendation, Recommendation, RecommendationReason, ResourceAmounts,
        ResourceExplanation,
        estimate::Resource,
        explanation_annotation::{self, StoredContainer, StoredExplanation},
    },
    types::{ObjectKey, quantity::Quantity},
};

use crate::{
    controllers::recommender::desired_status::DesiredStatus,
    report::explain::vpa::{
        estimate_steps::{EstimateKind, EstimateSteps},
        report::{RecordForm, StoredRecord},
    },
};

/// The explanation in the annotation of a VPA, if it takes precedence over the stored history: because there is none, or it
/// is older, or it belongs to another VPA. An invalid annotation is reported only if there is no usable history.
pub fn find_explanation(
    vpa: &VerticalPodAutoscaler,
    key: &ObjectKey,
    records: &[StoredRecord],
    skipped: &mut Vec<SkippedRecord>,
) -> Option<StoredExplanation> {
    let text = vpa.metadata.annotations.as_ref()?.get(explanation_annotation::ANNOTATION)?;
    let recommendation = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    let mut used = records.iter().filter(|record| record.outcome == "used").peekable();
    match explanation_annotation::read(text, recommendation) {
        Ok(explanation) => {
            let is_older = |record: &StoredRecord| {
                !record.own || record.written.is_some_and(|written| written < explanation.at)
            };
            used.all(is_older).then_some(explanation)
        }
        Err(_) if used.peek().is_some() => None,
        Err(why) => {
            let source = format!("{key}, annotation {}", explanation_annotation::ANNOTATION);
            skipped.push(SkippedRecord { record: source, reason: why.to_string() });
            None
        }
    }
}

/// Records that represent the explanation in the history of a report.
pub fn placeholder_records(explanation: &StoredExplanation) -> Vec<StoredRecord> {
    let record = |container: &StoredContainer| StoredRecord {
        container: Arc::clone(&container.name),
        form: RecordForm::Explanation,
        own: true,
        written: Some(explanation.at),
        created: None,
        last_alive: None,
        outcome: "used".to_owned(),
    };
    explanation.containers.iter().map(record).collect()
}

/// Recomputes the recommendation from the explanation and the recommendations in the status. The conditions are taken from
/// the status.
pub fn desired_status(
    vpa: &VerticalPodAutoscaler,
    explanation: &StoredExplanation,
    written: &BTreeMap<&str, &vpa::ContainerRecommendation>,
) -> DesiredStatus {
    let container = |stored: &StoredContainer| {
        let written = written.get(&*stored.name).copied();
        let cpu = stored.explanation.cpu.as_ref();
        let cpu = cpu.map(|why| numbers(Resource::Cpu, why, written, ResourceList::cpu));
        let memory = stored.explanation.memory.as_ref();
        let memory =
            memory.map(|why| numbers(Resource::Memory, why, written, ResourceList::memory));
        let pick = |number: fn(&[Option<Quantity>; 4]) -> Option<Quantity>| ResourceAmounts {
            cpu: cpu.as_ref().and_then(number),
            memory: memory.as_ref().and_then(number),
        };
        ContainerRecommendation {
            container: Arc::clone(&stored.name),
            target: pick(|numbers| numbers[0]),
            lower: pick(|numbers| numbers[1]),
            upper: pick(|numbers| numbers[2]),
            uncapped: pick(|numbers| numbers[3]),
            explanation: stored.explanation.clone(),
        }
    };
    DesiredStatus {
        recommendation: Recommendation {
            containers: explanation.containers.iter().map(container).collect(),
            stale: Vec::new(),
        },
        conditions: vpa.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default(),
        pod_limits: explanation.pod_limits,
    }
}

/// Target, bounds and uncapped target. If they were scaled down together with those of other containers, the explanation of
/// one container is not enough to compute them, so they are taken from the status.
fn numbers(
    resource: Resource,
    why: &ResourceExplanation,
    written: Option<&vpa::ContainerRecommendation>,
    pick: fn(&ResourceList) -> Option<Quantity>,
) -> [Option<Quantity>; 4] {
    let scaled = [&why.lower, &why.target, &why.upper].iter().any(|step| {
        matches!(step.decided_by, RecommendationReason::NodeCap | RecommendationReason::PodCap)
    });
    if scaled {
        let of = |list: fn(&vpa::ContainerRecommendation) -> &ResourceList| {
            written.and_then(|status| pick(list(status)))
        };
        return [
            of(|status| &status.target),
            of(|status| &status.lower_bound),
            of(|status| &status.upper_bound),
            of(|status| &status.uncapped_target),
        ];
    }
    let steps = |which| EstimateSteps::compute(resource, why, which);
    let target = steps(EstimateKind::Target);
    [
        target.capped,
        steps(EstimateKind::Lower).capped,
        steps(EstimateKind::Upper).capped,
        target.rounded,
    ]
    .map(Some)
}
