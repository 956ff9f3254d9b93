//! Basic auth, bearer tokens, custom headers and tenants.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use plimsoll_storage::prometheus::transport::TransportConfig;
use plimsoll_storage::prometheus::transport::config::{AuthConfig, Header};

use super::loopback_server::{LoopbackServer, error_response, ok_response};
use super::{NO_RELOAD, send_query, transport, transport_with_sign_in, wait_for_response, write};

/// A server that accepts requests whose header has the shared value.
async fn server_requiring(header: &'static str) -> (LoopbackServer, Arc<Mutex<String>>) {
    let wanted: Arc<Mutex<String>> = Arc::default();
    let server = LoopbackServer::start({
        let wanted = Arc::clone(&wanted);
        move |request| {
            let wanted = wanted.lock().expect("no panic");
            if request.header(header) == *wanted {
                ok_response(wanted.as_str())
            } else {
                error_response(401)
            }
        }
    })
    .await;
    (server, wanted)
}

fn basic(password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("vpa:{password}")))
}

#[tokio::test]
async fn a_post_request_has_its_form_in_the_body_below_the_configured_path() {
    let server = LoopbackServer::start(|request| {
        assert_eq!(request.method, Method::POST);
        assert_eq!(request.uri.path(), "/select/0/prometheus/api/v1/query");
        assert_eq!(request.form()["query"], "up{job=~\"a+b ü/*\"}");
        assert_eq!(request.form()["time"], "1.5");
        assert_eq!(request.header("content-type"), "application/x-www-form-urlencoded");
        assert_eq!(request.header("accept-encoding"), "", "on loopback, compression is slower");
        assert_eq!(request.header("authorization"), "");
        ok_response("heard")
    })
    .await;
    let http_transport = transport_with_sign_in(
        &format!("{}/select/0/prometheus/", server.address),
        AuthConfig::None,
    );
    assert_eq!(send_query(&http_transport).await.expect("authenticated"), "heard");
}

#[tokio::test]
async fn a_get_request_has_its_form_and_the_configured_query_in_the_url() {
    let server = LoopbackServer::start(|request| {
        let query = request.query();
        ok_response(format!("{} {} {}", request.method, query["extra"], query["match[]"]))
    })
    .await;
    let http_transport =
        transport_with_sign_in(&format!("{}?extra=1", server.address), AuthConfig::None);
    let form = [("match[]", "a&b".to_owned())];
    let response =
        http_transport.request(Method::GET, "/api/v1/labels", &form, Duration::from_secs(30)).await;
    let response = response.expect("authenticated").text().await.expect("a text");
    assert_eq!(response, "GET 1 a&b");
}

#[tokio::test]
async fn a_password_file_is_reloaded_after_a_rejection() {
    let (server, wanted) = server_requiring("authorization").await;
    let folder = tempfile::tempdir().expect("temporary directory");
    *wanted.lock().expect("no panic") = basic("one:1 ü");
    let file = write(folder.path(), "password", "one:1 ü\n");
    let sign_in = AuthConfig::Basic { user: "vpa".into(), password: file.into() };
    let http_transport = transport_with_sign_in(&server.address, sign_in);
    assert_eq!(send_query(&http_transport).await.expect("authenticated"), basic("one:1 ü"));

    *wanted.lock().expect("no panic") = basic("two");
    let error = send_query(&http_transport).await.expect_err("the old password").to_string();
    assert!(error.contains("rejected this user name and password (401)"), "{error}");
    assert_eq!(server.request_count(), 2, "unchanged files cause no retry");

    write(folder.path(), "password", "two");
    assert_eq!(send_query(&http_transport).await.expect("authenticated"), basic("two"));
    assert_eq!(server.request_count(), 4);
}

#[tokio::test]
async fn credentials_in_the_address_are_used_and_not_shown() {
    let (server, wanted) = server_requiring("authorization").await;
    *wanted.lock().expect("no panic") = basic("hunter+2 3");
    let address = server.address.replace("http://", "http://vpa:hunter+2%203@");
    let http_transport = transport_with_sign_in(&address, AuthConfig::None);
    send_query(&http_transport).await.expect("authenticated");
    assert_eq!(http_transport.address(), server.address);
    assert!(!format!("{http_transport:?}").contains("hunter"), "{http_transport:?}");
}

#[tokio::test]
async fn a_rotated_token_file_is_used_within_a_minute() {
    // Both tokens are valid, as with service account tokens, whose old one expires later.
    let server =
        LoopbackServer::start(|request| ok_response(request.header("authorization"))).await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = write(folder.path(), "token", "one\n");
    let config = TransportConfig {
        address: server.address.clone(),
        auth: AuthConfig::Bearer(file.into()),
        ..TransportConfig::default()
    };
    let http_transport = transport(Duration::from_millis(100), config);
    assert_eq!(send_query(&http_transport).await.expect("authenticated"), "Bearer one");
    write(folder.path(), "token", "two\n");
    wait_for_response(&http_transport, "Bearer two").await;

    // The file is missing while it is replaced; the token read before stays valid.
    std::fs::remove_file(folder.path().join("token")).expect("existed");
    assert_eq!(send_query(&http_transport).await.expect("authenticated"), "Bearer two");
}

#[tokio::test]
async fn headers_and_the_tenant_are_sent_with_every_request_and_follow_their_files() {
    let (server, wanted) = server_requiring("x-key").await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = write(folder.path(), "key", "k1");
    *wanted.lock().expect("no panic") = "k1".into();
    let header = |name: &str, value| Header { name: name.into(), value };
    let config = TransportConfig {
        address: server.address.clone(),
        headers: vec![header("X-Key", file.into())],
        ..TransportConfig::default()
    };
    let rotated = transport(NO_RELOAD, config);
    send_query(&rotated).await.expect("authenticated");
    *wanted.lock().expect("no panic") = "k2".into();
    write(folder.path(), "key", "k2");
    send_query(&rotated).await.expect("authenticated");

    let requests = Arc::new(AtomicUsize::new(0));
    let server = LoopbackServer::start({
        let requests = Arc::clone(&requests);
        move |request| {
            requests.fetch_add(1, Ordering::Relaxed);
            let word = request.header("x-a").to_owned();
            ok_response(format!("{word} {}", request.header("x-scope-orgid")))
        }
    })
    .await;
    let config = TransportConfig {
        address: server.address.clone(),
        headers: vec![header(
            "X-A",
            plimsoll_storage::prometheus::transport::Secret::from("b").into(),
        )],
        tenant: Some("team-1|team-2".into()),
        ..TransportConfig::default()
    };
    assert_eq!(
        send_query(&transport(NO_RELOAD, config)).await.expect("authenticated"),
        "b team-1|team-2"
    );
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}
