//! Loads checkpoints: lists them page by page, and passes each object to the sink as it is read.

use std::collections::{BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use kube::api::{DynamicObject, ObjectList};

use super::{
    CheckpointStorage,
    cache::CacheEntry,
    client::with_retries,
    object::{CheckpointContent, CheckpointObject},
};
use crate::{Error, LoadReport, LoadRequest, Storage, Writer};
use plimsoll_core::{
    history::{Sink, SkippedRecord},
    types::{ContainerKey, ObjectKey},
};

/// Maximum number of namespaces to list one by one. With more, the whole cluster is listed.
const MAX_NAMESPACE_LISTS: usize = 8;

#[async_trait]
impl Storage for CheckpointStorage {
    fn name(&self) -> &'static str {
        "checkpoint"
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let scopes = list_scopes(self.options.namespace.as_ref(), wanted);
        let mut load_state = LoadState::new(self, wanted);
        for scope in &scopes {
            let mut list = CheckpointPages::new(scope.as_deref());
            while let Some(page) = list.next(self).await? {
                for object in page {
                    match CheckpointObject::read(object) {
                        Ok(object) => load_state.accept(object, sink),
                        Err(skipped) => load_state.report.skipped.push(skipped),
                    }
                }
            }
        }
        let in_scope = |key: &ContainerKey| {
            let contains_namespace = |scope: &Option<String>| {
                scope.as_deref().is_none_or(|namespace| *namespace == *key.vpa.namespace)
            };
            wanted.includes(key) && scopes.iter().any(contains_namespace)
        };
        self.table.retain_seen(in_scope, &load_state.seen_keys);
        load_state.inherit(sink).await?;
        Ok(load_state.report)
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }

    fn is_in_cluster(&self) -> bool {
        true
    }
}

/// The lists to make: namespaces, or the whole cluster.
fn list_scopes(only: Option<&String>, wanted: &LoadRequest) -> Vec<Option<String>> {
    let LoadRequest::Vpas(vpas) = wanted else { return vec![only.cloned()] };
    let namespaces: BTreeSet<&str> = vpas
        .keys()
        .map(|vpa| &*vpa.namespace)
        .filter(|namespace| only.is_none_or(|only| only == namespace))
        .collect();
    if namespaces.len() > MAX_NAMESPACE_LISTS {
        return vec![None];
    }
    namespaces.into_iter().map(|namespace| Some(namespace.to_owned())).collect()
}

/// The state of a load: names, never histories.
struct LoadState<'a> {
    storage: &'a CheckpointStorage,
    wanted: &'a LoadRequest,
    /// Requested VPAs by the owner of their pods.
    vpas_by_owner: HashMap<(&'a str, &'a str), Vec<&'a ObjectKey>>,
    seen_keys: HashSet<ContainerKey>,
    /// Requested VPAs with their own history.
    vpas_with_history: HashSet<ObjectKey>,
    inheritable: HashMap<ContainerKey, InheritableCheckpoint>,
    report: LoadReport,
}

/// The checkpoint of another VPA that can be inherited.
struct InheritableCheckpoint {
    source_key: ContainerKey,
    name: Box<str>,
    richness: u64,
}

impl<'a> LoadState<'a> {
    fn new(storage: &'a CheckpointStorage, wanted: &'a LoadRequest) -> Self {
        let mut vpas_by_owner: HashMap<_, Vec<_>> = HashMap::new();
        if let LoadRequest::Vpas(vpas) = wanted {
            for (vpa, owner) in vpas {
                if let Some(owner) = owner {
                    vpas_by_owner.entry((&*vpa.namespace, &**owner)).or_default().push(vpa);
                }
            }
        }
        Self {
            storage,
            wanted,
            vpas_by_owner,
            seen_keys: HashSet::new(),
            vpas_with_history: HashSet::new(),
            inheritable: HashMap::new(),
            report: LoadReport::default(),
        }
    }

    /// Records which VPAs can inherit this object. The richest one wins.
    fn add_inheritable(&mut self, object: &CheckpointObject, owner: &str, richness: u64) {
        let heirs = self.vpas_by_owner.get(&(&*object.key.vpa.namespace, owner));
        for &heir in heirs.into_iter().flatten().filter(|heir| ***heir != object.key.vpa) {
            let key = ContainerKey::new(heir.clone(), object.key.container.clone());
            let known = self.inheritable.get(&key).map(|legacy| legacy.richness);
            if known.is_none_or(|known| known < richness) {
                let legacy = InheritableCheckpoint {
                    source_key: object.key.clone(),
                    name: object.name.clone(),
                    richness,
                };
                self.inheritable.insert(key, legacy);
            }
        }
    }

    fn accept(&mut self, object: CheckpointObject, sink: &mut dyn Sink) {
        if let CheckpointContent::History(history) = &object.content
            && let Some(owner) = &history.snapshot.owner
            && sink.may_inherit_from(&object.key.vpa)
        {
            self.add_inheritable(&object, owner, history.fingerprint.richness);
        }
        if !self.wanted.includes(&object.key) {
            return;
        }
        if !self.seen_keys.insert(object.key.clone()) {
            self.report.skipped.push(SkippedRecord {
                record: format!("{} (object {})", object.key, object.name),
                reason: "another object of the same container was used: delete one of them".into(),
            });
            return;
        }
        self.storage.table.put(&object.key, Some(CacheEntry::from_object(&object)));
        self.report.skipped.extend(object.skipped());
        if let CheckpointContent::History(history) = object.content {
            self.vpas_with_history.insert(object.key.vpa.clone());
            sink.snapshot(object.key, history.snapshot);
            self.report.snapshots += 1;
        }
    }

    /// VPAs without their own history inherit that of a previous VPA of the same workload.
    async fn inherit(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        for (key, legacy) in std::mem::take(&mut self.inheritable) {
            if self.vpas_with_history.contains(&key.vpa) {
                continue;
            }
            let namespace = &*key.vpa.namespace;
            let found = with_retries(|| self.storage.calls.get(namespace, &legacy.name)).await;
            let found = found.map_err(|failure| {
                failure.into_error(&CheckpointStorage::location(Some(namespace)))
            })?;
            let object = found.map(CheckpointObject::read);
            // It may have changed or been deleted meanwhile. Then there is nothing to inherit.
            if let Some(Ok(CheckpointObject {
                content: CheckpointContent::History(history),
                key: found_key,
                ..
            })) = object
                && found_key == legacy.source_key
                && history.snapshot.owner.is_some()
            {
                sink.snapshot(key, history.snapshot);
                self.report.snapshots += 1;
            }
        }
        Ok(())
    }
}

pub struct CheckpointPages<'a> {
    namespace: Option<&'a str>,
    /// The continue token; `None` after the last page.
    token: Option<String>,
}

impl<'a> CheckpointPages<'a> {
    pub fn new(namespace: Option<&'a str>) -> Self {
        Self { namespace, token: Some(String::new()) }
    }

    pub async fn next(
        &mut self,
        storage: &CheckpointStorage,
    ) -> Result<Option<Vec<DynamicObject>>, Error> {
        let Some(token) = self.token.take() else { return Ok(None) };
        let token = Some(token.as_str()).filter(|token| !token.is_empty());
        let page = storage.calls.page(self.namespace, storage.options.page_size, token).await;
        let ObjectList { items, metadata, .. } = page
            .map_err(|failure| failure.into_error(&CheckpointStorage::location(self.namespace)))?;
        self.token = metadata.continue_.filter(|token| !token.is_empty());
        Ok(Some(items))
    }
}
