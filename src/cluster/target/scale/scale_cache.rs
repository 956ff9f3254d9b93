//! Owns the scales of those kinds whose objects say themselves what their scale would: watched, they need not be asked for.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::watch;

use super::{
    ObjectReference,
    scale_subresource::{ScaleState, parse_resource_version},
};
use crate::cluster::{
    cache::{
        controllers::{Controller, WellKnown},
        selector::Selector,
    },
    watch::{ObjectChange, status::WatchStatus},
};

/// Between the parts of a record: neither a uid nor a selector holds it.
const SEPARATOR: char = '\0';

/// The kinds, with the names of their watches.
const KINDS: [(WellKnown, &str); 4] = [
    (WellKnown::Deployment, "deployments"),
    (WellKnown::StatefulSet, "statefulsets"),
    (WellKnown::ReplicaSet, "replicasets"),
    (WellKnown::ReplicationController, "replicationcontrollers"),
];

/// What watches tell of scales. What is not in here has to be asked for: it is not there, cannot be read, is of another
/// kind, or nobody knows at the moment.
#[derive(Debug)]
pub struct ScaleCache([KindWatch; KINDS.len()]);

#[derive(Debug)]
struct KindWatch {
    watch: Arc<WatchStatus>,
    is_needed: watch::Sender<bool>,
    scales: RwLock<Records>,
}

#[derive(Debug, Default)]
struct Records {
    /// By namespace and name, in one text.
    records: HashMap<Box<str>, Record>,
    /// Which list is being read.
    list: u32,
}

/// One object. There may be tens of thousands, of which a few are asked for: its texts are one.
#[derive(Debug)]
struct Record {
    version: u64,
    list: u32,
    spec_replicas: i32,
    status_replicas: i32,
    /// Uid and selector.
    uid_and_selector: Box<str>,
}

impl Default for ScaleCache {
    fn default() -> Self {
        Self(KINDS.map(|(_, name)| KindWatch {
            watch: Arc::new(WatchStatus::new(name)),
            is_needed: watch::Sender::new(false),
            scales: RwLock::default(),
        }))
    }
}

/// The place of the kind of an object, if it is one of these. Others may have a kind of the same name in a group of theirs.
fn kind_index(key: &ObjectReference) -> Option<usize> {
    let is_it = |kind: &WellKnown| kind.name() == &*key.kind && key.group() == Ok(kind.group());
    KINDS.iter().position(|(kind, _)| is_it(kind))
}

fn text_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl ScaleCache {
    /// The watches of those kinds that anybody asked for.
    pub fn watches(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.0.iter().filter(|kind| *kind.is_needed.borrow()).map(|kind| &kind.watch)
    }

    /// How many objects are known, by the names of the watches.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let wanted = self.0.iter().filter(|kind| *kind.is_needed.borrow());
        wanted.map(|kind| {
            let known = kind.scales.read().unwrap_or_else(PoisonError::into_inner);
            (kind.watch.name(), known.records.len())
        })
    }

    /// Somebody follows an object of this kind: from now on it is worth a watch.
    pub fn ensure_watched(&self, key: &ObjectReference) {
        let Some(place) = kind_index(key) else { return };
        self.0[place].is_needed.send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }

    /// Ready once somebody wants that kind.
    pub async fn wait_until_needed<K: Controller>(&self) -> Option<&Arc<WatchStatus>> {
        let kind = self.kind_watch::<K>()?;
        // Fails only when the sender is gone, which lives as long as `self`.
        let _ = kind.is_needed.subscribe().wait_for(|wanted| *wanted).await;
        Some(&kind.watch)
    }

    fn kind_watch<K: Controller>(&self) -> Option<&KindWatch> {
        KINDS.iter().position(|(kind, _)| *kind == K::KIND).map(|place| &self.0[place])
    }

    /// Takes in what a watch tells.
    pub fn apply<K: Controller>(&self, change: ObjectChange<K>) {
        let Some(kind) = self.kind_watch::<K>() else { return };
        let mut known = kind.scales.write().unwrap_or_else(PoisonError::into_inner);
        let list = known.list;
        match change {
            ObjectChange::Restart => known.list = list.wrapping_add(1),
            ObjectChange::Applied(object) => {
                let meta = object.meta();
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                let key = text_key(namespace, meta.name.as_deref().unwrap_or_default());
                match Record::from_object(&object, list) {
                    Some(record) => known.records.insert(key.into(), record),
                    None => known.records.remove(&*key),
                };
            }
            // Who asks for its scale is told what is wrong.
            ObjectChange::Invalid { namespace, name, .. }
            | ObjectChange::Deleted { namespace, name, .. } => {
                known.records.remove(&*text_key(&namespace, &name));
            }
            ObjectChange::Synced => {
                known.records.retain(|_, record| record.list == list);
                known.records.shrink_to_fit();
            }
        }
    }

    /// The scale of an object as its watch told last; nothing where it has to be asked for.
    pub fn find(&self, key: &ObjectReference) -> Option<ScaleState> {
        let kind = &self.0[kind_index(key)?];
        // What came before a watch broke off may be old, and until a list is complete it is not known what is gone.
        if !kind.watch.is_synced() || kind.watch.is_failing() {
            return None;
        }
        let known = kind.scales.read().unwrap_or_else(PoisonError::into_inner);
        Some(known.records.get(&*text_key(&key.namespace, &key.name))?.state())
    }
}

impl Record {
    /// Nothing where the object does not say all that a scale does.
    fn from_object<K: Controller>(object: &K, list: u32) -> Option<Self> {
        let meta = object.meta();
        let selector = object.selector().ok().filter(|selector| {
            // A scale has such selectors as no text at all, which is a mistake that is told of.
            !selector.is_nothing() && *selector != Selector::everything()
        })?;
        let uid = meta.uid.as_deref().filter(|uid| !uid.contains(SEPARATOR))?;
        Some(Self {
            version: parse_resource_version(meta.resource_version.as_deref())?,
            list,
            spec_replicas: object.replicas()?.try_into().ok()?,
            // Left out of the object where there are none.
            status_replicas: object.current().unwrap_or(0),
            uid_and_selector: format!("{uid}{SEPARATOR}{selector}").into(),
        })
    }

    fn state(&self) -> ScaleState {
        let (uid, selector) = self.uid_and_selector.split_once(SEPARATOR).unwrap_or_default();
        ScaleState {
            spec_replicas: self.spec_replicas,
            status_replicas: self.status_replicas,
            selector: Ok(Selector::from_canonical(selector)),
            uid: uid.into(),
            version: Some(self.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::cache::controllers::{SlimDeployment, SlimReplicationController};

    fn key(api_version: &str, kind: &str, name: &str) -> ObjectReference {
        let namespace = "shop".into();
        ObjectReference {
            namespace,
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
        }
    }

    fn deployment(name: &str, version: &str, spec: &serde_json::Value) -> SlimDeployment {
        let metadata =
            json!({"name": name, "namespace": "shop", "uid": "u", "resourceVersion": version});
        let object = json!({"metadata": metadata, "spec": spec, "status": {"replicas": 4}});
        serde_json::from_value(object).expect("a Deployment")
    }

    fn web(version: &str) -> SlimDeployment {
        let selector = json!({"matchLabels": {"app": "web"}});
        deployment("web", version, &json!({"replicas": 3, "selector": selector}))
    }

    fn synced() -> ScaleCache {
        let scales = ScaleCache::default();
        scales.ensure_watched(&key("apps/v1", "Deployment", "any"));
        let feed = scales.watches().next().expect("it is wanted");
        feed.on_synced();
        scales
    }

    #[test]
    fn an_object_tells_its_scale_itself_but_only_one_of_its_own_group() {
        let scales = synced();
        scales.apply(ObjectChange::Applied(web("7")));
        let told = scales.find(&key("apps/v1beta1", "Deployment", "web")).expect("it is watched");
        assert_eq!(
            (told.spec_replicas, told.status_replicas, &*told.uid, told.version),
            (3, 4, "u", Some(7))
        );
        assert_eq!(told.selector.as_ref().map(Selector::as_str), Ok("app=web"));
        for other in [("example.com/v1", "Deployment"), ("v1", "Deployment"), ("apps/v1", "Other")]
        {
            assert_eq!(scales.find(&key(other.0, other.1, "web")), None, "{other:?}");
        }
        let counts: Vec<_> = scales.counts().collect();
        assert_eq!(counts, [("deployments", 1)], "nobody wants the others");
    }

    #[test]
    fn what_is_not_known_for_sure_has_to_be_asked_for() {
        let of = key("apps/v1", "Deployment", "web");
        let scales = ScaleCache::default();
        scales.apply(ObjectChange::Applied(web("7")));
        assert_eq!(scales.find(&of), None, "the list is not complete");
        let scales = synced();
        let selector = json!({"matchLabels": {"app": "web"}});
        for spec in [
            json!({"selector": selector}),
            json!({"replicas": 3}),
            json!({"replicas": 3, "selector": {}}),
            json!({"replicas": -1, "selector": selector}),
        ] {
            scales.apply(ObjectChange::Applied(web("7")));
            assert!(scales.find(&of).is_some());
            scales.apply(ObjectChange::Applied(deployment("web", "8", &spec)));
            assert_eq!(scales.find(&of), None, "{spec}");
        }
        scales.apply(ObjectChange::Applied(web("no number")));
        assert_eq!(scales.find(&of), None);
        scales.apply(ObjectChange::Applied(web("7")));
        let feed = scales.watches().next().expect("it is wanted");
        feed.on_error("the server is away");
        assert_eq!(scales.find(&of), None, "it may be old");
        feed.on_event("shop", "web");
        assert!(scales.find(&of).is_some());
        let (namespace, name) = ("shop".to_owned(), "web".to_owned());
        scales.apply(ObjectChange::<SlimDeployment>::Deleted { namespace, name, uid: None });
        assert_eq!(scales.find(&of), None);
    }

    #[test]
    fn a_list_that_lacks_an_object_takes_it_away_when_it_is_complete() {
        let (scales, of) = (synced(), key("apps/v1", "Deployment", "web"));
        scales.apply(ObjectChange::Applied(web("7")));
        scales.apply(ObjectChange::<SlimDeployment>::Restart);
        assert!(scales.find(&of).is_some());
        scales.apply(ObjectChange::<SlimDeployment>::Synced);
        assert_eq!(scales.find(&of), None);
        scales.apply(ObjectChange::<SlimReplicationController>::Synced);
    }

    #[test]
    fn an_object_takes_less_than_250_bytes() {
        const COUNT: usize = 10_000;
        let scales = synced();
        let used = allocation_counter::measure(|| {
            for number in 0..COUNT {
                let mut object = web("123456789");
                object.metadata.name = Some(format!("checkout-{number:010}"));
                object.metadata.uid = Some("0b9a7c1e-52ff-4a4e-8b0c-6a2a4c9d7f10".to_owned());
                scales.apply(ObjectChange::Applied(object));
            }
            scales.apply(ObjectChange::<SlimDeployment>::Synced);
        });
        assert_eq!(scales.counts().next(), Some(("deployments", COUNT)));
        let each = used.bytes_current / COUNT as i64;
        assert!((50..250).contains(&each), "{each} bytes");
    }
}
