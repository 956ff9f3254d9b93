//! What the recommender told on the VPA itself, for whoever cannot read its history.

use std::sync::Arc;

use plimsoll_core::{history::SkippedRecord, types::ObjectKey};

use crate::{
    controllers::recommender::state::DesiredStatus,
    report::explain::{
        estimate_steps::{EstimateKind, EstimateSteps},
        report::{RecordForm, StoredRecord},
    },
};
use plimsoll_core::{
    api::{
        ResourceList, VerticalPodAutoscaler,
        vpa::{self, VerticalPodAutoscalerStatus},
    },
    recommender::{
        ContainerRecommendation, Recommendation, RecommendationReason, ResourceAmounts,
        ResourceExplanation,
        estimate::Resource,
        explanation_annotation::{self, StoredContainer, StoredExplanation},
    },
    types::quantity::Quantity,
};

/// What a VPA says about its own numbers, where that goes before what is stored: nothing is, or it was
/// written before, or it is another VPA's. One that does not count is named only where something is missed.
pub fn find_explanation(
    vpa: &VerticalPodAutoscaler,
    key: &ObjectKey,
    records: &[StoredRecord],
    skipped: &mut Vec<SkippedRecord>,
) -> Option<StoredExplanation> {
    let text = vpa.metadata.annotations.as_ref()?.get(explanation_annotation::ANNOTATION)?;
    let said = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    let mut used = records.iter().filter(|record| record.outcome == "used").peekable();
    match explanation_annotation::read(text, said) {
        Ok(told) => {
            let is_older = |record: &StoredRecord| {
                !record.own || record.written.is_some_and(|written| written < told.at)
            };
            used.all(is_older).then_some(told)
        }
        Err(_) if used.peek().is_some() => None,
        Err(why) => {
            let what = format!("{key}, annotation {}", explanation_annotation::ANNOTATION);
            skipped.push(SkippedRecord { record: what, reason: why.to_string() });
            None
        }
    }
}

/// The records that stand for the history in a report.
pub fn placeholder_records(told: &StoredExplanation) -> Vec<StoredRecord> {
    let record = |one: &StoredContainer| StoredRecord {
        container: Arc::clone(&one.name),
        form: RecordForm::Explanation,
        own: true,
        written: Some(told.at),
        created: None,
        last_alive: None,
        outcome: "used".to_owned(),
    };
    told.containers.iter().map(record).collect()
}

/// The numbers once more, from the explanation; and the conditions, as they are written.
pub fn desired_status(vpa: &VerticalPodAutoscaler, told: &StoredExplanation) -> DesiredStatus {
    let status = vpa.status.as_ref();
    let written = |name: &str| {
        let said = status.and_then(|status| status.recommendation.as_ref())?;
        said.container_recommendations.iter().find(|one| one.container_name == name)
    };
    let container = |one: &StoredContainer| {
        let written = written(&one.name);
        let cpu = one.explanation.cpu.as_ref();
        let cpu = cpu.map(|why| numbers(Resource::Cpu, why, written, ResourceList::cpu));
        let memory = one.explanation.memory.as_ref();
        let memory =
            memory.map(|why| numbers(Resource::Memory, why, written, ResourceList::memory));
        let pick = |number: fn(&[Option<Quantity>; 4]) -> Option<Quantity>| ResourceAmounts {
            cpu: cpu.as_ref().and_then(number),
            memory: memory.as_ref().and_then(number),
        };
        ContainerRecommendation {
            container: Arc::clone(&one.name),
            target: pick(|numbers| numbers[0]),
            lower: pick(|numbers| numbers[1]),
            upper: pick(|numbers| numbers[2]),
            uncapped: pick(|numbers| numbers[3]),
            explanation: one.explanation.clone(),
        }
    };
    let conditions = |status: &VerticalPodAutoscalerStatus| status.conditions.clone();
    DesiredStatus {
        recommendation: Recommendation {
            containers: told.containers.iter().map(container).collect(),
            stale: Vec::new(),
        },
        conditions: status.map(conditions).unwrap_or_default(),
        pod_limits: told.pod_limits,
    }
}

/// Target, bounds and uncapped target. Where they were scaled down with those of other containers, the chain
/// of one container does not lead to them, and they are as they are written.
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
            written.and_then(|one| pick(list(one)))
        };
        return [
            of(|one| &one.target),
            of(|one| &one.lower_bound),
            of(|one| &one.upper_bound),
            of(|one| &one.uncapped_target),
        ];
    }
    let walk = |which| EstimateSteps::compute(resource, why, which);
    let target = walk(EstimateKind::Target);
    [
        target.capped,
        walk(EstimateKind::Lower).capped,
        walk(EstimateKind::Upper).capped,
        target.rounded,
    ]
    .map(Some)
}
