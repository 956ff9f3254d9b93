//! Caches the scales of the kinds whose objects contain all that their scale does: a watch replaces requests for the scale.

use std::sync::Arc;

use parking_lot::RwLock;
use plimsoll_core::coordination::{Template, TemplateRequests};
use tokio::sync::watch;

use super::{
    ObjectReference,
    scale_subresource::{ScaleState, parse_resource_version},
};
use crate::cluster::{
    cache::{
        controllers::{Controller, WellKnown},
        object_store::ObjectStore,
        selector::Selector,
    },
    watch::{ObjectChange, status::WatchStatus},
};

/// Separates the parts of a record: neither a UID nor a selector contains it.
const SEPARATOR: char = '\0';

/// The cached kinds, with the names of their watches.
const KINDS: [(WellKnown, &str); 4] = [
    (WellKnown::Deployment, "deployments"),
    (WellKnown::StatefulSet, "statefulsets"),
    (WellKnown::ReplicaSet, "replicasets"),
    (WellKnown::ReplicationController, "replicationcontrollers"),
];

/// Scales from watches. A scale that is not in the cache must be fetched: the object does not exist, is invalid, is of
/// another kind, or the watch is not synced.
#[derive(Debug)]
pub struct ScaleCache([KindWatch; KINDS.len()]);

#[derive(Debug)]
struct KindWatch {
    watch: Arc<WatchStatus>,
    is_needed: watch::Sender<bool>,
    /// Records by `namespace/name`.
    scales: RwLock<ObjectStore<Box<str>, Record>>,
}

/// One object. There may be tens of thousands, so its strings share one allocation.
#[derive(Debug)]
struct Record {
    version: u64,
    spec_replicas: i32,
    status_replicas: i32,
    /// The UID, the selector, and the requests of the pod template.
    texts: Box<str>,
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

/// The index of the object's kind, if it is cached. Other API groups may have kinds of the same name.
fn kind_index(key: &ObjectReference) -> Option<usize> {
    let is_kind = |kind: &WellKnown| kind.name() == &*key.kind && key.group() == Ok(kind.group());
    KINDS.iter().position(|(kind, _)| is_kind(kind))
}

fn text_key(namespace: &str, name: &str) -> Box<str> {
    [namespace, "/", name].concat().into()
}

impl ScaleCache {
    pub fn watches(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.0.iter().filter(|kind| *kind.is_needed.borrow()).map(|kind| &kind.watch)
    }

    /// The number of cached objects, by the name of the watch.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let needed = self.0.iter().filter(|kind| *kind.is_needed.borrow());
        needed.map(|kind| {
            let scales = kind.scales.read();
            (kind.watch.name, scales.len())
        })
    }

    /// Starts the watch of the object's kind, if it is cached.
    pub fn ensure_watched(&self, key: &ObjectReference) {
        let Some(index) = kind_index(key) else { return };
        self.0[index].is_needed.send_if_modified(|is_needed| !std::mem::replace(is_needed, true));
    }

    /// Waits until the kind is needed. `None` if the kind is not cached.
    pub async fn wait_until_needed<K: Controller>(&self) -> Option<&Arc<WatchStatus>> {
        let kind = self.kind_watch::<K>()?;
        // Fails only when the sender is gone, which lives as long as `self`.
        let _ = kind.is_needed.subscribe().wait_for(|is_needed| *is_needed).await;
        Some(&kind.watch)
    }

    fn kind_watch<K: Controller>(&self) -> Option<&KindWatch> {
        KINDS.iter().position(|(kind, _)| *kind == K::KIND).map(|index| &self.0[index])
    }

    pub fn apply<K: Controller>(&self, change: ObjectChange<K>) {
        let Some(kind) = self.kind_watch::<K>() else { return };
        let change = match change {
            // A fetch of its scale reports the error.
            ObjectChange::Invalid { namespace, name, .. } => {
                ObjectChange::Deleted { namespace, name, uid: None }
            }
            change => change,
        };
        let change = change.map(|object| {
            let meta = object.meta();
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let key = text_key(namespace, meta.name.as_deref().unwrap_or_default());
            (key, Record::from_object(&object))
        });
        let mut scales = kind.scales.write();
        scales.apply(change, text_key);
    }

    /// The requests in the pod template of an object. Those of a watch that fails may be old, which changes less than none.
    pub fn template(&self, key: &ObjectReference) -> Template {
        let Some(kind) = kind_index(key).map(|index| &self.0[index]) else {
            return Template::Unsupported;
        };
        let scales = kind.scales.read();
        let record = scales.get(&text_key(&key.namespace, &key.name));
        record.map_or(Template::NotListed, Record::template)
    }

    /// The scale of an object; `None` if it must be fetched.
    pub fn find(&self, key: &ObjectReference) -> Option<ScaleState> {
        let kind = &self.0[kind_index(key)?];
        // While a watch fails its objects may be old, and until a list is complete deleted objects are unknown.
        if !kind.watch.is_synced() || kind.watch.is_failing() {
            return None;
        }
        let scales = kind.scales.read();
        Some(scales.get(&text_key(&key.namespace, &key.name))?.state())
    }
}

impl Record {
    fn template(&self) -> Template {
        let text = self.texts.rsplit(SEPARATOR).next().unwrap_or_default();
        TemplateRequests::parse(text).map_or(Template::Unsupported, Template::Known)
    }

    /// `None` if the object does not contain all that a scale does.
    fn from_object<K: Controller>(object: &K) -> Option<Self> {
        let meta = object.meta();
        let selector = object.selector().ok().filter(|selector| {
            // A scale has no text for such selectors, which is reported as an error.
            !selector.is_nothing() && *selector != Selector::everything()
        })?;
        let template = object.template().map(|template| template.to_text()).unwrap_or_default();
        let uid = meta.uid.as_deref().filter(|uid| !uid.contains(SEPARATOR))?;
        Some(Self {
            version: parse_resource_version(meta.resource_version.as_deref())?,
            spec_replicas: object.replicas()?.try_into().ok()?,
            // Omitted from the object if zero.
            status_replicas: object.current().unwrap_or(0),
            texts: format!("{uid}{SEPARATOR}{selector}{SEPARATOR}{template}").into(),
        })
    }

    fn state(&self) -> ScaleState {
        let mut texts = self.texts.split(SEPARATOR);
        let mut next = || texts.next().unwrap_or_default();
        let (uid, selector) = (next(), next());
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
    use plimsoll_core::coordination::Resource;
    use serde_json::json;

    use super::*;
    use crate::cluster::cache::controllers::SlimDeployment;

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
        let watch_status = scales.watches().next().expect("the kind is needed");
        watch_status.on_synced();
        scales
    }

    #[test]
    fn an_object_tells_its_scale_itself_but_only_one_of_its_own_group() {
        let scales = synced();
        scales.apply(ObjectChange::Applied(web("7")));
        let state =
            scales.find(&key("apps/v1beta1", "Deployment", "web")).expect("the kind is watched");
        assert_eq!(
            (state.spec_replicas, state.status_replicas, &*state.uid, state.version),
            (3, 4, "u", Some(7))
        );
        assert_eq!(state.selector.as_ref().map(Selector::as_str), Ok("app=web"));
        for other in [("example.com/v1", "Deployment"), ("v1", "Deployment"), ("apps/v1", "Other")]
        {
            assert_eq!(scales.find(&key(other.0, other.1, "web")), None, "{other:?}");
        }
        let counts: Vec<_> = scales.counts().collect();
        assert_eq!(counts, [("deployments", 1)], "the other kinds are not needed");
    }

    #[test]
    fn the_template_of_an_object_is_known_while_its_watch_fails() {
        let scales = synced();
        let of = key("apps/v1", "Deployment", "web");
        assert_eq!(scales.template(&of), Template::NotListed);
        assert_eq!(
            scales.template(&key("example.com/v1", "Deployment", "web")),
            Template::Unsupported
        );
        let container = json!({"name": "app", "resources": {"requests": {"cpu": "500m"}}});
        let spec = json!({
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"containers": [container]}},
        });
        scales.apply(ObjectChange::Applied(deployment("web", "7", &spec)));
        let watch_status = scales.watches().next().expect("the kind is needed");
        watch_status.on_error("the server is away");
        let Template::Known(template) = scales.template(&of) else { panic!("it was applied") };
        assert_eq!(template.request(Resource::Cpu, None), Some(500));
        watch_status.on_event("shop", "web");
        let state = scales.find(&of).expect("the kind is watched");
        assert_eq!(
            (&*state.uid, state.selector.as_ref().map(Selector::as_str)),
            ("u", Ok("app=web"))
        );
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
        let watch_status = scales.watches().next().expect("the kind is needed");
        watch_status.on_error("the server is away");
        assert_eq!(scales.find(&of), None, "the scale may be old");
        watch_status.on_event("shop", "web");
        assert!(scales.find(&of).is_some());
        let (namespace, name) = ("shop".to_owned(), "web".to_owned());
        scales.apply(ObjectChange::<SlimDeployment>::Deleted { namespace, name, uid: None });
        assert_eq!(scales.find(&of), None);
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
