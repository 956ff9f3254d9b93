//! The conformance suite of read-only backends, on history from Prometheus.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use plimsoll_core::{history::Sink, types::Time};
use plimsoll_storage::prometheus::history::{HistorySettings, PrometheusHistory};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use plimsoll_storage::{Error, LoadReport, LoadRequest, Storage, Writer};

use super::collecting_sink::{hours, storage};
use crate::prometheus::label_flavors::{LabelFlavor, MANAGED, OPERATOR};
use crate::prometheus::releases::by_turns;
use crate::prometheus::series_collector::short_limits;
use crate::storage::conformance::{
    Case, ContainerLifetime, ReadOnlyFixture, format_table, run_read_only_suite,
};
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

/// A server that is filled again for each case.
struct FilledPrometheus {
    flavor: LabelFlavor,
    release: PrometheusRelease,
    now: Timestamp,
    is_missing: AtomicBool,
}

/// A backend and the server that it reads from.
struct ServedHistory {
    history: PrometheusHistory,
    _server: PrometheusServer,
}

#[async_trait]
impl Storage for ServedHistory {
    fn name(&self) -> &'static str {
        self.history.name()
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        self.history.load(wanted, sink).await
    }

    fn writer(&self) -> Option<&dyn Writer> {
        self.history.writer()
    }
}

#[async_trait]
impl ReadOnlyFixture for FilledPrometheus {
    async fn backend_with(
        &self,
        lifetimes: &[ContainerLifetime],
    ) -> Result<Arc<dyn Storage>, String> {
        let Self { flavor, release, now, .. } = self;
        let begin = *now - SignedDuration::from_hours(13);
        let mut history = History::new(begin, *now, SignedDuration::from_mins(1));
        for lifetime in lifetimes {
            let ContainerLifetime { namespace, pod, container, owner, cores, bytes, .. } =
                *lifetime;
            let (from, to) = (lifetime.start, lifetime.end);
            let is_alive = move |at: Timestamp| Time::from(at) >= from && Time::from(at) <= to;
            let used = move |at: Timestamp| {
                let seconds = Time::from(at).nanos_since(from) as f64 / 1e9;
                is_alive(at).then_some(cores * seconds)
            };
            let memory = move |at: Timestamp| is_alive(at).then_some(bytes);
            let names = [namespace, pod, container];
            history = flavor.usage(history, CPU_METRIC, names, used);
            history = flavor.usage(history, MEMORY_METRIC, names, memory);
            let mut parts = owner.rsplit('/');
            let (name, kind) = (parts.next().expect("a name"), parts.next().expect("a kind"));
            let labels = [
                ("namespace", namespace),
                ("pod", pod),
                ("uid", container),
                ("owner_kind", kind),
                ("owner_name", name),
            ];
            let owned = move |at: Timestamp| is_alive(at).then_some(1.0);
            history = flavor.state(history, "kube_pod_owner", &labels, owned);
        }
        let Some(server) = PrometheusServer::with_history(*release, history).await else {
            self.is_missing.store(true, Ordering::SeqCst);
            return Err("there is no Prometheus".to_owned());
        };
        let history = storage(&server.url(), short_limits(), HistorySettings::default(), *now);
        Ok(Arc::new(ServedHistory { history, _server: server }))
    }

    fn now(&self) -> Time {
        self.now.into()
    }
}

#[tokio::test]
async fn history_from_prometheus_passes_the_read_only_conformance_suite() {
    for (flavor, release) in by_turns([OPERATOR, MANAGED]) {
        let is_missing = AtomicBool::default();
        let filled = FilledPrometheus { flavor, release, now: hours(1).1, is_missing };
        let outcomes = run_read_only_suite(&filled).await;
        if filled.is_missing.load(Ordering::SeqCst) {
            return;
        }
        let cases: Vec<_> = outcomes.iter().map(|outcome| outcome.case).collect();
        assert_eq!(cases, Case::READ_ONLY);
        let passed = outcomes.iter().all(|outcome| outcome.result.is_ok());
        assert!(passed, "{} on {release:?}:\n{}", flavor.name, format_table(&outcomes));
    }
}
