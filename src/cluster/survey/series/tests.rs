//! Surveys of recorded responses, and of servers that fail.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use plimsoll_core::rightsizing::survey::{Amounts, ContainerRole, Resource, Workload};
use plimsoll_storage::prometheus::{
    client::QueryLimits,
    schema::{
        Dialect, KubeStateMetrics, LabelValues, RecordingRules, ScrapeInterval, UsageSeries,
        WithOrigin,
    },
    transport::{Response, Transport, TransportError},
};
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_795_881_600;

/// Responses of Prometheus 3.15 to the queries of a survey, by query. It had the series of a kube-state-metrics that sees
/// workloads of each kind, also in the middle of a rollout, with failed pods and with owners that are no controllers.
const RECORDED: &str = include_str!("recorded.json");

/// The result of a query, or an HTTP status.
type Respond = Box<dyn Fn(&str) -> Result<Value, u16> + Send + Sync>;

/// A server in memory.
struct Server {
    respond: Respond,
    queries: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

#[async_trait]
impl Transport for Server {
    async fn send(
        &self,
        _: &str,
        form: &[(&str, String)],
        _: Duration,
    ) -> Result<Response, TransportError> {
        let query = &form[0].1;
        self.queries.lock().push(query.clone());
        let response = http::Response::builder().header("content-type", "application/json");
        let (status, body) = match (self.respond)(query) {
            Ok(result) => {
                let data = json!({"resultType": "vector", "result": result});
                (200, json!({"status": "success", "data": data}))
            }
            Err(status) => {
                let message = "query processing would load too many samples into memory";
                (status, json!({"status": "error", "errorType": "execution", "error": message}))
            }
        };
        Ok(response.status(status).body(body.to_string()).expect("a response").into())
    }
}

fn server(respond: impl Fn(&str) -> Result<Value, u16> + Send + Sync + 'static) -> Arc<Server> {
    Arc::new(Server { respond: Box::new(respond), queries: Mutex::default() })
}

fn schema() -> Schema {
    let name = |name: &str| WithOrigin::detected(name.to_owned());
    let families = ["kube_pod_owner", "kube_replicaset_owner", "kube_job_owner"];
    Schema {
        usage: UsageSeries {
            cpu: name(CPU_METRIC),
            memory: name("container_memory_working_set_bytes"),
            job: WithOrigin::detected(None),
            metrics_path: None,
            namespace: name("namespace"),
            pod: name("pod"),
            container: name("container"),
            containers: 1,
            jobs: Vec::new(),
        },
        kube_state_metrics: Some(KubeStateMetrics {
            job: None,
            namespace: "namespace".to_owned(),
            pod: "pod".to_owned(),
            container: "container".to_owned(),
            families: families.map(str::to_owned).into(),
        }),
        recording_rules: RecordingRules::Absent,
        scrape_interval: WithOrigin::detected(ScrapeInterval::default()),
        dialect: Dialect::PromQl,
        replica_labels: Vec::new(),
        cluster_labels: Vec::new(),
        matchers: LabelMatchers::default(),
    }
}

async fn survey(
    server: &Arc<Server>,
    schema: &Schema,
    scope: &SurveyScope,
    cluster_label: Option<&str>,
) -> Result<Survey, SeriesSurveyError> {
    let limits = QueryLimits { max_attempts: 1, ..QueryLimits::default() };
    let client = PrometheusClient::new(Arc::clone(server) as _, limits);
    survey_series(&client, schema, scope, cluster_label, Time::from_secs(NOW)).await
}

/// A server with the recorded responses. It knows the queries of a whole cluster, and those of its namespaces.
fn recorded() -> Arc<Server> {
    let recorded: BTreeMap<String, Value> = serde_json::from_str(RECORDED).expect("valid JSON");
    server(move |query| recorded.get(query).cloned().ok_or(404))
}

fn assert_recorded(server: &Server) {
    let recorded: BTreeMap<String, Value> = serde_json::from_str(RECORDED).expect("valid JSON");
    let mut unknown = server.queries.lock().clone();
    unknown.retain(|query| !recorded.contains_key(query));
    assert!(unknown.is_empty(), "record the responses to these queries: {}", json!(unknown));
}

/// Each workload in one line: kind, name, replicas, pods, and containers with requests and limits.
fn lines(survey: &Survey) -> Vec<String> {
    let amount = |amounts: Amounts| {
        let cpu = amounts.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.0.to_string());
        let memory = amounts.memory.map_or_else(|| "-".to_owned(), |it| (it.0 >> 20).to_string());
        format!("{cpu}/{memory}")
    };
    let line = |one: &Arc<Workload>| {
        let containers = one.containers.iter().map(|container| {
            let role = match container.role {
                ContainerRole::Main => "",
                ContainerRole::Init => "init ",
                ContainerRole::Sidecar => "sidecar ",
            };
            let limits = match container.limits {
                Amounts { cpu: None, memory: None } => String::new(),
                limits => format!(" of {}", amount(limits)),
            };
            format!("{role}{} {}{limits}", container.name, amount(container.requests))
        });
        let replicas = one.replicas.map_or_else(|| "?".to_owned(), |count| count.to_string());
        let (pods, containers) = (one.pods.join(" "), containers.collect::<Vec<_>>().join(", "));
        format!("{}/{} x{replicas} [{pods}] {containers}", one.kind, one.name)
    };
    survey.workloads.iter().map(line).collect()
}

#[tokio::test]
async fn workloads_of_each_kind_are_found_in_recorded_responses() {
    let server = recorded();
    let found = survey(&server, &schema(), &SurveyScope::default(), None).await;
    assert_recorded(&server);
    let found = found.expect("a survey");
    assert_eq!(found.unread, []);
    assert_eq!(
        lines(&found),
        [
            "DaemonSet/log x2 [log-a] main 200/64",
            "StatefulSet/db x1 [db-0] main 200/64",
            "CloneSet/clone x1 [clone-a] main 200/64",
            "CronJob/hourly x? [] run 700/1024",
            "CronJob/night x? [night-29890001-aaaaa] main 200/64",
            "DaemonSet/twice x1 [twice] main 200/64",
            // The newer ReplicaSet of a rollout.
            "Deployment/web x3 [web-1-a web-1-b web-2-a] init migrate 500/- of -/1024, \
             sidecar proxy 100/- of -/1024, main 300/64",
            "DeploymentConfig/dc x1 [dc-1-a] main 200/64",
            "Job/once x? [] main 200/64",
            "Pod/apiserver-n x1 [apiserver-n] main 200/64",
            "Pod/bare x1 [bare] main 1/0",
            "Pod/older x1 [older] main -/-",
            "ReplicaSet/single x1 [single-a] main 200/64",
            "ReplicationController/old x4 [old-a] main 200/64",
            "Rollout/canary x1 [canary-1-a] main 200/64",
            "StrimziPodSet/kafka x2 [kafka-0 kafka-1] main 200/64",
        ]
    );
    let find = |name: &str| found.workloads.iter().find(|one| *one.name == *name).expect(name);
    let targets: Vec<_> = find("web")
        .utilization_targets
        .iter()
        .map(|one| (&*one.name, one.metric, one.resource, one.percent))
        .collect();
    assert_eq!(targets, [("web", 0, Resource::Cpu, 70), ("web", 1, Resource::Memory, 80)]);
    let [range] = &find("web").replica_ranges[..] else { panic!("one autoscaler") };
    assert_eq!((range.min, range.max, range.has_other_metrics), (Some(2), Some(9), false));
    assert_eq!(find("kafka").nodes, ["node-kafka-0", "node-kafka-1"].map(Box::<str>::from));
    assert!(find("log").nodes.is_empty(), "its node is unknown");
    assert_eq!(find("web").api_version, None);
    let node = &found.nodes["node-db-0"];
    assert_eq!(&*node.labels["karpenter.sh/nodepool"], "big");
    assert_eq!(&*node.labels["team"], "data");
    assert_eq!(node.allocatable.cpu.map(|cpu| cpu.0), Some(7910));
    assert_eq!(found.nodes_unread, None);
}

#[tokio::test]
async fn a_scope_restricts_queries_to_its_namespaces_and_labels() {
    let server = recorded();
    let scope = SurveyScope {
        namespaces: vec!["d*".to_owned()],
        label_selector: Some("app=db".to_owned()),
        ..SurveyScope::default()
    };
    let found = survey(&server, &schema(), &scope, None).await;
    assert_recorded(&server);
    assert_eq!(lines(&found.expect("a survey")), ["StatefulSet/db x1 [db-0] main 200/64"]);
    let queries = server.queries.lock();
    let unrestricted: Vec<_> =
        queries.iter().filter(|query| !query.contains(r#"namespace=~"data""#)).collect();
    // The namespaces themselves, and the nodes.
    assert_eq!(unrestricted.len(), 3, "{unrestricted:?}");
}

#[tokio::test]
async fn clusters_are_told_apart_by_a_label() {
    let of_cluster = |cluster: &str| {
        let labels = json!({"namespace": "shop", "pod": format!("{cluster}-0"), "container": "main",
            "owner_kind": "StatefulSet", "owner_name": cluster});
        json!([{"metric": labels, "value": [NOW, "1"]}])
    };
    let server = server(move |query| {
        Ok(match query {
            _ if query.contains("kube_node") => json!([]),
            _ if query.contains(r#"cluster="eu""#) => of_cluster("eu"),
            _ if query.contains(r#"cluster="us""#) => of_cluster("us"),
            _ => json!([]),
        })
    });
    let mut schema = schema();
    let values = ["eu", "us"].map(str::to_owned).into();
    schema.cluster_labels = vec![LabelValues { label: "cluster".to_owned(), values }];
    let scope = SurveyScope::default();
    let error = survey(&server, &schema, &scope, None).await.expect_err("nothing was chosen");
    assert_eq!(
        error.to_string(),
        "the server has series of several clusters, cluster is eu, us: pass --cluster-label cluster for all of them, or \
         --prometheus-matcher 'cluster=\"eu\"' for one"
    );
    let found = survey(&server, &schema, &scope, Some("cluster")).await.expect("a survey");
    let workloads: Vec<_> =
        found.workloads.iter().map(|one| (one.cluster.as_deref(), &*one.name)).collect();
    assert_eq!(workloads, [(Some("eu"), "eu"), (Some("us"), "us")]);
    let unknown = survey(&server, &schema, &scope, Some("region")).await.expect_err("no label");
    assert_eq!(unknown, SeriesSurveyError::NoClusterLabel { label: "region".to_owned() });
}

/// Whether a query is about a group of namespaces with this one.
fn is_about(query: &str, namespace: &str) -> bool {
    let pattern = query.split_once("namespace=~\"").and_then(|(_, rest)| rest.split_once('"'));
    pattern.is_some_and(|(pattern, _)| {
        pattern
            .trim_start_matches("(?:")
            .trim_end_matches(')')
            .split('|')
            .any(|one| one == namespace)
    })
}

#[tokio::test]
async fn a_group_that_is_too_large_is_halved_and_one_that_fails_is_unread() {
    let names = ["a", "b", "c", "d"];
    let server = server(move |query| {
        if query.starts_with("count by") {
            let count =
                |name: &&str| json!({"metric": {"namespace": name}, "value": [NOW, "1000"]});
            return Ok(names.iter().map(count).collect());
        }
        let of_group: Vec<_> = names.into_iter().filter(|name| is_about(query, name)).collect();
        if of_group.contains(&"b") || of_group.len() > 1 {
            return Err(422);
        }
        let row = |name: &&str| {
            let labels = json!({"namespace": name, "pod": format!("{name}-0"), "container": "main",
                "owner_kind": "StatefulSet", "owner_name": name});
            json!({"metric": labels, "value": [NOW, "1"]})
        };
        match query {
            _ if query.contains("kube_daemonset") => Err(400),
            _ => Ok(of_group.iter().map(row).collect()),
        }
    });
    let scope = SurveyScope { exclude_namespaces: vec!["d".to_owned()], ..SurveyScope::default() };
    let found = survey(&server, &schema(), &scope, None).await.expect("a survey");
    let workloads: Vec<_> = found.workloads.iter().map(|one| &*one.name).collect();
    assert_eq!(workloads, ["a", "c"]);
    let mut unread: Vec<_> = found.unread.iter().map(|one| &*one.what).collect();
    unread.sort_unstable();
    assert_eq!(
        unread,
        [
            "replicas of DaemonSets in namespace a",
            "replicas of DaemonSets in namespace c",
            "workloads in namespace b",
        ]
    );
}

#[tokio::test]
async fn without_kube_state_metrics_the_names_of_pods_decide() {
    let server = server(|query| {
        let pods = [
            ("web-7d5f9c4b6d-x2x4z", "main"),
            ("web-7d5f9c4b6d-b2b4b", "main"),
            ("web-7d5f9c4b6d-b2b4b", "k8s_proxy_web-7d5f9c4b6d-b2b4b_shop_uid_0"),
            ("db-0", "main"),
            ("night-28901234-x2x4z", "run"),
            ("lone", "main"),
        ];
        let row = |(pod, container): &(&str, &str)| {
            let labels = json!({"namespace": "shop", "pod": pod, "container": container});
            json!({"metric": labels, "value": [NOW, "1"]})
        };
        Ok(match query {
            _ if query.starts_with("count by") => {
                json!([{"metric": {"namespace": "shop"}, "value": [NOW, "5"]}])
            }
            _ if query.contains("container_memory") => pods.iter().map(row).collect(),
            _ => json!([]),
        })
    });
    let mut schema = schema();
    schema.kube_state_metrics = None;
    let found = survey(&server, &schema, &SurveyScope::default(), None).await.expect("a survey");
    assert_eq!(
        lines(&found),
        [
            "CronJob/night x? [night-28901234-x2x4z] run -/-",
            "Deployment/web x2 [web-7d5f9c4b6d-b2b4b web-7d5f9c4b6d-x2x4z] main -/-, proxy -/-",
            "Pod/lone x1 [lone] main -/-",
            "StatefulSet/db x1 [db-0] main -/-",
        ]
    );
    assert_eq!(found.nodes_unread.map(|nodes| nodes.what).as_deref(), Some("nodes"));
}

#[tokio::test]
async fn a_server_that_answers_nothing_is_an_error() {
    let failed = survey(&server(|_| Err(400)), &schema(), &SurveyScope::default(), None).await;
    assert!(matches!(failed, Err(SeriesSurveyError::Query(_))), "{failed:?}");
}

/// Jobs of two values of a label, one of them without pods, and a Spark application with an executor.
fn server_of_groups(has_labels: bool) -> Arc<Server> {
    server(move |query| {
        let row = |labels: Value, value: &str| json!({"metric": labels, "value": [NOW, value]});
        let pod = |name: &str, kind: &str, of: &str| {
            let labels = json!({"namespace": "etl", "pod": name, "owner_kind": kind, "owner_name": of, "container": "main"});
            row(labels, "1")
        };
        let pods = [
            pod("load-3-x2x4z", "Job", "load-3"),
            pod("pi-driver", "SparkApplication", "pi"),
            pod("pi-exec-1", "Pod", "pi-driver"),
        ];
        let job = |name: &str, app: &str, created: &str| {
            row(
                json!({"namespace": "etl", "job_name": name, "label_app_kubernetes_io_name": app}),
                created,
            )
        };
        Ok(match query {
            _ if query.starts_with("count by") => json!([row(json!({"namespace": "etl"}), "3")]),
            _ if query.contains("kube_job_labels") && !has_labels => json!([]),
            _ if query.contains("kube_job_labels") && query.contains("container,resource") => {
                let labels = json!({"namespace": "etl", "label_app_kubernetes_io_name": "mail", "container": "main", "resource": "cpu"});
                let is_requests = query.contains("requests");
                if is_requests { json!([row(labels, "0.7")]) } else { json!([]) }
            }
            _ if query.contains("kube_job_labels") => json!([
                job("load-1", "load", "1"),
                job("load-3", "load", "1795870000"),
                job("mail-1", "mail", "1795860000"),
            ]),
            _ if query.contains("kube_pod_info") || query.contains("kube_pod_container_info") => {
                json!(pods)
            }
            _ => json!([]),
        })
    })
}

#[tokio::test]
async fn jobs_are_grouped_by_labels_and_pods_by_the_owners_of_their_owners() {
    let mut scope = SurveyScope::default();
    scope.groups.job_labels = vec!["app.kubernetes.io/name".to_owned()];
    scope.groups.job_window = Duration::from_hours(720);
    scope.groups.owner_kinds = vec!["sparkapplication".to_owned(), "CronWorkflow".to_owned()];
    let found = survey(&server_of_groups(true), &schema(), &scope, None).await.expect("a survey");
    assert_eq!(
        lines(&found),
        [
            "Job/name=load x? [load-3-x2x4z] main -/-",
            "Job/name=mail x? [] main 700/-",
            "SparkApplication/pi x2 [pi-driver pi-exec-1] main -/-",
        ]
    );
    let load = found.workloads[0].group.as_ref().expect("a group");
    let members: Vec<_> = load.members.iter().map(|one| (&*one.name, one.created)).collect();
    let created = Some(Time::from_secs(1_795_870_000));
    assert_eq!(members, [("load-3", created), ("load-1", None)]);
    let expected = "--group-by-owner=CronWorkflow: no series of kube-state-metrics shows such an owner; the API server does";
    assert_eq!(found.remarks, [expected]);
}

#[tokio::test]
async fn jobs_are_not_grouped_without_their_labels_and_a_remark_says_so() {
    let mut scope = SurveyScope::default();
    scope.groups.job_labels = vec!["app".to_owned()];
    let found = survey(&server_of_groups(false), &schema(), &scope, None).await.expect("a survey");
    assert_eq!(
        found.remarks,
        [
            "--group-jobs-by=app: kube_job_labels has no such label, so Jobs are not grouped: run kube-state-metrics with \
             --metric-labels-allowlist=jobs=[app]"
        ]
    );
    assert!(lines(&found).iter().any(|line| line.starts_with("Job/load-3")), "{found:?}");
}
