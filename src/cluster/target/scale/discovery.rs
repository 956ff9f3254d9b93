//! Discovers where the objects of any kind are served, and fetches their scales.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::Client;
use serde::de::DeserializeOwned;

use super::{CacheLifetimes, ObjectReference, RawScale, RequestGate, Scale};
use crate::cluster::cache::ttl_cache::{Cached, Fetch, FetchReason, TtlCache};
use crate::cluster::path_segment::path_segment;

/// The API server's message when a kind has no scale.
const NO_RESOURCE: &str = "the server could not find the requested resource";
const MAX_GROUPS: u64 = 1_000;

/// Sends discovery requests, each awaits the gate and has a timeout.
#[derive(Clone)]
pub(super) struct DiscoveryClient {
    client: Client,
    gate: RequestGate,
    reason: FetchReason,
    kinds_by_group: TtlCache<Box<str>, Arc<ServedKinds>>,
    lifetimes: CacheLifetimes,
}

/// The served kinds of a group, or the error of the discovery.
pub(super) type ServedKinds = Result<Vec<ServedKind>, String>;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServedKind {
    pub name: Box<str>,
    /// Path of the API version, such as `/apis/apps/v1`.
    pub root: Arc<str>,
    plural: Box<str>,
    scalable: bool,
}

pub(super) enum ApiError {
    NotFound(String),
    Transient(String),
}

impl ServedKind {
    pub fn path(&self, key: &ObjectReference) -> Result<String, String> {
        let name = path_segment("resource name", &key.name)?;
        let namespace = path_segment("namespace", &key.namespace)?;
        Ok(format!("{}/namespaces/{namespace}/{}/{name}", self.root, self.plural))
    }

    pub fn scale_path(&self, key: &ObjectReference) -> Result<String, String> {
        Ok(format!("{}/scale", self.path(key)?))
    }
}

impl DiscoveryClient {
    pub fn new(client: Client, gate: RequestGate, lifetimes: CacheLifetimes) -> Self {
        let kinds_by_group = TtlCache::new(MAX_GROUPS, 1);
        Self { client, gate, reason: FetchReason::Missing, kinds_by_group, lifetimes }
    }

    /// What a refresh needs, such as the kinds of a group, is a part of the refresh, even if it is missing.
    pub fn for_reason(&self, reason: FetchReason) -> Self {
        let mut this = self.clone();
        if reason == FetchReason::Refresh {
            this.reason = reason;
        }
        this
    }

    pub async fn scale(&self, key: &ObjectReference) -> Scale {
        let group = match key.group() {
            Ok(group) => group,
            Err(why) => return Scale::UnknownKind(why),
        };
        if !group.is_empty()
            && let Err(why) = path_segment("API group", group)
        {
            return Scale::UnknownKind(why);
        }
        let kinds = self.kinds(group, &key.kind).await;
        let kinds = match &*kinds {
            Ok(kinds) => kinds,
            Err(why) => return Scale::Unavailable(why.clone()),
        };
        if !kinds.iter().any(|kind| kind.name == key.kind) {
            return Scale::UnknownKind(format!(
                "no matches for kind {:?} in group {group:?}",
                key.kind
            ));
        }
        // An error in one version says nothing about the others.
        let mut last = Scale::Missing(NO_RESOURCE.to_owned());
        for kind in kinds {
            if kind.name != key.kind || !kind.scalable {
                continue;
            }
            let path = match kind.scale_path(key) {
                Ok(path) => path,
                Err(why) => return Scale::Missing(why),
            };
            match self.get::<RawScale>(&path).await {
                Ok(scale) => return scale.into_scale(key),
                Err(ApiError::Transient(why)) => last = Scale::Unavailable(why),
                Err(ApiError::NotFound(why)) if !matches!(last, Scale::Unavailable(_)) => {
                    last = Scale::Missing(why);
                }
                Err(ApiError::NotFound(_)) => {}
            }
        }
        last
    }

    /// The kinds of a group. Fetches them again if that kind is not among them and the cached result is not recent.
    pub async fn kinds(&self, group: &str, kind: &str) -> Arc<ServedKinds> {
        self.kinds_with(group, |served| &*served.name == kind && served.scalable).await
    }

    /// The plural name of a kind. Fetches the kinds of the group again if it is not among them and the cached result is not
    /// recent.
    pub async fn plural(&self, group: &str, kind: &str) -> Result<Box<str>, String> {
        if !group.is_empty() {
            path_segment("API group", group)?;
        }
        let is_kind = |served: &ServedKind| &*served.name == kind;
        let kinds = self.kinds_with(group, is_kind).await;
        let kinds = kinds.as_ref().as_ref().map_err(String::clone)?;
        let found = kinds.iter().find(|served| is_kind(served)).map(|served| served.plural.clone());
        found.ok_or_else(|| format!("no matches for kind {kind:?} in group {group:?}"))
    }

    async fn kinds_with(
        &self,
        group: &str,
        is_wanted: impl Fn(&ServedKind) -> bool,
    ) -> Arc<ServedKinds> {
        let key = Box::from(group);
        let kinds = self.kinds_by_group.get(&key, self.kinds_fetcher(group)).await;
        if kinds.as_ref().as_ref().is_ok_and(|kinds| !kinds.iter().any(is_wanted)) {
            let (age, fetcher) = (self.lifetimes.missing / 2, self.kinds_fetcher(group));
            return self.kinds_by_group.get_with_max_age(&key, age, fetcher).await;
        }
        kinds
    }

    fn kinds_fetcher(&self, group: &str) -> Fetch<Arc<ServedKinds>> {
        let (this, group) = (self.clone(), group.to_owned());
        Box::new(move |reason| {
            let this = this.for_reason(reason);
            Box::pin(async move {
                let (kinds, lifetime) = match this.discover(&group).await {
                    Ok(kinds) if kinds.is_empty() => (Ok(kinds), this.lifetimes.missing),
                    Ok(kinds) => (Ok(kinds), this.lifetimes.kinds),
                    Err(why) => (Err(why), this.lifetimes.failed),
                };
                Cached { is_definite: kinds.is_ok(), value: Arc::new(kinds), lifetime }
            })
        })
    }

    /// All kinds of a group in all served versions, the preferred version first.
    async fn discover(&self, group: &str) -> ServedKinds {
        let roots = if group.is_empty() {
            vec!["/api/v1".to_owned()]
        } else {
            let segment = path_segment("API group", group)?;
            match self.get::<APIGroup>(&format!("/apis/{segment}")).await {
                Ok(mut api_group) => {
                    let preferred =
                        api_group.preferred_version.map(|version| version.group_version);
                    api_group
                        .versions
                        .sort_by_key(|version| preferred.as_ref() != Some(&version.group_version));
                    let versions = api_group.versions.into_iter();
                    versions.map(|version| format!("/apis/{}", version.group_version)).collect()
                }
                Err(ApiError::NotFound(_)) => Vec::new(),
                Err(ApiError::Transient(why)) => return Err(why),
            }
        };
        let mut kinds = Vec::new();
        for root in roots {
            match self.get::<APIResourceList>(&root).await {
                Ok(list) => add_kinds(&mut kinds, &root, &list),
                // The version was removed in the meantime.
                Err(ApiError::NotFound(_)) => {}
                Err(ApiError::Transient(why)) => return Err(why),
            }
        }
        Ok(kinds)
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        (self.gate)(self.reason).await;
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|why| ApiError::NotFound(format!("{path}: {why}")))?;
        let timeout = self.lifetimes.request_timeout;
        match tokio::time::timeout(timeout, self.client.request::<T>(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                Err(ApiError::NotFound(status.message.trim().to_owned()))
            }
            // Also on 403: during an installation RBAC rules come and go, and the previous result is better than none.
            Ok(Err(kube::Error::Api(status))) => Err(ApiError::Transient(status.message.clone())),
            Ok(Err(why)) => Err(ApiError::Transient(why.to_string())),
            Err(_) => {
                Err(ApiError::Transient(format!("request for {path} timed out after {timeout:?}")))
            }
        }
    }
}

fn add_kinds(kinds: &mut Vec<ServedKind>, root: &str, list: &APIResourceList) {
    let root = Arc::<str>::from(root);
    let names: std::collections::HashSet<&str> =
        list.resources.iter().map(|resource| resource.name.as_str()).collect();
    // Only namespaced objects are scalable, as their pods are namespaced.
    let objects = list.resources.iter().filter(|resource| !resource.name.contains('/'));
    kinds.extend(objects.map(|resource| ServedKind {
        name: resource.kind.as_str().into(),
        root: Arc::clone(&root),
        plural: resource.name.as_str().into(),
        scalable: resource.namespaced
            && names.contains(format!("{}/scale", resource.name).as_str()),
    }));
}
