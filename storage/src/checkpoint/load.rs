//! Loading: lists a page at a time, and hands each object to the sink as it is read.

use std::collections::{BTreeSet, HashMap, HashSet};

use kube::api::{DynamicObject, ObjectList};

use super::{
    calls::patiently,
    object::{Content, Object},
    store::Checkpoints,
    table::Entry,
};
use crate::{Error, LoadReport, Wanted};
use plimsoll_core::{
    history::{Sink, Skipped},
    types::{Key, VpaKey},
};

/// So many namespaces are listed one by one; of more the whole cluster is.
const FEW: usize = 8;

impl Checkpoints {
    /// Loads what is wanted.
    pub(super) async fn load_all(
        &self,
        wanted: &Wanted,
        sink: &mut dyn Sink,
    ) -> Result<LoadReport, Error> {
        let places = self.places(wanted);
        let mut loading = Loading::new(wanted);
        for place in &places {
            let mut list = Pages::new(place.as_deref());
            while let Some(page) = list.next(self).await? {
                for object in page {
                    match Object::read(object) {
                        Ok(object) => self.take(object, &mut loading, sink),
                        Err(skipped) => loading.report.skipped.push(skipped),
                    }
                }
            }
        }
        let looked_at = |key: &Key| {
            let there = |place: &Option<String>| {
                place.as_deref().is_none_or(|namespace| *namespace == *key.vpa.namespace)
            };
            wanted.includes(key) && places.iter().any(there)
        };
        self.table.settle(looked_at, &loading.seen);
        self.inherit(&mut loading, sink).await?;
        Ok(loading.report)
    }

    /// What to list: namespaces, or the whole cluster.
    fn places(&self, wanted: &Wanted) -> Vec<Option<String>> {
        let only = self.options.namespace.as_ref();
        let Wanted::Vpas(vpas) = wanted else { return vec![only.cloned()] };
        let namespaces: BTreeSet<&str> = vpas
            .keys()
            .map(|vpa| &*vpa.namespace)
            .filter(|namespace| only.is_none_or(|only| only == namespace))
            .collect();
        if namespaces.len() > FEW {
            return vec![None];
        }
        namespaces.into_iter().map(|namespace| Some(namespace.to_owned())).collect()
    }

    /// Takes one object that was read.
    fn take(&self, object: Object, loading: &mut Loading<'_>, sink: &mut dyn Sink) {
        if let Content::History(history) = &object.content
            && let Some(owner) = &history.snapshot.owner
            && sink.may_inherit_from(&object.key.vpa)
        {
            loading.note_heirs(&object, owner, history.print.richness);
        }
        if !loading.wanted.includes(&object.key) {
            return;
        }
        if !loading.seen.insert(object.key.clone()) {
            loading.report.skipped.push(Skipped {
                what: format!("{} (object {})", object.key, object.name),
                why: "another object is of the same container and was taken: delete one of them"
                    .into(),
            });
            return;
        }
        self.table.put(&object.key, Some(Entry::of(&object)));
        loading.report.skipped.extend(object.skipped());
        if let Content::History(history) = object.content {
            loading.endowed.insert(object.key.vpa.clone());
            sink.snapshot(object.key, history.snapshot);
            loading.report.snapshots += 1;
        }
    }

    /// VPAs that have nothing of their own take over what an earlier one for the same workload left.
    async fn inherit(&self, loading: &mut Loading<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
        for (key, legacy) in std::mem::take(&mut loading.legacies) {
            if loading.endowed.contains(&key.vpa) {
                continue;
            }
            let namespace = &*key.vpa.namespace;
            let found = patiently(|| self.calls.get(namespace, &legacy.name)).await;
            let found =
                found.map_err(|failure| failure.into_error(&Self::place(Some(namespace))))?;
            let object = found.map(Object::read);
            // It may have changed or gone meanwhile; then there is nothing to inherit.
            if let Some(Ok(Object { content: Content::History(history), key: of, .. })) = object
                && of == legacy.of
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
struct Loading<'a> {
    wanted: &'a Wanted,
    /// Wanted VPAs by the owner of their pods.
    heirs: HashMap<(&'a str, &'a str), Vec<&'a VpaKey>>,
    seen: HashSet<Key>,
    /// Wanted VPAs that have something of their own.
    endowed: HashSet<VpaKey>,
    legacies: HashMap<Key, Legacy>,
    report: LoadReport,
}

/// What another VPA left.
struct Legacy {
    of: Key,
    name: Box<str>,
    richness: u64,
}

impl<'a> Loading<'a> {
    fn new(wanted: &'a Wanted) -> Self {
        let mut heirs: HashMap<_, Vec<_>> = HashMap::new();
        if let Wanted::Vpas(vpas) = wanted {
            for (vpa, owner) in vpas {
                if let Some(owner) = owner {
                    heirs.entry((&*vpa.namespace, &**owner)).or_default().push(vpa);
                }
            }
        }
        Self {
            wanted,
            heirs,
            seen: HashSet::new(),
            endowed: HashSet::new(),
            legacies: HashMap::new(),
            report: LoadReport::default(),
        }
    }

    /// Notes who could inherit this object: of several the richest is inherited.
    fn note_heirs(&mut self, object: &Object, owner: &str, richness: u64) {
        let heirs = self.heirs.get(&(&*object.key.vpa.namespace, owner));
        for &heir in heirs.into_iter().flatten().filter(|heir| ***heir != object.key.vpa) {
            let key = Key::new(heir.clone(), object.key.container.clone());
            let known = self.legacies.get(&key).map(|legacy| legacy.richness);
            if known.is_none_or(|known| known < richness) {
                let legacy = Legacy { of: object.key.clone(), name: object.name.clone(), richness };
                self.legacies.insert(key, legacy);
            }
        }
    }
}

/// A list, page by page.
pub struct Pages<'a> {
    namespace: Option<&'a str>,
    /// Where it goes on; `None` when it is over.
    token: Option<String>,
}

impl<'a> Pages<'a> {
    pub fn new(namespace: Option<&'a str>) -> Self {
        Self { namespace, token: Some(String::new()) }
    }

    /// The next page, if there is one.
    pub async fn next(&mut self, of: &Checkpoints) -> Result<Option<Vec<DynamicObject>>, Error> {
        let Some(token) = self.token.take() else { return Ok(None) };
        let token = Some(token.as_str()).filter(|token| !token.is_empty());
        let page = of.calls.page(self.namespace, of.options.page, token).await;
        let ObjectList { items, metadata, .. } =
            page.map_err(|failure| failure.into_error(&Checkpoints::place(self.namespace)))?;
        self.token = metadata.continue_.filter(|token| !token.is_empty());
        Ok(Some(items))
    }
}
