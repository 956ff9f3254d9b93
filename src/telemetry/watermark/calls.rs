//! Metrics of calls to external recommenders, under upstream's names. The URL in the label has no credentials.

use std::{collections::HashSet, sync::Arc, time::Duration};

use http::Uri;

use crate::telemetry::{
    definition::{counter, gauge, histogram},
    family::{Family, OVERFLOW_LABEL},
    instruments::{Counter, Gauge, Histogram},
    registry::metric_families,
};

/// Maximum number of recommenders with series of their own.
const MAX_CLIENTS: usize = 256;
const MAX_RESPONSE_SERIES: usize = 1024;
const RESPONSE_LABELS: &[&str] = &["client", "code", "method"];

metric_families! {
    #[derive(Clone, Debug)]
    pub struct RecommenderCallMetrics via pub new {
        requests: Family<Counter, 3>[MAX_RESPONSE_SERIES] = counter(
            "http_client_requests_total",
            "Responses of external recommenders; redirects count separately.",
        ).labels(RESPONSE_LABELS, "1 per recommender, code and method, 1,024 in all")
        .absent_at_first();
        durations: Family<Histogram, 3>[MAX_RESPONSE_SERIES] = histogram(
            "http_client_request_duration_seconds",
            "Response time of external recommenders.",
            &[0.1, 0.3, 0.6, 1.0, 3.0, 6.0, 9.0, 20.0],
        ).labels(RESPONSE_LABELS, "1 of 11 per recommender, code and method, 1,024 in all")
        .unit("seconds").absent_at_first();
        errors: Family<Counter, 1>[MAX_CLIENTS] = counter(
            "http_client_requests_errors_total",
            "Requests to external recommenders without a response.",
        ).labels(&["client"], "1 per recommender, 256 in all")
        .absent("the recommender was never called");
        inflight: Family<Gauge, 1>[MAX_CLIENTS] = gauge(
            "http_client_requests_inflight", "Requests to external recommenders in flight."
        ).labels(&["client"], "1 per recommender, 256 in all")
        .absent("the recommender was never called");
    }
}

/// A call in flight, until it is dropped.
#[derive(Debug)]
pub struct RecommenderCall {
    client: String,
    calls: RecommenderCallMetrics,
    inflight: Arc<Gauge>,
}

impl RecommenderCallMetrics {
    /// Records a call of a recommender, which is in flight until the returned value is dropped.
    pub fn begin(&self, url: &str) -> RecommenderCall {
        let client = client_label(url);
        self.errors.with_labels([&client]);
        let inflight = self.inflight.with_labels([&client]);
        inflight.add(1.0);
        RecommenderCall { client, calls: self.clone(), inflight }
    }

    /// Removes the series of recommenders that are not in `used`, a set of [`client_label`]s.
    pub fn retain_clients(&self, used: &HashSet<String>) {
        let is_used = |client: &str| client == OVERFLOW_LABEL || used.contains(client);
        self.requests.retain(|labels| is_used(&labels[0]));
        self.durations.retain(|labels| is_used(&labels[0]));
        self.errors.retain(|labels| is_used(&labels[0]));
        self.inflight.retain(|labels| is_used(&labels[0]));
    }
}

impl RecommenderCall {
    /// Records a response, including redirects.
    pub fn on_response(&self, method: &str, code: u16, took: Duration) {
        let (code, method) = (code.to_string(), method.to_ascii_lowercase());
        let labels = [self.client.as_str(), &code, &method];
        self.calls.requests.with_labels(labels).increment();
        self.calls.durations.with_labels(labels).observe_duration(took);
    }

    /// Counts a call without a response.
    pub fn on_failure(&self) {
        self.calls.errors.with_labels([&self.client]).increment();
    }
}

impl Drop for RecommenderCall {
    fn drop(&mut self) {
        self.inflight.add(-1.0);
    }
}

/// The label value for a recommender: its URL without user, password, query and fragment, which may contain secrets or
/// change with each call.
pub fn client_label(url: &str) -> String {
    let Ok(uri) = url.trim().parse::<Uri>() else { return UNREADABLE.to_owned() };
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return UNREADABLE.to_owned();
    };
    // An invalid port may be a part of a password.
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host_and_port = authority.rsplit('@').next().unwrap_or_default();
    if uri.port().is_none()
        && host_and_port.rsplit(']').next().is_some_and(|rest| rest.contains(':'))
    {
        return UNREADABLE.to_owned();
    }
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    let without_query = url.split(['?', '#']).next().unwrap_or_default();
    // A missing path is parsed as `/`, but upstream's label is the URL as written.
    let path = if uri.path() == "/" && !without_query.ends_with('/') { "" } else { uri.path() };
    format!("{scheme}://{host}{port}{path}")
}

const UNREADABLE: &str = "unreadable";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recommender_url_is_shown_without_secrets() {
        for (url, expected) in [
            ("https://recommender.team.svc:8443/scale", "https://recommender.team.svc:8443/scale"),
            ("http://user:secret@host/path?token=secret#secret", "http://host/path"),
            ("http://host", "http://host"),
            ("http://host/", "http://host/"),
            ("http://host?token=secret", "http://host"),
            ("http://user@[::1]:80/a/b?c", "http://[::1]:80/a/b"),
            ("http://user:sec/ret@host/", UNREADABLE),
            ("host:80/path", UNREADABLE),
            ("", UNREADABLE),
        ] {
            assert_eq!(client_label(url), expected, "{url}");
        }
    }
}
