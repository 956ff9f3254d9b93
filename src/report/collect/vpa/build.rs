//! Builds the report about one VPA from the recommender's own state.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::{
    api::{ResourceList, VerticalPodAutoscaler, annotations::InvalidAnnotation, vpa},
    history::SkippedRecord,
    recommender::{
        ContainerRecommendation, ResourceAmounts, ResourceExplanation,
        estimate::Resource as Kind,
        explanation_annotation::{self, StoredExplanation},
        tuning_annotations,
    },
    types::{ObjectKey, Time, quantity::Quantity},
};

use super::{ExplainConfig, from_annotation};
use crate::{
    cluster::cache::{
        recommender_pod,
        vpa_index::{IndexedVpa, TargetState},
    },
    controllers::recommender::{desired_status::DesiredStatus, state::RecommenderState},
    report::explain::{
        VpaReport,
        report_parts::{Finding, ReportHeader},
        vpa::{
            compare::agreement,
            report::{
                self, Agreement, Condition, Container, OmittedContainer, OomKill,
                RecommendedNumbers, RecordForm, Requests, Resource, StoredRecord,
            },
        },
    },
};

/// Builds the report from the history that was read from a storage. `explanation` is what the recommender stored on the VPA, if
/// it is used instead.
pub fn report(
    config: &ExplainConfig,
    vpa: &VerticalPodAutoscaler,
    core: &mut RecommenderState,
    (key, now): (&ObjectKey, Time),
    history: &report::History,
    explanation: Option<&StoredExplanation>,
) -> VpaReport {
    let written = status_by_container(vpa);
    let desired = match explanation {
        Some(explanation) => from_annotation::desired_status(vpa, explanation, &written),
        None => DesiredStatus::new(core, key, now).unwrap_or_else(|| DesiredStatus {
            recommendation: plimsoll_core::recommender::Recommendation::default(),
            conditions: Vec::new(),
            pod_limits: plimsoll_core::recommender::pod_cap::PodLimits::default(),
        }),
    };
    let kills = oom_kills(core, key);
    let inputs = Inputs { config, vpa, core, key, now, history, desired, written, kills };
    let computed = inputs.desired.recommendation.containers.iter();
    let containers: Vec<Container> = computed.map(|computed| inputs.container(computed)).collect();
    let (findings, notes) = inputs.findings_and_notes(&containers);
    VpaReport {
        header: ReportHeader::new("explain-vpa", &key.namespace, &key.name, now),
        compat: config.compat.to_string(),
        recommender: vpa.spec.recommender_name().to_owned(),
        update_mode: vpa.spec.update_mode().into_str().to_owned(),
        target: inputs.target(),
        pods: inputs.indexed().map_or(0, |vpa| vpa.pods.len()),
        left_out: inputs.omitted_containers(),
        history: history.clone(),
        room: inputs.desired.pod_limits,
        conditions: inputs.conditions(),
        ignored_annotations: inputs.invalid_annotations().iter().map(ToString::to_string).collect(),
        containers,
        findings,
        notes,
    }
}

fn status_by_container(
    vpa: &VerticalPodAutoscaler,
) -> BTreeMap<&str, &vpa::ContainerRecommendation> {
    let recommendation = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    let containers = recommendation
        .into_iter()
        .flat_map(|recommendation| &recommendation.container_recommendations);
    containers.map(|container| (&*container.container_name, container)).collect()
}

/// The OOM kills in the status of the VPA's pods.
fn oom_kills(
    core: &mut RecommenderState,
    key: &ObjectKey,
) -> Vec<recommender_pod::ObservedOomKill> {
    let mut kills = core.index.take_oom_kills();
    kills.retain(|kill| {
        let is_pod_of_kill =
            |(name, _): (&Arc<str>, &recommender_pod::RecommenderPod)| *name == kill.pod;
        *kill.namespace == *key.namespace && core.index.pods_of(key).any(is_pod_of_kill)
    });
    kills.sort_by_key(|kill| std::cmp::Reverse(kill.at));
    kills
}

type PickAmount = fn(&ResourceAmounts) -> Option<Quantity>;

struct Inputs<'a> {
    config: &'a ExplainConfig,
    vpa: &'a VerticalPodAutoscaler,
    core: &'a RecommenderState,
    key: &'a ObjectKey,
    now: Time,
    history: &'a report::History,
    desired: DesiredStatus,
    written: BTreeMap<&'a str, &'a vpa::ContainerRecommendation>,
    kills: Vec<recommender_pod::ObservedOomKill>,
}

impl Inputs<'_> {
    fn indexed(&self) -> Option<&IndexedVpa> {
        self.core.index.vpa(self.key)
    }

    fn invalid_annotations(&self) -> &[InvalidAnnotation] {
        let registry = &self.core.vpa_registry;
        let registered = registry.get(self.key).filter(|_| !registry.is_upstream());
        registered.map_or(&[], |registered| &registered.settings.invalid_annotations)
    }

    fn container(&self, computed: &ContainerRecommendation) -> Container {
        let written = self.written.get(&*computed.container);
        let name = &computed.container;
        let containers: Vec<&recommender_pod::Container> =
            self.core.index.pods_of(self.key).filter_map(|(_, pod)| pod.container(name)).collect();
        let resource = |kind, chain: Option<&ResourceExplanation>, pick: PickAmount| {
            let chain = chain?.clone();
            let fresh = RecommendedNumbers::from_amounts(
                [computed.target, computed.lower, computed.upper, computed.uncapped],
                pick,
            );
            let amounts =
                |list: &ResourceList| ResourceAmounts { cpu: list.cpu(), memory: list.memory() };
            let status = written.map(|status| {
                let lists = [
                    &status.target,
                    &status.lower_bound,
                    &status.upper_bound,
                    &status.uncapped_target,
                ];
                RecommendedNumbers::from_amounts(lists.map(amounts), pick)
            });
            let status = status.filter(|status| *status != RecommendedNumbers::default());
            let agreement = match agreement(kind, &chain, status.as_ref(), &fresh, self.now) {
                // The explanation was stored together with the status, so there can be no drift.
                Agreement::Drift if self.history.is_from_annotation() => Agreement::Differs,
                agreement => agreement,
            };
            let requests = requests(&containers, kind, fresh.target);
            Some(Resource { agreement, status, recomputed: fresh, chain, requests })
        };
        let own_kills = self.kills.iter().filter(|kill| kill.container == *name);
        let kill = |kill: &recommender_pod::ObservedOomKill| OomKill {
            pod: Arc::clone(&kill.pod),
            at: kill.at,
            counted: self.is_in_history(kill, computed),
        };
        Container {
            name: Arc::clone(name),
            pods: containers.len(),
            kills: own_kills.map(kill).collect(),
            cpu: resource(Kind::Cpu, computed.explanation.cpu.as_ref(), |amounts| amounts.cpu),
            memory: resource(Kind::Memory, computed.explanation.memory.as_ref(), |amounts| {
                amounts.memory
            }),
        }
    }

    fn is_in_history(
        &self,
        kill: &recommender_pod::ObservedOomKill,
        computed: &ContainerRecommendation,
    ) -> Option<bool> {
        if self.history.is_from_annotation() {
            let bump = computed.explanation.memory.as_ref().and_then(|memory| memory.bump);
            return bump.is_some_and(|bump| bump.at == kill.at).then_some(true);
        }
        let watched = self.core.vpa_registry.get(self.key);
        let history = watched.and_then(|watched| watched.history.get(&computed.container));
        let known = history.zip(self.core.vpa_registry.rules(self.key, &computed.container));
        Some(
            known.is_some_and(|(history, rules)| {
                history.has_recorded_oom(&kill.pod, kill.at, &rules)
            }),
        )
    }

    fn target(&self) -> report::Target {
        let indexed = self.indexed();
        let (state, message) = match indexed.map(|vpa| &vpa.target) {
            Some(TargetState::Found) => ("found", None),
            Some(TargetState::Unsupported(message)) => ("unsupported", Some(message.to_string())),
            Some(TargetState::Unavailable(message)) => ("unavailable", Some(message.to_string())),
            Some(TargetState::Unknown) | None => ("unavailable", None),
        };
        let selector = indexed.filter(|_| state == "found");
        let reference = &self.vpa.spec.target_ref;
        report::Target {
            kind: reference.kind.clone(),
            name: reference.name.clone(),
            state: state.to_owned(),
            message,
            selector: selector.map(|indexed| indexed.selector.to_string()),
        }
    }

    fn omitted_containers(&self) -> Vec<OmittedContainer> {
        let Some(registered) = self.core.vpa_registry.get(self.key) else { return Vec::new() };
        let omitted = |container: &Arc<str>, why: &str| OmittedContainer {
            container: Arc::clone(container),
            why: why.to_owned(),
        };
        let recommendation = &self.desired.recommendation;
        let names = registered.history.iter().map(|(name, _)| name);
        let off = names.filter(|name| registered.is_off(name));
        let mut containers: Vec<OmittedContainer> = off.map(|name| omitted(name, "off")).collect();
        containers.extend(recommendation.stale.iter().map(|name| omitted(name, "stale")));
        let is_recommended =
            |name: &str| recommendation.containers.iter().any(|known| *known.container == *name);
        for name in self.written.keys().filter(|name| !is_recommended(name)) {
            if !containers.iter().any(|other| *other.container == **name) {
                let why =
                    if self.history.is_from_annotation() { "unexplained" } else { "onlyInStatus" };
                containers.push(omitted(&Arc::from(*name), why));
            }
        }
        containers
    }

    /// The computed conditions, and the written ones that are outdated.
    fn conditions(&self) -> Vec<Condition> {
        let written = self.vpa.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let to_report = |condition: &vpa::Condition, state: &str| Condition {
            kind: condition.kind.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            state: state.to_owned(),
        };
        let same = |left: &vpa::Condition, right: &vpa::Condition| {
            left.kind == right.kind && left.status == right.status && left.reason == right.reason
        };
        let desired = &self.desired.conditions;
        let current = desired.iter().map(|condition| {
            let known = written.iter().any(|known| same(known, condition));
            to_report(condition, if known { "written" } else { "new" })
        });
        let is_outdated =
            |known: &&vpa::Condition| !desired.iter().any(|current| current.kind == known.kind);
        let outdated = written.iter().filter(is_outdated);
        current.chain(outdated.map(|known| to_report(known, "outdated"))).collect()
    }

    fn findings_and_notes(&self, containers: &[Container]) -> (Vec<Finding>, Vec<String>) {
        let (mut findings, mut notes) = (Vec::new(), Vec::new());
        match self.indexed().map(|vpa| &vpa.target) {
            Some(TargetState::Unsupported(why)) => {
                findings.push(Finding::new("config_unsupported", why.to_string()));
            }
            Some(TargetState::Unavailable(why)) => {
                findings.push(Finding::new("target_unavailable", why.to_string()));
            }
            _ => {}
        }
        self.add_history_findings(&mut findings, &mut notes);
        self.add_number_findings(containers, &mut findings, &mut notes);
        for invalid in self.invalid_annotations() {
            findings.push(Finding::new("annotation_ignored", invalid.to_string()));
        }
        if !self.config.settings.per_vpa_tuning && !self.history.is_from_annotation() {
            let annotations = self.vpa.metadata.annotations.as_ref();
            let is_set =
                |key: &&str| annotations.is_some_and(|annotations| annotations.contains_key(*key));
            let unused: Vec<&str> = tuning_annotations::keys().filter(is_set).collect();
            if !unused.is_empty() {
                let unused = unused.join(", ");
                notes.push(format!("Without --per-vpa-tuning {unused} has no effect."));
            }
        }
        (findings, notes)
    }

    fn add_history_findings(&self, findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
        // Records of its containers, and entries about the VPA itself.
        let (container, vpa) = (format!("{}/", self.key), format!("{},", self.key));
        let is_about_vpa = |skipped: &&SkippedRecord| {
            skipped.record.starts_with(&container) || skipped.record.starts_with(&vpa)
        };
        for SkippedRecord { record: what, reason: why } in
            self.history.skipped.iter().filter(is_about_vpa)
        {
            let text = format!("{what} was skipped: {why}.");
            // Not a finding if the explanation is used, if only the annotation is bad, or if the object is new and empty.
            if self.history.is_from_annotation()
                || what.contains(", annotation ")
                || why.contains("has no status yet")
            {
                notes.push(text);
            } else {
                findings.push(Finding::new("history_skipped", text));
            }
        }
        if !self.is_history_used() && !self.written.is_empty() {
            let message = format!(
                "The status has a recommendation, but {} has no history to compute it from, and the VPA has no \
                 explanation: is --storage the same as that of the recommender? A recommender without checkpoints needs \
                 permission to patch verticalpodautoscalers to store explanations.",
                self.config.storage
            );
            findings.push(Finding::new("history_missing", message));
        } else if !self.is_history_used() {
            notes.push(
                "No history is stored yet: a new VPA is first saved within minutes.".to_owned(),
            );
        }
    }

    /// Whether a container's history is stored in upstream's format.
    fn is_upstream_format(&self, container: &str) -> bool {
        let is_of_container = |record: &&StoredRecord| *record.container == *container;
        self.history
            .records
            .iter()
            .find(is_of_container)
            .is_some_and(|record| record.form == RecordForm::Upstream)
    }

    fn is_history_used(&self) -> bool {
        self.history.records.iter().any(|record| record.outcome == "used")
    }

    fn add_number_findings(
        &self,
        containers: &[Container],
        findings: &mut Vec<Finding>,
        notes: &mut Vec<String>,
    ) {
        let used = self.is_history_used();
        let resources = containers.iter().flat_map(|container| {
            let both = [("cpu", &container.cpu), ("memory", &container.memory)];
            both.into_iter()
                .filter_map(|(name, resource)| Some((&container.name, name, resource.as_ref()?)))
        });
        let mut drift = false;
        for (container, name, resource) in resources {
            match resource.agreement {
                Agreement::Differs if self.history.is_from_annotation() => findings.push(Finding::new(
                    "numbers_differ",
                    format!(
                        "{name} of {container} in the status does not match its explanation: the annotation {} was \
                         changed.",
                        explanation_annotation::ANNOTATION
                    ),
                )),
                Agreement::Differs if used && name == "memory" && self.is_upstream_format(container) => {
                    notes.push(format!(
                        "{name} of {container} in the status differs: checkpoints in upstream's format do not contain \
                         open memory windows, up to a day of peaks."
                    ));
                }
                Agreement::Differs if used => findings.push(Finding::new(
                    "numbers_differ",
                    format!(
                        "{name} of {container} in the status differs by more than drift over time: pass the flags of \
                         the recommender, including --compat and --feature-gates; or it is down, or has not saved \
                         for a long time."
                    ),
                )),
                Agreement::Drift => drift = true,
                _ => {}
            }
        }
        if drift {
            notes.push(
                "Drift is caused by samples since the recommender's last save, or by a bound that changed too little \
                 to be written (--bounds-dead-band)."
                    .to_owned(),
            );
        }
        let status = self.vpa.status.as_ref();
        let observed = status.and_then(|status| status.observed_generation);
        if let (Some(observed), Some(now)) = (observed, self.vpa.metadata.generation)
            && observed != now
        {
            notes.push(format!(
                "The status is about generation {observed} of the spec; it is at {now}."
            ));
        }
        if self.written.is_empty() {
            notes.push("No recommendation is written in the status yet.".to_owned());
        }
    }
}

fn requests(
    containers: &[&recommender_pod::Container],
    kind: Kind,
    target: Option<Quantity>,
) -> Requests {
    let amounts: Vec<Option<Quantity>> = containers
        .iter()
        .map(|container| match kind {
            Kind::Cpu => container.requests.cpu.map(Quantity::cpu),
            Kind::Memory => container.requests.memory.map(Quantity::memory),
        })
        .collect();
    let most = amounts.iter().flatten().copied().max();
    let above = most.filter(|most| !most.is_zero()).zip(target);
    Requests {
        least: amounts.iter().flatten().copied().min(),
        most,
        without: amounts.iter().filter(|amount| amount.is_none()).count(),
        target_above_percent: above
            .map(|(most, target)| (target.as_f64() / most.as_f64() - 1.0) * 100.0),
    }
}
