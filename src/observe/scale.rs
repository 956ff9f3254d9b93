//! Owns what is asked about everything that is not well known: whether its kind can be scaled, and what the
//! scale of one object says of its pods and its owner.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;

mod above;
mod fresh;
mod watched;

pub use self::fresh::{FreshScale, ToldScale, Unscaled};
pub use self::watched::WatchedScales;
use super::answers::{Answer, Answers};
use super::controllers::Owner;
use super::selector::Selector;

/// Waits until one more request may be sent: the rate limit of whoever watches.
pub type Gate = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What the API server answers when a kind has no scale.
const NO_RESOURCE: &str = "the server could not find the requested resource";
const MOST_GROUPS: u64 = 1_000;

/// How much is kept for how long, and how long an answer may take.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// Of the scale of an object.
    pub found: Duration,
    /// Of the answer that there is no such thing.
    pub missing: Duration,
    /// Of an error that may pass.
    pub failed: Duration,
    /// Of the kinds of a group.
    pub kinds: Duration,
    /// How long one request may take.
    pub patience: Duration,
    /// How many objects are remembered.
    pub capacity: u64,
}

/// One object of any kind, as an owner reference names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Group and version, or only the version for the core group. May be empty.
    pub api_version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// What the scale of an object says. Errors are texts, because they end in a condition that a user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// It can be scaled.
    Found {
        /// Its pods; or why it does not tell.
        selector: Result<Selector, String>,
        /// Its controller.
        owner: Option<Owner>,
        /// How many pods it is to have, if it says so.
        replicas: Option<u32>,
    },
    /// There is no such object, or its kind cannot be scaled.
    Missing(String),
    /// There is no such kind.
    NoKind(String),
    /// Nobody knows at the moment.
    Unavailable(String),
}

/// Scales by object, and kinds by group, as the API server last told.
#[derive(Clone)]
pub struct Scales {
    asker: Asker,
    known: Answers<ObjectKey, Arc<Scale>>,
    /// By uid.
    above: Answers<Box<str>, Arc<above::Step>>,
    lifetimes: Lifetimes,
}

/// Asks the API server, one gated request with an end at a time.
#[derive(Clone)]
struct Asker {
    client: Client,
    gate: Gate,
    groups: Answers<Box<str>, Arc<Kinds>>,
    lifetimes: Lifetimes,
}

/// The kinds of a group, or why they are not known.
type Kinds = Result<Vec<Kind>, String>;

/// One kind in one version: where its objects are.
#[derive(Debug)]
struct Kind {
    name: Box<str>,
    /// `/apis/apps/v1`.
    root: Arc<str>,
    plural: Box<str>,
    scalable: bool,
}

/// The error of one request.
enum Refusal {
    NotFound(String),
    Passing(String),
}

/// A scale in any of its versions: older ones have a map as selector, and its text beside it.
#[derive(Deserialize)]
struct ScaleObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ScaleSpec,
    #[serde(default)]
    status: ScaleStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleSpec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScaleStatus {
    replicas: Option<i32>,
    selector: Option<ScaleSelector>,
    target_selector: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ScaleSelector {
    Text(String),
    Labels(BTreeMap<String, String>),
}

// === impl Lifetimes ===

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            found: Duration::from_mins(10),
            missing: Duration::from_mins(1),
            failed: Duration::from_secs(15),
            kinds: Duration::from_mins(5),
            patience: Duration::from_secs(10),
            capacity: 100_000,
        }
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Of an object that controls others in that namespace.
    pub fn of_owner(namespace: &str, owner: Owner) -> Self {
        let Owner { api_version, kind, name } = owner;
        Self { namespace: namespace.into(), api_version, kind, name }
    }

    /// The group, which is empty for the core group; an error when there is more than one '/'.
    pub fn group(&self) -> Result<&str, String> {
        match self.api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => {
                Err(format!("unexpected GroupVersion string: {}", self.api_version))
            }
            Some((group, _)) => Ok(group),
            None => Ok(""),
        }
    }
}

// === impl Scales ===

impl fmt::Debug for Scales {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scales").field("lifetimes", &self.lifetimes).finish_non_exhaustive()
    }
}

impl Scales {
    /// Asks with that client, which must not retry by itself: a refused request is asked again later anyway.
    pub fn new(client: Client, gate: Gate, lifetimes: Lifetimes) -> Self {
        let asker = Asker { client, gate, groups: Answers::new(MOST_GROUPS), lifetimes };
        let (known, above) = (Answers::new(lifetimes.capacity), Answers::new(lifetimes.capacity));
        Self { asker, known, above, lifetimes }
    }

    /// The scale of that object.
    pub async fn get(&self, key: &ObjectKey) -> Arc<Scale> {
        self.known.get(key, self.question(key)).await
    }

    /// Has that object asked for again, although its answer may still be good: when there are no pods where
    /// there should be some. Does nothing when it was asked for a moment ago.
    pub async fn doubt(&self, key: &ObjectKey) {
        self.known.doubt(key, self.lifetimes.missing, self.question(key)).await;
    }

    fn question(
        &self,
        key: &ObjectKey,
    ) -> impl FnOnce() -> BoxFuture<'static, Answer<Arc<Scale>>> + Send + use<> {
        let (asker, lifetimes, key) = (self.asker.clone(), self.lifetimes, key.clone());
        move || {
            Box::pin(async move {
                let scale = asker.scale(&key).await;
                let lifetime = match &scale {
                    Scale::Found { selector: Ok(_), .. } => lifetimes.found,
                    Scale::Found { .. } | Scale::Missing(_) | Scale::NoKind(_) => lifetimes.missing,
                    Scale::Unavailable(_) => lifetimes.failed,
                };
                let definite = !matches!(scale, Scale::Unavailable(_));
                Answer { value: Arc::new(scale), lifetime, definite }
            })
        }
    }
}

// === impl Asker ===

impl Asker {
    async fn scale(&self, key: &ObjectKey) -> Scale {
        let group = match key.group() {
            Ok(group) => group,
            Err(why) => return Scale::NoKind(why),
        };
        let kinds = self.kinds(group, &key.kind).await;
        let kinds = match &*kinds {
            Ok(kinds) => kinds,
            Err(why) => return Scale::Unavailable(why.clone()),
        };
        if !kinds.iter().any(|kind| kind.name == key.kind) {
            return Scale::NoKind(format!("no matches for kind {:?} in group {group:?}", key.kind));
        }
        // A refusal in one version says nothing of the others.
        let mut last = Scale::Missing(NO_RESOURCE.to_owned());
        for kind in kinds {
            if kind.name != key.kind || !kind.scalable {
                continue;
            }
            let path = format!(
                "{}/namespaces/{}/{}/{}/scale",
                kind.root, key.namespace, kind.plural, key.name
            );
            match self.ask::<ScaleObject>(&path).await {
                Ok(scale) => return scale.read(key),
                Err(Refusal::Passing(why)) => last = Scale::Unavailable(why),
                Err(Refusal::NotFound(why)) if !matches!(last, Scale::Unavailable(_)) => {
                    last = Scale::Missing(why);
                }
                Err(Refusal::NotFound(_)) => {}
            }
        }
        last
    }

    /// The kinds of a group; looked up again when that one is not among them and the answer is not quite new.
    async fn kinds(&self, group: &str, kind: &str) -> Arc<Kinds> {
        let key = Box::from(group);
        let kinds = self.groups.get(&key, self.kinds_question(group)).await;
        let is_there = |known: &Kind| &*known.name == kind && known.scalable;
        if kinds.as_ref().as_ref().is_ok_and(|kinds| !kinds.iter().any(is_there)) {
            let age = self.lifetimes.missing / 2;
            return self.groups.get_younger(&key, age, self.kinds_question(group)).await;
        }
        kinds
    }

    fn kinds_question(
        &self,
        group: &str,
    ) -> impl FnOnce() -> BoxFuture<'static, Answer<Arc<Kinds>>> + Send + use<> {
        let (this, group) = (self.clone(), group.to_owned());
        move || {
            Box::pin(async move {
                let (kinds, lifetime) = match this.discover(&group).await {
                    Ok(kinds) if kinds.is_empty() => (Ok(kinds), this.lifetimes.missing),
                    Ok(kinds) => (Ok(kinds), this.lifetimes.kinds),
                    Err(why) => (Err(why), this.lifetimes.failed),
                };
                Answer { definite: kinds.is_ok(), value: Arc::new(kinds), lifetime }
            })
        }
    }

    /// All kinds of a group in all versions that are served, the preferred one first.
    async fn discover(&self, group: &str) -> Kinds {
        let roots = if group.is_empty() {
            vec!["/api/v1".to_owned()]
        } else {
            match self.ask::<APIGroup>(&format!("/apis/{group}")).await {
                Ok(mut found) => {
                    let preferred = found.preferred_version.map(|version| version.group_version);
                    found
                        .versions
                        .sort_by_key(|version| preferred.as_ref() != Some(&version.group_version));
                    let versions = found.versions.into_iter();
                    versions.map(|version| format!("/apis/{}", version.group_version)).collect()
                }
                Err(Refusal::NotFound(_)) => Vec::new(),
                Err(Refusal::Passing(why)) => return Err(why),
            }
        };
        let mut kinds = Vec::new();
        for root in roots {
            match self.ask::<APIResourceList>(&root).await {
                Ok(list) => add(&mut kinds, &root, &list),
                // It has been taken away in between.
                Err(Refusal::NotFound(_)) => {}
                Err(Refusal::Passing(why)) => return Err(why),
            }
        }
        Ok(kinds)
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        (self.gate)().await;
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|why| Refusal::NotFound(format!("{path}: {why}")))?;
        let patience = self.lifetimes.patience;
        match limited(patience, self.client.request::<T>(request)).await {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(kube::Error::Api(status))) if status.code == 404 => {
                Err(Refusal::NotFound(status.message.trim().to_owned()))
            }
            // Also when the server forbids it: rights come and go while somebody installs them, and what was
            // known before is better than nothing.
            Some(Err(kube::Error::Api(status))) => Err(Refusal::Passing(status.message.clone())),
            Some(Err(why)) => Err(Refusal::Passing(why.to_string())),
            None => Err(Refusal::Passing(format!("no answer to {path} within {patience:?}"))),
        }
    }
}

async fn limited<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(patience, work).await.ok()
}

fn add(kinds: &mut Vec<Kind>, root: &str, list: &APIResourceList) {
    let root = Arc::<str>::from(root);
    let names: std::collections::HashSet<&str> =
        list.resources.iter().map(|resource| resource.name.as_str()).collect();
    // What is scaled is in a namespace, as its pods are.
    let objects = list.resources.iter().filter(|resource| !resource.name.contains('/'));
    kinds.extend(objects.map(|resource| Kind {
        name: resource.kind.as_str().into(),
        root: Arc::clone(&root),
        plural: resource.name.as_str().into(),
        scalable: resource.namespaced
            && names.contains(format!("{}/scale", resource.name).as_str()),
    }));
}

// === impl ScaleObject ===

impl ScaleObject {
    fn read(self, key: &ObjectKey) -> Scale {
        let owner = Owner::of(self.metadata.owner_references.as_deref().unwrap_or_default());
        let text = match (self.status.target_selector, &self.status.selector) {
            (Some(text), _) if !text.is_empty() => text,
            (_, Some(ScaleSelector::Text(text))) => text.clone(),
            (_, Some(ScaleSelector::Labels(labels))) => Selector::of_labels(labels).to_string(),
            (_, None) => String::new(),
        };
        let selector = if text.is_empty() {
            let ObjectKey { namespace, name, .. } = key;
            Err(format!("resource {namespace}/{name} has an empty selector for scale sub-resource"))
        } else {
            Selector::parse(&text).map_err(|why| why.to_string())
        };
        let replicas = self.spec.replicas.and_then(|replicas| u32::try_from(replicas).ok());
        Scale::Found { selector, owner, replicas }
    }
}
