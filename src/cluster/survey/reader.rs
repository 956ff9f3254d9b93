//! Reads the kinds of a survey: of the cluster, or namespace by namespace if that is all that is allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{Client, api::ListParams};
use parking_lot::Mutex;
use plimsoll_core::rightsizing::survey::{Node, Unread};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::{OnceCell, Semaphore};

use super::{
    builder::{SurveyBuilder, invalid_object},
    objects::{Surveyed, SurveyedController, amounts},
    scope::SurveyScope,
};
use crate::cluster::{
    paged_requests::{
        ListedPart, PagedRequests, RequestError, resource_name, resource_path, version_path,
    },
    path_segment::path_segment,
    watch::{maybe_object::MaybeObject, partial_objects::PartialNode},
};

/// Up to this many namespaces are listed one by one. For more, the lists of the cluster are shorter in sum.
const MAX_SINGLE_NAMESPACES: usize = 4;
/// With more namespaces than this, they are not tried one by one after the list of the cluster was forbidden.
const MAX_FALLBACK_NAMESPACES: usize = 50;
/// Maximum number of kinds of owners that are not built in.
const MAX_CUSTOM_KINDS: usize = 40;
/// Maximum number of namespaces that a message names.
const MAX_NAMED: usize = 5;

/// Pages that are in memory at the same time.
const MAX_PAGES: usize = 2;
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
const MAX_ATTEMPTS: u32 = 4;

/// A kind and where its objects are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedKind {
    /// Group and version, such as `apps/v1`.
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub plural: Box<str>,
}

impl ServedKind {
    pub fn new(api_version: &str, kind: &str, plural: &str) -> Self {
        let [api_version, kind, plural] = [api_version, kind, plural].map(Box::from);
        Self { api_version, kind, plural }
    }
}

pub(super) struct SurveyReader<'a> {
    requests: PagedRequests<'a>,
    scope: &'a SurveyScope,
    /// The namespaces to list one by one; `None` for lists of the cluster.
    namespaces: Option<Vec<String>>,
    /// The namespaces that are covered, if a list of the cluster is forbidden.
    fallback: OnceCell<Result<Vec<String>, RequestError>>,
    builder: Mutex<SurveyBuilder>,
    unread: Mutex<Vec<Unread>>,
    remarks: Mutex<Vec<String>>,
}

/// What is missing from a list.
#[derive(Debug, Default)]
struct Unlisted {
    unread: Vec<Unread>,
    places: UnlistedPlaces,
}

/// Where objects of a kind may be missing.
#[derive(Clone, Debug, Default)]
pub(super) struct UnlistedPlaces {
    everywhere: bool,
    namespaces: BTreeSet<Box<str>>,
}

impl UnlistedPlaces {
    /// Whether objects of a namespace may be missing.
    pub fn include(&self, namespace: &str) -> bool {
        self.everywhere || self.namespaces.contains(namespace)
    }
}

impl<'a> SurveyReader<'a> {
    /// Decides which namespaces are listed. Wildcards need the list of namespaces.
    pub async fn new(client: &'a Client, scope: &'a SurveyScope) -> Self {
        let mut reader = Self {
            requests: PagedRequests {
                client,
                timeout: REQUEST_TIMEOUT,
                max_attempts: MAX_ATTEMPTS,
                permits: Semaphore::new(MAX_PAGES),
            },
            scope,
            namespaces: None,
            fallback: OnceCell::new(),
            builder: Mutex::new(SurveyBuilder::new(scope.clone())),
            unread: Mutex::default(),
            remarks: Mutex::default(),
        };
        let plain = scope.plain_namespaces();
        let globs: Vec<_> = scope.namespace_globs().collect();
        let mut names = if scope.namespaces.is_empty() { None } else { Some(plain.clone()) };
        if !globs.is_empty() {
            match reader.all_namespaces().await {
                Ok(matching) => names = Some(matching),
                Err(error) => {
                    let what = format!("namespaces that match {}", globs.join(", "));
                    let rule = "grant the verb list on namespaces, or name the namespaces";
                    reader.unread.lock().push(unread(what, &error, rule));
                }
            }
        }
        if let Some(names) = names {
            let is_few = names.len() <= MAX_SINGLE_NAMESPACES;
            let fallback = OnceCell::new_with(Some(Ok(names.clone())));
            reader.fallback = fallback;
            // If wildcards could not be resolved, only named namespaces are left.
            reader.namespaces = is_few.then_some(names);
        }
        reader
    }

    /// What was read, what could not be read, and remarks.
    pub fn finish(self) -> (SurveyBuilder, Vec<Unread>, Vec<String>) {
        let (mut unread, mut remarks) = (self.unread.into_inner(), self.remarks.into_inner());
        unread.sort_by(|a, b| a.what.cmp(&b.what));
        remarks.sort_unstable();
        (self.builder.into_inner(), unread, remarks)
    }

    /// Adds something that could not be read.
    pub fn add_unread(&self, unread: Unread) {
        self.unread.lock().push(unread);
    }

    pub async fn list<K: DeserializeOwned>(
        &self,
        kind: &ServedKind,
        part: ListedPart,
        add: impl Fn(&mut SurveyBuilder, &K) + Sync,
    ) {
        let unlisted = self.list_readable(kind, part, add).await;
        self.unread.lock().extend(unlisted.unread);
    }

    /// Lists autoscalers of replicas. The requests of a workload do not change if it is unknown whether it has one.
    pub async fn list_autoscalers<K: DeserializeOwned>(
        &self,
        kind: &ServedKind,
        add: impl Fn(&mut SurveyBuilder, &K) + Sync,
    ) {
        let Unlisted { unread, places } = self.list_readable(kind, ListedPart::Object, add).await;
        self.unread.lock().extend(unread);
        self.builder.lock().unknown_autoscalers = places;
    }

    /// The same for a kind that the report can do without. `without` says what is missing then.
    pub async fn list_optional<K: DeserializeOwned>(
        &self,
        kind: &ServedKind,
        without: &str,
        add: impl Fn(&mut SurveyBuilder, &K) + Sync,
    ) {
        let unread = self.list_readable(kind, ListedPart::Object, add).await.unread;
        // Permissions are checked first, also those on what does not exist.
        if unread.is_empty() || !self.is_version_served(&kind.api_version).await {
            return;
        }
        let remark = |Unread { what, why }| format!("could not read {what}, {without}: {why}");
        self.remarks.lock().extend(unread.into_iter().map(remark));
    }

    /// Whether the API server serves a version. Unknown counts as served.
    async fn is_version_served(&self, api_version: &str) -> bool {
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        let path = format!("{root}/{api_version}");
        let kinds = self.requests.read::<APIResourceList>(&path).await;
        !matches!(kinds, Err(RequestError::NotFound))
    }

    async fn list_pages<K: DeserializeOwned>(
        &self,
        kind: &ServedKind,
        namespace: Option<&str>,
        part: ListedPart,
        visit: impl FnMut(Vec<MaybeObject<K>>) + Send,
    ) -> Result<(), RequestError> {
        let path = resource_path(&kind.api_version, &kind.plural, namespace)?;
        self.requests.list(path, part, ListParams::default(), visit).await
    }

    /// Lists a kind and adds each object to the survey. Returns what could not be read.
    async fn list_readable<K: DeserializeOwned>(
        &self,
        kind: &ServedKind,
        part: ListedPart,
        add: impl Fn(&mut SurveyBuilder, &K) + Sync,
    ) -> Unlisted {
        let invalid = Mutex::new(Unlisted::default());
        let listed = |namespace: Option<String>| {
            let (add, invalid) = (&add, &invalid);
            async move {
                let visit = |page: Vec<MaybeObject<K>>| {
                    self.add_page(kind, page, add, &mut invalid.lock());
                };
                self.list_pages(kind, namespace.as_deref(), part, visit).await
            }
        };
        // Namespaces that fail for the same reason are reported together.
        let mut failed: BTreeMap<RequestError, Vec<String>> = BTreeMap::new();
        let namespaces = if let Some(namespaces) = &self.namespaces {
            namespaces.clone()
        } else {
            let error = match listed(None).await {
                Ok(()) | Err(RequestError::NotFound) => return invalid.into_inner(),
                Err(error) => error,
            };
            let is_forbidden = matches!(error, RequestError::Forbidden(_));
            let namespaces = if is_forbidden { self.fallback().await } else { None };
            let Some(namespaces) = namespaces else {
                let mut unlisted = invalid.into_inner();
                unlisted.unread.push(failed_list(kind, None, &error));
                unlisted.places.everywhere = true;
                return unlisted;
            };
            namespaces
        };
        let mut unlisted = Unlisted::default();
        for namespace in namespaces {
            match listed(Some(namespace.clone())).await {
                Ok(()) | Err(RequestError::NotFound) => {}
                Err(error) => {
                    unlisted.places.namespaces.insert(namespace.as_str().into());
                    // The messages differ by namespace.
                    let error = match error {
                        RequestError::Forbidden(_) => RequestError::Forbidden("HTTP 403".into()),
                        error => error,
                    };
                    failed.entry(error).or_default().push(namespace);
                }
            }
        }
        let failed = failed
            .into_iter()
            .map(|(error, namespaces)| failed_list(kind, Some(&namespaces), &error));
        let invalid = invalid.into_inner();
        unlisted.unread = invalid.unread.into_iter().chain(failed).collect();
        unlisted.places.namespaces.extend(invalid.places.namespaces);
        unlisted
    }

    /// Adds a page of objects, and those that could not be decoded to `undecoded`.
    fn add_page<K>(
        &self,
        kind: &ServedKind,
        page: Vec<MaybeObject<K>>,
        add: &impl Fn(&mut SurveyBuilder, &K),
        undecoded: &mut Unlisted,
    ) {
        let mut builder = self.builder.lock();
        for MaybeObject(object) in page {
            match object {
                Ok(object) => add(&mut builder, &object),
                Err(invalid) => {
                    let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
                    if self.scope.includes_namespace(namespace) {
                        let (metadata, reason) = (&invalid.metadata, &invalid.reason);
                        undecoded.unread.push(invalid_object(&kind.kind, metadata, reason));
                        undecoded.places.namespaces.insert(namespace.into());
                    }
                }
            }
        }
    }

    /// Lists the kinds of owners that are not built in, as far up as they can be scaled.
    pub async fn list_custom_kinds(
        &self,
        add: impl Fn(&mut SurveyBuilder, &ServedKind, &SurveyedController) + Sync,
    ) {
        let mut count = 0;
        loop {
            let kinds = self.builder.lock().unknown_kinds();
            if kinds.is_empty() {
                return;
            }
            for (api_version, kind) in kinds {
                count += 1;
                let served = if count <= MAX_CUSTOM_KINDS {
                    self.custom_kind(&api_version, &kind).await
                } else {
                    let what = format!("owners of kind {kind} of {api_version}");
                    let why = format!(
                        "more than {MAX_CUSTOM_KINDS} kinds own pods: limit the survey with -n"
                    );
                    self.add_unread(Unread { what, why });
                    None
                };
                let is_scalable = served.as_ref().is_some_and(|(_, is_scalable)| *is_scalable);
                self.builder.lock().set_scalable(&api_version, &kind, is_scalable);
                // Of kinds that cannot be scaled only the owners matter, and only if they are followed.
                let follows_owners = !self.scope.groups.owner_kinds.is_empty();
                if let Some((served, is_scalable)) = served
                    && (is_scalable || follows_owners)
                {
                    let part = if is_scalable { ListedPart::Object } else { ListedPart::Metadata };
                    let add = |builder: &mut SurveyBuilder, object: &SurveyedController| {
                        add(builder, &served, object);
                    };
                    self.list(&served, part, add).await;
                }
            }
        }
    }

    /// Reports kinds of owners that others should be grouped by and that nothing has.
    pub fn check_owner_kinds(&self) {
        let missing = self.scope.groups.owner_kinds.iter().filter(|kind| {
            let builder = self.builder.lock();
            !builder.has_kind(kind)
        });
        let remark =
            |kind| format!("--group-by-owner={kind}: no pod and no controller has such an owner");
        self.remarks.lock().extend(missing.map(remark));
    }

    /// Where objects of a kind are served, and whether they can be scaled.
    async fn custom_kind(&self, api_version: &str, kind: &str) -> Option<(ServedKind, bool)> {
        let path = version_path(api_version).ok()?;
        match self.requests.read::<APIResourceList>(&path).await {
            Ok(served) => {
                let names = |name: &str| served.resources.iter().any(|one| one.name == name);
                let is_scalable = |name: &str| names(&format!("{name}/scale"));
                let of_kind = served
                    .resources
                    .iter()
                    .filter(|one| one.kind == kind && one.namespaced && !one.name.contains('/'));
                let found = of_kind.max_by_key(|one| is_scalable(&one.name))?;
                let served = ServedKind::new(api_version, kind, &found.name);
                Some((served, is_scalable(&found.name)))
            }
            Err(RequestError::NotFound) => None,
            Err(error) => {
                let what = format!("kind {kind} of {api_version}");
                self.add_unread(unread(
                    what,
                    &error,
                    "check the API server and its aggregated APIs",
                ));
                None
            }
        }
    }

    pub async fn nodes(&self) -> Result<BTreeMap<Box<str>, Node>, Unread> {
        let (kind, mut nodes) = (ServedKind::new("v1", "Node", "nodes"), BTreeMap::new());
        let visit = |page: Vec<MaybeObject<PartialNode>>| {
            nodes.extend(page.into_iter().filter_map(|MaybeObject(node)| {
                let node = node.ok()?;
                let labels = node.metadata.labels.unwrap_or_default().into_iter();
                let labels = labels.map(|(key, value)| (key.into(), value.into())).collect();
                let allocatable = amounts(&node.status.allocatable);
                Some((node.metadata.name?.into(), Node { labels, allocatable }))
            }));
        };
        match self.list_pages(&kind, None, ListedPart::Object, visit).await {
            Ok(()) => Ok(nodes),
            Err(error) => {
                let rule = "grant the verb list on nodes for prices by node and node groups";
                Err(unread("nodes".to_owned(), &error, rule))
            }
        }
    }

    /// Reports named namespaces that do not exist: a list of one is empty and no error.
    pub async fn check_namespaces(&self) {
        for namespace in self.namespaces.iter().flatten() {
            if self.builder.lock().has_namespace(namespace) {
                continue;
            }
            let Ok(segment) = path_segment("namespace", namespace) else { continue };
            let path = format!("/api/v1/namespaces/{segment}");
            let read = self.requests.read::<Surveyed<IgnoredAny>>(&path).await;
            if let Err(RequestError::NotFound) = read {
                let why = "it does not exist: check -n".to_owned();
                self.add_unread(Unread { what: format!("namespace {namespace}"), why });
            }
        }
    }

    /// The namespaces to try one by one; `None` if they are not known, or too many.
    async fn fallback(&self) -> Option<Vec<String>> {
        let namespaces = self.fallback.get_or_init(|| self.all_namespaces()).await;
        let namespaces = namespaces.as_ref().ok()?;
        (namespaces.len() <= MAX_FALLBACK_NAMESPACES).then(|| namespaces.clone())
    }

    async fn all_namespaces(&self) -> Result<Vec<String>, RequestError> {
        let (kind, mut names) = (ServedKind::new("v1", "Namespace", "namespaces"), Vec::new());
        let visit = |page: Vec<MaybeObject<Surveyed<IgnoredAny>>>| {
            let found = page.into_iter().filter_map(|MaybeObject(one)| one.ok()?.metadata.name);
            names.extend(found.filter(|name| self.scope.includes_namespace(name)));
        };
        self.list_pages(&kind, None, ListedPart::Metadata, visit).await?;
        Ok(names)
    }
}

/// A list that failed, with the permission that would change it.
fn failed_list(kind: &ServedKind, namespaces: Option<&[String]>, error: &RequestError) -> Unread {
    let resource = resource_name(&kind.api_version, &kind.plural);
    let (what, rule) = match namespaces {
        None => (
            format!("{resource} of the cluster"),
            format!(
                "grant the verb list on {resource} in a ClusterRole, or name namespaces with -n"
            ),
        ),
        Some(namespaces) => {
            let first = namespaces.iter().take(MAX_NAMED).map(String::as_str);
            let mut names = first.collect::<Vec<_>>().join(", ");
            let more = namespaces.len().saturating_sub(MAX_NAMED);
            if more > 0 {
                names = format!("{names} and {more} more");
            }
            let plural = if namespaces.len() > 1 { "namespaces" } else { "namespace" };
            let place = format!("{plural} {names}");
            (
                format!("{resource} in {place}"),
                format!("grant the verb list on {resource} in {place}"),
            )
        }
    };
    unread(what, error, &rule)
}

/// What is missing, and the permission that would change it.
fn unread(what: String, error: &RequestError, rule: &str) -> Unread {
    let why = match error {
        RequestError::Forbidden(why) => format!("forbidden ({why}): {rule}"),
        RequestError::NotFound => format!("not served (HTTP 404): {rule}"),
        RequestError::Failed(why) => why.clone(),
    };
    Unread { what, why }
}
