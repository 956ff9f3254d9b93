//! From the recommender's own state to what there is to say about one VPA.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::{
    history::SkippedRecord,
    types::{ObjectKey, Time},
};

use super::{ExplainConfig, from_annotation};
use crate::{
    cluster::cache::{recommender_pod, vpa_index::TargetState},
    controllers::recommender::state::{DesiredStatus, RecommenderState},
    report::explain::{
        VpaReport,
        compare::agreement,
        report::{
            self, Agreement, CapacityLimit, Condition, Container, Finding, OmittedContainer,
            OomKill, RecommendedNumbers, RecordForm, Requests, Resource, SCHEMA_VERSION,
            StoredRecord,
        },
    },
};
use plimsoll_core::{
    api::{ResourceList, VerticalPodAutoscaler, annotations::InvalidAnnotation, vpa},
    recommender::{
        ContainerRecommendation, ResourceAmounts,
        estimate::Resource as Kind,
        explanation_annotation::{self, StoredExplanation},
        pod_cap::ResourceLimit as RoomLimit,
        tuning,
    },
    types::{compat::Compat, quantity::Quantity},
};

/// What a storage had.
pub struct StoredHistory {
    /// Its name.
    pub storage: String,
    /// What was used.
    pub records: Vec<StoredRecord>,
    /// What was not.
    pub skipped: Vec<SkippedRecord>,
    /// What the recommender told on the VPA, where that is all there is to go by.
    pub from_annotation: Option<StoredExplanation>,
}

/// Everything there is to say.
pub fn report(
    config: &ExplainConfig,
    vpa: &VerticalPodAutoscaler,
    core: &mut RecommenderState,
    key: &ObjectKey,
    now: Time,
    stored: StoredHistory,
) -> VpaReport {
    let told = stored.from_annotation.as_ref();
    let verdict = match told {
        Some(told) => from_annotation::desired_status(vpa, told),
        None => core.desired_status(key, now).unwrap_or_else(|| DesiredStatus {
            recommendation: plimsoll_core::recommender::Recommendation::default(),
            conditions: Vec::new(),
            pod_limits: plimsoll_core::recommender::pod_cap::PodLimits::default(),
        }),
    };
    let written = status_by_container(vpa);
    let kills = oom_kills(core, key);
    let core = &*core;
    let desk =
        ContainerInputs { core, key, kills: &kills, is_from_annotation: told.is_some(), now };
    let containers: Vec<Container> = verdict
        .recommendation
        .containers
        .iter()
        .map(|said| desk.container(said, written.get(&*said.container).copied()))
        .collect();
    let limit =
        |limit: Option<RoomLimit>| limit.map(|it| CapacityLimit { amount: it.amount, by: it.by });
    let room = verdict.pod_limits;
    let (findings, notes) = FindingInputs {
        config,
        vpa,
        core,
        key,
        containers: &containers,
        stored: &stored,
        has_status: !written.is_empty(),
    }
    .findings_and_notes();
    VpaReport {
        schema_version: SCHEMA_VERSION,
        kind: "explain-vpa".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        at: now,
        compat: match config.compat {
            Compat::Plimsoll => "plimsoll",
            Compat::Upstream => "upstream",
        }
        .to_owned(),
        recommender: vpa
            .spec
            .recommenders
            .first()
            .map_or_else(|| "default".to_owned(), |first| first.name.clone()),
        update_mode: vpa.spec.update_mode().as_str().to_owned(),
        target: target(vpa, core, key),
        pods: core
            .index
            .vpa(key)
            .map_or(0, crate::cluster::cache::vpa_index::IndexedVpa::pod_count),
        left_out: omitted_containers(core, key, &verdict, &written, told.is_some()),
        history: report::History {
            storage: stored.storage,
            records: stored.records,
            skipped: stored
                .skipped
                .into_iter()
                .map(|SkippedRecord { record: what, reason: why }| report::SkippedRecord {
                    what,
                    why,
                })
                .collect(),
        },
        room: report::PodCapacity { cpu: limit(room.cpu), memory: limit(room.memory) },
        conditions: conditions(vpa, &verdict),
        ignored_annotations: invalid_annotations(core, key)
            .iter()
            .map(ToString::to_string)
            .collect(),
        containers,
        findings,
        notes,
    }
}

/// What the status says, by container.
fn status_by_container(
    vpa: &VerticalPodAutoscaler,
) -> BTreeMap<&str, &vpa::ContainerRecommendation> {
    let said = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    let all = said.into_iter().flat_map(|said| &said.container_recommendations);
    all.map(|one| (&*one.container_name, one)).collect()
}

fn invalid_annotations<'a>(core: &'a RecommenderState, key: &ObjectKey) -> &'a [InvalidAnnotation] {
    let watched = core.vpa_registry.get(key).filter(|_| !core.vpa_registry.is_upstream());
    watched.map_or(&[], |watched| &watched.settings().invalid_annotations)
}

/// The kills that the pods of a VPA show.
fn oom_kills(
    core: &mut RecommenderState,
    key: &ObjectKey,
) -> Vec<recommender_pod::ObservedOomKill> {
    let mut kills = core.index.take_oom_kills();
    kills.retain(|kill| {
        let of_it = |(name, _): (&Arc<str>, &recommender_pod::RecommenderPod)| *name == kill.pod;
        *kill.namespace == *key.namespace && core.index.pods_of(key).any(of_it)
    });
    kills.sort_by_key(|kill| std::cmp::Reverse(kill.at));
    kills
}

/// What all containers are looked at by.
struct ContainerInputs<'a> {
    core: &'a RecommenderState,
    key: &'a ObjectKey,
    kills: &'a [recommender_pod::ObservedOomKill],
    /// There is no history, only what the recommender told of it.
    is_from_annotation: bool,
    now: Time,
}

impl ContainerInputs<'_> {
    fn container(
        &self,
        said: &ContainerRecommendation,
        written: Option<&vpa::ContainerRecommendation>,
    ) -> Container {
        let name = &said.container;
        let has: Vec<&recommender_pod::Container> =
            self.core.index.pods_of(self.key).filter_map(|(_, pod)| pod.container(name)).collect();
        let resource = |kind: Kind| {
            let pick: fn(&ResourceAmounts) -> Option<Quantity> = match kind {
                Kind::Cpu => |amounts| amounts.cpu,
                Kind::Memory => |amounts| amounts.memory,
            };
            let chain = match kind {
                Kind::Cpu => said.explanation.cpu.clone(),
                Kind::Memory => said.explanation.memory.clone(),
            }?;
            let fresh = RecommendedNumbers::from_amounts(
                [said.target, said.lower, said.upper, said.uncapped],
                pick,
            );
            let amounts =
                |list: &ResourceList| ResourceAmounts { cpu: list.cpu(), memory: list.memory() };
            let status = written.map(|one| {
                let lists = [&one.target, &one.lower_bound, &one.upper_bound, &one.uncapped_target];
                RecommendedNumbers::from_amounts(lists.map(amounts), pick)
            });
            let status = status.filter(|status| *status != RecommendedNumbers::default());
            let agreement = match agreement(kind, &chain, status.as_ref(), &fresh, self.now) {
                // What was told is of the very moment when the status was written.
                Agreement::Drift if self.is_from_annotation => Agreement::Differs,
                agreement => agreement,
            };
            let requests = requests(&has, kind, fresh.target);
            Some(Resource { agreement, status, recomputed: fresh, chain, requests })
        };
        let mine = self.kills.iter().filter(|kill| kill.container == *name);
        let kill = |kill: &recommender_pod::ObservedOomKill| OomKill {
            pod: Arc::clone(&kill.pod),
            at: kill.at,
            counted: self.is_in_history(kill, said),
        };
        Container {
            name: Arc::clone(name),
            pods: has.len(),
            kills: mine.map(kill).collect(),
            cpu: resource(Kind::Cpu),
            memory: resource(Kind::Memory),
        }
    }

    fn is_in_history(
        &self,
        kill: &recommender_pod::ObservedOomKill,
        said: &ContainerRecommendation,
    ) -> Option<bool> {
        if self.is_from_annotation {
            let bump = said.explanation.memory.as_ref().and_then(|memory| memory.bump);
            return bump.is_some_and(|bump| bump.at == kill.at).then_some(true);
        }
        let watched = self.core.vpa_registry.get(self.key);
        let history = watched.and_then(|watched| watched.history().get(&said.container));
        let known = history.zip(self.core.vpa_registry.rules(self.key, &said.container));
        Some(
            known.is_some_and(|(history, rules)| {
                history.has_recorded_oom(&kill.pod, kill.at, &rules)
            }),
        )
    }
}

fn requests(has: &[&recommender_pod::Container], kind: Kind, target: Option<Quantity>) -> Requests {
    let amounts: Vec<Option<Quantity>> = has
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

fn target(vpa: &VerticalPodAutoscaler, core: &RecommenderState, key: &ObjectKey) -> report::Target {
    let known = core.index.vpa(key);
    let (state, message) = match known.map(crate::cluster::cache::vpa_index::IndexedVpa::target) {
        Some(TargetState::Found) => ("found", None),
        Some(TargetState::Unsupported(message)) => ("unsupported", Some(message.to_string())),
        Some(TargetState::Unavailable(message)) => ("unavailable", Some(message.to_string())),
        Some(TargetState::Unknown) | None => ("unavailable", None),
    };
    let selector = known.filter(|_| state == "found").map(|known| known.selector().to_string());
    let reference = &vpa.spec.target_ref;
    report::Target {
        kind: reference.kind.clone(),
        name: reference.name.clone(),
        state: state.to_owned(),
        message,
        selector,
    }
}

fn omitted_containers(
    core: &RecommenderState,
    key: &ObjectKey,
    verdict: &DesiredStatus,
    written: &BTreeMap<&str, &vpa::ContainerRecommendation>,
    is_told: bool,
) -> Vec<OmittedContainer> {
    let Some(watched) = core.vpa_registry.get(key) else { return Vec::new() };
    let left = |container: &Arc<str>, why: &str| OmittedContainer {
        container: Arc::clone(container),
        why: why.to_owned(),
    };
    let off = watched.history().iter().map(|(name, _)| name).filter(|name| watched.is_off(name));
    let mut all: Vec<OmittedContainer> = off.map(|name| left(name, "off")).collect();
    all.extend(verdict.recommendation.stale.iter().map(|name| left(name, "stale")));
    let said =
        |name: &str| verdict.recommendation.containers.iter().any(|one| *one.container == *name);
    for name in written.keys().filter(|name| !said(name)) {
        if !all.iter().any(|one| *one.container == **name) {
            let why = if is_told { "unexplained" } else { "onlyInStatus" };
            all.push(left(&Arc::from(*name), why));
        }
    }
    all
}

/// Those that would be, and those that are written and would not be any more.
fn conditions(vpa: &VerticalPodAutoscaler, verdict: &DesiredStatus) -> Vec<Condition> {
    let written = vpa.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let one = |condition: &vpa::Condition, state: &str| Condition {
        kind: condition.kind.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        state: state.to_owned(),
    };
    let same = |one: &vpa::Condition, other: &vpa::Condition| {
        one.kind == other.kind && one.status == other.status && one.reason == other.reason
    };
    let wanted = verdict.conditions.iter().map(|condition| {
        let known = written.iter().any(|known| same(known, condition));
        one(condition, if known { "written" } else { "new" })
    });
    let outdated = written
        .iter()
        .filter(|known| !verdict.conditions.iter().any(|wanted| wanted.kind == known.kind))
        .map(|known| one(known, "outdated"));
    wanted.chain(outdated).collect()
}

/// What remarks follow from.
struct FindingInputs<'a> {
    config: &'a ExplainConfig,
    vpa: &'a VerticalPodAutoscaler,
    core: &'a RecommenderState,
    key: &'a ObjectKey,
    containers: &'a [Container],
    stored: &'a StoredHistory,
    has_status: bool,
}

impl FindingInputs<'_> {
    fn findings_and_notes(&self) -> (Vec<Finding>, Vec<String>) {
        let (mut findings, mut notes) = (Vec::new(), Vec::new());
        match self
            .core
            .index
            .vpa(self.key)
            .map(crate::cluster::cache::vpa_index::IndexedVpa::target)
        {
            Some(TargetState::Unsupported(why)) => {
                findings.push(Finding::new("config_unsupported", why.to_string()));
            }
            Some(TargetState::Unavailable(why)) => {
                findings.push(Finding::new("target_unavailable", why.to_string()));
            }
            _ => {}
        }
        self.add_history_findings(&mut findings, &mut notes);
        self.add_number_findings(&mut findings, &mut notes);
        for bad in invalid_annotations(self.core, self.key) {
            findings.push(Finding::new("annotation_ignored", bad.to_string()));
        }
        if !self.config.settings.per_vpa_tuning && self.stored.from_annotation.is_none() {
            let annotations = self.vpa.metadata.annotations.as_ref();
            let has = |key: &&str| annotations.is_some_and(|all| all.contains_key(*key));
            let idle: Vec<&str> = tuning::keys().filter(has).collect();
            if !idle.is_empty() {
                let idle = idle.join(", ");
                notes.push(format!("Without --per-vpa-tuning {idle} has no effect."));
            }
        }
        (findings, notes)
    }

    fn add_history_findings(&self, findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
        // A record of one of its containers, or something about itself.
        let (container, itself) = (format!("{}/", self.key), format!("{},", self.key));
        let of_it = |skipped: &&SkippedRecord| {
            skipped.record.starts_with(&container) || skipped.record.starts_with(&itself)
        };
        for SkippedRecord { record: what, reason: why } in self.stored.skipped.iter().filter(of_it)
        {
            let text = format!("{what} was passed over: {why}.");
            // The status beside it counts, an empty object is only young, and what was told says it all.
            let is_told = self.stored.from_annotation.is_some();
            if is_told || what.contains(", annotation ") || why.contains("holds nothing yet") {
                notes.push(text);
            } else {
                findings.push(Finding::new("history_skipped", text));
            }
        }
        let used = self.stored.records.iter().any(|record| record.outcome == "used");
        if !used && self.has_status {
            findings.push(Finding::new(
                "history_missing",
                format!(
                    "The status has numbers, but nothing is stored in {} to work them out from, and the VPA does \
                     not explain them itself: is --storage that of the recommender? A recommender without \
                     checkpoints has to be allowed to patch verticalpodautoscalers to explain them.",
                    self.config.storage
                ),
            ));
        } else if !used {
            notes
                .push("Nothing is stored yet: a new VPA is first saved within minutes.".to_owned());
        }
    }

    /// Whether upstream's form is all that is stored of a container.
    fn is_upstream_format(&self, container: &str) -> bool {
        let of_it = |record: &&StoredRecord| *record.container == *container;
        self.stored
            .records
            .iter()
            .find(of_it)
            .is_some_and(|record| record.form == RecordForm::Upstream)
    }

    fn add_number_findings(&self, findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
        let used = self.stored.records.iter().any(|record| record.outcome == "used");
        let resources = self.containers.iter().flat_map(|container| {
            let both = [("cpu", &container.cpu), ("memory", &container.memory)];
            both.into_iter().filter_map(|(name, it)| Some((&container.name, name, it.as_ref()?)))
        });
        let mut drift = false;
        for (container, name, resource) in resources {
            match resource.agreement {
                Agreement::Differs if self.stored.from_annotation.is_some() => findings.push(Finding::new(
                    "numbers_differ",
                    format!(
                        "{name} of {container} in the status does not follow from its explanation: somebody has \
                         changed the annotation {}.",
                        explanation_annotation::ANNOTATION
                    ),
                )),
                Agreement::Differs if used && name == "memory" && self.is_upstream_format(container) => {
                    notes.push(format!(
                        "{name} of {container} in the status differs: checkpoints in upstream's form leave out \
                         the memory windows that are open, up to a day of peaks."
                    ));
                }
                Agreement::Differs if used => findings.push(Finding::new(
                    "numbers_differ",
                    format!(
                        "{name} of {container} in the status differs by more than time explains: give the \
                         flags of the recommender, also --compat and --feature-gates; or it is down, or has \
                         not saved for long."
                    ),
                )),
                Agreement::Drift => drift = true,
                _ => {}
            }
        }
        if drift {
            notes.push(
                "Drift is what the recommender saw since it last saved, or a bound that moved too little \
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
        if !self.has_status {
            notes.push("No recommendation is written in the status yet.".to_owned());
        }
    }
}
