//! The objects of the in-memory API server and their versions. Namespaces need not exist, only metadata is validated,
//! and history does not expire unless a test says so.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Value, json};

use super::patch_and_selector::{Patch, Selector};
use super::status_error::StatusError;
use crate::support::clock::wall_now;

/// Properties of a kind.
struct ResourceKind {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    name: &'static str,
    /// A custom resource: it has a status subresource and a generation, and list items include apiVersion and kind.
    is_custom: bool,
    /// A PUT creates a missing object.
    creates_on_put: bool,
}

const fn kind(group: &'static str, plural: &'static str, name: &'static str) -> ResourceKind {
    ResourceKind { group, version: "v1", plural, name, is_custom: true, creates_on_put: false }
}

const KINDS: &[ResourceKind] = &[
    ResourceKind {
        is_custom: false,
        creates_on_put: true,
        ..kind("coordination.k8s.io", "leases", "Lease")
    },
    kind("autoscaling.k8s.io", "verticalpodautoscalers", "VerticalPodAutoscaler"),
    ResourceKind {
        version: "v2",
        is_custom: false,
        ..kind("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
    },
    ResourceKind { is_custom: false, ..kind("apps", "deployments", "Deployment") },
    ResourceKind { is_custom: false, ..kind("", "pods", "Pod") },
    // Kinds without a status subresource.
    ResourceKind {
        is_custom: false,
        ..kind(
            "autoscaling.k8s.io",
            "verticalpodautoscalercheckpoints",
            "VerticalPodAutoscalerCheckpoint",
        )
    },
];

/// The resource of a request.
pub struct ResourcePath {
    group: String,
    version: String,
    namespace: Option<String>,
    plural: String,
    pub name: Option<String>,
    subresource: Option<String>,
}

impl ResourcePath {
    pub fn read(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').map(str::to_owned);
        let (group, version) = match &*parts.next()? {
            "api" => (String::new(), parts.next()?),
            "apis" => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<String> = parts.collect();
        let (namespace, rest) = match &rest[..] {
            [namespaces, namespace, rest @ ..]
                if namespaces == "namespaces" && !rest.is_empty() =>
            {
                (Some(namespace.clone()), rest)
            }
            rest => (None, rest),
        };
        let [plural, more @ ..] = rest else { return None };
        let part = |index: usize| more.get(index).cloned();
        let (plural, name, part) = (plural.clone(), part(0), part(1));
        Some(Self { group, version, namespace, plural, name, subresource: part })
    }

    fn kind(&self) -> Result<&'static ResourceKind, StatusError> {
        let is_it = |kind: &&ResourceKind| {
            kind.group == self.group && kind.version == self.version && kind.plural == self.plural
        };
        KINDS.iter().find(is_it).ok_or_else(StatusError::unknown_path)
    }

    fn key(&self, name: &str) -> (String, String, String) {
        let namespace = self.namespace.clone().unwrap_or_default();
        (self.collection(), namespace, name.to_owned())
    }

    fn collection(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether a stored object belongs to this path.
    fn contains(&self, (collection, namespace, _): &(String, String, String)) -> bool {
        *collection == self.collection()
            && self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
    }

    fn status_error(
        &self,
        code: u16,
        reason: &'static str,
        name: &str,
        words: &str,
    ) -> StatusError {
        let message = format!("{} \"{name}\" {words}", self.collection());
        let details = json!({"name": name, "group": self.group, "kind": self.plural});
        StatusError { code, reason, message, details }
    }

    fn conflict(&self, name: &str) -> StatusError {
        let mut refusal = self.status_error(409, "Conflict", name, "");
        refusal.message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; please apply your changes to \
             the latest version and try again",
            self.collection()
        );
        refusal
    }
}

/// A change of an object.
struct StoredEvent {
    version: u64,
    key: (String, String, String),
    before: Option<Value>,
    after: Option<Value>,
}

/// All objects, and the history of their changes.
#[derive(Default)]
pub struct Store {
    objects: BTreeMap<(String, String, String), Value>,
    log: Vec<StoredEvent>,
    version: u64,
}

impl Store {
    pub const fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, place: &ResourcePath) -> Result<Value, StatusError> {
        place.kind()?;
        let name = place.name.as_deref().unwrap_or_default();
        let found = self.objects.get(&place.key(name));
        found.cloned().ok_or_else(|| place.status_error(404, "NotFound", name, "not found"))
    }

    pub fn list(&self, place: &ResourcePath, selector: &Selector) -> Result<Value, StatusError> {
        let kind = place.kind()?;
        let mut items = Vec::new();
        for (_, object) in self.objects.iter().filter(|(key, _)| place.contains(key)) {
            if !selector.matches(object) {
                continue;
            }
            let mut object = object.clone();
            if let Some(members) = object.as_object_mut().filter(|_| !kind.is_custom) {
                members.remove("kind");
                members.remove("apiVersion");
            }
            items.push(object);
        }
        Ok(json!({
            "kind": format!("{}List", kind.name),
            "apiVersion": api_version(kind),
            "metadata": {"resourceVersion": self.version.to_string()},
            "items": items,
        }))
    }

    pub fn create(
        &mut self,
        place: &ResourcePath,
        mut object: Value,
    ) -> Result<Value, StatusError> {
        if place.plural == "selfsubjectaccessreviews" {
            object["status"] = json!({"allowed": true});
            return Ok(object);
        }
        let kind = place.kind()?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(StatusError::unprocessable());
        }
        if object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty())
        {
            return Err(StatusError::version_conflict());
        }
        let key = place.key(&name);
        if self.objects.contains_key(&key) {
            return Err(place.status_error(409, "AlreadyExists", &name, "already exists"));
        }
        let number = self.version + 1;
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("00000000-0000-4000-8000-{number:012x}"));
        metadata["creationTimestamp"] =
            json!(wall_now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        if let Some(namespace) = &place.namespace {
            metadata["namespace"] = json!(namespace);
        }
        if kind.is_custom {
            metadata["generation"] = json!(1);
            object.as_object_mut().expect("it has metadata").remove("status");
        }
        object["kind"] = json!(kind.name);
        object["apiVersion"] = json!(api_version(kind));
        Ok(self.put(key, object))
    }

    pub fn replace(
        &mut self,
        place: &ResourcePath,
        new: Value,
    ) -> Result<(StatusCode, Value), StatusError> {
        let kind = place.kind()?;
        let name = place.name.as_deref().unwrap_or_default();
        if new["metadata"]["name"] != *name {
            return Err(StatusError::bad_request());
        }
        let version = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let Ok(before) = self.get(place) else {
            if kind.creates_on_put && version.is_empty() {
                return self.create(place, new).map(|made| (StatusCode::CREATED, made));
            }
            let is_of_another = kind.creates_on_put && new["metadata"]["uid"].is_string();
            return Err(if is_of_another {
                place.conflict(name)
            } else {
                place.status_error(404, "NotFound", name, "not found")
            });
        };
        if version.is_empty() {
            let words = "is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(place.status_error(422, "Invalid", name, words));
        }
        self.update(place, before, new).map(|object| (StatusCode::OK, object))
    }

    pub fn patch(&mut self, place: &ResourcePath, patch: &Patch) -> Result<Value, StatusError> {
        let before = self.get(place)?;
        let new = patch.apply(&before)?;
        self.update(place, before, new)
    }

    /// Stores the new version of an object, unless its resourceVersion is outdated.
    fn update(
        &mut self,
        place: &ResourcePath,
        before: Value,
        mut new: Value,
    ) -> Result<Value, StatusError> {
        let kind = place.kind()?;
        let name = place.name.as_deref().unwrap_or_default();
        let is_of = |key: &str| {
            let wanted = new["metadata"][key].as_str().unwrap_or_default();
            wanted.is_empty() || before["metadata"][key] == *wanted
        };
        if !is_of("resourceVersion") || !is_of("uid") {
            return Err(place.conflict(name));
        }
        match place.subresource.as_deref() {
            None => {}
            Some("status") if kind.is_custom => {
                let status = new["status"].take();
                new = before.clone();
                new["status"] = status;
            }
            Some(_) => return Err(StatusError::unknown_path()),
        }
        let old = &before["metadata"];
        for key in
            ["uid", "creationTimestamp", "name", "namespace", "generation", "resourceVersion"]
        {
            if old[key].is_null() {
                new["metadata"].as_object_mut().expect("it has a name").remove(key);
            } else {
                new["metadata"][key] = old[key].clone();
            }
        }
        if kind.is_custom && place.subresource.is_none() {
            match before.get("status") {
                Some(status) => new["status"] = status.clone(),
                None => drop(new.as_object_mut().expect("an object").remove("status")),
            }
            if new["spec"] != before["spec"] {
                new["metadata"]["generation"] = json!(old["generation"].as_i64().unwrap_or(0) + 1);
            }
        }
        new["kind"] = json!(kind.name);
        new["apiVersion"] = json!(api_version(kind));
        // An update without changes does not create a new version.
        if new == before { Ok(before) } else { Ok(self.put(place.key(name), new)) }
    }

    pub fn delete(&mut self, place: &ResourcePath, only: &Value) -> Result<Value, StatusError> {
        let (object, name) = (self.get(place)?, place.name.as_deref().unwrap_or_default());
        for key in ["uid", "resourceVersion"] {
            if only[key].as_str().is_some_and(|wanted| object["metadata"][key] != *wanted) {
                return Err(place.conflict(name));
            }
        }
        let (key, uid) = (place.key(name), object["metadata"]["uid"].clone());
        self.objects.remove(&key);
        self.version += 1;
        let version = self.version;
        self.log.push(StoredEvent { version, key, before: Some(object), after: None });
        let mut details = json!({"name": name, "kind": place.plural, "uid": uid});
        if !place.group.is_empty() {
            details["group"] = json!(place.group);
        }
        let (of, word) = ("v1", "Success");
        Ok(json!({
            "kind": "Status", "apiVersion": of, "metadata": {}, "status": word, "details": details,
        }))
    }

    fn put(&mut self, key: (String, String, String), mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let before = self.objects.insert(key.clone(), object.clone());
        let after = Some(object.clone());
        self.log.push(StoredEvent { version: self.version, key, before, after });
        object
    }

    /// The initial events of a watch without a resourceVersion.
    pub fn initial_events(&self, place: &ResourcePath, selector: &Selector) -> Vec<Value> {
        let all =
            self.objects.iter().filter(|(key, _)| place.contains(key)).map(|(_, object)| object);
        all.filter(|object| selector.matches(object)).map(|object| event("ADDED", object)).collect()
    }

    /// A bookmark with the current version, optionally marking the end of the initial events.
    pub fn bookmark(&self, place: &ResourcePath, is_end_of_initial: bool) -> Option<Value> {
        let kind = place.kind().ok()?;
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if is_end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object =
            json!({"kind": kind.name, "apiVersion": api_version(kind), "metadata": metadata});
        Some(event("BOOKMARK", &object))
    }

    /// The events since a version, and the version of the last one.
    pub fn events(
        &self,
        place: &ResourcePath,
        selector: &Selector,
        since: u64,
    ) -> (Vec<Value>, u64) {
        let new =
            self.log.iter().filter(|event| event.version > since && place.contains(&event.key));
        let events = new.filter_map(|one| {
            let was = one.before.as_ref().filter(|object| selector.matches(object));
            let is = one.after.as_ref().filter(|object| selector.matches(object));
            match (was, is) {
                (None, None) => None,
                (None, Some(object)) => Some(event("ADDED", object)),
                (Some(_), Some(object)) => Some(event("MODIFIED", object)),
                (Some(object), None) => {
                    let mut last = object.clone();
                    last["metadata"]["resourceVersion"] = json!(one.version.to_string());
                    Some(event("DELETED", &last))
                }
            }
        });
        (events.collect(), self.version)
    }
}

fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

fn api_version(kind: &ResourceKind) -> String {
    if kind.group.is_empty() {
        return kind.version.to_owned();
    }
    format!("{}/{}", kind.group, kind.version)
}
