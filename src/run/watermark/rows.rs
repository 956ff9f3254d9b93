//! What metrics show of an object: taken from its last decision, kept until the next one.

use plimsoll_core::types::Time;

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::Unknown,
    types::compat::{Fix, Fixes},
    watermark::{
        Decision, Restriction, Rules, Uncomputable,
        conditions::{Fact, since, time},
    },
};

/// One source, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShownSource {
    /// Its name, as labels have it.
    pub label: String,
    /// What was compared with the marks, in thousandths.
    pub value: Option<f64>,
    /// Its marks, in thousandths.
    pub marks: Option<(i64, i64)>,
    /// What follows from it.
    pub proposal: Option<i32>,
}

/// A monitor that has to be well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownMonitor {
    /// Its name.
    pub name: String,
    /// Whether it keeps replicas where they are.
    pub blocks: bool,
}

/// What is shown of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shown {
    /// Kind and name of the target.
    pub target: (String, String),
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// The bounds.
    pub bounds: (i32, i32),
    /// How far beyond a mark is still inside, in thousandths of the mark.
    pub tolerance: i64,
    /// Replicas that there are to be.
    pub effective: Option<i32>,
    /// What conditions say.
    pub scaling_active: bool,
    /// Of those that have a gauge.
    pub conditions: Vec<(&'static str, bool)>,
    /// Upstream's three reasons.
    pub within_bounds: Option<bool>,
    /// More would be added at once than may be.
    pub upscale_capping: Option<bool>,
    /// More would be removed at once than may be.
    pub downscale_capping: Option<bool>,
    /// Seconds until replicas may be added and removed.
    pub countdown: Option<(f64, f64)>,
    /// Replicas added and removed.
    pub moved: Option<(u64, u64)>,
    /// Labels of the object that are shown.
    pub labels: Vec<(String, String)>,
    /// What has to be well.
    pub monitor: Option<ShownMonitor>,
    /// Its sources.
    pub sources: Vec<ShownSource>,
    /// Why it has not the replicas that its metrics ask for.
    pub reasons: Vec<Restriction>,
    /// When it was looked at.
    pub at: Time,
    /// When one of its sources told a value last.
    pub told: Option<Time>,
}

/// The longest value of a label about a target, in bytes: no kind and no name is longer. An object is shown before it is
/// known whether it can be followed.
const LONGEST: usize = 253;

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}

impl Shown {
    /// What an object asks for, with what was shown before of all else.
    pub fn of(spec: &WatermarkPodAutoscalerSpec, before: Option<&Self>, now: Time) -> Self {
        let target = &spec.scale_target_ref;
        let rules = Rules::of(spec);
        Self {
            target: (shortened(&target.kind), shortened(&target.name)),
            dry_run: spec.dry_run,
            bounds: (rules.limits.min, rules.limits.max),
            tolerance: rules.tolerance,
            at: now,
            reasons: Vec::new(),
            sources: Vec::new(),
            ..before.cloned().unwrap_or_default()
        }
    }

    /// Nobody follows it: what held of the last decision holds no more.
    pub fn forget_limits(&mut self) {
        self.within_bounds = None;
        self.upscale_capping = None;
        self.downscale_capping = None;
    }

    /// The same, and nobody looks at it again by himself, so that nothing would run down.
    pub fn forget(&mut self) {
        self.forget_limits();
        self.countdown = None;
        self.monitor = None;
    }

    /// What is left by the last change, where nothing was decided yet: for whoever takes over while nothing can be.
    pub fn begin_countdown(
        &mut self,
        filled: &WatermarkPodAutoscalerSpec,
        status: &WatermarkPodAutoscalerStatus,
    ) {
        if let (None, Some(last)) = (self.countdown, &status.last_scale_time) {
            let rules = Rules::of(filled);
            let left = |window| time(last).later(window).nanos_since(self.at).max(0) as f64 / 1e9;
            self.countdown = Some((left(rules.up_window), left(rules.down_window)));
        }
    }

    /// The time that was left runs down, whether anything can be decided or not.
    pub fn run_down(&mut self, since: Time) {
        let gone = self.at.nanos_since(since) as f64 / 1e9;
        let left = |seconds: f64| (seconds - gone).max(0.0);
        self.countdown = self.countdown.map(|(up, down)| (left(up), left(down)));
    }

    /// What its conditions say by now.
    pub fn conditions(&mut self, status: &WatermarkPodAutoscalerStatus) {
        let said = |fact: Fact| {
            let is_there = status.conditions.iter().any(|one| one.kind == fact.name());
            is_there.then(|| since(status, fact).holds)
        };
        self.scaling_active = said(Fact::ScalingActive) == Some(true);
        let shown = Fact::ALL.into_iter().filter_map(|fact| Some((fact.label()?, said(fact)?)));
        self.conditions = shown.collect();
    }

    /// What was decided.
    pub fn decision(&mut self, decision: &Decision, rules: &Rules, fixes: Fixes) {
        self.reasons = decision.restrictions(rules);
        if decision.rows.iter().any(|row| row.outcome.is_ok()) {
            self.told = Some(self.at);
        }
        self.sources = decision
            .rows
            .iter()
            .map(|row| {
                let asked = row.outcome.as_ref().ok();
                ShownSource {
                    label: row.label.clone(),
                    value: asked.filter(|asked| !asked.is_silent).map(|asked| asked.proposal.value),
                    marks: row.band.map(|band| (band.low, band.high)),
                    proposal: asked.map(|asked| asked.proposal.replicas),
                }
            })
            .collect();
        match &decision.combined {
            Ok(_) => {
                let is_shown = fixes.has(Fix::CappingIsShownRight);
                self.within_bounds = Some(is_shown && decision.is_within_bounds());
                if let Some(normal) = decision.normal {
                    self.upscale_capping = normal.upscale_capping.or(self.upscale_capping);
                    self.downscale_capping = normal.downscale_capping.or(self.downscale_capping);
                }
            }
            // Nobody knows whether it is held back where nothing is known. Pods that are not ready say nothing of that.
            Err(Uncomputable::Source { why: Unknown::Unready(_), .. }) => {}
            Err(_) => {
                self.within_bounds = None;
                self.upscale_capping = None;
                self.downscale_capping = None;
            }
        }
        if let Some(left) = decision.passage.and_then(|passage| passage.left) {
            self.countdown = Some((left.up, left.down));
        }
        if decision.combined.is_ok() || decision.change.is_some() {
            self.effective = Some(decision.desired);
        }
    }
}
