//! The report on workloads, with the recommendations of their VPAs.

use std::collections::BTreeMap;

use plimsoll_core::{
    recommender::{ContainerRecommendation, ResourceAmounts},
    rightsizing::{
        assembly,
        report::Report,
        survey::{Amounts, Container, Workload},
    },
    types::{ObjectKey, Time, quantity::Quantity},
};

use crate::{
    report::recommend::{
        evidence::WorkloadEvidence,
        run::{Collected, RecommendConfig},
    },
    ui::facts::VpaFacts,
};

/// The report, in which a container has the target of its VPA if there is one: that is what pods get.
pub(super) fn report_with_targets(
    config: &RecommendConfig,
    collected: &Collected,
    vpas: &BTreeMap<ObjectKey, VpaFacts>,
    now: Time,
) -> Report {
    let mut recommended: BTreeMap<ObjectKey, WorkloadEvidence> = BTreeMap::new();
    for workload in &collected.survey.workloads {
        let Some(key) = vpa_key(workload) else { continue };
        let Some(vpa) = vpas.get(&key) else { continue };
        let known = collected.evidence_of(workload);
        let of_vpa = recommended.entry(key).or_default();
        for container in &vpa.containers {
            let evidence = known.and_then(|known| known.get(&container.name));
            let mut evidence = evidence.cloned().unwrap_or_default();
            let explanation = evidence.recommendation.take().map(|one| one.explanation);
            evidence.recommendation = Some(ContainerRecommendation {
                container: container.name.as_str().into(),
                target: amounts(container.target),
                lower: amounts(container.lower),
                upper: amounts(container.upper),
                uncapped: amounts(container.target),
                explanation: explanation.unwrap_or_default(),
            });
            evidence.gap = None;
            of_vpa.insert(&container.name, evidence);
        }
    }
    let mut options = config.report.clone();
    options.window = collected.runs_window;
    options.head.sources.clone_from(&collected.sources);
    options.head.remarks.extend(collected.remarks.iter().cloned());
    let evidence_of = |workload: &Workload, container: &Container| {
        let of_vpa = vpa_key(workload).and_then(|key| recommended.get(&key));
        let of_vpa = of_vpa.and_then(|evidence| evidence.get(&container.name));
        let read = collected.evidence_of(workload);
        of_vpa.or(read.and_then(|evidence| evidence.get(&container.name)))
    };
    assembly::report(&collected.survey, &evidence_of, &options, now)
}

fn vpa_key(workload: &Workload) -> Option<ObjectKey> {
    Some(ObjectKey::new(&*workload.namespace, workload.vpa.as_deref()?))
}

fn amounts(amounts: Amounts) -> ResourceAmounts {
    ResourceAmounts {
        cpu: amounts.cpu.map(Quantity::cpu),
        memory: amounts.memory.map(Quantity::memory),
    }
}
