//! What controllers that size pods read besides VPAs and pods: LimitRanges, ResourceQuotas, HorizontalPodAutoscalers that
//! follow requests, and the controllers that own pods.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    optional_watch::OptionalWatch, request_followers::RequestFollowers, watch_set::WatchSet,
};
use crate::cluster::{
    cache::{
        controllers::{ControllerCache, WellKnown},
        limit_range::PartialLimitRange,
        object_store::ObjectStore,
        resource_quota::PartialResourceQuota,
    },
    watch::{ObjectChange, WatchOptions, status::WatchStatus},
};
use plimsoll_core::{
    api::vpa::TargetRef,
    coordination::TemplateRequests,
    sizing::{LimitRangeItem, quota::Quota},
    types::{ObjectKey, compat::Compat},
};

pub(crate) struct SizingStores {
    pub controllers: Arc<ControllerCache>,
    pub followers: RequestFollowers,
    /// Upstream's RBAC does not include them. Nothing waits for them: without quotas nothing is restricted.
    quotas: Arc<OptionalWatch<PartialResourceQuota, Quota>>,
    limit_ranges: Arc<Mutex<ObjectStore<ObjectKey, Vec<LimitRangeItem>>>>,
}

pub(crate) struct SizingWatches<'a> {
    /// The namespace to watch; `None` for all.
    pub namespace: Option<&'a str>,
    pub compat: Compat,
    /// The namespace of the horizontal controller's Lease.
    pub horizontal_lease_namespace: &'a str,
    /// What follows if quotas cannot be read, for the log.
    pub without_quotas: &'static str,
    /// What follows if HorizontalPodAutoscalers cannot be read, for the log.
    pub without_followers: &'static str,
}

impl Default for SizingStores {
    fn default() -> Self {
        let quotas = OptionalWatch::new("", "resourcequotas", PartialResourceQuota::quota);
        Self {
            controllers: Arc::default(),
            followers: RequestFollowers::default(),
            quotas: Arc::new(quotas),
            limit_ranges: Arc::default(),
        }
    }
}

impl SizingStores {
    pub fn add_watches(&self, watches: &mut WatchSet, settings: &SizingWatches<'_>) {
        let SizingWatches { namespace, compat, .. } = *settings;
        let limit_ranges = Arc::clone(&self.limit_ranges);
        let apply = move |change: ObjectChange<PartialLimitRange>| {
            limit_ranges.lock().apply_object(change, |range| range.spec.limits);
        };
        watches.add("limitranges", namespace, WatchOptions::default(), apply);
        watches.add_controllers(&self.controllers, namespace);
        if compat == Compat::Plimsoll {
            watches.add_optional(&self.quotas, namespace, settings.without_quotas);
            watches.add_optional(&self.followers.watch, namespace, settings.without_followers);
            let replacement = Arc::clone(&self.followers.hpa_replacement);
            let lease_namespace = settings.horizontal_lease_namespace.to_owned();
            let client = watches.factory.client.clone();
            watches.add_task(replacement.run_poll_loop(client, lease_namespace));
        }
    }

    /// The watch of quotas, if they can be read.
    pub fn quota_watch(&self) -> Option<&Arc<WatchStatus>> {
        self.quotas.watch_status()
    }

    /// The items of all LimitRanges of a namespace, sorted by LimitRange name.
    pub fn limit_range_items(&self, namespace: &str) -> Vec<LimitRangeItem> {
        let ranges = self.limit_ranges.lock();
        ranges.in_namespace(namespace).flatten().cloned().collect()
    }

    pub fn quotas(&self, namespace: &str) -> Vec<Quota> {
        let quotas = self.quotas.read(|quotas| quotas.in_namespace(namespace).cloned().collect());
        quotas.unwrap_or_default()
    }

    /// The requests in the pod template of a target, if they are known.
    pub fn template(&self, namespace: &str, target: &TargetRef) -> Option<TemplateRequests> {
        let kind = WellKnown::from_kind(&target.kind)?;
        self.controllers.template(kind, namespace, &target.name)
    }
}
