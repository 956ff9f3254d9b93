//! Names, passwords, tokens, headers and tenants.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use plimsoll_storage::prometheus::transport::TransportConfig;
use plimsoll_storage::prometheus::transport::config::{AuthConfig, Header};

use super::loopback_server::{LoopbackServer, error_response, ok_response};
use super::{NO_RELOAD, send_query, transport, transport_with_sign_in, wait_for_response, write};

/// A server that lets in whoever has what is in the second, and says how many that were.
async fn server_requiring(header: &'static str) -> (LoopbackServer, Arc<Mutex<String>>) {
    let wanted: Arc<Mutex<String>> = Arc::default();
    let server = LoopbackServer::start({
        let wanted = Arc::clone(&wanted);
        move |asked| {
            let wanted = wanted.lock().expect("no panic");
            if asked.header(header) == *wanted {
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
async fn a_form_arrives_as_it_was_asked_below_the_path_of_the_address() {
    let server = LoopbackServer::start(|asked| {
        assert_eq!(asked.method, Method::POST);
        assert_eq!(asked.uri.path(), "/select/0/prometheus/api/v1/query");
        assert_eq!(asked.form()["query"], "up{job=~\"a+b ü/*\"}");
        assert_eq!(asked.form()["time"], "1.5");
        assert_eq!(asked.header("content-type"), "application/x-www-form-urlencoded");
        assert_eq!(asked.header("accept-encoding"), "", "nearby, compressing takes longer");
        assert_eq!(asked.header("authorization"), "");
        ok_response("heard")
    })
    .await;
    let door = transport_with_sign_in(
        &format!("{}/select/0/prometheus/", server.address),
        AuthConfig::None,
    );
    assert_eq!(send_query(&door).await.expect("let in"), "heard");
}

#[tokio::test]
async fn a_get_has_its_form_in_the_query_beside_that_of_the_address() {
    let server = LoopbackServer::start(|asked| {
        let query = asked.query();
        ok_response(format!("{} {} {}", asked.method, query["extra"], query["match[]"]))
    })
    .await;
    let door = transport_with_sign_in(&format!("{}?extra=1", server.address), AuthConfig::None);
    let form = [("match[]", "a&b".to_owned())];
    let answer = door.request(Method::GET, "/api/v1/labels", &form, Duration::from_secs(30)).await;
    let answer = answer.expect("let in").text().await.expect("a text");
    assert_eq!(answer, "GET 1 a&b");
}

#[tokio::test]
async fn a_password_of_a_file_is_read_again_as_soon_as_it_is_refused() {
    let (server, wanted) = server_requiring("authorization").await;
    let folder = tempfile::tempdir().expect("a folder");
    *wanted.lock().expect("no panic") = basic("one:1 ü");
    let file = write(folder.path(), "password", "one:1 ü\n");
    let sign_in = AuthConfig::Basic { user: "vpa".into(), password: file.into() };
    let door = transport_with_sign_in(&server.address, sign_in);
    assert_eq!(send_query(&door).await.expect("let in"), basic("one:1 ü"));

    *wanted.lock().expect("no panic") = basic("two");
    let error = send_query(&door).await.expect_err("the old password").to_string();
    assert!(error.contains("does not accept this name and password (401)"), "{error}");
    assert_eq!(server.request_count(), 2, "nothing changed, so nothing is asked again");

    write(folder.path(), "password", "two");
    assert_eq!(send_query(&door).await.expect("let in"), basic("two"));
    assert_eq!(server.request_count(), 4);
}

#[tokio::test]
async fn a_name_and_password_in_the_address_sign_in_and_are_not_shown() {
    let (server, wanted) = server_requiring("authorization").await;
    *wanted.lock().expect("no panic") = basic("hunter+2 3");
    let address = server.address.replace("http://", "http://vpa:hunter+2%203@");
    let door = transport_with_sign_in(&address, AuthConfig::None);
    send_query(&door).await.expect("let in");
    assert_eq!(door.address(), server.address);
    assert!(!format!("{door:?}").contains("hunter"), "{door:?}");
}

#[tokio::test]
async fn a_token_that_is_rotated_without_a_refusal_is_used_within_a_minute() {
    // Both tokens are good: as with tokens of service accounts, of which the old one expires later.
    let server = LoopbackServer::start(|asked| ok_response(asked.header("authorization"))).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "token", "one\n");
    let config = TransportConfig {
        address: server.address.clone(),
        auth: AuthConfig::Bearer(file.into()),
        ..TransportConfig::default()
    };
    let door = transport(Duration::from_millis(100), config);
    assert_eq!(send_query(&door).await.expect("let in"), "Bearer one");
    write(folder.path(), "token", "two\n");
    wait_for_response(&door, "Bearer two").await;

    // While it is being replaced it is away, and the one that was read before still good.
    std::fs::remove_file(folder.path().join("token")).expect("it was there");
    assert_eq!(send_query(&door).await.expect("let in"), "Bearer two");
}

#[tokio::test]
async fn headers_and_the_tenant_are_in_every_request_and_follow_their_files() {
    let (server, wanted) = server_requiring("x-key").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "key", "k1");
    *wanted.lock().expect("no panic") = "k1".into();
    let header = |name: &str, value| Header { name: name.into(), value };
    let config = TransportConfig {
        address: server.address.clone(),
        headers: vec![header("X-Key", file.into())],
        ..TransportConfig::default()
    };
    let rotated = transport(NO_RELOAD, config);
    send_query(&rotated).await.expect("let in");
    *wanted.lock().expect("no panic") = "k2".into();
    write(folder.path(), "key", "k2");
    send_query(&rotated).await.expect("let in");

    let asked = Arc::new(AtomicUsize::new(0));
    let server = LoopbackServer::start({
        let asked = Arc::clone(&asked);
        move |request| {
            asked.fetch_add(1, Ordering::Relaxed);
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
    assert_eq!(send_query(&transport(NO_RELOAD, config)).await.expect("let in"), "b team-1|team-2");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
