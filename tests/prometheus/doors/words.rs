//! Names, passwords, tokens, headers and tenants.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Method;
use plimsoll_storage::prometheus::door::DoorConfig;
use plimsoll_storage::prometheus::door::config::{Header, SignIn};

use super::server::{Server, fine, no};
use super::{NEVER, ask, door, signed, until_told, write};

/// A server that lets in whoever has what is in the second, and says how many that were.
async fn guarded(header: &'static str) -> (Server, Arc<Mutex<String>>) {
    let wanted: Arc<Mutex<String>> = Arc::default();
    let server = Server::start({
        let wanted = Arc::clone(&wanted);
        move |asked| {
            let wanted = wanted.lock().expect("no panic");
            if asked.header(header) == *wanted { fine(wanted.as_str()) } else { no(401) }
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
    let server = Server::start(|asked| {
        assert_eq!(asked.method, Method::POST);
        assert_eq!(asked.uri.path(), "/select/0/prometheus/api/v1/query");
        assert_eq!(asked.form()["query"], "up{job=~\"a+b ü/*\"}");
        assert_eq!(asked.form()["time"], "1.5");
        assert_eq!(asked.header("content-type"), "application/x-www-form-urlencoded");
        assert_eq!(asked.header("accept-encoding"), "", "nearby, compressing takes longer");
        assert_eq!(asked.header("authorization"), "");
        fine("heard")
    })
    .await;
    let door = signed(&format!("{}/select/0/prometheus/", server.address), SignIn::None);
    assert_eq!(ask(&door).await.expect("let in"), "heard");
}

#[tokio::test]
async fn a_get_has_its_form_in_the_query_beside_that_of_the_address() {
    let server = Server::start(|asked| {
        let query = asked.query();
        fine(format!("{} {} {}", asked.method, query["extra"], query["match[]"]))
    })
    .await;
    let door = signed(&format!("{}?extra=1", server.address), SignIn::None);
    let form = [("match[]", "a&b".to_owned())];
    let answer = door.ask(Method::GET, "/api/v1/labels", &form, Duration::from_secs(30)).await;
    let answer = answer.expect("let in").text().await.expect("a text");
    assert_eq!(answer, "GET 1 a&b");
}

#[tokio::test]
async fn a_password_of_a_file_is_read_again_as_soon_as_it_is_refused() {
    let (server, wanted) = guarded("authorization").await;
    let folder = tempfile::tempdir().expect("a folder");
    *wanted.lock().expect("no panic") = basic("one:1 ü");
    let file = write(folder.path(), "password", "one:1 ü\n");
    let sign_in = SignIn::Basic { user: "vpa".into(), password: file.into() };
    let door = signed(&server.address, sign_in);
    assert_eq!(ask(&door).await.expect("let in"), basic("one:1 ü"));

    *wanted.lock().expect("no panic") = basic("two");
    let error = ask(&door).await.expect_err("the old password").to_string();
    assert!(error.contains("does not accept this name and password (401)"), "{error}");
    assert_eq!(server.count(), 2, "nothing changed, so nothing is asked again");

    write(folder.path(), "password", "two");
    assert_eq!(ask(&door).await.expect("let in"), basic("two"));
    assert_eq!(server.count(), 4);
}

#[tokio::test]
async fn a_name_and_password_in_the_address_sign_in_and_are_not_shown() {
    let (server, wanted) = guarded("authorization").await;
    *wanted.lock().expect("no panic") = basic("hunter+2 3");
    let address = server.address.replace("http://", "http://vpa:hunter+2%203@");
    let door = signed(&address, SignIn::None);
    ask(&door).await.expect("let in");
    assert_eq!(door.address(), server.address);
    assert!(!format!("{door:?}").contains("hunter"), "{door:?}");
}

#[tokio::test]
async fn a_token_that_is_rotated_without_a_refusal_is_used_within_a_minute() {
    // Both tokens are good: as with tokens of service accounts, of which the old one expires later.
    let server = Server::start(|asked| fine(asked.header("authorization"))).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "token", "one\n");
    let config = DoorConfig {
        address: server.address.clone(),
        sign_in: SignIn::Bearer(file.into()),
        ..DoorConfig::default()
    };
    let door = door(Duration::from_millis(100), config);
    assert_eq!(ask(&door).await.expect("let in"), "Bearer one");
    write(folder.path(), "token", "two\n");
    until_told(&door, "Bearer two").await;

    // While it is being replaced it is away, and the one that was read before still good.
    std::fs::remove_file(folder.path().join("token")).expect("it was there");
    assert_eq!(ask(&door).await.expect("let in"), "Bearer two");
}

#[tokio::test]
async fn headers_and_the_tenant_are_in_every_request_and_follow_their_files() {
    let (server, wanted) = guarded("x-key").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "key", "k1");
    *wanted.lock().expect("no panic") = "k1".into();
    let header = |name: &str, value| Header { name: name.into(), value };
    let config = DoorConfig {
        address: server.address.clone(),
        headers: vec![header("X-Key", file.into())],
        ..DoorConfig::default()
    };
    let rotated = door(NEVER, config);
    ask(&rotated).await.expect("let in");
    *wanted.lock().expect("no panic") = "k2".into();
    write(folder.path(), "key", "k2");
    ask(&rotated).await.expect("let in");

    let asked = Arc::new(AtomicUsize::new(0));
    let server = Server::start({
        let asked = Arc::clone(&asked);
        move |request| {
            asked.fetch_add(1, Ordering::Relaxed);
            let word = request.header("x-a").to_owned();
            fine(format!("{word} {}", request.header("x-scope-orgid")))
        }
    })
    .await;
    let config = DoorConfig {
        address: server.address.clone(),
        headers: vec![header("X-A", plimsoll_storage::prometheus::door::Secret::from("b").into())],
        tenant: Some("team-1|team-2".into()),
        ..DoorConfig::default()
    };
    assert_eq!(ask(&door(NEVER, config)).await.expect("let in"), "b team-1|team-2");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}
