//! How this controller decides about one object: the mode that applies, and the spec that it follows.

use kube::ResourceExt as _;
use plimsoll_core::{
    api::annotations::InvalidAnnotation,
    hpa::{
        Decision, HpaOptions, Spec, assist,
        takeover::{IneffectiveMode, ObjectMode, takeover},
    },
    scaling::Restriction,
};

use super::{
    config::{HorizontalConfig, HorizontalMode},
    object::RecordedHpa,
};

const ZERO_WITHOUT_QUERY: &str = "plimsoll.dev/scale-to-zero has no effect without a metric that is queried: the HPA \
     controller reads no metric while there are no replicas; add query.plimsoll.dev/<metric> and target.plimsoll.dev/<metric>";

/// The mode of an object, and the rules that apply in it.
pub(super) struct OwnRules {
    mode: ObjectMode,
    /// Whether this controller replaces the HPA controller of the cluster, so that it changes the replicas in any mode.
    pub replaces: bool,
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
}

impl OwnRules {
    /// The rules of this version of an object.
    pub fn of(object: &RecordedHpa, spec: &Spec, config: &HorizontalConfig) -> Self {
        let takeover = takeover(object.annotations(), object.owner_references(), spec);
        let replaces = config.mode == HorizontalMode::Replace;
        let mode = match config.mode {
            HorizontalMode::Shadow => ObjectMode::Shadow,
            HorizontalMode::Adopted | HorizontalMode::Replace => takeover.mode,
        };
        let acts = replaces || mode != ObjectMode::Shadow;
        let spec = acts.then(|| takeover.effective_spec(spec));
        let (mut options, invalid) = if acts {
            HpaOptions::from_annotations(object.annotations(), config.period)
        } else {
            Default::default()
        };
        let ignores_zero = !replaces && options.require_query_for_zero();
        // No other controller acts that would have to be disabled.
        let ineffective = takeover.ineffective.filter(|why| !replaces || why.is_invalid());
        Self { mode, replaces, spec, ineffective, options, invalid, ignores_zero }
    }

    /// The name of the mode, as in metrics.
    pub fn mode_name(&self) -> &'static str {
        if self.replaces { HorizontalMode::Replace.as_str() } else { self.mode.as_str() }
    }

    /// What is wrong with the annotations, with the reasons of events.
    pub fn warnings(&self) -> Vec<(&'static str, String)> {
        let ineffective = self.ineffective.iter().map(|why| ("ModeWithoutEffect", why.to_string()));
        let invalid = self.invalid.iter().map(|why| ("InvalidAnnotation", why.to_string()));
        let zero = self.ignores_zero.then(|| ("InvalidAnnotation", ZERO_WITHOUT_QUERY.to_owned()));
        ineffective.chain(invalid).chain(zero).collect()
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
        if self.replaces {
            return own;
        }
        if self.mode == ObjectMode::Assist {
            own = assist(&own, builtin);
        }
        if self.ineffective.is_some() {
            own.restrictions.push(Restriction::BuiltinActs);
        }
        own
    }
}
