//! The VerticalPodAutoscalers of the targets whose replicas a controller sets.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt as _;
use plimsoll_core::{
    api::{VerticalPodAutoscaler, scale_target::ScaleTarget},
    coordination::PodUpdates,
    hpa::vpa_rules::TargetVpa,
    updater::{WorkloadState, guard::workload_state::ANNOTATION},
};

use super::{optional_watch::OptionalWatch, shutdown::TaskGroup};
use crate::cluster::watch::WatchFactory;

/// Cached VPAs, with one watch for each watched namespace, or one for all.
pub struct Vpas {
    factory: WatchFactory,
    watches: Vec<(Option<String>, Arc<VpaWatch>)>,
}

type VpaWatch = OptionalWatch<VerticalPodAutoscaler, Arc<TargetVpa>>;

impl Vpas {
    /// VPAs of these namespaces, or of all if empty.
    pub fn new(namespaces: &[String], factory: WatchFactory) -> Self {
        let stored = |vpa| Arc::new(target_vpa(vpa));
        let watch = || VpaWatch::new("autoscaling.k8s.io", "verticalpodautoscalers", stored);
        let scopes = if namespaces.is_empty() {
            vec![None]
        } else {
            namespaces.iter().cloned().map(Some).collect()
        };
        let watches = scopes.into_iter().map(|scope| (scope, Arc::new(watch()))).collect();
        Self { factory, watches }
    }

    /// The VPAs of a target; `None` until all are listed.
    pub fn of_target(&self, namespace: &str, target: &ScaleTarget) -> Option<Vec<Arc<TargetVpa>>> {
        let (_, vpas) = self
            .watches
            .iter()
            .find(|(watched, _)| watched.as_ref().is_none_or(|watched| watched == namespace))?;
        let is_of_target = |vpa: &&Arc<TargetVpa>| {
            let own = &vpa.spec.target_ref;
            own.kind == target.kind && own.name == target.name
        };
        vpas.read(|vpas| vpas.in_namespace(namespace).filter(is_of_target).cloned().collect())
    }

    pub async fn wait_until_known(&self) {
        for (_, vpas) in &self.watches {
            vpas.wait_until_known().await;
        }
    }

    /// Starts the watches. `consequence` follows where VPAs cannot be read.
    pub fn start(&self, consequence: &'static str, tasks: &mut TaskGroup) {
        for (namespace, vpas) in &self.watches {
            let (factory, namespace) = (self.factory.clone(), namespace.clone());
            tasks.spawn_cancellable(Arc::clone(vpas).run(factory, namespace, consequence));
        }
    }
}

pub(crate) fn target_vpa(vpa: VerticalPodAutoscaler) -> TargetVpa {
    let name = vpa.name_any().into();
    let annotations: &BTreeMap<String, String> = vpa.annotations();
    let state = annotations.get(ANNOTATION);
    let state = state.and_then(|text| WorkloadState::read(text, &vpa.spec.target_ref).ok());
    let rollout = state.and_then(|state| state.rollout);
    let updates = rollout.map(|rollout| PodUpdates { began: rollout.wave, last: rollout.last });
    TargetVpa { name, spec: vpa.spec, updates }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{
        types::Time,
        updater::guard::{Health, rollout::Rollout},
    };
    use serde_json::json;

    use super::*;

    fn vpa(namespace: &str, name: &str, target: &str) -> VerticalPodAutoscaler {
        let vpa = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"targetRef": {"kind": "Deployment", "name": target}},
        });
        serde_json::from_value(vpa).expect("a VPA")
    }

    fn target(name: &str) -> ScaleTarget {
        ScaleTarget {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
        }
    }

    #[tokio::test]
    async fn only_the_vpas_of_the_target_are_found_once_they_are_listed() {
        let unused = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
        });
        let client = kube::Client::new(unused, "default");

        let watch = Vpas::new(&[], WatchFactory::dedicated(client));

        assert!(watch.of_target("shop", &target("web")).is_none(), "nothing is known yet");
        let vpas = [vpa("shop", "a", "web"), vpa("shop", "b", "db"), vpa("bank", "c", "web")];
        watch.watches[0].1.store_list(vpas);
        let names = |namespace, name| {
            let found = watch.of_target(namespace, &target(name)).expect("they are listed");
            found.iter().map(|vpa| vpa.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("shop", "web"), ["a"]);
        assert_eq!(names("bank", "web"), ["c"]);
        assert_eq!(names("bank", "db"), [""; 0]);
    }

    #[test]
    fn the_updates_of_pods_are_those_that_the_updater_recorded() {
        let mut object = vpa("shop", "a", "web");
        assert_eq!(target_vpa(object.clone()).updates, None);
        let [began, wave, last] =
            [0, 60, 300].map(|seconds| Time::from_secs(1_800_000_000 + seconds));
        let rollout = Rollout {
            began,
            last,
            streak: 0,
            wave,
            touched: 1,
            evicted: 1,
            before: Health::default(),
            target: Vec::new(),
        };
        let state = WorkloadState { rollout: Some(rollout), ..WorkloadState::default() };
        let text = state.write(&object.spec.target_ref).expect("it fits");
        object.annotations_mut().insert(ANNOTATION.to_owned(), text);
        let expected = PodUpdates { began: wave, last };
        assert_eq!(target_vpa(object.clone()).updates, Some(expected));
        object.spec.target_ref.name = "db".to_owned();
        assert_eq!(target_vpa(object).updates, None, "they are of another target");
    }
}
