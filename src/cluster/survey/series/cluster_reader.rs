//! Reads the survey of one cluster, in groups of namespaces.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use plimsoll_core::{
    rightsizing::{
        owner_groups::{KnownContainer, KnownJob, KnownJobs, group_jobs},
        survey::{Amounts, Container, Survey, Unread, Workload},
    },
    types::Time,
};
use plimsoll_storage::prometheus::{
    client::{CollectedSeries, PrometheusClient},
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema, container_name},
    selector::{LabelMatcher, LabelMatchers, MatchOperator, Pattern},
};

use super::{
    SeriesSurveyError, named, no_labelled_jobs,
    node_rows::nodes,
    queries::{NODE_ALLOCATABLE, NODE_LABELS, Queries},
    rows::{AmountField, SurveyRows, add_amounts, set_amount},
    series_label, user_query,
};
use crate::cluster::survey::scope::{OwnerGroups, SurveyScope};

/// Maximum number of pods of the namespaces that are queried together, unless one namespace has more.
const MAX_PODS: u64 = 5_000;
/// Maximum length of a pattern of namespaces. A query contains it up to ten times, and some proxies limit requests to 8 KiB.
const MAX_PATTERN: usize = 512;
/// Kinds whose objects may belong to another controller, with the family and the label of their owners.
const OWNED_KINDS: [(&str, &str, &str); 3] = [
    ("ReplicaSet", "kube_replicaset_owner", "replicaset"),
    ("Job", "kube_job_owner", "job_name"),
    ("ReplicationController", "kube_replicationcontroller_owner", "replicationcontroller"),
];
/// Kinds with desired replicas, with their family and label.
const REPLICAS: [(&str, &str, &str); 4] = [
    ("Deployment", "kube_deployment_spec_replicas", "deployment"),
    ("StatefulSet", "kube_statefulset_replicas", "statefulset"),
    ("DaemonSet", "kube_daemonset_status_desired_number_scheduled", "daemonset"),
    ("ReplicationController", "kube_replicationcontroller_spec_replicas", "replicationcontroller"),
];

pub(super) struct SeriesReader<'a> {
    pub client: &'a PrometheusClient,
    pub schema: &'a Schema,
    pub scope: &'a SurveyScope,
    /// Matchers of every query, for the cluster too.
    pub matchers: LabelMatchers,
    pub at: Time,
}

/// Namespaces that are queried together; `None` for all of the cluster.
type NamespaceGroup = Option<Vec<String>>;

impl SeriesReader<'_> {
    pub async fn survey(&self) -> Result<Survey, SeriesSurveyError> {
        let states = self.schema.kube_state_metrics.as_ref();
        let states = states.filter(|states| states.has_family("kube_pod_owner"));
        let namespaces = self.namespaces(states).await?;
        let mut survey = Survey::default();
        let mut groups = self.groups(&namespaces);
        while let Some(group) = groups.pop() {
            let rows = match states {
                Some(states) => self.rows(states, group.as_deref(), &mut survey.unread).await,
                None => self.rows_by_name(group.as_deref()).await,
            };
            match rows {
                Ok(rows) => {
                    let workloads = rows.into_workloads(self.scope).into_iter();
                    survey.workloads.extend(workloads.map(Arc::new));
                }
                Err(error) => match halves(group.as_deref(), &namespaces, &error) {
                    Some(halves) => groups.extend(halves),
                    None => survey.unread.push(unread("workloads", group.as_deref(), &error)),
                },
            }
        }
        let order = |workload: &Arc<Workload>| {
            (workload.namespace.clone(), workload.kind.clone(), workload.name.clone())
        };
        survey.workloads.sort_by_cached_key(order);
        // Families that are not collected are not requests that are not set.
        let families =
            ["kube_pod_container_resource_requests", "kube_pod_container_resource_limits"];
        let collects = |states: &KubeStateMetrics| {
            families.iter().any(|family| states.has_family(family))
                || survey.workloads.iter().flat_map(|workload| &*workload.containers).any(|one| {
                    one.requests != Amounts::default() || one.limits != Amounts::default()
                })
        };
        if !states.is_some_and(collects) {
            let containers = survey
                .workloads
                .iter_mut()
                .flat_map(|of| Arc::make_mut(&mut Arc::make_mut(of).containers));
            containers.for_each(|container| container.resources_unknown = true);
        }
        self.add_groups(states, &mut survey).await;
        self.add_nodes(states, &mut survey).await;
        Ok(survey)
    }

    /// Groups Jobs by their labels, and reports groups that series do not show.
    async fn add_groups(&self, states: Option<&KubeStateMetrics>, survey: &mut Survey) {
        let groups = &self.scope.groups;
        for kind in &groups.owner_kinds {
            if !survey.workloads.iter().any(|workload| workload.kind.eq_ignore_ascii_case(kind)) {
                survey.remarks.push(format!(
                    "--group-by-owner={kind}: no series of kube-state-metrics shows such an owner; the API server does"
                ));
            }
        }
        if groups.job_labels.is_empty() || !self.scope.includes_kind("Job") {
            if groups.job_names {
                group_jobs(&mut survey.workloads, &[], &KnownJobs::default());
            }
            return;
        }
        let known = match states {
            Some(states) => self.known_jobs(states).await,
            None => Ok(KnownJobs::default()),
        };
        match known {
            Ok(known) => {
                if known.jobs.is_empty() {
                    survey
                        .remarks
                        .push(no_labelled_jobs(&groups.job_labels, "Jobs are not grouped"));
                }
                group_jobs(&mut survey.workloads, &groups.job_labels, &known);
            }
            Err(error) => survey.unread.push(unread("labels of Jobs", None, &error)),
        }
    }

    /// The Jobs with one of the labels that they are grouped by, those that are gone included.
    pub async fn known_jobs(&self, states: &KubeStateMetrics) -> Result<KnownJobs, QueryError> {
        let OwnerGroups { job_labels, job_window, .. } = &self.scope.groups;
        let queries = Queries::new(states);
        let names: Vec<String> = job_labels.iter().map(|label| series_label(label)).collect();
        let labels = |row: &CollectedSeries| -> BTreeMap<Box<str>, Box<str>> {
            let labels = job_labels.iter().zip(&names);
            let value = |(label, name): (&String, &String)| {
                let value = Some(row.get(name)).filter(|value| !value.is_empty())?;
                Some((label.as_str().into(), value.into()))
            };
            labels.filter_map(value).collect()
        };
        let get = async |text: &str| {
            let rows = self.client.vector(&self.states_query(states, text, None)?, self.at).await?;
            let is_covered =
                |row: &CollectedSeries| self.scope.includes_namespace(row.get(&states.namespace));
            Ok::<_, QueryError>(rows.into_iter().filter(is_covered).collect::<Vec<_>>())
        };
        let jobs = get(&queries.jobs_by_labels(&names, *job_window)).await?;
        let jobs: Vec<KnownJob> = jobs
            .iter()
            .map(|row| KnownJob {
                namespace: row.get(&states.namespace).into(),
                name: row.get("job_name").into(),
                labels: labels(row),
                created: row.value().filter(|at| *at > 1.0).map(|at| Time::from_secs(at as i64)),
            })
            .collect();
        // Labels of workloads that are gone cannot be selected.
        if jobs.is_empty() || self.scope.label_selector.is_some() {
            return Ok(KnownJobs { jobs, containers: Vec::new() });
        }
        let mut containers: BTreeMap<_, Container> = BTreeMap::new();
        for (family, field) in [
            ("kube_pod_container_resource_requests", AmountField::Requests),
            ("kube_pod_container_resource_limits", AmountField::Limits),
        ] {
            for row in get(&queries.amounts_of_jobs(family, &names, *job_window)).await? {
                let name: Arc<str> = row.get(&states.container).into();
                let key =
                    (Box::<str>::from(row.get(&states.namespace)), labels(&row), Arc::clone(&name));
                let new = || Container { name, ..Container::default() };
                let container = containers.entry(key).or_insert_with(new);
                let amounts = match field {
                    AmountField::Requests => &mut container.requests,
                    AmountField::Limits => &mut container.limits,
                };
                set_amount(amounts, &row);
            }
        }
        let containers = containers.into_iter().map(|((namespace, labels, _), container)| {
            KnownContainer { namespace: namespace.into(), labels, container }
        });
        Ok(KnownJobs { jobs, containers: containers.collect() })
    }

    async fn namespaces(
        &self,
        states: Option<&KubeStateMetrics>,
    ) -> Result<BTreeMap<String, u64>, SeriesSurveyError> {
        let (query, label) = if let Some(states) = states {
            let text = Queries::new(states).pods_by_namespace();
            (self.states_query(states, &text, None)?, states.namespace.as_str())
        } else {
            let [namespace, pod, _] = self.schema.usage.container_labels();
            let pods = self.usage_query(None).aggregate(Aggregation::Group, &[namespace, pod]);
            (pods.aggregate(Aggregation::Count, &[namespace]), namespace)
        };
        let series = self.client.vector(&query, self.at).await?;
        let counts = series.iter().map(|row| (row.get(label), row.value().unwrap_or_default()));
        Ok(counts
            .filter(|(namespace, _)| self.scope.includes_namespace(namespace))
            .map(|(namespace, pods)| (namespace.to_owned(), pods as u64))
            .collect())
    }

    /// Groups of namespaces, so that responses and patterns are short. A small cluster that is covered as a whole is one
    /// group without a pattern.
    fn groups(&self, namespaces: &BTreeMap<String, u64>) -> Vec<NamespaceGroup> {
        if namespaces.is_empty() {
            return Vec::new();
        }
        let is_whole = self.scope.namespaces.is_empty() && self.scope.exclude_namespaces.is_empty();
        if is_whole && namespaces.values().sum::<u64>() <= MAX_PODS {
            return vec![None];
        }
        let (mut groups, mut pods, mut length) = (Vec::<Vec<String>>::new(), 0, 0);
        for (namespace, count) in namespaces {
            let own_length = namespace.len() + 1;
            let fits = pods + count <= MAX_PODS && length + own_length <= MAX_PATTERN;
            match groups.last_mut() {
                Some(group) if fits => group.push(namespace.clone()),
                _ => {
                    groups.push(vec![namespace.clone()]);
                    (pods, length) = (0, 0);
                }
            }
            pods += count;
            length += own_length;
        }
        groups.into_iter().map(Some).collect()
    }

    /// The rows of kube-state-metrics about a group. Fails if the rows without which there are no workloads are missing.
    async fn rows(
        &self,
        states: &KubeStateMetrics,
        group: Option<&[String]>,
        unread: &mut Vec<Unread>,
    ) -> Result<SurveyRows, QueryError> {
        let (queries, mut rows) =
            (Queries::new(states), SurveyRows::new(self.scope.groups.clone()));
        let get = async |text: &str| {
            self.client.vector(&self.states_query(states, text, group)?, self.at).await
        };
        rows.add_pods(states, &get(&queries.pods()).await?);
        for (family, is_init) in
            [("kube_pod_container_info", false), ("kube_pod_init_container_info", true)]
        {
            rows.add_containers(states, &get(&queries.containers(family)).await?, is_init);
        }
        for (family, field, is_init) in [
            ("kube_pod_container_resource_requests", AmountField::Requests, false),
            ("kube_pod_container_resource_limits", AmountField::Limits, false),
            ("kube_pod_init_container_resource_requests", AmountField::Requests, true),
            ("kube_pod_init_container_resource_limits", AmountField::Limits, true),
        ] {
            let amounts = get(&queries.amounts(family)).await?;
            add_amounts(&mut rows.containers, states, &amounts, field, is_init);
        }
        for (kind, family, label) in OWNED_KINDS {
            if !rows.owner_kinds().contains(kind) {
                continue;
            }
            let owners = get(&queries.owners_of(kind, family, label)).await?;
            rows.add_owners(states, &owners, (kind, label));
            // Detection finds the first two families, if they exist at all.
            if owners.is_empty() && kind != "ReplicationController" && !states.has_family(family) {
                rows.infer_owners(kind);
            }
        }
        self.add_details(states, group, &mut rows, unread).await;
        Ok(rows)
    }

    /// Adds what is not needed to know the workloads. A failure is reported, and the rest is still read.
    async fn add_details(
        &self,
        states: &KubeStateMetrics,
        group: Option<&[String]>,
        rows: &mut SurveyRows,
        unread_parts: &mut Vec<Unread>,
    ) {
        let queries = Queries::new(states);
        let mut get = async |what: &str, text: &str| -> Vec<CollectedSeries> {
            let result = match self.states_query(states, text, group) {
                Ok(query) => self.client.vector(&query, self.at).await,
                Err(error) => Err(error),
            };
            result.unwrap_or_else(|error| {
                unread_parts.push(unread(what, group, &error));
                Vec::new()
            })
        };
        if rows.has_rollouts() {
            let newest = get("creation times of pods", &queries.newest_pods()).await;
            rows.add_newest_pods(states, &newest);
        }
        if self.scope.needs_kind("Job") && states.has_family("kube_job_owner") {
            for (family, field) in [
                ("kube_pod_container_resource_requests", AmountField::Requests),
                ("kube_pod_container_resource_limits", AmountField::Limits),
            ] {
                let amounts = get("runs of CronJobs", &queries.amounts_of_runs(family)).await;
                add_amounts(&mut rows.runs, states, &amounts, field, false);
            }
        }
        for (kind, family, label) in REPLICAS {
            if self.scope.includes_kind(kind) {
                let what = format!("replicas of {kind}s");
                let replicas = get(&what, &queries.by_object(family, label)).await;
                rows.add_replicas(states, &replicas, (kind, label));
            }
        }
        let hpas = get("HorizontalPodAutoscalers", &queries.hpas()).await;
        if !hpas.is_empty() {
            let what = "targets of HorizontalPodAutoscalers";
            let metrics = get(what, &queries.utilization_targets()).await;
            rows.add_hpas(states, &hpas, &metrics);
            if rows.targets.values().any(|targets| !targets.is_empty()) {
                let what = "numbers of replicas of HorizontalPodAutoscalers";
                let of = |family: &str| queries.by_object(family, "horizontalpodautoscaler");
                let min = get(what, &of("kube_horizontalpodautoscaler_spec_min_replicas")).await;
                let max = get(what, &of("kube_horizontalpodautoscaler_spec_max_replicas")).await;
                let other =
                    get("metrics of HorizontalPodAutoscalers", &queries.other_metrics()).await;
                rows.add_replica_ranges(states, &hpas, [&min, &max, &other]);
            }
        }
        if let Ok(selector) = self.scope.selector()
            && self.scope.label_selector.is_some()
        {
            let labels: BTreeSet<_> = selector.keys().map(series_label).collect();
            let text = queries.pod_labels(labels.iter().map(String::as_str));
            let pods = get("labels of pods", &text).await;
            let is_selected = |row: &&CollectedSeries| {
                selector.matches_with(|key| {
                    let value = row.get(&series_label(key));
                    (!value.is_empty()).then_some(value)
                })
            };
            let key = |row: &CollectedSeries| {
                (row.get(&states.namespace).into(), row.get(&states.pod).into())
            };
            let selected: HashSet<_> = pods.iter().filter(is_selected).map(key).collect();
            rows.selected_pods = Some(selected);
        }
    }

    /// The rows of the usage of containers about a group: pods whose names tell their owners.
    async fn rows_by_name(&self, group: Option<&[String]>) -> Result<SurveyRows, QueryError> {
        let labels @ [namespace, pod, container] = self.schema.usage.container_labels();
        let query = self.usage_query(group).aggregate(Aggregation::Group, &labels);
        let mut rows = SurveyRows::default();
        for row in self.client.vector(&query, self.at).await? {
            let name = container_name(row.get(container));
            if name != "POD" {
                rows.add_pod_by_name(row.get(namespace), row.get(pod), name);
            }
        }
        Ok(rows)
    }

    async fn add_nodes(&self, states: Option<&KubeStateMetrics>, survey: &mut Survey) {
        let what = || "nodes".to_owned();
        let Some(states) = states else {
            let why = "there are no series of kube-state-metrics".to_owned();
            survey.nodes_unread = Some(Unread { what: what(), why });
            return;
        };
        let get = async |text: &str| {
            let query = user_query(text, &self.with_job(states))?;
            self.client.vector(&query, self.at).await
        };
        match (get(NODE_ALLOCATABLE).await, get(NODE_LABELS).await) {
            (Ok(allocatable), Ok(labels)) => survey.nodes = nodes(&allocatable, &labels),
            (Err(error), _) | (_, Err(error)) => {
                survey.nodes_unread = Some(Unread { what: what(), why: error.to_string() });
            }
        }
    }

    /// A query of kube-state-metrics, restricted to a group.
    fn states_query(
        &self,
        states: &KubeStateMetrics,
        text: &str,
        group: Option<&[String]>,
    ) -> Result<Query, QueryError> {
        let matchers = self.with_job(states);
        let matchers = match group {
            Some(names) => {
                let pattern = Pattern::any_literal(names.iter().map(String::as_str));
                let operator = MatchOperator::Matches;
                matchers.with(LabelMatcher::new(&states.namespace, operator, pattern.as_str()))
            }
            None => matchers,
        };
        user_query(text, &matchers)
    }

    fn with_job(&self, states: &KubeStateMetrics) -> LabelMatchers {
        let job = states.job.as_deref();
        let job = job.map(|job| LabelMatcher::new("job", MatchOperator::Equals, job));
        self.matchers.iter().cloned().chain(job).collect()
    }

    fn usage_query(&self, group: Option<&[String]>) -> Query {
        let names: Vec<&str> = group.unwrap_or_default().iter().map(String::as_str).collect();
        let schema = Schema { matchers: self.matchers.clone(), ..self.schema.clone() };
        schema.usage_selector_in(&schema.usage.memory, &names).into()
    }
}

/// Two halves of a group whose response is too large.
fn halves(
    group: Option<&[String]>,
    namespaces: &BTreeMap<String, u64>,
    error: &QueryError,
) -> Option<[NamespaceGroup; 2]> {
    let is_size = matches!(
        error,
        QueryError::TooLarge(_) | QueryError::CollectorFull | QueryError::Timeout(_)
    );
    let names = match group {
        Some(names) => names.to_vec(),
        None => namespaces.keys().cloned().collect(),
    };
    let (left, right) = names.split_at(names.len() / 2);
    (is_size && !left.is_empty()).then(|| [left, right].map(|half| Some(half.to_vec())))
}

fn unread(what: &str, group: Option<&[String]>, error: &QueryError) -> Unread {
    let place = match group {
        Some(names) if names.len() == 1 => format!("in namespace {}", names[0]),
        Some(names) => format!("in namespaces {}", named(names)),
        None => "of the cluster".to_owned(),
    };
    Unread { what: format!("{what} {place}"), why: error.to_string() }
}
