//! The plain client crate, as a simple recommender would use it: it requests each series in as few requests as the
//! server allows, and receives whole responses.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use prometheus_http_query::Client;

use super::{
    plimsoll_reader::Request,
    reader_process::{Figures, Task},
};

/// Maximum points per request that a server allows.
const MOMENTS: i64 = 11_000;

/// Reads the same data as Plimsoll and only adds it up, which is less work.
pub async fn read(task: &Task) -> Figures {
    let text = std::fs::read(&task.requests).expect("Plimsoll has recorded them");
    let requests: Vec<Request> = serde_json::from_slice(&text).expect("requests");
    let field = |request: &Request, name: &str| {
        request.form.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    // Plimsoll splits these queries by time; here they cover the whole range.
    let ranges = requests.iter().filter(|request| request.path.ends_with("/query_range"));
    let queries = ranges.filter_map(|it| Some((field(it, "query")?, field(it, "step")?)));
    let queries: BTreeSet<(String, String)> = queries.collect();
    let start = task.end - i64::from(task.hours) * 3600;
    let mut parts = Vec::new();
    for (query, step) in queries {
        let step: i64 = step.parse().expect("whole seconds");
        let mut from = start + step;
        while from <= task.end {
            let to = (from + (MOMENTS - 1) * step).min(task.end);
            parts.push((query.clone(), from, to, step));
            from = to + step;
        }
    }
    let client: Client = task.url.parse().expect("an address");
    let client = &client;
    let count = parts.len() as u64;
    let read = stream::iter(parts).map(|(query, from, to, step)| async move {
        let response = client.query_range(query, from, to, step as f64).get().await;
        let answer = response.expect("the server answers");
        let series = answer.data().as_matrix().expect("a matrix");
        let points = series.iter().flat_map(prometheus_http_query::response::RangeVector::samples);
        points.fold((0_u64, 0.0), |(count, sum), point| (count + 1, sum + point.value()))
    });
    let sums = read.buffer_unordered(task.queries).collect::<Vec<_>>().await;
    std::hint::black_box(sums.iter().map(|(_, sum)| sum).sum::<f64>());
    let points = sums.iter().map(|(points, _)| points).sum();
    Figures { requests: count, points, ..Figures::default() }
}
