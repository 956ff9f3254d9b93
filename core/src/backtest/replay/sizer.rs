//! Sizes virtual pods as admission does.

use std::sync::Arc;

use super::held::Held;
use crate::{
    api::{
        VerticalPodAutoscalerSpec,
        vpa::{Recommendation, TargetRef, UpdateMode, UpdatePolicy},
    },
    backtest::{
        policy::{Advice, ContainerAdvice},
        recording::WorkloadRecording,
    },
    sizing::{self, LimitPolicy, NamespaceLimitRanges, SizingRules, SizingSpec},
    types::compat::Compat,
};

/// Sizes pods as admission does.
pub(super) struct Sizer {
    names: Vec<Arc<str>>,
    namespace: Arc<str>,
    vpa: Arc<str>,
    pub spec: VerticalPodAutoscalerSpec,
    pub ranges: NamespaceLimitRanges,
    pub rules: SizingRules,
}

impl Sizer {
    pub fn new(recording: &WorkloadRecording, compat: Compat, mode: UpdateMode) -> Self {
        let target_ref = TargetRef {
            api_version: None,
            kind: recording.kind.to_string(),
            name: recording.key.name.to_string(),
        };
        let spec = VerticalPodAutoscalerSpec {
            target_ref,
            update_policy: Some(UpdatePolicy {
                update_mode: Some(mode),
                ..UpdatePolicy::default()
            }),
            resource_policy: None,
            recommenders: Vec::new(),
            startup_boost: None,
        };
        let names = recording.containers.iter().map(|container| (&*container.name).into());
        Self {
            names: names.collect(),
            namespace: recording.key.namespace.clone(),
            vpa: recording.key.name.clone(),
            spec,
            ranges: NamespaceLimitRanges::default(),
            rules: SizingRules::for_compat(compat),
        }
    }

    pub fn sizing_spec<'a>(&'a self, recommendation: &'a Recommendation) -> SizingSpec<'a> {
        SizingSpec {
            vpa: &self.vpa,
            spec: &self.spec,
            recommendation: Some(recommendation),
            limit_policy: LimitPolicy::Ratio,
            managed_sidecars: &[],
            shared_requests: &[],
        }
    }

    /// What the containers of a new pod get.
    pub fn sized(&self, template: &[Held], advice: &Advice) -> Vec<Held> {
        match advice {
            Advice::Amounts(advice) => {
                let sized = |(held, advice): (&Held, &Option<ContainerAdvice>)| {
                    advice.as_ref().map_or(*held, |advice| held.with_advice(advice))
                };
                template.iter().zip(advice).map(sized).collect()
            }
            Advice::Object(recommendation) => {
                let pod = self.pod("", "", template.iter().map(|held| (true, *held)));
                let spec = self.sizing_spec(recommendation);
                let sizes = sizing::size_containers(&pod, &spec, Some(&self.ranges), self.rules);
                // Without LimitRanges every pod can be sized; one that cannot be keeps what it has.
                let sizes = sizes.unwrap_or_default();
                let mut held = template.to_vec();
                for (held, sizes) in held.iter_mut().zip(&sizes) {
                    *held = held.with_sizes(sizes);
                }
                held
            }
        }
    }

    /// A pod as sizing sees it. Containers that are not present are left out.
    pub fn pod(
        &self,
        name: &str,
        uid: &str,
        held: impl Iterator<Item = (bool, Held)>,
    ) -> sizing::Pod {
        let containers = self.names.iter().zip(held).filter(|(_, (is_present, _))| *is_present);
        let containers = containers.map(|(name, (_, held))| sizing::Container {
            name: name.clone(),
            spec: held.resources(),
            ..sizing::Container::default()
        });
        sizing::Pod {
            namespace: self.namespace.clone(),
            name: name.into(),
            uid: uid.into(),
            containers: containers.collect(),
            ..sizing::Pod::default()
        }
    }

    /// The index of a container of a workload, from that of a pod's container.
    pub fn name(&self, container: usize) -> &Arc<str> {
        &self.names[container]
    }
}
