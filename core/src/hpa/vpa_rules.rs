//! What a VerticalPodAutoscaler of the same target means for replicas that Plimsoll sets.

use std::{sync::Arc, time::Duration};

use super::{
    decision::Decision,
    evaluation::Evaluation,
    lint::{Warning, contested_resources},
    options::UtilizationOf,
    pause::PausedDirection,
    pod::Pod,
    request_follower::follows_pods,
    scale_point::{RequestMetric, request_metrics, with_rule},
    shared_states::SharedMemory,
    spec::Spec,
};
use crate::{
    api::vpa::{UpdateMode, VerticalPodAutoscalerSpec},
    coordination::{
        Measurement, PodUpdates, RatioRule, RecentUsage, RequestRange, Resource, ScalePoint, State,
        Template, UsagePerPod,
    },
    scaling::{Restriction, pod_readiness::Phase},
    types::Time,
};

/// A VPA whose target is that of the object.
#[derive(Clone, Debug)]
pub struct TargetVpa {
    pub name: Box<str>,
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
    pub template: &'a Template,
    /// Whether only Plimsoll changes the replicas. Beside another controller they have to follow what that one follows.
    pub is_only_writer: bool,
    /// What the object asks for the utilization of.
    pub utilization_of: Option<UtilizationOf>,
    /// Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
    /// What is remembered about the requests.
    pub memory: &'a SharedMemory,
    /// How long a pod counts as starting after it became ready.
    pub readiness: Duration,
    /// The current time.
    pub now: Time,
}

/// What the VPAs of a target mean for its replicas, and targets that are relative to the pod template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VpaRules {
    /// The spec whose targets are scale points; `None` if it does not change.
    pub spec: Option<Spec>,
    /// The scale points in place of targets.
    pub scale_points: Vec<FollowedScalePoint>,
    /// Whether no replica is removed.
    pub holds_removal: bool,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// Whether something is not known yet that the scale points depend on.
    pub is_partial: bool,
}

/// A scale point that replicas follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedScalePoint {
    /// The VPA that changes the requests; `None` if the object asks for the utilization of the template.
    pub vpa: Option<Box<str>>,
    pub resource: Resource,
    /// The container; `None` for all of them.
    pub container: Option<Box<str>>,
    pub point: ScalePoint,
    /// What is remembered about the request.
    state: State,
    /// The scale point that is not raised.
    base: ScalePoint,
    /// The metric.
    index: usize,
    /// The mean actuated request of the pods.
    mean_request: Option<i64>,
    /// Whether the VPA raises requests without a restart.
    can_raise_in_place: bool,
}

impl VpaRules {
    /// The rules for an object with this spec.
    pub fn new(spec: &Spec, context: VpaContext<'_>) -> Self {
        let mut rules = Self::default();
        let own: Vec<&Pod> = context.pods.iter().filter(|pod| !pod.is_foreign).collect();
        rules.is_partial = own.is_empty();
        if let Some(vpas) = context.vpas {
            rules.holds_removal = vpas
                .iter()
                .any(|vpa| vpa.updates.is_some_and(|updates| hold_removal(updates, context)));
        } else {
            rules.is_partial = true;
            rules.holds_removal = request_metrics(spec).next().is_some();
        }
        let only_writer = context.vpas.filter(|_| context.is_only_writer);
        for vpa in only_writer.into_iter().flatten() {
            let contested = contested_resources(spec, &own, &vpa.spec);
            for metric in request_metrics(spec) {
                let name = metric.resource.to_string();
                if contested.contains(&&*name) {
                    rules.follow(spec, Some(vpa), metric, context);
                }
            }
        }
        if context.utilization_of == Some(UtilizationOf::Template) {
            for metric in request_metrics(spec) {
                rules.follow(spec, None, metric, context);
            }
        }
        rules
    }

    /// Replaces the target of a metric by its scale point: its requests are changed by a VPA, or it is relative to the template.
    fn follow(
        &mut self,
        spec: &Spec,
        vpa: Option<&TargetVpa>,
        metric: RequestMetric<'_>,
        context: VpaContext<'_>,
    ) {
        let can_raise_in_place = vpa.is_some_and(TargetVpa::raises_in_place);
        if let Some(followed) = self.scale_points.iter_mut().find(|one| one.index == metric.index) {
            followed.can_raise_in_place |= can_raise_in_place;
            return;
        }
        let asks_for_template = context.utilization_of == Some(UtilizationOf::Template);
        if follows_pods(context.utilization_of) {
            self.warn(vpa, metric, "and plimsoll.dev/utilization-of makes the replicas follow them; remove that annotation");
            return;
        }
        let template = match context.template {
            Template::Known(template) => template,
            Template::NotListed => {
                self.holds_removal = true;
                self.is_partial = true;
                return;
            }
            // The error of the metric says so.
            Template::Unsupported if asks_for_template => return,
            Template::Unsupported => {
                self.warn(
                    vpa,
                    metric,
                    "and the pod template of the target is not known, so the replicas follow the requests; use an averageValue",
                );
                return;
            }
        };
        let request = template.request(metric.resource, metric.container);
        let counted: Vec<&Pod> = context.pods.iter().filter(|pod| is_counted(pod)).collect();
        let mean_request = metric.mean_request(&counted, context.pod_level_resources);
        let remembered = context.memory.state(metric.resource, metric.container);
        let state = if asks_for_template {
            State { first_requests: None, ..remembered }
        } else {
            remembered.with_first_requests(request, mean_request)
        };
        let Some(base) = state.base(metric.percent, request) else {
            if !asks_for_template {
                self.warn(
                    vpa,
                    metric,
                    "and a container that counts has no request, neither in the pod template nor in the pods, so the \
                     replicas follow the requests of the pods; add one, or use an averageValue",
                );
            }
            return;
        };
        let point = state.scale_point(base, mean_request);
        let rule = RatioRule::Usage { average_milli: point.milli };
        self.spec = Some(with_rule(self.spec.as_ref().unwrap_or(spec), metric.index, rule));
        if vpa.is_some() && state.is_too_low_since(context.now).is_some() {
            self.warnings.push(too_low(spec, metric.resource, base));
        }
        self.scale_points.push(FollowedScalePoint {
            vpa: vpa.map(|vpa| vpa.name.clone()),
            resource: metric.resource,
            container: metric.container.map(Into::into),
            point,
            state,
            base,
            index: metric.index,
            mean_request,
            can_raise_in_place,
        });
    }

    /// Adds a warning about the requests that a VPA changes.
    fn warn(&mut self, vpa: Option<&TargetVpa>, metric: RequestMetric<'_>, consequence: &str) {
        let Some(TargetVpa { name, .. }) = vpa else { return };
        let message = format!(
            "VerticalPodAutoscaler {name} changes the {} requests that the target is a percentage of, {consequence}",
            metric.resource
        );
        self.warnings.push(Warning { code: "vpa_same_resource", message });
    }

    /// Remembers what a decision about the spec of [`Self::spec`] shows. `tolerance` is that for scaling up.
    pub fn remember(&self, memory: &mut SharedMemory, decision: &Decision, tolerance: f64) {
        let Some(replicas) = decision.current.filter(|_| !self.is_partial) else { return };
        let of_vpas = || self.scale_points.iter().filter(|followed| followed.vpa.is_some());
        memory.retain(|resource, container| {
            of_vpas().any(|followed| followed.request() == (resource, container))
        });
        let max = self.spec.as_ref().map_or(replicas, |spec| spec.max_replicas);
        for followed in of_vpas() {
            let measured = Measurement {
                usage: decision.evaluations.get(followed.index).and_then(usage_per_pod),
                mean_request: followed.mean_request,
                replicas,
                min: decision.bounds.0,
                max,
                tolerance,
                now: decision.at,
            };
            memory.change(followed.request(), |recent| followed.next_state(&measured, recent));
        }
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

impl FollowedScalePoint {
    /// The range of the request of a pod.
    pub fn request_range(&self) -> RequestRange {
        self.state.range(self.base)
    }

    fn request(&self) -> (Resource, Option<&str>) {
        (self.resource, self.container.as_deref())
    }

    /// The state after a measurement. `recent` are those of the last hour at the maximum of replicas.
    fn next_state(&self, measured: &Measurement, recent: &mut RecentUsage) -> State {
        let Measurement { usage, mean_request, replicas, max, now, .. } = *measured;
        let mut state = self.state.after(self.base, measured);
        if replicas < max {
            *recent = RecentUsage::default();
        } else if let Some(usage) = usage {
            recent.add(usage, now);
        }
        let range = state.range(self.base).of_resource(self.resource, mean_request);
        let needed = state.needed_request(range, recent.target(now), now);
        if let Some((request, mean)) = needed.zip(mean_request)
            && (self.can_raise_in_place || mean >= request)
        {
            state.raise(self.base, request, now);
        }
        state
    }
}

impl TargetVpa {
    /// Whether it raises the requests of running pods. Evictions would take away capacity when it is scarce.
    fn raises_in_place(&self) -> bool {
        matches!(self.spec.update_mode(), UpdateMode::InPlaceOrRecreate | UpdateMode::InPlace)
    }
}

/// The usage of the pods; `None` if it is unknown.
fn usage_per_pod(evaluation: &Evaluation) -> Option<UsagePerPod> {
    let proposal = evaluation.outcome.as_ref().ok()?;
    let groups = proposal.groups.as_ref()?;
    let uncounted = groups.unready.len().saturating_add(groups.missing.len());
    Some(UsagePerPod { mean: proposal.value, counted: groups.ready, uncounted })
}

/// Whether the request of a pod counts.
fn is_counted(pod: &Pod) -> bool {
    !pod.is_foreign && !pod.is_terminating && !matches!(pod.phase, Phase::Succeeded | Phase::Failed)
}

fn too_low(spec: &Spec, resource: Resource, base: ScalePoint) -> Warning {
    let message = format!(
        "the scale point of {resource} is too low for maxReplicas: with {} replicas the usage per pod is above {}; increase \
         maxReplicas, the target, or the {resource} request in the pod template",
        spec.max_replicas,
        resource.quantity(base.milli)
    );
    Warning { code: "scale_point_too_low", message }
}

/// Whether the updated pods are not all ready yet, or became ready so recently that their first samples may be of a time
/// in which they did not have their share of the load.
fn hold_removal(updates: PodUpdates, context: VpaContext<'_>) -> bool {
    let VpaContext { pods, readiness, now, .. } = context;
    let ready_since = pods.iter().filter(|pod| is_counted(pod)).map(|pod| {
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
    use std::sync::LazyLock;

    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
    use serde_json::json;

    use super::*;
    use crate::{
        coordination::{ContainerRequests, ScalePointSource},
        hpa::{
            Answer, Config, Fixes, HpaState, NO_OPTIONS, Observed, ScaleValues, decide,
            pod::{Container, ReadyCondition, ReadyStatus},
            samples::PodMetrics,
        },
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

    static NOTHING: LazyLock<SharedMemory> = LazyLock::new(SharedMemory::default);
    static TEMPLATE: LazyLock<Template> = LazyLock::new(|| template(Some(500)));

    fn rules<'a>(
        vpas: Option<&'a [Arc<TargetVpa>]>,
        pods: &'a [Pod],
        change: impl Fn(&mut VpaContext<'a>),
    ) -> VpaRules {
        let mut context = VpaContext {
            vpas,
            pods,
            template: &TEMPLATE,
            is_only_writer: true,
            utilization_of: None,
            pod_level_resources: true,
            memory: &NOTHING,
            readiness: READINESS,
            now: NOW,
        };
        change(&mut context);
        VpaRules::new(&spec(), context)
    }

    fn points(rules: &VpaRules) -> Vec<(Option<&str>, Resource, i64, ScalePointSource)> {
        let point = |one: &FollowedScalePoint| {
            (one.resource, one.point.milli, one.point.source, one.vpa.is_some())
        };
        let points = rules.scale_points.iter().map(point);
        points
            .map(|(resource, milli, source, has_vpa)| {
                (has_vpa.then_some("web"), resource, milli, source)
            })
            .collect()
    }

    #[test]
    fn replicas_follow_the_scale_point_of_the_resource_that_a_vpa_changes() {
        let pods = [pod(Some(ago(600)))];
        let changes_cpu = [vpa("Recreate", &["cpu"], None)];
        let found = rules(Some(&changes_cpu), &pods, |_| {});
        let expected = with_rule(&spec(), 0, RatioRule::Usage { average_milli: 300 });
        assert_eq!(found.spec, Some(expected));
        let expected = (Some("web"), Resource::Cpu, 300, ScalePointSource::Template);
        assert_eq!(points(&found), [expected]);
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
        let without = Pod { containers: vec![Container::default()], ..pod(None) };
        let without = [Pod { name: "none".to_owned(), ..without }, pods[0].clone()];
        let no_request = template(None);
        for (found, expected) in [
            (
                rules(Some(&vpas), &pods, |one| one.utilization_of = Some(UtilizationOf::Request)),
                "remove that annotation",
            ),
            (
                rules(Some(&vpas), &pods, |one| one.utilization_of = Some(UtilizationOf::Limit)),
                "remove that annotation",
            ),
            (
                rules(Some(&vpas), &pods, |one| one.template = &Template::Unsupported),
                "use an averageValue",
            ),
            (rules(Some(&vpas), &without, |one| one.template = &no_request), "has no request"),
        ] {
            assert_eq!(found.spec, None);
            let Warning { code, message } = &found.warnings[0];
            assert!(message.contains(expected), "{message}");
            assert_eq!(*code, "vpa_same_resource");
        }
        // Until the template is known, nothing is removed.
        let found = rules(Some(&vpas), &pods, |one| one.template = &Template::NotListed);
        assert!(found.holds_removal && found.spec.is_none());
    }

    #[test]
    fn without_a_request_in_the_template_the_first_requests_make_the_scale_point() {
        let vpas = [vpa("Recreate", &["cpu"], None)];
        let found = |memory: &SharedMemory, request: Option<i64>, cpu: i64| {
            let mut pod = pod(Some(ago(600)));
            let cpu = Quantity::from_milli(cpu, crate::types::quantity::Format::DecimalSi);
            pod.containers[0].actuated = Some([("cpu".to_owned(), cpu)].into());
            let template = template(request);
            let memory = memory.clone();
            rules_with(&memory, &template, &vpas, &[pod])
        };
        let mut memory = SharedMemory::default();
        let first = found(&memory, None, 400);
        let source = ScalePointSource::FirstRequests;
        assert_eq!(points(&first), [(Some("web"), Resource::Cpu, 240, source)]);
        assert!(first.warnings.is_empty(), "{:?}", first.warnings);
        first.remember(&mut memory, &decision(&first, 5, Some(100), NOW), 0.1);
        // The VPA has changed the pods since.
        assert_eq!(points(&found(&memory, None, 100))[0].2, 240);
        // A decision that is not about a known number of replicas remembers nothing.
        let mut unknown = decision(&first, 5, None, NOW);
        unknown.current = None;
        let mut none = SharedMemory::default();
        first.remember(&mut none, &unknown, 0.1);
        assert_eq!(none, SharedMemory::default());
        let by_template = found(&memory, Some(500), 100);
        assert_eq!(points(&by_template)[0].2, 300);
    }

    fn rules_with(
        memory: &SharedMemory,
        template: &Template,
        vpas: &[Arc<TargetVpa>],
        pods: &[Pod],
    ) -> VpaRules {
        let context = VpaContext {
            vpas: Some(vpas),
            pods,
            template,
            is_only_writer: true,
            utilization_of: None,
            pod_level_resources: true,
            memory,
            readiness: READINESS,
            now: NOW,
        };
        VpaRules::new(&spec(), context)
    }

    /// A decision about this many replicas that use so much CPU each; `None` if that is unknown.
    fn decision(rules: &VpaRules, replicas: i32, cpu: Option<i64>, now: Time) -> Decision {
        let spec = rules.spec.clone().expect("a scale point");
        let scale =
            ScaleValues { replicas, status_replicas: replicas, selector: "app=web".to_owned() };
        let names = (0..replicas).map(|index| format!("web-{index}"));
        let pods: Vec<Pod> = names
            .clone()
            .map(|name| Pod {
                name,
                labels: [("app".to_owned(), "web".to_owned())].into(),
                start_time: Some(now.earlier(Duration::from_hours(1))),
                ..pod(Some(now.earlier(Duration::from_hours(1))))
            })
            .collect();
        let amount = |milli| Quantity::from_milli(milli, crate::types::quantity::Format::DecimalSi);
        let usage = |cpu: i64| {
            let usage = names.map(|pod| PodMetrics {
                pod,
                timestamp: now,
                window: Duration::from_mins(1),
                containers: vec![("app".to_owned(), [("cpu".to_owned(), amount(cpu))].into())],
            });
            Answer::Resource(usage.collect())
        };
        let answer = cpu.map(usage).ok_or_else(|| "away".to_owned());
        let (config, status) = (Config::default(), HorizontalPodAutoscalerStatus::default());
        let observed = Observed {
            namespace: "shop",
            name: "web",
            uid: None,
            spec: &spec,
            status: &status,
            scale: Ok(&scale),
            pods: &pods,
            others: &[],
            memory: &HpaState::default(),
            config: &config,
            fixes: Fixes::ALL,
            options: &NO_OPTIONS,
            now,
        };
        decide(&observed, &[Some(answer), None])
    }

    /// Passes a minute apart at these replicas, with this usage per pod. Returns the last rules, and what is remembered.
    fn passes(
        mode: &str,
        request: &str,
        replicas: i32,
        usage: impl Fn(u32) -> Option<i64>,
        minutes: u32,
    ) -> (VpaRules, SharedMemory) {
        let vpas = [vpa(mode, &["cpu"], None)];
        let mut pod = pod(Some(ago(600)));
        let cpu = request.parse::<Quantity>().expect("a quantity");
        pod.containers[0].actuated = Some([("cpu".to_owned(), cpu)].into());
        let pods = [pod];
        let template = template(Some(500));
        let mut memory = SharedMemory::default();
        let mut last = VpaRules::default();
        for minute in 0..=minutes {
            let now = NOW.later(Duration::from_mins(1) * minute);
            let context = VpaContext {
                vpas: Some(&vpas),
                pods: &pods,
                template: &template,
                is_only_writer: true,
                utilization_of: None,
                pod_level_resources: true,
                memory: &memory,
                readiness: READINESS,
                now,
            };
            last = VpaRules::new(&spec(), context);
            let decision = decision(&last, replicas, usage(minute), now);
            last.remember(&mut memory, &decision, 0.1);
        }
        (last, memory)
    }

    #[test]
    fn at_the_maximum_the_request_is_raised_only_if_usage_is_known_and_no_pod_is_evicted() {
        let always = |usage| move |_| Some(usage);
        let unknown_from = |minute| move |now| (now < minute).then_some(400);
        for (mode, request, replicas, usage, minutes, expected) in [
            // 300m is the scale point, and 400m with margin are 460m.
            ("InPlaceOrRecreate", "350m", 10, &always(400) as &dyn Fn(u32) -> _, 15, Some(460)),
            ("InPlace", "350m", 10, &always(400), 15, Some(460)),
            ("InPlaceOrRecreate", "350m", 10, &always(400), 14, None),
            ("InPlaceOrRecreate", "350m", 10, &always(320), 30, None),
            ("InPlaceOrRecreate", "350m", 9, &always(400), 30, None),
            ("InPlaceOrRecreate", "350m", 10, &unknown_from(9), 60, None),
            ("InPlaceOrRecreate", "350m", 10, &unknown_from(0), 60, None),
            ("Recreate", "350m", 10, &always(400), 30, None),
            ("Initial", "350m", 10, &always(400), 30, None),
            // The pods have it already.
            ("Recreate", "600m", 10, &always(400), 15, Some(460)),
        ] {
            let (_, memory) = passes(mode, request, replicas, usage, minutes);
            let raised = memory.state(Resource::Cpu, None).raised;
            let what = format!("{mode} {request} {replicas} {minutes}");
            assert_eq!(raised.map(|raised| raised.request), expected, "{what}");
        }
    }

    #[test]
    fn a_scale_point_that_is_too_low_is_reported_and_rises_with_the_requests() {
        let (rules, _) = passes("Recreate", "350m", 10, |_| Some(400), 16);
        let [Warning { code, message }] = &rules.warnings[..] else { panic!("{rules:?}") };
        assert_eq!(*code, "scale_point_too_low");
        assert!(message.contains("with 10 replicas the usage per pod is above 300m"), "{message}");
        let point = |request: &str| {
            let (rules, _) = passes("InPlaceOrRecreate", request, 10, |_| Some(400), 16);
            assert_eq!(rules.warnings.len(), 1, "{:?}", rules.warnings);
            rules.scale_points[0].point.milli
        };
        assert_eq!(point("300m"), 300);
        assert_eq!(point("350m"), 315);
        assert_eq!(point("460m"), 414);
        assert_eq!(point("900m"), 414);
    }

    #[test]
    fn what_is_remembered_ends_with_the_vpa_and_not_while_something_is_unknown() {
        let (_, memory) = passes("InPlace", "350m", 10, |_| Some(400), 15);
        assert!(memory.state(Resource::Cpu, None).raised.is_some());
        let pods = [pod(Some(ago(600)))];
        let vpas = [vpa("InPlace", &["cpu"], None)];
        let known = template(Some(500));
        let some = rules_with(&memory, &known, &vpas, &pods);
        for (rules, is_kept) in [
            (some.clone(), true),
            (rules_with(&memory, &Template::NotListed, &vpas, &pods), true),
            (rules_with(&memory, &known, &vpas, &[]), true),
            (rules(None, &pods, |_| {}), true),
            (rules_with(&memory, &known, &[vpa("Off", &["cpu"], None)], &pods), false),
            (rules(Some(&vpas), &pods, |one| one.is_only_writer = false), false),
        ] {
            let mut memory = memory.clone();
            let decision = decision(&some, 10, None, NOW.later(Duration::from_mins(15)));
            rules.remember(&mut memory, &decision, 0.1);
            assert_eq!(memory.state(Resource::Cpu, None).raised.is_some(), is_kept, "{rules:?}");
        }
    }

    #[test]
    fn an_object_may_ask_for_the_utilization_of_the_template_with_a_vpa_or_without() {
        let pods = [pod(Some(ago(600)))];
        let vpas = [vpa("Recreate", &["cpu"], None)];
        let ask = |one: &mut VpaContext<'_>| one.utilization_of = Some(UtilizationOf::Template);
        let cpu = |vpa| (vpa, Resource::Cpu, 300, ScalePointSource::Template);
        let alone = rules(Some(&[]), &pods, ask);
        assert_eq!(points(&alone), [cpu(None)]);
        assert_eq!(
            alone.spec,
            Some(with_rule(&spec(), 0, RatioRule::Usage { average_milli: 300 }))
        );
        let both = rules(Some(&vpas), &pods, ask);
        assert_eq!(both, rules(Some(&vpas), &pods, |_| {}), "the default rule");
        // Beside the HPA controller too.
        let assisted = rules(Some(&vpas), &pods, |one| {
            ask(one);
            one.is_only_writer = false;
        });
        assert_eq!(points(&assisted), [cpu(None)]);
        // The requests of the pods do not stand in for one that is missing: the metric fails.
        for (template, holds_removal) in
            [(template(None), false), (Template::Unsupported, false), (Template::NotListed, true)]
        {
            let found = rules(Some(&vpas), &pods, |one| {
                ask(one);
                one.template = &template;
            });
            assert!(found.spec.is_none() && found.warnings.is_empty(), "{template:?}");
            assert_eq!(found.holds_removal, holds_removal);
        }
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
