//! The report on workloads, with the recommendations of their VPAs. It is made one workload at a time: rows and totals are
//! kept of it, and the report of a single workload is made again when its page is requested.

use std::{borrow::Cow, sync::Arc};

use plimsoll_core::{
    recommender::{ContainerRecommendation, ResourceAmounts, explanation::Explanation},
    rightsizing::{
        ReportOptions,
        assembly::{Assembly, each_report},
        evidence::{ContainerEvidence, EvidenceGap},
        report::{Report, WorkloadReport},
        survey::{Amounts, Workload},
    },
    types::{ObjectKey, Time, quantity::Quantity},
};

use crate::{
    report::recommend::{
        history::ReplacedContainers,
        run::{Collected, RecommendConfig},
    },
    ui::{
        facts::{VpaContainer, VpaFacts},
        snapshot::{RowBuilder, Vpas, WorkloadReports, WorkloadRow},
    },
};

/// The report, in which a container has the target of its VPA if there is one: that is what pods get.
#[derive(Debug)]
pub(super) struct MergedReport {
    collected: Arc<Collected>,
    options: ReportOptions,
    now: Time,
    /// The evidence of workloads whose history was not read, which may be all of them.
    unread: ContainerEvidence,
}

impl MergedReport {
    pub fn new(config: &RecommendConfig, collected: Arc<Collected>, now: Time) -> Self {
        Self {
            options: collected.report_options(config),
            collected,
            now,
            unread: unread_evidence(),
        }
    }

    /// The report without its workloads, and a row of each of them.
    pub fn rows(&self, vpas: &Vpas) -> (Report, Vec<WorkloadRow>) {
        let mut rows = RowBuilder::new(vpas, self.now);
        let evidence_of = |workload: &Workload| self.evidence_of(vpas, workload);
        let mut add = |index: usize, report: WorkloadReport| rows.add(index, &report);
        let survey = &*self.collected.survey;
        let report = each_report(survey, &evidence_of, &self.options, self.now, &mut add);
        (report, rows.finish())
    }

    fn evidence_of(
        &self,
        vpas: &Vpas,
        workload: &Workload,
    ) -> Vec<Option<Cow<'_, ContainerEvidence>>> {
        let all = self.collected.evidence_of(workload);
        let vpa = vpa_of(workload, vpas);
        let containers = workload.all_containers().map(|container| {
            let read = match all {
                Some(evidence) => evidence.get(&container.name),
                None => Some(&self.unread),
            };
            let mut of_vpa = vpa.iter().flat_map(|vpa| &vpa.containers);
            match of_vpa.find(|one| *one.name == *container.name) {
                Some(recommended) => Some(Cow::Owned(with_target(read, recommended))),
                None => read.map(Cow::Borrowed),
            }
        });
        containers.collect()
    }
}

impl WorkloadReports for MergedReport {
    fn visit(
        &self,
        vpas: &Vpas,
        indexes: &mut dyn Iterator<Item = usize>,
        visit: &mut dyn FnMut(WorkloadReport),
    ) {
        let survey = &self.collected.survey;
        let assembly = Assembly::new(survey, &self.options, self.now);
        for workload in indexes.filter_map(|index| survey.workloads.get(index)) {
            let evidence = self.evidence_of(vpas, workload);
            let evidence: Vec<_> = evidence.iter().map(Option::as_deref).collect();
            visit(assembly.workload(workload, &evidence).0);
        }
    }

    fn labels(&self, index: usize) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
        let workload = self.collected.survey.workloads.get(index);
        Box::new(workload.into_iter().flat_map(|workload| workload.labels.iter()))
    }
}

fn unread_evidence() -> ContainerEvidence {
    ContainerEvidence { gap: Some(EvidenceGap::Unread), ..ContainerEvidence::default() }
}

fn vpa_of<'a>(workload: &Workload, vpas: &'a Vpas) -> Option<&'a Arc<VpaFacts>> {
    let name = workload.vpa.as_deref()?;
    vpas.get(&ObjectKey::new(&*workload.namespace, name))
}

/// The containers for which a VPA has a recommendation, by the key of their workload. The page shows that recommendation, so
/// the one that is computed from the history is not kept: it takes most of the memory of a history. A container whose VPA is
/// deleted has no recommendation until the history is read again.
pub(super) fn recommended_containers(vpas: &Vpas) -> ReplacedContainers {
    let of_vpa = |vpa: &Arc<VpaFacts>| {
        let name = format!("{}/{}", vpa.target_kind, vpa.target_name);
        let containers = vpa.containers.iter().map(|container| Arc::clone(&container.name));
        (ObjectKey::new(Arc::clone(&vpa.namespace), name), containers.collect())
    };
    vpas.values().map(of_vpa).collect()
}

/// What was read about a container, with the recommendation of its VPA.
fn with_target(read: Option<&ContainerEvidence>, recommended: &VpaContainer) -> ContainerEvidence {
    let mut evidence = read.cloned().unwrap_or_default();
    evidence.recommendation = Some(Box::new(ContainerRecommendation {
        container: Arc::clone(&recommended.name),
        target: amounts(recommended.target),
        lower: amounts(recommended.lower),
        upper: amounts(recommended.upper),
        uncapped: amounts(recommended.target),
        // The explanation of this recommendation is read from the VPA.
        explanation: Explanation::default(),
    }));
    evidence.gap = None;
    evidence
}

fn amounts(amounts: Amounts) -> ResourceAmounts {
    ResourceAmounts {
        cpu: amounts.cpu.map(Quantity::cpu),
        memory: amounts.memory.map(Quantity::memory),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{
        rightsizing::{
            report,
            survey::{Container, Survey},
        },
        types::units::{Bytes, MilliCpu},
    };

    use super::*;
    use crate::report::recommend::{evidence::WorkloadEvidence, history::workload_key};

    const CONTAINERS: [&str; 2] = ["main", "proxy"];

    fn workload(name: &str, vpa: Option<&str>) -> Workload {
        let requests = Amounts { cpu: Some(MilliCpu(500)), memory: Some(Bytes(1 << 30)) };
        let container =
            |name: &str| Container { name: name.into(), requests, ..Container::default() };
        Workload {
            namespace: "shop".into(),
            kind: "Deployment".into(),
            name: name.into(),
            replicas: Some(3),
            vpa: vpa.map(Into::into),
            containers: CONTAINERS.map(container).into(),
            ..Workload::default()
        }
    }

    /// Three workloads, not in the order of the report. One of their containers has evidence, which has no number.
    fn merged() -> MergedReport {
        let workloads =
            [workload("web", None), workload("cart", Some("cart")), workload("ads", None)];
        let workloads = workloads.map(Arc::new).into();
        let evidence = ContainerEvidence { oom_kills: 2, ..ContainerEvidence::default() };
        let of_web: WorkloadEvidence = [(Arc::from("main"), evidence)].into_iter().collect();
        let key = (None, ObjectKey::new("shop", "Deployment/web"));
        let collected = Collected {
            survey: Arc::new(Survey { workloads, ..Survey::default() }),
            evidence: [(key, Arc::new(of_web))].into(),
            ..Collected::default()
        };
        let options = ReportOptions::default();
        let collected = Arc::new(collected);
        MergedReport { collected, options, now: Time::from_secs(7), unread: unread_evidence() }
    }

    fn made_again(merged: &MergedReport, vpas: &Vpas, rows: &[WorkloadRow]) -> Vec<WorkloadReport> {
        let mut reports = Vec::new();
        let mut indexes = rows.iter().map(WorkloadRow::index);
        merged.visit(vpas, &mut indexes, &mut |report| reports.push(report));
        reports
    }

    #[test]
    fn reports_that_are_made_again_are_those_of_the_command() {
        let merged = merged();
        let evidence = |workload: &Workload, container: &Container| match merged
            .collected
            .evidence_of(workload)
        {
            Some(evidence) => evidence.get(&container.name),
            None => Some(&merged.unread),
        };
        let survey = &merged.collected.survey;
        let of_command = report(survey, &evidence, &merged.options, merged.now);
        let (totals, rows) = merged.rows(&Vpas::new());
        let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["ads", "cart", "web"]);
        let workloads = made_again(&merged, &Vpas::new(), &rows);
        assert_eq!(workloads[2].containers[0].oom_kills, 2);
        let gaps = workloads.iter().map(|one| one.containers[0].resources[0].unsaid);
        let expected = [EvidenceGap::Unread, EvidenceGap::Unread, EvidenceGap::WithoutSeries];
        assert!(gaps.eq(expected.map(Some)), "{workloads:?}");
        assert_eq!(Report { workloads, ..totals }, of_command);
    }

    /// A VPA of cart, which recommends only for its first container.
    fn vpa_of_cart() -> Vpas {
        let target = Amounts { cpu: Some(MilliCpu(200)), memory: Some(Bytes(1 << 29)) };
        let container = VpaContainer { name: "main".into(), target, lower: target, upper: target };
        let vpa = VpaFacts {
            namespace: "shop".into(),
            name: "cart".into(),
            update_mode: "Off".into(),
            containers: [container].into(),
            ..VpaFacts::default()
        };
        [(ObjectKey::new("shop", "cart"), Arc::new(vpa))].into()
    }

    #[test]
    fn containers_with_a_recommendation_are_those_of_the_workload_of_the_vpa() {
        let vpa = VpaFacts {
            namespace: "shop".into(),
            name: "cart-vpa".into(),
            target_kind: "Deployment".into(),
            target_name: "cart".into(),
            containers: [VpaContainer { name: "main".into(), ..VpaContainer::default() }].into(),
            ..VpaFacts::default()
        };
        let vpas: Vpas = [(ObjectKey::new("shop", "cart-vpa"), Arc::new(vpa))].into();
        let found = recommended_containers(&vpas);
        let names = found.get(&workload_key(&workload("cart", Some("cart-vpa"))));
        assert_eq!(names.map(|names| &*names[0]), Some("main"));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_container_has_the_target_of_its_vpa_and_sums_have_it_too() {
        let (merged, vpas) = (merged(), vpa_of_cart());
        let (totals, rows) = merged.rows(&vpas);
        let targets: Vec<_> = made_again(&merged, &vpas, &rows)
            .iter()
            .map(|one| one.containers.iter().map(|of| of.resources[0].target).collect::<Vec<_>>())
            .collect();
        assert_eq!(targets, [vec![None; 2], vec![Some(200), None], vec![None; 2]]);
        assert_eq!((totals.totals.cpu.requested, totals.totals.cpu.needed), (1_500, 600));
        assert_eq!(rows[1].update_mode.as_deref(), Some("Off"));
        assert_eq!(rows[1].cpu.target, None, "one of its containers has none");
    }
}
