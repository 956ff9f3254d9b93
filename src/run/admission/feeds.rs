//! What the admission controller watches: VPAs, LimitRanges, and the controllers that own pods.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;

use super::{Role, Stop, Tasks};
use crate::{
    observe::{
        feed::Feed,
        limit_range::SlimLimitRange,
        mirror::{Filed, Mirror},
        watch::{Change, Options, watch},
    },
    run::{controllers, shown::unread},
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::TargetRef},
    sizing::LimitRangeItem,
    types::compat::Compat,
};

/// The watches by name.
#[derive(Debug)]
pub(super) struct Feeds {
    pub vpas: Arc<Feed>,
    pub limit_ranges: Arc<Feed>,
    pub controllers: Vec<Arc<Feed>>,
}

impl Feeds {
    /// Watches that do not run yet.
    pub fn new() -> Self {
        Self {
            vpas: Arc::new(Feed::new("verticalpodautoscalers")),
            limit_ranges: Arc::new(Feed::new("limitranges")),
            controllers: controllers::feeds(),
        }
    }

    /// Those without which nothing is decided.
    pub fn needed(&self) -> impl Iterator<Item = &Arc<Feed>> {
        [&self.vpas, &self.limit_ranges].into_iter().chain(&self.controllers)
    }
}

/// What a VPA is looked up by: namespace, and kind and name of its target. The group is of no account, as upstream has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetKey {
    namespace: Box<str>,
    kind: Box<str>,
    name: Box<str>,
}

impl TargetKey {
    pub fn new(namespace: &str, kind: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), kind: kind.into(), name: name.into() }
    }

    fn of(namespace: &str, target: &TargetRef) -> Self {
        Self::new(namespace, &target.kind, &target.name)
    }
}

/// What the watches have told.
#[derive(Debug, Default)]
pub(super) struct Seen {
    vpas: Mutex<Mirror<TargetKey, VerticalPodAutoscaler>>,
    limit_ranges: Mutex<Mirror<Box<str>, Vec<LimitRangeItem>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    /// The VPAs that name this target.
    pub fn vpas(&self, key: &TargetKey) -> Vec<Arc<VerticalPodAutoscaler>> {
        lock(&self.vpas).get(key).cloned().collect()
    }

    /// How many VPAs there are.
    pub fn vpa_count(&self) -> usize {
        lock(&self.vpas).len()
    }

    /// What the LimitRanges of a namespace say, in order of their names.
    pub fn limits(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = lock(&self.limit_ranges);
        ranges.get(&namespace.into()).flat_map(|items| items.iter().cloned()).collect()
    }

    fn change_vpa(&self, change: Change<VerticalPodAutoscaler>) {
        lock(&self.vpas).apply(change, |mut vpa| {
            vpa.metadata.managed_fields = None;
            let namespace = vpa.namespace().unwrap_or_default();
            let key = Some(TargetKey::of(&namespace, &vpa.spec.target_ref));
            Filed { namespace, name: vpa.name_any(), key, object: vpa }
        });
    }

    fn change_limit_range(&self, change: Change<SlimLimitRange>) {
        lock(&self.limit_ranges).apply(change, |range| {
            let namespace = range.namespace().unwrap_or_default();
            let key = Some(namespace.as_str().into());
            Filed { name: range.name_any(), namespace, key, object: range.spec.limits }
        });
    }
}

impl Role {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_feeds(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) {
        let only = self.config.scope.only.as_deref();
        let reader = &self.reader;
        {
            let (role, ended) = (Arc::clone(self), stop.stopped());
            let vpas = reader.objects::<VerticalPodAutoscaler>(only);
            tasks.spawn(async move {
                let apply = |change| role.seen.change_vpa(change);
                watch(vpas, Options::default(), &role.feeds.vpas, apply, ended).await;
            });
        }
        {
            let (role, ended) = (Arc::clone(self), stop.stopped());
            let ranges = reader.objects::<SlimLimitRange>(only);
            tasks.spawn(async move {
                let apply = |change| role.seen.change_limit_range(change);
                watch(ranges, Options::default(), &role.feeds.limit_ranges, apply, ended).await;
            });
        }
        if self.config.compat == Compat::Plimsoll {
            let (role, stop) = (Arc::clone(self), stop.clone());
            tasks.spawn(async move {
                let only = role.config.scope.only.as_deref();
                let lost = "pods may be refused for what is recommended";
                role.quotas.keep_watching(&role.client, &role.reader, only, lost, stop).await;
            });
        }
        let (controllers, feeds) = (&self.controllers, &self.feeds.controllers);
        controllers::start(reader, only, controllers, feeds, stop, tasks);
    }

    /// What was not read yet, a line each.
    pub(super) fn unread(&self) -> Vec<String> {
        unread(self.feeds.needed())
    }

    /// Whether everything was read once.
    pub(super) fn has_read_all(&self) -> bool {
        self.feeds.needed().all(|feed| feed.is_synced())
    }
}
