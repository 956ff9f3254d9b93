//! A server that generates its responses, for more containers than could be written to a real one in minutes. It
//! supports only Plimsoll's queries.

use std::{collections::HashMap, convert::Infallible, fmt::Write as _, net::Ipv4Addr};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use jiff::Timestamp;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{
    support::ports::Port,
    workload_mix::{WorkloadMix, chance, namespace_called},
};

/// Scrape interval in seconds.
const SCRAPE: i64 = 60;
/// Number of samples in a response with raw samples.
const SHOWN: i64 = 20;
const NOTHING: &str = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;

/// A server, which runs until it is dropped.
#[derive(Debug)]
pub struct SyntheticPrometheus {
    port: Port,
    task: JoinHandle<()>,
}

/// The data of the server.
#[derive(Clone, Copy, Debug)]
struct SyntheticData {
    mix: WorkloadMix,
    /// End of the series, in seconds since the Unix epoch.
    end: i64,
}

type Form = HashMap<String, String>;

// === impl SyntheticPrometheus ===

impl SyntheticPrometheus {
    pub async fn serve(mix: WorkloadMix, end: Timestamp) -> Self {
        let port = Port::claim();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await;
        let listener = listener.expect("claimed");
        let known = SyntheticData { mix, end: end.as_second() };
        let task = tokio::spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { continue };
                let service = service_fn(move |request: Request<Incoming>| async move {
                    Ok::<_, Infallible>(known.respond(request).await)
                });
                tokio::spawn(async move {
                    // Ignore clients that disconnect.
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(connection), service)
                        .await;
                });
            }
        });
        Self { port, task }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for SyntheticPrometheus {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl SyntheticData ===

impl SyntheticData {
    async fn respond(self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.expect("a complete request").to_bytes();
        let form: Form = form_urlencoded::parse(&body).into_owned().collect();
        let answer = tokio::task::spawn_blocking(move || self.answer(&path, &form)).await;
        let (status, text) = answer.expect("no panic");
        let response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
        response.body(Full::from(text)).expect("an answer")
    }

    fn answer(self, path: &str, form: &Form) -> (u16, String) {
        let text = match path {
            "/api/v1/query_range" => self.range_query(form),
            "/api/v1/query" => {
                let query = form.get("query").map_or("", String::as_str);
                let Some(text) = self.instant_query(query) else {
                    let error =
                        r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
                    return (400, error.to_owned());
                };
                text
            }
            "/api/v1/series" => r#"{"status":"success","data":[]}"#.to_owned(),
            _ => r#"{"status":"success","data":{}}"#.to_owned(),
        };
        (200, text)
    }

    /// The result at the end of history. `None` for queries that no Prometheus can parse.
    fn instant_query(self, query: &str) -> Option<String> {
        if query.contains(" default ") {
            return None;
        }
        if !is_about(query, CPU_METRIC) && !is_about(query, MEMORY_METRIC) {
            // There is neither kube-state-metrics nor a recording rule.
            return Some(NOTHING.to_owned());
        }
        let (end, all) = (self.end, self.mix.all());
        let pod = self.mix.pods(0).next()?.name;
        let (namespace, container) = (namespace_called(0), self.mix.names().first()?);
        let labels = format!(
            r#""job":"kubelet","metrics_path":"/metrics/cadvisor","namespace":"{namespace}","pod":"{pod}","container":"{container}""#
        );
        Some(if query.starts_with("topk") {
            let of = if is_about(query, CPU_METRIC) { CPU_METRIC } else { MEMORY_METRIC };
            format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"__name__":"{of}",{labels}}},"value":[{end},"1"]}}]}}}}"#
            )
        } else if query.starts_with("count") {
            format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"job":"kubelet","metrics_path":"/metrics/cadvisor"}},"value":[{end},"{all}"]}}]}}}}"#
            )
        } else if query.ends_with(']') {
            let samples = (0..SHOWN).rev().map(|back| format!(r#"[{},"1"]"#, end - SCRAPE * back));
            let samples: Vec<_> = samples.collect();
            format!(
                r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{{labels}}},"values":[{}]}}]}}}}"#,
                samples.join(",")
            )
        } else {
            NOTHING.to_owned()
        })
    }

    /// CPU or memory of all containers of a namespace.
    fn range_query(self, form: &Form) -> String {
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        let seconds = |name: &str| field(name).parse::<f64>().unwrap_or_default() as i64;
        let query = field("query");
        let mut text = r#"{"status":"success","data":{"resultType":"matrix","result":["#.to_owned();
        let named = query.split_once("namespace=\"").and_then(|(_, rest)| rest.split('"').next());
        let place = named.and_then(|name| name.rsplit('-').next()?.parse::<usize>().ok());
        let is_cpu = is_about(query, CPU_METRIC);
        if let Some(place) = place.filter(|_| is_cpu || is_about(query, MEMORY_METRIC)) {
            let (start, end, step) = (seconds("start"), seconds("end"), seconds("step").max(1));
            let namespace = namespace_called(place);
            let mut comma = "";
            for (index, pod) in self.mix.pods(place).enumerate() {
                for (number, container) in self.mix.names().iter().enumerate() {
                    let seed = ((place * 1000 + index) * 10 + number) as u64;
                    // Writing to a string cannot fail.
                    let _ = write!(
                        text,
                        r#"{comma}{{"metric":{{"namespace":"{namespace}","pod":"{}","container":"{container}"}},"values":["#,
                        pod.name
                    );
                    points(&mut text, seed, is_cpu, (start, end, step));
                    text.push_str("]}");
                    comma = ",";
                }
            }
        }
        text.push_str("]}}");
        text
    }
}

fn points(text: &mut String, seed: u64, is_cpu: bool, (start, end, step): (i64, i64, i64)) {
    let usual = chance(seed, 0);
    let mut at = start;
    while at <= end {
        let comma = if at == start { "" } else { "," };
        let now = chance(seed, at);
        // Writing to a string cannot fail.
        let _ = if is_cpu {
            write!(text, r#"{comma}[{at},"{}"]"#, usual * (0.5 + now))
        } else {
            let pages = (1e5 * (0.2 + usual) * (0.9 + 0.1 * now)) as u64;
            write!(text, r#"{comma}[{at},"{}"]"#, pages * 4096)
        };
        at += step;
    }
}

/// Whether a query uses this metric, by its whole name.
fn is_about(query: &str, metric: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    query.match_indices(metric).any(|(at, _)| {
        !query[..at].ends_with(is_part) && !query[at + metric.len()..].starts_with(is_part)
    })
}
