//! Puts the report of each workload together: evidence to targets, levels, changes and costs.

mod whole_report;

use std::collections::{BTreeMap, BTreeSet};

pub use self::whole_report::{EvidenceOf, WorkloadEvidenceOf, each_report, report};

use super::{
    autoscaler::{AutoscalerRule, ContainerRequest, SharedDecision, decide, stay_all},
    changes::{ChangeInput, plan},
    evidence::ContainerEvidence,
    fail_on::changes,
    need::{amount_of, amount_text, running_request_of},
    node_groups::should_split,
    options::ReportOptions,
    pod_amounts::{by_template, in_pods, running_remark, template_amounts},
    pod_count::mean_pods,
    prices::Price,
    report::{
        Change, ContainerReport, NoPatchReason, ResourceReport, TargetChange, WorkloadReport,
    },
    severity::{Risk, cpu_risk, memory_risk, risk_without_need, waste},
    shape::shape_of,
    survey::{Container, ContainerRole, Resource, Survey, Workload},
    targets::{ContainerTargets, NodeSizes, targets_of},
};
use crate::types::Time;

const RESOURCES: [Resource; 2] = [Resource::Cpu, Resource::Memory];

fn request_above_nodes(
    container: &Container,
    nodes: &NodeSizes,
    resource: Resource,
) -> Option<String> {
    let largest = nodes.largest(resource)?;
    let request = running_request_of(container, resource).filter(|request| *request > largest)?;
    let text = |amount| amount_text(resource, amount);
    let (request, largest) = (text(request), text(largest));
    let name = match resource {
        Resource::Cpu => "CPU",
        Resource::Memory => "memory",
    };
    Some(format!("the {name} request {request} is more than any node has ({largest})"))
}

/// Decides what single workloads of a survey should request.
pub struct Assembly<'a> {
    survey: &'a Survey,
    options: &'a ReportOptions,
    now: Time,
    /// By cluster.
    nodes: BTreeMap<Option<&'a str>, NodeSizes>,
}

/// A container while its workload is put together.
struct Draft<'a> {
    container: &'a Container,
    no_patch: Option<NoPatchReason>,
    evidence: Option<&'a ContainerEvidence>,
    targets: ContainerTargets,
    /// The changes of CPU and memory.
    changes: [Change; 2],
    remarks: Vec<String>,
}

/// What the pods of a workload cost.
#[derive(Clone, Copy)]
struct PodCost {
    pods: Option<f64>,
    price: Price,
}

impl PodCost {
    /// What an amount of each pod costs a month.
    fn monthly(self, resource: Resource, amount: Option<i64>) -> Option<f64> {
        self.price.monthly(resource, amount? as f64 * self.pods?)
    }
}

impl<'a> Assembly<'a> {
    pub fn new(survey: &'a Survey, options: &'a ReportOptions, now: Time) -> Self {
        let clusters: BTreeSet<Option<&str>> =
            survey.workloads.iter().map(|workload| workload.cluster.as_deref()).collect();
        let nodes = clusters.into_iter().map(|cluster| (cluster, NodeSizes::of(survey, cluster)));
        Self { survey, options, now, nodes: nodes.collect() }
    }

    /// The report of a workload of the survey, and the mean number of its pods. `evidence` is that of all of its
    /// containers, in their order.
    pub fn workload(
        &self,
        workload: &Workload,
        evidence: &[Option<&ContainerEvidence>],
    ) -> (WorkloadReport, Option<f64>) {
        let runs = evidence.iter().flatten().find_map(|evidence| evidence.runs);
        let pods = mean_pods(workload, runs, self.options.window, self.now);
        let price = self.options.prices.as_ref().map_or_else(Price::default, |prices| {
            prices.of_pods(&workload.nodes, &self.survey.nodes)
        });
        let cost = PodCost { pods, price };
        let unknown = NodeSizes::default();
        let nodes = self.nodes.get(&workload.cluster.as_deref()).unwrap_or(&unknown);
        let targets = targets_of(workload, evidence, nodes, self.options);
        let mut drafts: Vec<Draft<'_>> = workload
            .all_containers()
            .zip(evidence)
            .zip(targets)
            .enumerate()
            .map(|(index, ((container, evidence), targets))| {
                let no_patch = no_patch_reason(workload, index);
                self.draft((container, no_patch, nodes), *evidence, targets)
            })
            .collect();
        for draft in &mut drafts {
            let sized_by = workload.vpa.as_deref();
            draft.remarks.extend(
                RESOURCES
                    .iter()
                    .filter_map(|resource| running_remark(draft.container, *resource, sized_by)),
            );
        }
        let target_changes = self.share_with_autoscalers(workload, &mut drafts);
        let containers: Vec<ContainerReport> =
            drafts.into_iter().map(|draft| self.container(draft, cost)).collect();
        let group = containers.iter().find_map(|container| container.node_groups.first());
        let shape = shape_of(workload, runs, group.map(|group| &*group.label));
        let text = |text: &str| text.to_owned();
        let report = WorkloadReport {
            cluster: workload.cluster.as_deref().map(text),
            namespace: text(&workload.namespace),
            api_version: workload.api_version.as_deref().map(text),
            kind: text(&workload.kind),
            name: text(&workload.name),
            labels: workload.labels.iter().map(|(name, value)| (text(name), text(value))).collect(),
            replicas: workload.replicas,
            vpa: workload.vpa.as_deref().map(text),
            scaled_by: workload.scaled_by.clone(),
            target_changes,
            shape,
            runs,
            containers,
        };
        (report, pods)
    }

    fn draft<'w>(
        &self,
        (container, no_patch, nodes): (&'w Container, Option<NoPatchReason>, &NodeSizes),
        evidence: Option<&'w ContainerEvidence>,
        targets: ContainerTargets,
    ) -> Draft<'w> {
        let mut remarks = targets.remarks.clone();
        let defaults = container.limit_range.as_ref();
        remarks.extend(defaults.map(|name| {
            format!("requests or limits that it does not set are defaults of LimitRange {name}")
        }));
        let changes = RESOURCES.map(|resource| {
            remarks.extend(request_above_nodes(container, nodes, resource));
            let Ok(need) = targets.of(resource) else { return Change::default() };
            let planned = plan(&ChangeInput {
                resource,
                configured: by_template(container, resource),
                has_own_request: amount_of(&container.requests, resource).is_some(),
                need,
                limit_rule: self.options.limits.of(resource),
                max_allowed: amount_of(&self.options.max_allowed, resource),
                share: self.options.thresholds.change.share,
                runtime: container.runtime.as_deref(),
                memory_peak: evidence.and_then(|evidence| evidence.memory_peak),
                least_limit: targets.least_memory_limit.filter(|_| resource == Resource::Memory),
            });
            if let Some(reason) = no_patch.filter(|_| changes(&planned.change)) {
                let held = held_without_patch(reason, resource, need.target);
                return Change { held: Some(held), ..Change::default() };
            }
            let groups = evidence.map(|evidence| &*evidence.node_groups).unwrap_or_default();
            let thresholds = &self.options.thresholds.node_groups;
            if changes(&planned.change) && should_split(groups, resource, thresholds) {
                let held = "its pods need different amounts on different nodes".to_owned();
                return Change { held: Some(held), ..Change::default() };
            }
            remarks.extend(planned.remarks);
            planned.change
        });
        Draft { container, no_patch, evidence, targets, changes, remarks }
    }

    /// Holds changes that an autoscaler of replicas does not allow; returns the targets that change with the
    /// others.
    fn share_with_autoscalers(
        &self,
        workload: &Workload,
        drafts: &mut [Draft<'_>],
    ) -> Vec<TargetChange> {
        let mut target_changes = Vec::new();
        for (index, resource) in RESOURCES.into_iter().enumerate() {
            let requests: Vec<ContainerRequest<'_>> = drafts
                .iter()
                .map(|draft| {
                    // Autoscalers compare usage with the requests of pods.
                    let current = running_request_of(draft.container, resource);
                    let new = draft.changes[index].request.or(current);
                    let Container { name, role, .. } = draft.container;
                    ContainerRequest { name, role: *role, current, new }
                })
                .collect();
            let rule = self.options.autoscalers;
            let SharedDecision { target_changes: of_resource, held } =
                if workload.autoscalers_unknown && rule != AutoscalerRule::Ignore {
                    stay_all(&requests)
                } else {
                    decide(rule, resource, &workload.utilization_targets, &requests)
                };
            target_changes.extend(of_resource);
            for draft in drafts.iter_mut() {
                let reason = held.get(&*draft.container.name);
                let is_counted = draft.container.role != ContainerRole::Init;
                if let Some(reason) = reason.filter(|_| is_counted)
                    && changes(&draft.changes[index])
                {
                    draft.changes[index] =
                        Change { held: Some(reason.clone()), ..Change::default() };
                }
            }
        }
        target_changes
    }

    fn container(&self, draft: Draft<'_>, cost: PodCost) -> ContainerReport {
        let rows = RESOURCES.map(|resource| self.row(&draft, resource, cost));
        let Draft { container, no_patch, evidence, targets, remarks, .. } = draft;
        let memory = targets.memory.ok().map(|need| need.target);
        let above_target = |bytes: i64| memory.is_some_and(|target| bytes > target);
        let peak = evidence.and_then(|evidence| evidence.memory_peak);
        let needed_peak = evidence.and_then(|evidence| evidence.needed_memory_peak);
        let cache_share = self.options.thresholds.page_cache.share;
        let groups = evidence.map(|evidence| &*evidence.node_groups).unwrap_or_default();
        let thresholds = &self.options.thresholds.node_groups;
        let splits = RESOURCES.iter().any(|resource| should_split(groups, *resource, thresholds));
        ContainerReport {
            name: container.name.to_string(),
            role: container.role,
            no_patch,
            resources: rows.into(),
            oom_kills: evidence.map_or(0, |evidence| evidence.oom_kills),
            last_oom_kill: evidence.and_then(|evidence| evidence.last_oom_kill),
            throttled_share: evidence.and_then(|evidence| evidence.throttled_share),
            memory_peak: peak,
            rare_memory_peak: evidence
                .and_then(|evidence| evidence.rare_memory_peak)
                .filter(|peak| above_target(peak.bytes.0)),
            needed_memory_peak: needed_peak.zip(peak).and_then(|(needed, peak)| {
                let cache = peak.bytes.0.saturating_sub(needed.bytes.0) as f64;
                (cache >= cache_share * peak.bytes.0 as f64 && cache > 0.0).then_some(needed)
            }),
            node_groups: if splits { groups.to_vec() } else { Vec::new() },
            runtime: container.runtime.as_deref().cloned(),
            remarks,
        }
    }

    fn row(&self, draft: &Draft<'_>, resource: Resource, cost: PodCost) -> ResourceReport {
        let Draft { container, evidence, targets, changes, .. } = draft;
        let configured = in_pods(container, resource);
        let template = template_amounts(container, resource);
        let thresholds = &self.options.thresholds;
        let index = usize::from(resource == Resource::Memory);
        // Init containers run before the others, within what those request.
        let cost = if container.role == ContainerRole::Init {
            PodCost { pods: None, ..cost }
        } else {
            cost
        };
        let now = cost.monthly(resource, configured.request);
        let mut row = ResourceReport {
            resource,
            request: configured.request,
            limit: configured.limit,
            template,
            target: None,
            lower: None,
            upper: None,
            change: changes[index].clone(),
            risk: super::report::Level::Unsaid,
            risk_reasons: Vec::new(),
            waste: super::report::Level::Unsaid,
            cost: now,
            new_cost: None,
            unsaid: None,
            explanation: None,
        };
        let need = match targets.of(resource) {
            Ok(need) => need,
            Err(gap) => {
                let Risk { level, reasons } =
                    risk_without_need(resource, configured, *evidence, gap);
                (row.risk, row.risk_reasons, row.unsaid) = (level, reasons, Some(gap));
                return row;
            }
        };
        let none = ContainerEvidence::default();
        let evidence = evidence.unwrap_or(&none);
        let risk = match resource {
            Resource::Cpu => cpu_risk(configured, &need, evidence, &thresholds.risk.cpu),
            Resource::Memory => memory_risk(configured, &need, evidence, &thresholds.risk.memory),
        };
        let new_cost = cost.monthly(resource, Some(need.target));
        let saving = now.zip(new_cost).map(|(now, new)| now - new);
        (row.target, row.lower, row.upper) = (Some(need.target), need.lower, need.upper);
        (row.risk, row.risk_reasons) = (risk.level, risk.reasons);
        row.waste = waste(resource, configured, &need, cost.pods, saving, &thresholds.waste);
        row.new_cost = new_cost;
        // Targets of runs do not come from the chain of the recommender.
        let recommendation =
            evidence.recommendation.as_ref().filter(|_| evidence.run_targets.is_none());
        let explanation = recommendation.and_then(|recommendation| match resource {
            Resource::Cpu => recommendation.explanation.cpu.clone(),
            Resource::Memory => recommendation.explanation.memory.clone(),
        });
        row.explanation = explanation.map(Box::new);
        row
    }

    fn has_assumed_price(&self, workload: &Workload) -> bool {
        let prices = self.options.prices.as_ref();
        prices.is_some_and(|prices| prices.is_assumed(&workload.nodes, &self.survey.nodes))
    }
}

/// Why no manifest can be patched. The injected containers follow those of the template.
fn no_patch_reason(workload: &Workload, index: usize) -> Option<NoPatchReason> {
    if index >= workload.containers.len() {
        return Some(NoPatchReason::Injected);
    }
    workload.group.as_ref().map(|_| NoPatchReason::Grouped)
}

fn held_without_patch(reason: NoPatchReason, resource: Resource, target: i64) -> String {
    let target = amount_text(resource, target);
    match reason {
        NoPatchReason::Injected => format!(
            "it is injected and no manifest has it; request {target} where the injection is configured"
        ),
        NoPatchReason::Grouped => {
            format!(
                "no manifest is of the whole group; request {target} where its members are created"
            )
        }
    }
}

#[cfg(test)]
mod tests;
