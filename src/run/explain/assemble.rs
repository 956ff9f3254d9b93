//! From the recommender's own state to what there is to say about one VPA.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::{
    history::Skipped,
    types::{Time, VpaKey},
};

use super::{ExplainConfig, told};
use crate::{
    explain::{
        Report,
        compare::agreement,
        report::{
            self, Agreement, Condition, Container, Finding, Form, Kill, LeftOut, Limit, Numbers,
            Requests, Resource, SCHEMA_VERSION, StoredRecord,
        },
    },
    observe::{index::Target, pod},
    run::recommender::state::{Core, Verdict},
};
use plimsoll_core::{
    api::{ResourceList, VerticalPodAutoscaler, annotation::BadAnnotation, vpa},
    recommender::{
        Amounts, ContainerRecommendation,
        annotation::{self, Told},
        estimate::Resource as Kind,
        room::Limit as RoomLimit,
        tuning,
    },
    types::{compat::Compat, quantity::Quantity},
};

/// What a storage had.
pub struct Stored {
    /// Its name.
    pub storage: String,
    /// What was used.
    pub records: Vec<StoredRecord>,
    /// What was not.
    pub skipped: Vec<Skipped>,
    /// What the recommender told on the VPA, where that is all there is to go by.
    pub told: Option<Told>,
}

/// Everything there is to say.
pub fn report(
    config: &ExplainConfig,
    vpa: &VerticalPodAutoscaler,
    core: &mut Core,
    key: &VpaKey,
    now: Time,
    stored: Stored,
) -> Report {
    let told = stored.told.as_ref();
    let verdict = match told {
        Some(told) => told::verdict(vpa, told),
        None => core.judge(key, now).unwrap_or_else(|| Verdict {
            said: plimsoll_core::recommender::Recommendation::default(),
            conditions: Vec::new(),
            limits: plimsoll_core::recommender::room::Limits::default(),
        }),
    };
    let written = written(vpa);
    let kills = kills(core, key);
    let core = &*core;
    let desk = Desk { core, key, kills: &kills, is_told: told.is_some(), now };
    let containers: Vec<Container> = verdict
        .said
        .containers
        .iter()
        .map(|said| desk.container(said, written.get(&*said.container).copied()))
        .collect();
    let limit = |limit: Option<RoomLimit>| limit.map(|it| Limit { amount: it.amount, by: it.by });
    let room = verdict.limits;
    let (findings, notes) = Judged {
        config,
        vpa,
        core,
        key,
        containers: &containers,
        stored: &stored,
        has_status: !written.is_empty(),
    }
    .remarks();
    Report {
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
        pods: core.index.vpa(key).map_or(0, crate::observe::index::Vpa::pod_count),
        left_out: left_out(core, key, &verdict, &written, told.is_some()),
        history: report::History {
            storage: stored.storage,
            records: stored.records,
            skipped: stored
                .skipped
                .into_iter()
                .map(|Skipped { what, why }| report::Skipped { what, why })
                .collect(),
        },
        room: report::Room { cpu: limit(room.cpu), memory: limit(room.memory) },
        conditions: conditions(vpa, &verdict),
        ignored_annotations: ignored(core, key).iter().map(ToString::to_string).collect(),
        containers,
        findings,
        notes,
    }
}

/// What the status says, by container.
fn written(vpa: &VerticalPodAutoscaler) -> BTreeMap<&str, &vpa::ContainerRecommendation> {
    let said = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    let all = said.into_iter().flat_map(|said| &said.container_recommendations);
    all.map(|one| (&*one.container_name, one)).collect()
}

fn ignored<'a>(core: &'a Core, key: &VpaKey) -> &'a [BadAnnotation] {
    let watched = core.fleet.get(key).filter(|_| !core.fleet.is_upstream());
    watched.map_or(&[], |watched| &watched.directives().bad_annotations)
}

/// The kills that the pods of a VPA show.
fn kills(core: &mut Core, key: &VpaKey) -> Vec<pod::Kill> {
    let mut kills = core.index.take_kills();
    kills.retain(|kill| {
        let of_it = |(name, _): (&Arc<str>, &pod::Pod)| *name == kill.pod;
        *kill.namespace == *key.namespace && core.index.pods_of(key).any(of_it)
    });
    kills.sort_by_key(|kill| std::cmp::Reverse(kill.at));
    kills
}

/// What all containers are looked at by.
struct Desk<'a> {
    core: &'a Core,
    key: &'a VpaKey,
    kills: &'a [pod::Kill],
    /// There is no history, only what the recommender told of it.
    is_told: bool,
    now: Time,
}

impl Desk<'_> {
    fn container(
        &self,
        said: &ContainerRecommendation,
        written: Option<&vpa::ContainerRecommendation>,
    ) -> Container {
        let name = &said.container;
        let has: Vec<&pod::Container> =
            self.core.index.pods_of(self.key).filter_map(|(_, pod)| pod.container(name)).collect();
        let resource = |kind: Kind| {
            let pick: fn(&Amounts) -> Option<Quantity> = match kind {
                Kind::Cpu => |amounts| amounts.cpu,
                Kind::Memory => |amounts| amounts.memory,
            };
            let chain = match kind {
                Kind::Cpu => said.explanation.cpu.clone(),
                Kind::Memory => said.explanation.memory.clone(),
            }?;
            let fresh = Numbers::of([said.target, said.lower, said.upper, said.uncapped], pick);
            let amounts = |list: &ResourceList| Amounts { cpu: list.cpu(), memory: list.memory() };
            let status = written.map(|one| {
                let lists = [&one.target, &one.lower_bound, &one.upper_bound, &one.uncapped_target];
                Numbers::of(lists.map(amounts), pick)
            });
            let status = status.filter(|status| *status != Numbers::default());
            let agreement = match agreement(kind, &chain, status.as_ref(), &fresh, self.now) {
                // What was told is of the very moment when the status was written.
                Agreement::Drift if self.is_told => Agreement::Differs,
                agreement => agreement,
            };
            let requests = requests(&has, kind, fresh.target);
            Some(Resource { agreement, status, recomputed: fresh, chain, requests })
        };
        let mine = self.kills.iter().filter(|kill| kill.container == *name);
        let kill = |kill: &pod::Kill| Kill {
            pod: Arc::clone(&kill.pod),
            at: kill.at,
            counted: self.counted(kill, said),
        };
        Container {
            name: Arc::clone(name),
            pods: has.len(),
            kills: mine.map(kill).collect(),
            cpu: resource(Kind::Cpu),
            memory: resource(Kind::Memory),
        }
    }

    fn counted(&self, kill: &pod::Kill, said: &ContainerRecommendation) -> Option<bool> {
        if self.is_told {
            let bump = said.explanation.memory.as_ref().and_then(|memory| memory.bump);
            return bump.is_some_and(|bump| bump.at == kill.at).then_some(true);
        }
        let watched = self.core.fleet.get(self.key);
        let history = watched.and_then(|watched| watched.history().get(&said.container));
        let known = history.zip(self.core.fleet.rules(self.key, &said.container));
        Some(known.is_some_and(|(history, rules)| history.knows_kill(&kill.pod, kill.at, &rules)))
    }
}

fn requests(has: &[&pod::Container], kind: Kind, target: Option<Quantity>) -> Requests {
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

fn target(vpa: &VerticalPodAutoscaler, core: &Core, key: &VpaKey) -> report::Target {
    let known = core.index.vpa(key);
    let (state, message) = match known.map(crate::observe::index::Vpa::target) {
        Some(Target::Found) => ("found", None),
        Some(Target::Unsupported(message)) => ("unsupported", Some(message.to_string())),
        Some(Target::Unavailable(message)) => ("unavailable", Some(message.to_string())),
        Some(Target::Unknown) | None => ("unavailable", None),
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

fn left_out(
    core: &Core,
    key: &VpaKey,
    verdict: &Verdict,
    written: &BTreeMap<&str, &vpa::ContainerRecommendation>,
    is_told: bool,
) -> Vec<LeftOut> {
    let Some(watched) = core.fleet.get(key) else { return Vec::new() };
    let left = |container: &Arc<str>, why: &str| LeftOut {
        container: Arc::clone(container),
        why: why.to_owned(),
    };
    let off = watched.history().iter().map(|(name, _)| name).filter(|name| watched.is_off(name));
    let mut all: Vec<LeftOut> = off.map(|name| left(name, "off")).collect();
    all.extend(verdict.said.stale.iter().map(|name| left(name, "stale")));
    let said = |name: &str| verdict.said.containers.iter().any(|one| *one.container == *name);
    for name in written.keys().filter(|name| !said(name)) {
        if !all.iter().any(|one| *one.container == **name) {
            let why = if is_told { "unexplained" } else { "onlyInStatus" };
            all.push(left(&Arc::from(*name), why));
        }
    }
    all
}

/// Those that would be, and those that are written and would not be any more.
fn conditions(vpa: &VerticalPodAutoscaler, verdict: &Verdict) -> Vec<Condition> {
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
struct Judged<'a> {
    config: &'a ExplainConfig,
    vpa: &'a VerticalPodAutoscaler,
    core: &'a Core,
    key: &'a VpaKey,
    containers: &'a [Container],
    stored: &'a Stored,
    has_status: bool,
}

impl Judged<'_> {
    fn remarks(&self) -> (Vec<Finding>, Vec<String>) {
        let (mut findings, mut notes) = (Vec::new(), Vec::new());
        match self.core.index.vpa(self.key).map(crate::observe::index::Vpa::target) {
            Some(Target::Unsupported(why)) => {
                findings.push(Finding::new("config_unsupported", why.to_string()));
            }
            Some(Target::Unavailable(why)) => {
                findings.push(Finding::new("target_unavailable", why.to_string()));
            }
            _ => {}
        }
        self.of_history(&mut findings, &mut notes);
        self.of_numbers(&mut findings, &mut notes);
        for bad in ignored(self.core, self.key) {
            findings.push(Finding::new("annotation_ignored", bad.to_string()));
        }
        if !self.config.settings.per_vpa_tuning && self.stored.told.is_none() {
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

    fn of_history(&self, findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
        // A record of one of its containers, or something about itself.
        let (container, itself) = (format!("{}/", self.key), format!("{},", self.key));
        let of_it = |skipped: &&Skipped| {
            skipped.what.starts_with(&container) || skipped.what.starts_with(&itself)
        };
        for Skipped { what, why } in self.stored.skipped.iter().filter(of_it) {
            let text = format!("{what} was passed over: {why}.");
            // The status beside it counts, an empty object is only young, and what was told says it all.
            let is_told = self.stored.told.is_some();
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
    fn is_upstreams(&self, container: &str) -> bool {
        let of_it = |record: &&StoredRecord| *record.container == *container;
        self.stored.records.iter().find(of_it).is_some_and(|record| record.form == Form::Upstream)
    }

    fn of_numbers(&self, findings: &mut Vec<Finding>, notes: &mut Vec<String>) {
        let used = self.stored.records.iter().any(|record| record.outcome == "used");
        let resources = self.containers.iter().flat_map(|container| {
            let both = [("cpu", &container.cpu), ("memory", &container.memory)];
            both.into_iter().filter_map(|(name, it)| Some((&container.name, name, it.as_ref()?)))
        });
        let mut drift = false;
        for (container, name, resource) in resources {
            match resource.agreement {
                Agreement::Differs if self.stored.told.is_some() => findings.push(Finding::new(
                    "numbers_differ",
                    format!(
                        "{name} of {container} in the status does not follow from its explanation: somebody has \
                         changed the annotation {}.",
                        annotation::KEY
                    ),
                )),
                Agreement::Differs if used && name == "memory" && self.is_upstreams(container) => {
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
