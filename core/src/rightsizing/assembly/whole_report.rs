//! The report on all workloads of a survey: each of them by itself, and the totals.

use std::{borrow::Cow, collections::BTreeMap};

use super::Assembly;
use crate::{
    rightsizing::{
        evidence::ContainerEvidence,
        options::ReportOptions,
        prices::HOURS_PER_MONTH,
        report::{Report, SCHEMA_VERSION, WorkloadReport},
        survey::{Container, Survey, Workload},
        totals::TotalsBuilder,
    },
    types::Time,
};

/// Finds the evidence of a container; `None` if there are no series.
pub type EvidenceOf<'a> = dyn Fn(&Workload, &Container) -> Option<&'a ContainerEvidence> + 'a;

/// The evidence of all containers of a workload, in their order: `None` if there are no series.
pub type WorkloadEvidenceOf<'a> = dyn Fn(&Workload) -> Vec<Option<Cow<'a, ContainerEvidence>>> + 'a;

/// Decides what every workload should request. The result depends only on the arguments, and not on the order
/// of workloads in the survey.
pub fn report(
    survey: &Survey,
    evidence: &EvidenceOf<'_>,
    options: &ReportOptions,
    now: Time,
) -> Report {
    let evidence = |workload: &Workload| {
        let containers = workload.all_containers();
        containers.map(|container| evidence(workload, container).map(Cow::Borrowed)).collect()
    };
    let mut workloads = Vec::with_capacity(survey.workloads.len());
    let mut keep = |_: usize, workload| workloads.push(workload);
    let report = each_report(survey, &evidence, options, now, &mut keep);
    Report { workloads, ..report }
}

/// The same, but passes on each workload as soon as it is finished, with its index in the survey. The returned report has
/// none of them.
pub fn each_report(
    survey: &Survey,
    evidence: &WorkloadEvidenceOf<'_>,
    options: &ReportOptions,
    now: Time,
    visit: &mut dyn FnMut(usize, WorkloadReport),
) -> Report {
    let assembly = Assembly::new(survey, options, now);
    let workloads = survey.workloads.iter().map(|workload| &**workload);
    let mut workloads: Vec<(usize, &Workload)> = workloads.enumerate().collect();
    workloads.sort_by(|(_, left), (_, right)| identity(left).cmp(&identity(right)));
    let (mut all, mut namespaces) =
        (TotalsBuilder::default(), BTreeMap::<String, TotalsBuilder>::new());
    let mut assumed = 0;
    for (index, workload) in workloads {
        let evidence = evidence(workload);
        let evidence: Vec<_> = evidence.iter().map(Option::as_deref).collect();
        let (report, pods) = assembly.workload(workload, &evidence);
        all.add(&report, pods);
        match namespaces.get_mut(&report.namespace) {
            Some(totals) => totals.add(&report, pods),
            None => {
                namespaces.entry(report.namespace.clone()).or_default().add(&report, pods);
            }
        }
        assumed += usize::from(assembly.has_assumed_price(workload));
        visit(index, report);
    }
    let head = &options.head;
    let namespaces = namespaces.into_iter().map(|(name, totals)| (name, totals.totals()));
    Report {
        schema_version: SCHEMA_VERSION,
        kind: "recommend".to_owned(),
        version: head.version.clone(),
        at: now,
        sources: head.sources.clone(),
        settings: head.settings.clone(),
        strategy: head.strategy.clone(),
        currency: options.prices.as_ref().map(|prices| prices.currency.clone()),
        totals: all.totals(),
        namespaces: namespaces.collect(),
        workloads: Vec::new(),
        unread: survey.unread.iter().chain(&head.unread).cloned().collect(),
        remarks: remarks(options, assumed),
    }
}

fn identity(workload: &Workload) -> [Option<&str>; 4] {
    let Workload { cluster, namespace, kind, name, .. } = workload;
    [cluster.as_deref(), Some(namespace), Some(kind), Some(name)]
}

fn remarks(options: &ReportOptions, assumed: usize) -> Vec<String> {
    let mut remarks = options.head.remarks.clone();
    if let Some(prices) = &options.prices {
        remarks.extend(prices.remarks.iter().cloned());
        remarks.push(format!(
            "costs are those of requests in {HOURS_PER_MONTH} hours: money comes back only when nodes go"
        ));
        if assumed > 0 {
            remarks.push(format!(
                "{assumed} workloads have the prices of no particular node, because the nodes of their pods are unknown"
            ));
        }
    }
    remarks
}
