//! Who sees what, for how long, and what is read for them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use http::{HeaderName, Method, StatusCode};
use serde_json::Value;

use super::{PAGES, Rights, Sample, ask, body, form, sample_snapshot, with_auth};
use crate::ui::{
    access::{AuthMode, ProxyHeaders, User},
    server::{ACCESS_LIFETIME, AccessReviewer, UiServer, UiServerConfig},
};

#[tokio::test]
async fn users_see_the_namespaces_in_which_they_may_list_vpas() {
    let server = with_auth(AuthMode::Token);
    let table: [(&str, &[(&str, u16)]); 5] = [
        ("", &[("/", 401), ("/workloads", 401), ("/none", 404), ("/livez", 200)]),
        ("wrong", &[("/", 401), ("/n/shop", 401)]),
        ("broken", &[("/", 503), ("/n/shop", 503)]),
        (
            "bob",
            &[
                ("/", 200),
                ("/workloads", 200),
                ("/n/shop", 404),
                ("/w/shop/Deployment/checkout", 404),
                ("/a", 200),
                ("/a/shop/checkout", 404),
                ("/held", 200),
                ("/status", 404),
            ],
        ),
        (
            "ann",
            &[
                ("/", 200),
                ("/n/shop", 200),
                ("/n/data", 404),
                ("/n/none", 404),
                ("/w/shop/Deployment/checkout", 200),
                ("/w/data/StatefulSet/kafka", 404),
                ("/w/data/StatefulSet/kafka.json", 404),
                ("/a/shop/checkout", 200),
                ("/a/data/kafka", 404),
                ("/status", 404),
                ("/backtest", 404),
                ("/backtest/x.html", 404),
                ("/preview.json", 200),
            ],
        ),
    ];
    let mut not_found = BTreeSet::new();
    for (user, paths) in table {
        for (path, status) in paths {
            let token = format!("Bearer {user}");
            let mut headers = Vec::new();
            if !user.is_empty() {
                headers.push(("authorization", &*token));
            }
            let response = ask(&server, Method::GET, path, &headers).await;
            assert_eq!(response.status().as_u16(), *status, "{user} {path}");
            if *status == 404 && path.matches('/').count() == 2 {
                not_found.insert(body(response).await);
            }
        }
    }
    assert_eq!(not_found.len(), 1, "what is forbidden looks like what does not exist");
}

/// The number of workloads and of namespaces in the overview.
async fn totals(server: &UiServer, headers: &[(&str, &str)]) -> (Option<u64>, Option<usize>) {
    let text = body(ask(server, Method::GET, "/overview.json", headers).await).await;
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let namespaces = json["namespaces"].as_object().map(serde_json::Map::len);
    (json["totals"]["workloads"].as_u64(), namespaces)
}

/// Counts reviews. The token `t` belongs to `ann` until it is revoked.
#[derive(Default)]
struct Revocable {
    is_revoked: AtomicBool,
    token_reviews: AtomicUsize,
    access_reviews: AtomicUsize,
}

#[async_trait]
impl AccessReviewer for Revocable {
    async fn user_of_token(&self, token: &str) -> Result<Option<User>, String> {
        self.token_reviews.fetch_add(1, Ordering::Relaxed);
        let is_valid = token == "t" && !self.is_revoked.load(Ordering::Relaxed);
        Ok(is_valid.then(|| User { name: "ann".to_owned(), ..User::default() }))
    }

    async fn may_list(&self, user: &User, namespace: Option<&str>) -> Result<bool, String> {
        self.access_reviews.fetch_add(1, Ordering::Relaxed);
        Rights.may_list(user, namespace).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_ends_within_a_minute_and_reviews_are_made_once_a_minute() {
    let config =
        UiServerConfig { auth: AuthMode::Token, is_loopback: false, ..UiServerConfig::default() };
    let snapshot = Some(Arc::new(sample_snapshot::snapshot()));
    let namespaces = snapshot.as_ref().map_or(0, |snapshot| snapshot.namespaces().len());
    let source = Arc::new(Sample { snapshot, ..Sample::default() });
    let reviewer = Arc::new(Revocable::default());
    let server = UiServer::new(config, source, Arc::<Revocable>::clone(&reviewer));
    let token = [("authorization", "Bearer t")];
    let status = async || ask(&server, Method::GET, "/n/shop", &token).await.status().as_u16();
    for _ in 0..20 {
        assert_eq!(status().await, 200);
    }
    assert_eq!(reviewer.token_reviews.load(Ordering::Relaxed), 1);
    assert_eq!(reviewer.access_reviews.load(Ordering::Relaxed), namespaces + 1);
    reviewer.is_revoked.store(true, Ordering::Relaxed);
    tokio::time::advance(ACCESS_LIFETIME.saturating_sub(Duration::from_secs(1))).await;
    assert_eq!(status().await, 200, "the review is remembered");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(status().await, 401, "a minute after the review");
    assert_eq!(reviewer.token_reviews.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn only_the_pages_of_one_object_read_a_timeline_and_only_for_those_who_may_see_it() {
    let config =
        UiServerConfig { auth: AuthMode::Token, is_loopback: false, ..UiServerConfig::default() };
    let snapshot = Some(Arc::new(sample_snapshot::snapshot()));
    let source = Arc::new(Sample { snapshot, ..Sample::default() });
    let server = UiServer::new(config, Arc::<Sample>::clone(&source), Arc::new(Rights));
    let ask = async |user: &str, method: Method, path: &str| {
        let token = format!("Bearer {user}");
        let response = ask(&server, method, path, &[("authorization", &token)]).await;
        (response.status().as_u16(), std::mem::take(&mut *source.reads.lock()))
    };
    for path in PAGES.iter().filter(|path| !path.starts_with("/w/") && !path.starts_with("/a/")) {
        for form in ["html", "json"].map(|name| form(path, name)) {
            let (_, reads) = ask("admin", Method::GET, &form).await;
            assert_eq!(reads, [""; 0], "{form} reads nothing");
        }
    }
    let none: &[&str] = &[];
    let read = ["shop/checkout 24h"];
    for (user, method, path, status, reads) in [
        ("ann", Method::GET, "/w/shop/Deployment/checkout", 200, &read[..]),
        ("ann", Method::GET, "/w/shop/Deployment/checkout?range=7d", 200, &["shop/checkout 7d"]),
        ("ann", Method::HEAD, "/w/shop/Deployment/checkout", 200, none),
        ("ann", Method::GET, "/a/shop/checkout.json", 200, &read),
        ("ann", Method::HEAD, "/a/shop/checkout", 200, none),
        ("ann", Method::GET, "/w/data/StatefulSet/kafka", 404, none),
        ("ann", Method::GET, "/w/data/StatefulSet/gone", 404, none),
        ("ann", Method::GET, "/a/data/kafka", 404, none),
        ("ann", Method::GET, "/w/shop/Deployment/gone", 404, &["shop/gone 30d"]),
        ("ann", Method::GET, "/w/shop/Deployment/old-checkout", 200, &["shop/old-checkout 30d"]),
    ] {
        let expected = (status, reads.iter().map(ToString::to_string).collect());
        assert_eq!(ask(user, method, path).await, expected, "{user} {path}");
    }
}

#[tokio::test]
async fn nothing_of_other_namespaces_is_in_lists_totals_or_filters() {
    let server = with_auth(AuthMode::Token);
    let ann = [("authorization", "Bearer ann")];
    let admin = [("authorization", "Bearer admin")];
    for path in
        ["/", "/workloads", "/a", "/held", "/preview", "/n/shop", "/w/shop/Deployment/search"]
    {
        for path in [path.to_owned(), form(path, "json")] {
            let text = body(ask(&server, Method::GET, &path, &ann).await).await;
            for word in
                ["kafka", "kube-system", "coredns", "embed", "reindex", "secret", "monitoring"]
            {
                assert!(!text.contains(word), "{path} has {word}");
            }
        }
    }
    assert_eq!(totals(&server, &ann).await, (Some(2), Some(1)));
    assert_eq!(totals(&server, &admin).await, (Some(10), Some(7)));
    let bob = [("authorization", "Bearer bob")];
    assert_eq!(totals(&server, &bob).await, (Some(0), Some(0)));
}

#[tokio::test]
async fn groups_of_a_proxy_count_for_the_same_reviews() {
    let names = ProxyHeaders {
        user: HeaderName::from_static("x-forwarded-user"),
        groups: HeaderName::from_static("x-forwarded-groups"),
    };
    let server = with_auth(AuthMode::Proxy(names));
    let carol = [("x-forwarded-user", "carol"), ("x-forwarded-groups", "data,none")];
    let response = ask(&server, Method::GET, "/n/data", &carol).await;
    assert_eq!(response.status(), StatusCode::OK);
    let response = ask(&server, Method::GET, "/n/shop", &carol).await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let response = ask(&server, Method::GET, "/n/data", &[]).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
}
