//! The usage of the pods of a namespace from Prometheus, for clusters without a metrics server: one query for each resource.
//!
//! ```text
//!   namespace, resource ─▶ names of series ─▶ permit ─▶ series[5m], streamed ─▶ UsageSeries ─▶ PodUsage of each pod
//! ```
//!
//! Only the points of the last minute of each container are kept. A partial response is an error, as the pods that it lacks
//! would seem to have no usage.

use std::{collections::HashMap, sync::Arc, time::Duration};

use plimsoll_core::{
    scaling::pod_usage::{MAX_AGE, PodUsage, Resource, UsageSeries},
    types::Time,
};
use plimsoll_storage::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, SeriesVisitor},
    history::PrometheusHistory,
    promql::Query,
    schema::{Schema, container_name},
};
use tokio::{
    sync::Mutex as Turn,
    time::{Instant, timeout},
};

use super::request_permits::RequestPermits;
use crate::cluster::clock::Clock;

/// A namespace whose last query took more than this part of the timeout is slow.
const SLOW_DIVISOR: u32 = 2;
/// After the names of series could not be detected, they are detected again after this. Until then all queries fail.
const DETECTION_RETRY: Duration = Duration::from_secs(5);
/// Whatever a server returns, a series has at most this many points that count: two for each second.
const MAX_POINTS: usize = 600;

#[derive(Debug)]
pub struct SeriesUsage {
    history: Arc<PrometheusHistory>,
    client: PrometheusClient,
    clock: Clock,
    permits: RequestPermits<(Box<str>, Resource)>,
    /// When the names could not be detected, and why. Only one caller detects them at a time.
    failed_detection: Arc<Turn<Option<(Instant, String)>>>,
}

impl SeriesUsage {
    /// Queries the server of this history, whose client limits the time and the number of queries in flight.
    pub fn new(history: PrometheusHistory, clock: Clock) -> Self {
        let max_in_flight = history.client.limits().max_in_flight.max(1);
        let client = history.client.clone().rejecting_partial().with_max_attempts(1);
        Self {
            client: client.with_separate_permits(max_in_flight),
            history: Arc::new(history),
            clock,
            permits: RequestPermits::new(max_in_flight),
            failed_detection: Arc::default(),
        }
    }

    /// The usage of a resource by each pod of a namespace that has a sample, or why it is unknown.
    pub async fn fetch(
        &self,
        namespace: &str,
        resource: Resource,
    ) -> Result<HashMap<String, PodUsage>, String> {
        let limit = self.client.limits().timeout;
        let mut started = None;
        let fetched = timeout(limit, self.fetch_in_turn(namespace, resource, &mut started)).await;
        if let Some(started) = started {
            let is_slow = started.elapsed() > limit / SLOW_DIVISOR;
            self.permits.set_slow((namespace.into(), resource), is_slow);
        }
        let (server, resource) = (&self.history.server, resource.into_str());
        match fetched {
            Ok(Ok(usage)) => Ok(usage),
            Ok(Err(why)) => {
                Err(format!("{resource} of namespace {namespace} from {server}: {why}"))
            }
            Err(_) => Err(format!(
                "{resource} of namespace {namespace} from {server}: no response within {limit:?}"
            )),
        }
    }

    /// `started` is set when the query is sent.
    async fn fetch_in_turn(
        &self,
        namespace: &str,
        resource: Resource,
        started: &mut Option<Instant>,
    ) -> Result<HashMap<String, PodUsage>, String> {
        let schema = self.schema(namespace).await?;
        let _permit = self.permits.acquire(&(namespace.into(), resource)).await;
        *started = Some(Instant::now());
        let metric = match resource {
            Resource::Cpu => &schema.usage.cpu,
            Resource::Memory => &schema.usage.memory,
        };
        let query = Query::range_samples(&schema.usage_selector_in(metric, &[namespace]), MAX_AGE);
        let now = self.clock.now();
        let mut collector = SeriesCollector {
            namespace,
            metric: &metric.value,
            labels: schema.usage.container_labels(),
            series: UsageSeries::new(resource, now),
            pod: String::new(),
            container: String::new(),
            points: Vec::new(),
        };
        let response = self.client.instant(&query, now, &mut collector).await;
        let summary = response.map_err(|failure| failure.to_string())?;
        for warning in &summary.warnings {
            tracing::warn!(namespace, warning, "Prometheus returned a warning for a usage query");
        }
        self.history.record_read(collector.series.containers() as u64);
        Ok(collector.series.into_usage())
    }

    /// The names of series. Their detection takes several queries, so it goes on if the caller gives up.
    async fn schema(&self, namespace: &str) -> Result<Arc<Schema>, String> {
        let (history, failure) = (Arc::clone(&self.history), Arc::clone(&self.failed_detection));
        let namespace = namespace.to_owned();
        let detection = tokio::spawn(async move {
            let mut failure = failure.lock().await;
            if let Some((at, why)) = &*failure
                && at.elapsed() < DETECTION_RETRY
            {
                return Err(why.clone());
            }
            let schema = history.schema(&[&namespace]).await.map_err(|why| why.to_string());
            *failure = schema.as_ref().err().map(|why| (Instant::now(), why.clone()));
            schema
        });
        detection.await.unwrap_or_else(|stopped| Err(stopped.to_string()))
    }
}

struct SeriesCollector<'a> {
    namespace: &'a str,
    metric: &'a str,
    labels: [&'a str; 3],
    series: UsageSeries,
    pod: String,
    container: String,
    points: Vec<(Time, f64)>,
}

impl SeriesVisitor for SeriesCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let [namespace, pod, container] =
            self.labels.map(|label| labels.get(label).unwrap_or_default());
        let container = container_name(container);
        self.points.clear();
        // A server or a proxy in front of it may return other series than the query selects.
        let is_selected = namespace == self.namespace
            && labels.get("__name__").is_none_or(|name| name.is_empty() || name == self.metric);
        // The cgroups of a pod and of its sandbox are no containers.
        let is_container = !pod.is_empty() && !container.is_empty() && container != "POD";
        if !is_selected || !is_container {
            return Interest::LabelsOnly;
        }
        for (stored, name) in [(&mut self.pod, pod), (&mut self.container, container)] {
            stored.clear();
            stored.push_str(name);
        }
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        if self.points.len() == MAX_POINTS {
            self.points.remove(0);
        }
        self.points.push((at, value));
    }

    fn end(&mut self) {
        if !self.points.is_empty() {
            self.series.add(&self.pod, &self.container, self.points.drain(..));
        }
    }

    fn discard(&mut self) {
        self.series.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use parking_lot::Mutex;
    use plimsoll_storage::prometheus::{
        client::QueryLimits,
        detect::SchemaOverrides,
        history::HistorySettings,
        transport::{Response, Transport, TransportError, WallClock},
    };

    use plimsoll_core::types::Quantity;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const LIMIT: Duration = Duration::from_secs(10);

    /// How a server responds to queries for usage in a namespace. All other queries get an empty result.
    type Respond = fn(namespace: &str) -> Answer;

    enum Answer {
        Text(String),
        Status(u16),
        Never,
    }

    /// A server that counts its usage queries.
    #[derive(Debug)]
    struct Server {
        respond: Respond,
        queries: Mutex<Vec<String>>,
        in_flight: Mutex<(usize, usize)>,
    }

    struct InFlight<'a>(&'a Server);

    impl Drop for InFlight<'_> {
        fn drop(&mut self) {
            self.0.in_flight.lock().0 -= 1;
        }
    }

    /// A response with this result.
    fn matrix(series: &[String]) -> String {
        let series = series.join(",");
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#)
    }

    /// A series of a container with these labels, and these values each 15 seconds up to now.
    fn series(labels: &str, values: &[f64]) -> String {
        let first = NOW - 15 * (values.len() as i64 - 1);
        let point =
            |(index, value): (usize, &f64)| format!("[{},\"{value}\"]", first + 15 * index as i64);
        let points: Vec<_> = values.iter().enumerate().map(point).collect();
        format!(r#"{{"metric":{{{labels}}},"values":[{}]}}"#, points.join(","))
    }

    fn labels(namespace: &str, pod: &str, container: &str) -> String {
        format!(r#""namespace":"{namespace}","pod":"{pod}","container":"{container}""#)
    }

    #[async_trait]
    impl Transport for Server {
        async fn send(
            &self,
            path: &str,
            form: &[(&str, String)],
            _: Duration,
        ) -> Result<Response, TransportError> {
            let query = &form[0].1;
            let ok = |body: String| {
                Ok(http::Response::builder()
                    .header("content-type", "application/json")
                    .body(body)
                    .expect("a response")
                    .into())
            };
            let Some(namespace) = path
                .ends_with("/query")
                .then(|| query.strip_suffix("[5m]")?.split_once("namespace=~\""))
                .flatten()
                .and_then(|(_, rest)| Some(rest.split_once('"')?.0.to_owned()))
            else {
                return ok(
                    r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#.into()
                );
            };
            self.queries.lock().push(query.clone());
            {
                let mut in_flight = self.in_flight.lock();
                in_flight.0 += 1;
                in_flight.1 = in_flight.1.max(in_flight.0);
            }
            let _in_flight = InFlight(self);
            match (self.respond)(&namespace) {
                Answer::Text(body) => ok(body),
                Answer::Status(status) => Ok(http::Response::builder()
                    .status(status)
                    .body(String::new())
                    .expect("a response")
                    .into()),
                Answer::Never => std::future::pending().await,
            }
        }
    }

    fn usage_of(respond: Respond, max_in_flight: usize) -> (Arc<SeriesUsage>, Arc<Server>) {
        let server =
            Arc::new(Server { respond, queries: Mutex::default(), in_flight: Mutex::default() });
        let limits = QueryLimits {
            max_in_flight,
            timeout: LIMIT,
            max_attempts: 1,
            ..QueryLimits::default()
        };
        let name = |name: &str| Some(name.to_owned());
        let overrides = SchemaOverrides {
            job: name(""),
            cpu: name("container_cpu_usage_seconds_total"),
            memory: name("container_memory_working_set_bytes"),
            namespace: name("namespace"),
            pod: name("pod"),
            container: name("container"),
            scrape_interval: Some(Duration::from_secs(15)),
            ..SchemaOverrides::default()
        };
        let settings = HistorySettings { overrides, ..HistorySettings::default() };
        let wall = WallClock::new(|| Time::from_secs(NOW));
        let client = PrometheusClient::new(Arc::clone(&server) as _, limits);
        let history = PrometheusHistory::new("http://prometheus", client, settings, wall);
        let clock = Clock::fake(Time::from_secs(NOW));
        (Arc::new(SeriesUsage::new(history, clock)), server)
    }

    /// Amounts by container, in milli-units.
    type Amounts = Vec<(String, Option<i64>)>;

    /// The amounts of containers by pod.
    fn amounts(usage: HashMap<String, PodUsage>) -> Vec<(String, Amounts)> {
        let amounts = |usage: PodUsage| {
            let containers = usage.containers.into_iter();
            containers.map(|(name, it)| (name.into(), it.map(Quantity::milli_value))).collect()
        };
        let mut pods: Vec<_> =
            usage.into_iter().map(|(pod, usage)| (pod, amounts(usage))).collect();
        pods.sort();
        pods
    }

    #[tokio::test(start_paused = true)]
    async fn one_query_returns_the_usage_of_all_containers_of_a_namespace() {
        let respond: Respond = |namespace| {
            let used = [1.0, 4.0, 7.0, 10.0, 13.0];
            let other = labels(namespace, "web", "app").replace("app", "other");
            Answer::Text(matrix(&[
                series(&labels(namespace, "web", "app"), &used),
                series(&labels(namespace, "web", "side"), &[5.0; 5]),
                series(&labels(namespace, "young", "app"), &[5.0]),
                series(&labels(namespace, "web", "POD"), &used),
                series(&labels(namespace, "web", ""), &used),
                series(&labels(namespace, "", "app"), &used),
                series(&labels("elsewhere", "web", "app"), &[0.0; 5]),
                series(&format!(r#""__name__":"other_metric",{other}"#), &used),
                series(&labels(namespace, "old", "k8s_app_old_shop_uid_0"), &used),
            ]))
        };
        let (usage, server) = usage_of(respond, 8);
        let found = usage.fetch("shop", Resource::Cpu).await.expect("usage");
        let app = |amount| ("app".to_owned(), amount);
        let expected = [
            ("old".to_owned(), vec![app(Some(200))]),
            ("web".to_owned(), vec![app(Some(200)), ("side".to_owned(), Some(0))]),
            ("young".to_owned(), vec![app(None)]),
        ];
        assert_eq!(amounts(found), expected);
        let memory = usage.fetch("shop", Resource::Memory).await.expect("usage");
        assert_eq!(memory["web"].containers["app"].map(Quantity::value), Some(9));
        let queries = server.queries.lock();
        let selected = |metric: &str| {
            format!(r#"{metric}{{pod!="",namespace=~"shop",container!="",container!="POD"}}[5m]"#)
        };
        assert_eq!(
            *queries,
            [
                selected("container_cpu_usage_seconds_total"),
                selected("container_memory_working_set_bytes")
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_or_responds_partially_is_an_error_and_not_an_empty_result() {
        let cases: [(Respond, &str); 6] = [
            (|_| Answer::Status(503), "too busy"),
            (|_| Answer::Status(401), "401"),
            (|_| Answer::Never, "no complete response within 10s"),
            (
                |namespace| {
                    let mut text = matrix(&[
                        series(&labels(namespace, "a", "app"), &[1.0; 5]),
                        series(&labels(namespace, "b", "app"), &[1.0; 5]),
                    ]);
                    text.truncate(text.len() - 30);
                    Answer::Text(text)
                },
                "truncated",
            ),
            (
                |namespace| {
                    let text = matrix(&[series(&labels(namespace, "a", "app"), &[1.0; 5])]);
                    Answer::Text(text.replacen('{', r#"{"isPartial":true,"#, 1))
                },
                "partial",
            ),
            (|_| Answer::Text("<html>sign in</html>".to_owned()), "expected"),
        ];
        for (respond, expected) in cases {
            let (usage, _) = usage_of(respond, 8);
            let error = usage.fetch("shop", Resource::Cpu).await.expect_err(expected);
            assert!(error.starts_with("cpu of namespace shop from http://prometheus: "), "{error}");
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
        let (usage, _) = usage_of(|_| Answer::Text(matrix(&[])), 8);
        assert_eq!(usage.fetch("shop", Resource::Cpu).await, Ok(HashMap::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_whose_queries_hang_leave_room_for_the_others() {
        let respond: Respond = |namespace| {
            if namespace.starts_with("huge") { Answer::Never } else { Answer::Text(matrix(&[])) }
        };
        let (usage, server) = usage_of(respond, 4);
        let start = |namespace: String| {
            let usage = Arc::clone(&usage);
            tokio::spawn(async move { usage.fetch(&namespace, Resource::Cpu).await })
        };
        // The names are detected first.
        usage.fetch("shop", Resource::Cpu).await.expect("usage");
        let huge = || (0..3).map(|number| start(format!("huge-{number}"))).collect::<Vec<_>>();
        for task in huge() {
            task.await.expect("ends").expect_err("no response");
        }
        // From now on they are known to be slow, and together have one of four queries in flight.
        let waiting = huge();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(server.in_flight.lock().0, 1);
        let began = Instant::now();
        for number in 0..100 {
            usage.fetch(&format!("small-{number}"), Resource::Cpu).await.expect("usage");
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "none of them waits");
        for task in waiting {
            task.await.expect("ends").expect_err("no response");
        }
        assert!(server.in_flight.lock().1 <= 4);
        assert_eq!(server.in_flight.lock().0, 0);
    }
}
