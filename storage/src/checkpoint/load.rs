//! Loading: lists a page at a time, and hands each object to the sink as it is read.

use std::collections::{BTreeSet, HashMap, HashSet};

use kube::api::{DynamicObject, ObjectList};

use super::{
    backend::CheckpointStorage,
    cache::CacheEntry,
    client::with_retries,
    object::{CheckpointContent, CheckpointObject},
};
use crate::{Error, LoadReport, LoadRequest};
use plimsoll_core::{
    history::{Sink, SkippedRecord},
    types::{ContainerKey, ObjectKey},
};

/// So many namespaces are listed one by one; of more the whole cluster is.
const MAX_NAMESPACE_LISTS: usize = 8;

impl CheckpointStorage {
    /// Loads what is wanted.
    pub(super) async fn load_all(
        &self,
        wanted: &LoadRequest,
        sink: &mut dyn Sink,
    ) -> Result<LoadReport, Error> {
        let places = self.list_scopes(wanted);
        let mut loading = LoadState::new(wanted);
        for place in &places {
            let mut list = CheckpointPages::new(place.as_deref());
            while let Some(page) = list.next(self).await? {
                for object in page {
                    match CheckpointObject::read(object) {
                        Ok(object) => self.accept(object, &mut loading, sink),
                        Err(skipped) => loading.report.skipped.push(skipped),
                    }
                }
            }
        }
        let looked_at = |key: &ContainerKey| {
            let there = |place: &Option<String>| {
                place.as_deref().is_none_or(|namespace| *namespace == *key.vpa.namespace)
            };
            wanted.includes(key) && places.iter().any(there)
        };
        self.table.retain_seen(looked_at, &loading.seen_keys);
        self.inherit(&mut loading, sink).await?;
        Ok(loading.report)
    }

    /// What to list: namespaces, or the whole cluster.
    fn list_scopes(&self, wanted: &LoadRequest) -> Vec<Option<String>> {
        let only = self.options.namespace.as_ref();
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

    /// Takes one object that was read.
    fn accept(&self, object: CheckpointObject, loading: &mut LoadState<'_>, sink: &mut dyn Sink) {
        if let CheckpointContent::History(history) = &object.content
            && let Some(owner) = &history.snapshot.owner
            && sink.may_inherit_from(&object.key.vpa)
        {
            loading.add_inheritable(&object, owner, history.fingerprint.richness);
        }
        if !loading.wanted.includes(&object.key) {
            return;
        }
        if !loading.seen_keys.insert(object.key.clone()) {
            loading.report.skipped.push(SkippedRecord {
                record: format!("{} (object {})", object.key, object.name),
                reason: "another object is of the same container and was taken: delete one of them"
                    .into(),
            });
            return;
        }
        self.table.put(&object.key, Some(CacheEntry::from_object(&object)));
        loading.report.skipped.extend(object.skipped());
        if let CheckpointContent::History(history) = object.content {
            loading.vpas_with_history.insert(object.key.vpa.clone());
            sink.snapshot(object.key, history.snapshot);
            loading.report.snapshots += 1;
        }
    }

    /// VPAs that have nothing of their own take over what an earlier one for the same workload left.
    async fn inherit(&self, loading: &mut LoadState<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        for (key, legacy) in std::mem::take(&mut loading.inheritable) {
            if loading.vpas_with_history.contains(&key.vpa) {
                continue;
            }
            let namespace = &*key.vpa.namespace;
            let found = with_retries(|| self.calls.get(namespace, &legacy.name)).await;
            let found =
                found.map_err(|failure| failure.into_error(&Self::location(Some(namespace))))?;
            let object = found.map(CheckpointObject::read);
            // It may have changed or gone meanwhile; then there is nothing to inherit.
            if let Some(Ok(CheckpointObject {
                content: CheckpointContent::History(history),
                key: of,
                ..
            })) = object
                && of == legacy.source_key
                && history.snapshot.owner.is_some()
            {
                sink.snapshot(key, history.snapshot);
                loading.report.snapshots += 1;
            }
        }
        Ok(())
    }
}

/// What a load keeps in mind: names, never histories.
struct LoadState<'a> {
    wanted: &'a LoadRequest,
    /// Wanted VPAs by the owner of their pods.
    vpas_by_owner: HashMap<(&'a str, &'a str), Vec<&'a ObjectKey>>,
    seen_keys: HashSet<ContainerKey>,
    /// Wanted VPAs that have something of their own.
    vpas_with_history: HashSet<ObjectKey>,
    inheritable: HashMap<ContainerKey, InheritableCheckpoint>,
    report: LoadReport,
}

/// What another VPA left.
struct InheritableCheckpoint {
    source_key: ContainerKey,
    name: Box<str>,
    richness: u64,
}

impl<'a> LoadState<'a> {
    fn new(wanted: &'a LoadRequest) -> Self {
        let mut heirs: HashMap<_, Vec<_>> = HashMap::new();
        if let LoadRequest::Vpas(vpas) = wanted {
            for (vpa, owner) in vpas {
                if let Some(owner) = owner {
                    heirs.entry((&*vpa.namespace, &**owner)).or_default().push(vpa);
                }
            }
        }
        Self {
            wanted,
            vpas_by_owner: heirs,
            seen_keys: HashSet::new(),
            vpas_with_history: HashSet::new(),
            inheritable: HashMap::new(),
            report: LoadReport::default(),
        }
    }

    /// Notes who could inherit this object: of several the richest is inherited.
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
}

/// A list, page by page.
pub struct CheckpointPages<'a> {
    namespace: Option<&'a str>,
    /// Where it goes on; `None` when it is over.
    token: Option<String>,
}

impl<'a> CheckpointPages<'a> {
    pub fn new(namespace: Option<&'a str>) -> Self {
        Self { namespace, token: Some(String::new()) }
    }

    /// The next page, if there is one.
    pub async fn next(
        &mut self,
        of: &CheckpointStorage,
    ) -> Result<Option<Vec<DynamicObject>>, Error> {
        let Some(token) = self.token.take() else { return Ok(None) };
        let token = Some(token.as_str()).filter(|token| !token.is_empty());
        let page = of.calls.page(self.namespace, of.options.page_size, token).await;
        let ObjectList { items, metadata, .. } = page
            .map_err(|failure| failure.into_error(&CheckpointStorage::location(self.namespace)))?;
        self.token = metadata.continue_.filter(|token| !token.is_empty());
        Ok(Some(items))
    }
}
