//! What a VerticalPodAutoscaler of the same target means for replicas that Plimsoll sets.

use std::{sync::Arc, time::Duration};

use super::{
    decision::Decision,
    lint::contested_resources,
    pause::PausedDirection,
    pod::Pod,
    scale_point::{request_metrics, with_rule},
    spec::Spec,
};
use crate::{
    api::vpa::VerticalPodAutoscalerSpec,
    coordination::{PodUpdates, RatioRule, Resource, ScalePoint, Template},
    scaling::{Restriction, pod_readiness::Phase},
    types::Time,
};

/// A VPA whose target is that of the object.
#[derive(Clone, Debug)]
pub struct TargetVpa {
    /// Its name.
    pub name: Box<str>,
    /// `spec`.
    pub spec: VerticalPodAutoscalerSpec,
    /// The updates of pods that the updater recorded on it.
    pub updates: Option<PodUpdates>,
}

/// What the rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct VpaContext<'a> {
    /// The VPAs of the target; `None` until all are listed.
    pub vpas: Option<&'a [Arc<TargetVpa>]>,
    /// The pods of the target.
    pub pods: &'a [Pod],
    /// Its template.
    pub template: &'a Template,
    /// Whether only Plimsoll changes the replicas. Beside another controller they have to follow what that one follows.
    pub is_only_writer: bool,
    /// Whether the object asks for the utilization of something.
    pub follows_utilization: bool,
    /// How long a pod counts as starting after it became ready.
    pub readiness: Duration,
    /// The current time.
    pub now: Time,
}

/// What the VPAs of a target mean for its replicas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VpaRules {
    /// The spec whose targets are scale points; `None` if it does not change.
    pub spec: Option<Spec>,
    /// The resources whose target is a scale point, with it and the VPA.
    pub scale_points: Vec<FollowedScalePoint>,
    /// Whether no replica is removed.
    pub holds_removal: bool,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// A scale point that replicas follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedScalePoint {
    /// The VPA that changes the requests.
    pub vpa: Box<str>,
    /// The resource.
    pub resource: Resource,
    /// The scale point in milli-units.
    pub milli: i64,
}

impl VpaRules {
    /// The rules for an object with this spec.
    pub fn new(spec: &Spec, context: VpaContext<'_>) -> Self {
        let mut rules = Self::default();
        let Some(vpas) = context.vpas else {
            rules.holds_removal = request_metrics(spec).next().is_some();
            return rules;
        };
        rules.holds_removal = vpas
            .iter()
            .any(|vpa| vpa.updates.is_some_and(|updates| hold_removal(updates, context)));
        if !context.is_only_writer {
            return rules;
        }
        let own: Vec<&Pod> = context.pods.iter().filter(|pod| !pod.is_foreign).collect();
        for vpa in vpas {
            let contested = contested_resources(spec, &own, &vpa.spec);
            for metric in request_metrics(spec) {
                let name = metric.resource.to_string();
                if contested.contains(&&*name) {
                    rules.follow(spec, vpa, metric.index, context);
                }
            }
        }
        rules
    }

    /// Replaces the target of a metric whose requests a VPA changes.
    fn follow(&mut self, spec: &Spec, vpa: &TargetVpa, index: usize, context: VpaContext<'_>) {
        let Some(metric) = request_metrics(spec).find(|metric| metric.index == index) else {
            return;
        };
        let (resource, vpa) = (metric.resource, &vpa.name);
        let conflict = format!(
            "VerticalPodAutoscaler {vpa} changes the {resource} requests that the target is a percentage of"
        );
        if context.follows_utilization {
            self.warnings.push(format!(
                "{conflict}, and plimsoll.dev/utilization-of makes the replicas follow them; remove that annotation"
            ));
            return;
        }
        let template = match context.template {
            Template::Known(template) => template,
            Template::NotListed => {
                self.holds_removal = true;
                return;
            }
            Template::Unsupported => {
                self.warnings.push(format!(
                    "{conflict}, and the pod template of the target is not known, so the replicas follow the requests; use \
                     an averageValue"
                ));
                return;
            }
        };
        let request = template.request(resource, metric.container);
        let Some(point) = ScalePoint::of(metric.percent, request, None) else {
            self.warnings.push(format!(
                "{conflict}, and a container of the pod template has no {resource} request, so the replicas follow the \
                 requests of the pods; add one, or use an averageValue"
            ));
            return;
        };
        let rule = RatioRule::Usage { average_milli: point.milli };
        self.spec = Some(with_rule(self.spec.as_ref().unwrap_or(spec), index, rule));
        let followed = FollowedScalePoint { vpa: vpa.clone(), resource, milli: point.milli };
        self.scale_points.push(followed);
    }

    /// Applies the rules to a decision about the spec of [`Self::spec`].
    pub fn apply(&self, decision: &mut Decision) {
        if !self.scale_points.is_empty() {
            decision.restrict(Restriction::AtScalePoint);
        }
        if self.holds_removal {
            decision.hold(PausedDirection::Down, Restriction::VpaWave);
        }
    }
}

/// Whether the updated pods are not all ready yet, or became ready so recently that their first samples may be of a time
/// in which they did not have their share of the load.
fn hold_removal(updates: PodUpdates, context: VpaContext<'_>) -> bool {
    let VpaContext { pods, readiness, now, .. } = context;
    let is_live = |pod: &&Pod| {
        !pod.is_foreign
            && !pod.is_terminating
            && !matches!(pod.phase, Phase::Succeeded | Phase::Failed)
    };
    let ready_since = pods.iter().filter(is_live).map(|pod| {
        let is_updated = pod.is_ready() && !is_being_resized(pod);
        let since = pod.ready.and_then(|condition| condition.since).unwrap_or(Time::EPOCH);
        is_updated.then_some(since)
    });
    updates.wave(ready_since, now).holds_removal(readiness, now).is_some()
}

/// Whether the kubelet has not actuated all requests of the spec yet.
fn is_being_resized(pod: &Pod) -> bool {
    pod.containers.iter().chain(&pod.init_containers).any(|container| {
        container.actuated.as_ref().is_some_and(|actuated| {
            let mut requests = container.requests.iter();
            requests.any(|(resource, amount)| {
                matches!(&**resource, "cpu" | "memory")
                    && actuated.get(resource).is_some_and(|actuated| actuated != amount)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        coordination::ContainerRequests,
        hpa::pod::{Container, ReadyCondition, ReadyStatus},
        types::Quantity,
    };

    const NOW: Time = Time::from_secs(1_800_000_000);
    const READINESS: Duration = Duration::from_secs(30);

    fn spec() -> Spec {
        let spec = json!({"maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}},
        ]});
        Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("a valid spec")
    }

    fn vpa(mode: &str, resources: &[&str], updates: Option<PodUpdates>) -> Arc<TargetVpa> {
        let spec = json!({
            "targetRef": {"kind": "Deployment", "name": "web"}, "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": resources}]},
        });
        let spec = serde_json::from_value(spec).expect("a VPA");
        Arc::new(TargetVpa { name: "web".into(), spec, updates })
    }

    fn ago(seconds: u64) -> Time {
        NOW.earlier(Duration::from_secs(seconds))
    }

    fn pod(ready_since: Option<Time>) -> Pod {
        let cpu = |amount: &str| {
            [("cpu".to_owned(), amount.parse::<Quantity>().expect("a quantity"))].into()
        };
        let status = if ready_since.is_some() { ReadyStatus::True } else { ReadyStatus::False };
        Pod {
            phase: Phase::Running,
            ready: Some(ReadyCondition { status, since: ready_since }),
            containers: vec![Container {
                name: "app".to_owned(),
                requests: cpu("400m"),
                actuated: Some(cpu("400m")),
                ..Container::default()
            }],
            ..Pod::default()
        }
    }

    fn template(cpu: Option<i64>) -> Template {
        let container = ContainerRequests { name: "app".into(), cpu, memory: None };
        Template::Known([container].into_iter().collect())
    }

    fn rules(
        vpas: Option<&[Arc<TargetVpa>]>,
        pods: &[Pod],
        change: impl Fn(&mut VpaContext<'_>),
    ) -> VpaRules {
        let mut context = VpaContext {
            vpas,
            pods,
            template: &template(Some(500)),
            is_only_writer: true,
            follows_utilization: false,
            readiness: READINESS,
            now: NOW,
        };
        change(&mut context);
        VpaRules::new(&spec(), context)
    }

    #[test]
    fn replicas_follow_the_scale_point_of_the_resource_that_a_vpa_changes() {
        let pods = [pod(Some(ago(600)))];
        let changes_cpu = [vpa("Recreate", &["cpu"], None)];
        let found = rules(Some(&changes_cpu), &pods, |_| {});
        let expected = with_rule(&spec(), 0, RatioRule::Usage { average_milli: 300 });
        assert_eq!(found.spec, Some(expected));
        assert_eq!(
            found.scale_points,
            [FollowedScalePoint { vpa: "web".into(), resource: Resource::Cpu, milli: 300 }]
        );
        assert!(!found.holds_removal && found.warnings.is_empty());
        for none in [
            rules(Some(&[]), &pods, |_| {}),
            rules(Some(&[vpa("Off", &["cpu"], None)]), &pods, |_| {}),
            rules(Some(&changes_cpu), &pods, |context| context.is_only_writer = false),
        ] {
            assert_eq!(none, VpaRules::default());
        }
    }

    #[test]
    fn without_a_scale_point_replicas_follow_the_requests_with_a_warning() {
        let (pods, vpas) = ([pod(Some(ago(600)))], [vpa("Auto", &["cpu"], None)]);
        let no_request = template(None);
        for (found, expected) in [
            (
                rules(Some(&vpas), &pods, |one| one.follows_utilization = true),
                "remove that annotation",
            ),
            (
                rules(Some(&vpas), &pods, |one| one.template = &Template::Unsupported),
                "use an averageValue",
            ),
        ] {
            assert_eq!(found.spec, None);
            assert!(found.warnings[0].contains(expected), "{:?}", found.warnings);
        }
        let mut context = VpaContext {
            vpas: Some(&vpas),
            pods: &pods,
            template: &no_request,
            is_only_writer: true,
            follows_utilization: false,
            readiness: READINESS,
            now: NOW,
        };
        let found = VpaRules::new(&spec(), context);
        assert!(found.warnings[0].contains("has no cpu request"), "{:?}", found.warnings);
        // Until the template is known, nothing is removed.
        context.template = &Template::NotListed;
        let found = VpaRules::new(&spec(), context);
        assert!(found.holds_removal && found.spec.is_none());
    }

    #[test]
    fn nothing_is_removed_before_the_vpas_are_known() {
        assert!(rules(None, &[], |_| {}).holds_removal);
    }

    #[test]
    fn a_wave_holds_until_its_pods_have_been_ready_for_a_while() {
        let updates = |last: u64| Some(PodUpdates { began: ago(last + 60), last: ago(last) });
        let mut resized = pod(Some(ago(3600)));
        resized.containers[0].requests.insert(
            "cpu".to_owned(),
            Quantity::from_milli(500, crate::types::quantity::Format::DecimalSi),
        );
        let leaving = Pod { is_terminating: true, ..pod(None) };
        let foreign = Pod { is_foreign: true, ..pod(None) };
        for (last, pods, expected) in [
            (10, vec![pod(Some(ago(3600)))], true),
            (31, vec![pod(Some(ago(3600)))], false),
            (100, vec![pod(Some(ago(3600))), pod(None)], true),
            (100, vec![pod(Some(ago(20)))], true),
            (100, vec![pod(Some(ago(31)))], false),
            (100, vec![resized], true),
            (100, vec![leaving, foreign], false),
            // A pod that does not become ready does not hold for ever.
            (631, vec![pod(None)], false),
            (629, vec![pod(None)], true),
        ] {
            let vpas = [vpa("Recreate", &["memory"], updates(last))];
            let found = rules(Some(&vpas), &pods, |context| context.is_only_writer = false);
            assert_eq!(found.holds_removal, expected, "{last} {pods:?}");
        }
    }
}
