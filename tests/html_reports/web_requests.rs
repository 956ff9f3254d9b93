//! Odd requests to the server of the web page.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::OnceLock,
};

use http::{HeaderName, HeaderValue, Method};
use plimsoll::ui::{access::AuthMode, server::UiServer};
use proptest::prelude::*;

use super::{
    sample_snapshot,
    web_page::{ask, handler, runtime, serve},
};
use crate::support::tier;

/// Sends bytes, and returns the status line.
fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = [0; 4096];
    let read = stream.read(&mut answer).unwrap_or(0);
    let answer = String::from_utf8_lossy(&answer[..read]);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn odd_bytes_and_long_requests_are_refused_and_the_server_goes_on() {
    let address = serve(sample_snapshot::snapshot());
    let get =
        |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let long = "a".repeat(10 << 20);
    for (request, statuses) in [
        (get("/").into_bytes(), &["200"][..]),
        (get("/../../etc/passwd").into_bytes(), &["400"]),
        (get("/%2e%2e/%2e%2e/etc/passwd").into_bytes(), &["400"]),
        (get("/n/%ff%fe").into_bytes(), &["400"]),
        (get(&format!("/n/{}", &long[..9_000])).into_bytes(), &["414"]),
        (get(&format!("/{long}")).into_bytes(), &["414", "431", ""]),
        (b"GET /\x00\xff HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), &["400", ""]),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".to_vec(), &["405"]),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec(), &["421"]),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), &["400", ""]),
        (get("/livez").into_bytes(), &["200"]),
    ] {
        let status = exchange(address, &request);
        let code = status.split(' ').nth(1).unwrap_or_default();
        let start = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        assert!(statuses.contains(&code), "{start}: {status:?}");
    }
}

/// A server whose users may see namespace shop.
fn fuzzed() -> &'static (UiServer, tokio::runtime::Runtime) {
    static SERVER: OnceLock<(UiServer, tokio::runtime::Runtime)> = OnceLock::new();
    SERVER.get_or_init(|| (handler(sample_snapshot::snapshot(), AuthMode::Token), runtime()))
}

/// Parts of paths, those of pages more often than others.
fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        prop::sample::select(vec![
            "w",
            "n",
            "a",
            "shop",
            "data",
            "Deployment",
            "checkout",
            "kafka",
            "workloads",
            "held",
            "preview",
            "backtest",
            "status",
            "..",
            ".",
            "%2e%2e",
            "%00",
            "%ff",
            "x.html",
            ".json",
            "workloads.csv",
            "tools",
            "plimsoll",
            "assets",
        ])
        .prop_map(ToOwned::to_owned),
        "[ -~]{0,12}".prop_map(|text| text.replace([' ', '#', '?'], "")),
    ];
    let query = prop_oneof![
        Just(String::new()),
        "[ -~]{0,60}".prop_map(|text| format!("?{}", text.replace([' ', '#'], ""))),
        "(q|risk|sort|page|vpa|range|namespace)=[%a-z0-9-]{0,20}"
            .prop_map(|text| format!("?{text}")),
    ];
    (prop::collection::vec(part, 0..6), query)
        .prop_map(|(parts, query)| format!("/{}{query}", parts.join("/")))
}

proptest! {
    #![proptest_config(tier::properties(400, 100_000))]

    #[test]
    fn no_request_breaks_the_server_or_shows_what_is_forbidden(
        path in path(),
        method in prop::sample::select(vec!["GET", "GET", "GET", "HEAD", "POST", "X"]),
        token in prop::option::of(prop::sample::select(vec!["ann", "ann", "eve"])),
        header in ("[a-z-]{1,20}", prop::collection::vec(32..=126_u8, 0..40)),
    ) {
        let (server, runtime) = fuzzed();
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut headers = Vec::new();
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(header.0.as_bytes()), HeaderValue::from_bytes(&header.1))
            && !["host", "authorization"].contains(&name.as_str())
        {
            headers.push((name, value));
        }
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a value");
            headers.push((http::header::AUTHORIZATION, value));
        }
        let (status, body) = runtime.block_on(ask(server, &method, &path, &headers));
        prop_assert!([200, 308, 400, 401, 404, 405, 414].contains(&status), "{} {}: {}", method, path, status);
        if status == 200 && token != Some("ann") {
            let is_public = ["/assets/", "livez", "readyz"].iter().any(|part| path.contains(part));
            prop_assert!(is_public, "{} {}", method, path);
        }
        let text = String::from_utf8_lossy(&body);
        let shows = |word: &str| text.contains(word) && !path.contains("kafka");
        prop_assert!(!shows("kafka") && !text.contains("kube-system"), "{} {}", method, path);
    }
}
