//! The VerticalPodAutoscalers of the targets whose replicas this controller sets.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{Api, Client, ResourceExt as _, api::ListParams};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, scale_target::ScaleTarget},
    hpa::vpa_rules::{PodUpdates, TargetVpa},
    types::ObjectKey,
    updater::{WorkloadState, guard::workload_state::ANNOTATION},
};

use crate::{
    cluster::{
        cache::object_store::ObjectStore,
        watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus, watch},
        write::{AccessReview, AccessRule, check_access},
    },
    controllers::runtime::shutdown::{ShutdownToken, Tasks},
};

const RESOURCE: &str = "verticalpodautoscalers";
/// How often a watch that is not possible is tried again.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Whether the VPAs of a namespace, or of all, are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Availability {
    /// Not checked yet, or not listed yet.
    #[default]
    Unknown,
    /// They are watched.
    Watched,
    /// There are none: the CRD is not installed, or RBAC does not allow to read them.
    None,
}

/// Cached VPAs, with one watch for each watched namespace, or one for all.
pub(super) struct Vpas {
    client: Client,
    factory: WatchFactory,
    watches: Vec<Arc<VpaWatch>>,
}

#[derive(Debug)]
struct VpaWatch {
    namespace: Option<String>,
    status: Arc<WatchStatus>,
    state: Mutex<VpaStore>,
}

#[derive(Debug, Default)]
struct VpaStore {
    availability: Availability,
    vpas: ObjectStore<ObjectKey, Arc<TargetVpa>>,
}

impl Vpas {
    /// VPAs of these namespaces, or of all if empty.
    pub fn new(namespaces: &[String], client: Client, factory: WatchFactory) -> Self {
        let watch = |namespace| Arc::new(VpaWatch::new(namespace));
        let watches = if namespaces.is_empty() {
            vec![watch(None)]
        } else {
            namespaces.iter().map(|namespace| watch(Some(namespace.clone()))).collect()
        };
        Self { client, factory, watches }
    }

    /// The VPAs of a target; `None` until all are listed.
    pub fn of_target(&self, namespace: &str, target: &ScaleTarget) -> Option<Vec<Arc<TargetVpa>>> {
        let covers = |watch: &&Arc<VpaWatch>| {
            watch.namespace.as_deref().is_none_or(|watched| watched == namespace)
        };
        self.watches.iter().find(covers)?.of_target(namespace, target)
    }

    /// Starts the watches. They run until `stop` is cancelled.
    pub fn start(&self, stop: &ShutdownToken, tasks: &mut Tasks) {
        for watched in &self.watches {
            let (watched, client) = (Arc::clone(watched), self.client.clone());
            let (factory, stop) = (self.factory.clone(), stop.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = watched.wait_until_possible(&client) => {}
                }
                let objects =
                    factory.objects::<VerticalPodAutoscaler>(watched.namespace.as_deref());
                let apply = |change| watched.apply(change);
                let options = WatchOptions::default();
                watch(objects, options, &watched.status, apply, stop.cancelled()).await;
            });
        }
    }
}

impl VpaWatch {
    fn new(namespace: Option<String>) -> Self {
        let status = Arc::new(WatchStatus::new(RESOURCE));
        Self { namespace, status, state: Mutex::default() }
    }

    fn of_target(&self, namespace: &str, target: &ScaleTarget) -> Option<Vec<Arc<TargetVpa>>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.availability {
            Availability::Unknown => return None,
            Availability::None => return Some(Vec::new()),
            Availability::Watched => {}
        }
        if !state.vpas.is_synced() {
            return None;
        }
        let is_of_target = |vpa: &&Arc<TargetVpa>| {
            let own = &vpa.spec.target_ref;
            own.kind == target.kind && own.name == target.name
        };
        Some(state.vpas.in_namespace(namespace).filter(is_of_target).cloned().collect())
    }

    fn set(&self, availability: Availability) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.availability = availability;
    }

    /// Returns once VPAs are served and may be watched.
    async fn wait_until_possible(&self, client: &Client) {
        let mut last = None;
        loop {
            match self.obstacle(client).await {
                Ok(None) => return self.set(Availability::Watched),
                Ok(Some(obstacle)) => {
                    self.set(Availability::None);
                    if last.as_ref() != Some(&obstacle) {
                        tracing::info!(
                            "{obstacle}, so replicas follow the requests of pods even if a VerticalPodAutoscaler changes them"
                        );
                    }
                    last = Some(obstacle);
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to list VerticalPodAutoscalers");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Why there is nothing to watch.
    async fn obstacle(&self, client: &Client) -> Result<Option<String>, kube::Error> {
        let namespace = self.namespace.as_deref();
        let rules = ["list", "watch"].map(|verb| {
            let rule = AccessRule::new(verb, "autoscaling.k8s.io", RESOURCE);
            namespace.map_or(rule.clone(), |namespace| rule.in_namespace(namespace))
        });
        let reviews = check_access(client, &rules).await;
        if let Some(denied) = reviews.iter().position(|review| *review == AccessReview::Denied) {
            return Ok(Some(format!("RBAC rule is missing: {}", rules[denied])));
        }
        let api = namespace.map_or_else(
            || Api::<VerticalPodAutoscaler>::all(client.clone()),
            |namespace| Api::namespaced(client.clone(), namespace),
        );
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Ok(Some("the CRD of VerticalPodAutoscalers is not installed".to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    fn apply(&self, change: ObjectChange<VerticalPodAutoscaler>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.vpas.apply_object(change, |vpa| Arc::new(target_vpa(vpa)));
    }
}

/// What is needed of a VPA.
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

    #[test]
    fn only_the_vpas_of_the_target_are_found_once_they_are_listed() {
        let watch = VpaWatch::new(None);
        assert!(watch.of_target("shop", &target("web")).is_none(), "nothing is known yet");
        watch.set(Availability::Watched);
        for vpa in [vpa("shop", "a", "web"), vpa("shop", "b", "db"), vpa("bank", "c", "web")] {
            watch.apply(ObjectChange::Applied(vpa));
        }
        assert!(watch.of_target("shop", &target("web")).is_none(), "the list is not complete");
        watch.apply(ObjectChange::Synced);
        let names = |namespace, name| {
            let found = watch.of_target(namespace, &target(name)).expect("they are listed");
            found.iter().map(|vpa| vpa.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("shop", "web"), ["a"]);
        assert_eq!(names("bank", "web"), ["c"]);
        assert_eq!(names("bank", "db"), [""; 0]);
        watch.set(Availability::None);
        assert_eq!(names("shop", "web"), [""; 0], "without the CRD there are none");
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
