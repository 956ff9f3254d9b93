//! Asks the sources of an object, a few at once, and names each as upstream does.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::{Client, ResourceExt as _};
use plimsoll_core::types::{Time, VpaKey};
use plimsoll_storage::prometheus::{
    client::{self, Limits},
    door::{Door, Wall},
};
use tokio::time::{Instant, timeout_at};

use super::{
    super::calls::Questions, Role, config::WatermarkConfig, gates::queried, seat::Seat, waits::Call,
};
use crate::{
    clock::Clock,
    metrics::PrometheusCalls,
    observe::{
        selector::Selector,
        source::{
            external_metric::ask_external,
            pod_usage::ask_pods,
            promql::Queries,
            recommender::{Calls, Pace, Recommenders, shown_address},
        },
    },
};
use plimsoll_core::{
    api::{
        annotation::MAX_VALUE_BYTES,
        wpa::{MetricSpec, RecommenderSpec, WatermarkPodAutoscalerSpec},
    },
    scaling::{
        Answer, Pod, Readiness, Scale, SourceKind, Unknown, Unready,
        consult::{Occasion, request},
        source::{display_name, recommender_name},
    },
    types::{compat::Compat, quantity::Quantity},
    watermark::{Band, Rules, Source, advised::wish, validation::block},
};

/// Upstream's name, by which whoever is asked may tell who asks.
pub(super) const AGENT: &str = "wpa-controller";
/// How long a recommender may take: upstream's limit.
const RECOMMENDER_LIMIT: Duration = Duration::from_secs(10);
/// A metrics API may take as long, however short a period is.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);

/// How many metrics of one object are asked for at once.
const AT_ONCE: usize = 4;

/// How many times as long as one of them all metrics of an object may take together.
const PATIENCE_FOR_ALL: u32 = 2;

/// Whom values are asked from, but for the API server.
pub(super) struct Sources {
    recommenders: Recommenders,
    /// None where no Prometheus is known.
    queries: Option<Queries>,
}

impl Sources {
    /// Nobody is asked yet. Requests to recommenders are told to `calls`, those to a Prometheus to `told`.
    pub fn new(
        config: &WatermarkConfig,
        clock: &Clock,
        calls: Arc<dyn Calls>,
        told: PrometheusCalls,
    ) -> Result<Self> {
        let pace = Pace { limit: RECOMMENDER_LIMIT, ..Pace::default() };
        let asked = &config.prometheus;
        let queries = if asked.door.address.is_empty() {
            None
        } else {
            let own = clock.clone();
            let door = Door::new(asked.door.clone(), Wall::new(move || own.now()))
                .context("--prometheus-address")?;
            let limits = Limits {
                in_flight: asked.at_once,
                timeout: asked.timeout,
                attempts: 1,
                ..Limits::default()
            };
            let watch = Arc::new(Questions::new(told));
            let client = client::Client::new(Arc::new(door), limits).watched_by(watch);
            let queries = Queries::new(client, config.period)
                .with_matchers(asked.matchers.clone())
                .within(asked.scope.clone());
            // Only who asks how old a value may be needs to know, and it costs a query.
            let tells = config.oldest_value.is_some();
            Some(if tells { queries.telling_age() } else { queries })
        };
        Ok(Self { recommenders: Recommenders::new(AGENT, calls, pace), queries })
    }
}

impl Role {
    /// The Prometheus that is asked, if one is known.
    pub(super) fn queries(&self) -> Option<&Queries> {
        self.sources.queries.as_ref()
    }

    /// What comes of asking the sources of an object, in their order.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn ask(
        &self,
        key: &VpaKey,
        seat: &Seat,
        filled: &WatermarkPodAutoscalerSpec,
        rules: &Rules,
        scale: Scale,
        readiness: &Readiness<'_>,
        pods: &[Pod],
    ) -> Vec<Source> {
        let ready = match readiness.count(pods, scale) {
            // Without any replica there is no pod, and something else may ask for the first.
            Err(_) if rules.may_be_zero() && scale.wanted == 0 => Ok(0),
            counted => counted,
        };
        if let Some(recommender) = &filled.recommender {
            let asked = match ready {
                // As upstream has it, nobody is asked about pods of which none is ready.
                Err(why) => Err(Unknown::Unready(why)),
                Ok(ready) => {
                    let occasion = Occasion {
                        namespace: &key.namespace,
                        cluster: &self.config.cluster,
                        scale,
                        ready,
                    };
                    self.consult(filled, recommender, &occasion).await
                }
            };
            return vec![recommended(recommender, rules, asked)];
        }
        let (ready, until) = (&ready, Instant::now() + self.patience() * PATIENCE_FOR_ALL);
        let ask = |metric| self.ask_one(key, seat, metric, rules, ready, until).boxed();
        let asked: Vec<_> = filled.metrics.iter().map(ask).collect();
        let asked: Vec<Option<Source>> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        asked.into_iter().flatten().collect()
    }

    /// What comes of asking for one metric. Without pods that are ready nobody is asked about what is not of pods.
    async fn ask_one(
        &self,
        key: &VpaKey,
        seat: &Seat,
        metric: &MetricSpec,
        rules: &Rules,
        ready: &Result<u32, Unready>,
        until: Instant,
    ) -> Option<Source> {
        let found = block(metric).ok()?;
        let query = self.query(seat, metric, found.name);
        let kind = if query.is_some() { SourceKind::Prometheus } else { kind(metric)? };
        let milli = |mark: Option<Quantity>| mark.map(Quantity::milli_value);
        let is_of_pods = !matches!(kind, SourceKind::External | SourceKind::Prometheus);
        let asked = async {
            match (ready, query) {
                (Err(why), _) if !is_of_pods => Err(Unknown::Unready(why.clone())),
                (_, Some((annotation, query))) => {
                    self.ask_query(key, seat, annotation, query).await
                }
                (_, None) => self.ask_metric(key, kind, metric).await,
            }
        };
        let asked = self.ask_until(until, asked).await;
        let selector = Selector::from_label_selector(found.selector);
        Some(Source {
            kind,
            label: found.name.to_owned(),
            name: display_name(found.name, found.labels()),
            selector: selector.map(|it| it.as_str().to_owned()).unwrap_or_default(),
            address: None,
            band: Band::of(milli(found.low), milli(found.high), rules.tolerance),
            asked,
        })
    }

    /// Gives up on what is not answered by then, as upstream never does: an object whose metrics are answered one after the
    /// other, each just in time, would keep its place among those that wait for all that time.
    async fn ask_until(
        &self,
        until: Instant,
        asked: impl Future<Output = Result<Answer, Unknown>>,
    ) -> Result<Answer, Unknown> {
        if self.config.compat == Compat::Upstream {
            return asked.await;
        }
        let late =
            || Unknown::Failed("the metrics of the object take too long together".to_owned());
        if Instant::now() >= until {
            return Err(late());
        }
        timeout_at(until, asked).await.unwrap_or_else(|_| Err(late()))
    }

    /// The annotation by which an external metric is a query of a Prometheus, and the query.
    fn query<'a>(
        &self,
        seat: &'a Seat,
        metric: &MetricSpec,
        name: &str,
    ) -> Option<(&'a str, &'a str)> {
        if kind(metric)? != SourceKind::External || self.config.compat == Compat::Upstream {
            return None;
        }
        let mut annotations = seat.object.annotations().iter();
        let (key, query) = annotations.find(|(key, _)| queried(key) == Some(name))?;
        Some((key, query))
    }

    async fn ask_query(
        &self,
        key: &VpaKey,
        seat: &Seat,
        annotation: &str,
        query: &str,
    ) -> Result<Answer, Unknown> {
        if self.queries().is_none() {
            return Err(Unknown::Failed(format!(
                "annotation {annotation} asks a Prometheus, and none is known: set --prometheus-address"
            )));
        }
        if query.len() > MAX_VALUE_BYTES {
            return Err(Unknown::Failed(format!(
                "annotation {annotation} has {} bytes, and at most {MAX_VALUE_BYTES} are taken: shorten the query, or record it in \
                 the Prometheus",
                query.len()
            )));
        }
        self.ask_prometheus(&key.namespace, query, self.clock.now(), seat.had).await
    }

    /// Asks the Prometheus for an object of this namespace.
    pub(super) async fn ask_prometheus(
        &self,
        namespace: &str,
        query: &str,
        now: Time,
        had: Option<Time>,
    ) -> Result<Answer, Unknown> {
        let Some(queries) = self.queries() else {
            return Err(Unknown::Failed("none is known: set --prometheus-address".to_owned()));
        };
        let call = Call { service: "Prometheus", kind: "the Prometheus", namespace };
        let asked = queries.ask(namespace, query, now, had);
        self.waits.ask(call, self.config.prometheus.timeout, asked).await
    }

    async fn ask_metric(
        &self,
        key: &VpaKey,
        kind: SourceKind,
        metric: &MetricSpec,
    ) -> Result<Answer, Unknown> {
        let found = block(metric).map_err(|why| Unknown::Failed(why.to_string()))?;
        let limit = self.patience();
        let selector = Selector::from_label_selector(found.selector)
            .map_err(|why| Unknown::Failed(format!("the selector of {}: {why}", found.name)))?;
        let (client, selector): (&Client, &str) = (&self.client, selector.as_str());
        let container = match kind {
            SourceKind::ContainerResource => metric.container_resource.as_ref(),
            _ => None,
        };
        let container = container.map(|it| it.container.as_str());
        match kind {
            SourceKind::External | SourceKind::Prometheus | SourceKind::Recommender => {
                let service = "the external metrics API";
                let call = Call { service, kind: service, namespace: &key.namespace };
                let asked = ask_external(client, &key.namespace, found.name, selector, limit);
                self.waits.ask(call, limit, asked).await
            }
            SourceKind::Resource | SourceKind::ContainerResource => {
                let service = "the resource metrics API";
                let call = Call { service, kind: service, namespace: &key.namespace };
                let asked =
                    ask_pods(client, &key.namespace, found.name, container, selector, limit);
                self.waits.ask(call, limit, asked).await
            }
        }
    }

    /// How long a metrics API may take: who waits for longer than a period misses a turn, and bounds that changed meanwhile.
    fn patience(&self) -> Duration {
        let Self { config, .. } = self;
        match config.compat {
            Compat::Upstream => config.request_timeout,
            Compat::Plimsoll => config.request_timeout.min(config.period.max(LEAST_PATIENCE)),
        }
    }

    async fn consult(
        &self,
        filled: &WatermarkPodAutoscalerSpec,
        recommender: &RecommenderSpec,
        occasion: &Occasion<'_>,
    ) -> Result<Answer, Unknown> {
        let tls = recommender.tls_config.as_ref();
        let body = request(&wish(filled, recommender), occasion);
        let defaults = &self.config.recommender_tls;
        let asked = self.sources.recommenders.consult(&recommender.url, tls, defaults, &body);
        let service = shown_address(&recommender.url);
        let namespace = occasion.namespace;
        let call = Call { service: &service, kind: "recommenders", namespace };
        let asked = self.waits.ask(call, RECOMMENDER_LIMIT, asked).await;
        asked.map(Answer::Advice).map_err(|why| match why {
            Unknown::Failed(why) => {
                let name = name_of(recommender);
                Unknown::Failed(format!("unable to get external recommendation {name}: {why}"))
            }
            other => other,
        })
    }
}

fn kind(metric: &MetricSpec) -> Option<SourceKind> {
    match metric.kind.as_str() {
        "External" => Some(SourceKind::External),
        "Resource" => Some(SourceKind::Resource),
        "ContainerResource" => Some(SourceKind::ContainerResource),
        _ => None,
    }
}

fn name_of(recommender: &RecommenderSpec) -> String {
    let settings = recommender.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    recommender_name(&recommender.target_type, settings)
}

fn recommended(
    recommender: &RecommenderSpec,
    rules: &Rules,
    asked: Result<Answer, Unknown>,
) -> Source {
    let milli = |mark: Option<Quantity>| mark.map(Quantity::milli_value);
    let name = name_of(recommender);
    Source {
        kind: SourceKind::Recommender,
        label: name.clone(),
        name,
        selector: String::new(),
        address: Some(shown_address(&recommender.url)),
        band: Band::of(
            milli(recommender.low_watermark),
            milli(recommender.high_watermark),
            rules.tolerance,
        ),
        asked,
    }
}
