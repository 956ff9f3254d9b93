//! How this controller decides about one object: the mode that applies, and the spec that it follows.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::{
    api::annotations::InvalidAnnotation,
    coordination::Template,
    hpa::{
        Config, Decision, HpaOptions, Pod, Spec, assist,
        takeover::{IneffectiveMode, ObjectMode, takeover},
        vpa_rules::{TargetVpa, VpaContext, VpaRules},
    },
    scaling::Restriction,
    types::Time,
};

use super::{
    config::{HorizontalConfig, HorizontalMode},
    object::RecordedHpa,
};

const ZERO_WITHOUT_QUERY: &str = "plimsoll.dev/scale-to-zero has no effect without a metric that is queried: the HPA \
     controller reads no metric while there are no replicas; add query.plimsoll.dev/<metric> and target.plimsoll.dev/<metric>";

/// What the rules about VPAs depend on.
#[derive(Clone, Copy)]
pub(super) struct VpaTarget<'a> {
    /// The VPAs of the target; `None` until all are listed.
    pub vpas: Option<&'a [Arc<TargetVpa>]>,
    pub pods: &'a [Pod],
    pub template: &'a Template,
}

/// The mode of an object, and the rules that apply in it.
pub(super) struct OwnRules {
    pub mode: ObjectMode,
    /// The spec with the rules of the annotation, in a mode that changes replicas.
    spec: Option<Spec>,
    /// Why the mode that the object asks for does not apply.
    ineffective: Option<IneffectiveMode>,
    /// What the annotations say besides. Without effect in shadow.
    pub options: HpaOptions,
    /// The annotations that are ignored.
    invalid: Vec<InvalidAnnotation>,
    /// Whether the target may not be scaled to zero although an annotation says so.
    ignores_zero: bool,
    /// What the VPAs of the target mean for the replicas.
    vpa: VpaRules,
}

impl OwnRules {
    /// The rules of this version of an object.
    pub fn of(object: &RecordedHpa, spec: &Spec, config: &HorizontalConfig) -> Self {
        let takeover = takeover(object.annotations(), object.owner_references(), spec);
        let mode = match config.mode {
            HorizontalMode::Shadow => ObjectMode::Shadow,
            HorizontalMode::Adopted => takeover.mode,
        };
        let spec = (mode != ObjectMode::Shadow).then(|| takeover.effective_spec(spec));
        let (mut options, invalid) = if mode == ObjectMode::Shadow {
            Default::default()
        } else {
            HpaOptions::from_annotations(object.annotations(), config.period)
        };
        let ignores_zero = options.require_query_for_zero();
        let ineffective = takeover.ineffective;
        Self { mode, spec, ineffective, options, invalid, ignores_zero, vpa: VpaRules::default() }
    }

    /// Takes the VPAs of the target into account.
    pub fn with_vpas(mut self, target: VpaTarget<'_>, hpa: &Config, now: Time) -> Self {
        let Some(spec) = &self.spec else { return self };
        let context = VpaContext {
            vpas: target.vpas,
            pods: target.pods,
            template: target.template,
            // In assist mode the HPA controller adds replicas by the requests of the pods.
            is_only_writer: self.mode == ObjectMode::Drive,
            follows_utilization: self.options.utilization_of.is_some(),
            readiness: self.options.config(hpa).initial_readiness_delay,
            now,
        };
        self.vpa = VpaRules::new(spec, context);
        if let Some(spec) = self.vpa.spec.take() {
            self.spec = Some(spec);
        }
        self
    }

    /// What is wrong with the annotations, with the reasons of events.
    pub fn warnings(&self) -> Vec<(&'static str, String)> {
        let ineffective = self.ineffective.iter().map(|why| ("ModeWithoutEffect", why.to_string()));
        let invalid = self.invalid.iter().map(|why| ("InvalidAnnotation", why.to_string()));
        let zero = self.ignores_zero.then(|| ("InvalidAnnotation", ZERO_WITHOUT_QUERY.to_owned()));
        let vpa = self.vpa.warnings.iter().map(|why| ("VpaSameResource", why.clone()));
        ineffective.chain(invalid).chain(zero).chain(vpa).collect()
    }

    /// Whether this controller changes the replicas.
    pub fn acts(&self) -> bool {
        self.spec.is_some()
    }

    /// The spec that the decisions of this controller follow.
    pub fn spec<'a>(&'a self, original: &'a Spec) -> &'a Spec {
        self.spec.as_ref().unwrap_or(original)
    }

    /// The decision to apply: in assist never fewer replicas than the HPA controller wants, which would add them again.
    pub fn combine(&self, mut own: Decision, builtin: &Decision) -> Decision {
        if self.mode == ObjectMode::Assist {
            own = assist(&own, builtin);
        }
        self.vpa.apply(&mut own);
        if self.ineffective.is_some() {
            own.restrictions.push(Restriction::BuiltinActs);
        }
        own
    }
}
