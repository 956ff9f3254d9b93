//! How this controller decides about one object: the mode that applies, and the spec that it follows.

use std::{
    ops::Deref,
    sync::{Arc, Weak},
};

use kube::ResourceExt as _;
use plimsoll_core::{
    api::annotations::{HOLD_WHILE, InvalidAnnotation},
    coordination::Template,
    hpa::{
        Config, Decision, HpaOptions, Pod, SharedMemory, Spec, assist,
        options::UtilizationOf,
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
use crate::cluster::metric_sources::firing_alerts::{alert_query, missing_label_warning};

const ZERO_WITHOUT_QUERY: &str = "plimsoll.dev/scale-to-zero has no effect without a metric that is queried: the HPA \
     controller reads no metric while there are no replicas; add query.plimsoll.dev/<metric> and target.plimsoll.dev/<metric>";

/// What the rules about VPAs depend on.
#[derive(Clone, Copy)]
pub(super) struct VpaTarget<'a> {
    /// The VPAs of the target; `None` until all are listed.
    pub vpas: Option<&'a [Arc<TargetVpa>]>,
    pub pods: &'a [Pod],
    pub template: &'a Template,
    /// What is remembered about the requests of its pods.
    pub memory: &'a SharedMemory,
}

/// The mode of an object, and the rules that apply in it.
#[derive(Debug)]
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
    /// The query for the alert that holds the replicas.
    pub alert: Option<String>,
    /// Why the state of that alert may never be known.
    alert_warning: Option<String>,
    invalid: Vec<InvalidAnnotation>,
    /// Whether the target may not be scaled to zero although an annotation says so.
    ignores_zero: bool,
}

/// The rules of an object in one reconcile.
pub(super) struct AppliedRules {
    own: Arc<OwnRules>,
    /// What the VPAs of the target mean for the replicas.
    vpa: VpaRules,
}

impl Deref for AppliedRules {
    type Target = OwnRules;

    fn deref(&self) -> &OwnRules {
        &self.own
    }
}

/// The rules of the version of an object that was read last, unless it is only shadowed: then there is little to read.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedRules(Option<(Weak<RecordedHpa>, Arc<OwnRules>)>);

impl CachedRules {
    /// The rules of this version of an object.
    pub fn of(
        &mut self,
        object: &Arc<RecordedHpa>,
        spec: &Spec,
        config: &HorizontalConfig,
    ) -> Arc<OwnRules> {
        if let Some((version, rules)) = &self.0
            && std::ptr::eq(version.as_ptr(), Arc::as_ptr(object))
        {
            return Arc::clone(rules);
        }
        let rules = Arc::new(OwnRules::of(object, spec, config));
        self.0 = rules.acts().then(|| (Arc::downgrade(object), Arc::clone(&rules)));
        rules
    }
}

impl OwnRules {
    pub fn of(object: &RecordedHpa, spec: &Spec, config: &HorizontalConfig) -> Self {
        let takeover = takeover(object.annotations(), object.owner_references(), spec);
        let replaces = config.mode == HorizontalMode::Replace;
        let mode = match config.mode {
            HorizontalMode::Shadow => ObjectMode::Shadow,
            HorizontalMode::Adopted | HorizontalMode::Replace => takeover.mode,
        };
        let acts = replaces || mode != ObjectMode::Shadow;
        let spec = acts.then(|| takeover.effective_spec(spec));
        let (mut options, mut invalid, mut alert) = Default::default();
        if acts {
            (options, invalid) =
                HpaOptions::from_annotations(object.annotations(), config.settings.period);
            match HOLD_WHILE.read(object.annotations(), alert_query) {
                Ok(found) => alert = found,
                Err(why) => invalid.push(why),
            }
        }
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let alert_warning =
            alert.as_deref().and_then(|query| alert_warning(query, namespace, config));
        let ignores_zero = !replaces && options.require_query_for_zero();
        // No other controller acts that would have to be disabled.
        let ineffective = takeover.ineffective.filter(|why| !replaces || why.is_invalid());
        Self {
            mode,
            replaces,
            spec,
            ineffective,
            options,
            alert,
            alert_warning,
            invalid,
            ignores_zero,
        }
    }

    /// Whether this controller changes the replicas.
    pub fn acts(&self) -> bool {
        self.spec.is_some()
    }

    /// Whether the template of the target matters without a VPA.
    pub fn asks_for_template(&self) -> bool {
        self.options.utilization_of == Some(UtilizationOf::Template)
    }

    /// The name of the mode, as in metrics.
    pub fn mode_name(&self) -> &'static str {
        if self.replaces { HorizontalMode::Replace.as_str() } else { self.mode.as_str() }
    }
}

impl AppliedRules {
    /// The rules, if no VPA has to be taken into account.
    pub fn without_vpas(own: Arc<OwnRules>) -> Self {
        Self { own, vpa: VpaRules::default() }
    }

    /// Takes the VPAs of the target into account, if this controller changes the replicas.
    pub fn with_vpas(own: Arc<OwnRules>, target: VpaTarget<'_>, hpa: &Config, now: Time) -> Self {
        let Some(spec) = &own.spec else { return Self::without_vpas(own) };
        let context = VpaContext {
            vpas: target.vpas,
            pods: target.pods,
            template: target.template,
            // In assist mode the HPA controller adds replicas by the requests of the pods.
            is_only_writer: own.replaces || own.mode == ObjectMode::Drive,
            utilization_of: own.options.utilization_of,
            pod_level_resources: hpa.pod_level_resources,
            memory: target.memory,
            readiness: own.options.config(hpa).initial_readiness_delay,
            now,
        };
        let vpa = VpaRules::new(spec, context);
        Self { own, vpa }
    }

    /// What is wrong with the annotations, with the reasons of events.
    pub fn warnings(&self) -> Vec<(&'static str, String)> {
        let ineffective = self.ineffective.iter().map(|why| ("ModeWithoutEffect", why.to_string()));
        let invalid = self.invalid.iter().map(|why| ("InvalidAnnotation", why.to_string()));
        let zero = self.ignores_zero.then(|| ("InvalidAnnotation", ZERO_WITHOUT_QUERY.to_owned()));
        let vpa =
            self.vpa.warnings.iter().map(|why| (vpa_event_reason(why.code), why.message.clone()));
        let alert = self.alert_warning.iter().map(|why| ("AlertNotFound", why.clone()));
        ineffective.chain(invalid).chain(zero).chain(vpa).chain(alert).collect()
    }

    /// The spec that the decisions of this controller follow.
    pub fn spec<'a>(&'a self, original: &'a Spec) -> &'a Spec {
        self.vpa.spec.as_ref().or(self.own.spec.as_ref()).unwrap_or(original)
    }

    /// Remembers what a decision shows about requests that VPAs change. `tolerance` is that for scaling up.
    pub fn remember(&self, memory: &mut SharedMemory, decision: &Decision, tolerance: f64) {
        self.vpa.remember(memory, decision, tolerance);
    }

    /// The decision to apply: in assist never fewer replicas than the HPA controller wants, which would add them again.
    pub fn combine(&self, mut own: Decision, builtin: &Decision) -> Decision {
        if !self.replaces && self.mode == ObjectMode::Assist {
            own = assist(&own, builtin);
        }
        self.vpa.apply(&mut own);
        if !self.replaces && self.ineffective.is_some() {
            own.restrictions.push(Restriction::BuiltinActs);
        }
        own
    }
}

/// The reason of the event about a finding of [`VpaRules`].
fn vpa_event_reason(code: &str) -> &'static str {
    if code == "scale_point_too_low" { "ScalePointTooLow" } else { "VpaSameResource" }
}

/// Why the state of an alert may never be known.
fn alert_warning(query: &str, namespace: &str, config: &HorizontalConfig) -> Option<String> {
    if config.queries.transport.address.is_empty() {
        return Some(format!(
            "annotation {}: replicas are not changed, because no Prometheus server is configured that knows the alert: \
             set --prometheus-address",
            HOLD_WHILE.name
        ));
    }
    let tenant = config.queries.scope.matcher(namespace)?;
    missing_label_warning(query, &tenant, "holds replicas")
}
