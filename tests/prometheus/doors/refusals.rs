//! Whatever keeps a door shut is one clear line.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::door::config::{Header, Identity, SignIn, Tls, Word};
use plimsoll_storage::prometheus::door::{Door, DoorConfig, Secret, Transport as _, Wall};

use super::server::{Reply, Server, fine, no};
use super::{NEVER, ask, door, signed};

fn bearer() -> SignIn {
    SignIn::Bearer(Secret::from("hunter2").into())
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_says_where_it_went() {
    let elsewhere = Server::start(|_| fine("a page to sign in with")).await;
    let to = format!("{}/login?return=hunter2", elsewhere.address);
    let server = Server::start(move |_| Reply {
        status: 302,
        location: Some(to.clone()),
        body: String::new(),
    })
    .await;
    let error = ask(&signed(&server.address, bearer())).await.expect_err("a redirect");
    assert_eq!(
        error.to_string(),
        format!(
            "{} redirects to {}/login (302), where credentials are not sent: sign in as it wants, or give the address \
             that answers itself",
            server.address, elsewhere.address
        )
    );
    assert_eq!(elsewhere.count(), 0);
    assert!(!error.is_passing());
}

#[tokio::test]
async fn who_is_refused_reads_with_what_and_what_to_do() {
    for (status, words) in [
        (401, "does not accept this bearer token (401): check the token"),
        (403, "refuses access to whoever has this bearer token (403): grant it the right"),
    ] {
        let server = Server::start(move |_| no(status)).await;
        let error = ask(&signed(&server.address, bearer())).await.expect_err("refused");
        assert!(error.to_string().starts_with(&format!("{} {words}", server.address)), "{error}");
        assert_eq!(server.count(), 1, "a token that was given does not change");
    }
    // Whatever else it answers is for whoever asked.
    let server = Server::start(|_| no(503)).await;
    let door = signed(&server.address, bearer());
    let answer = door.send("/x", &[], Duration::from_secs(30)).await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 503);
}

#[tokio::test]
async fn nobody_there_and_no_answer_in_time_may_pass() {
    let server = Server::start(|_| fine("")).await;
    let address = server.address.clone();
    drop(server);
    let error = ask(&signed(&address, bearer())).await.expect_err("nobody");
    assert!(error.to_string().starts_with(&format!("{address} cannot be reached: ")), "{error}");
    assert!(error.is_passing());

    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", deaf.local_addr().expect("bound"));
    let door = signed(&address, bearer());
    let error = door.send("/x", &[], Duration::from_millis(50)).await.expect_err("no answer");
    assert!(
        error.to_string().starts_with(&format!("{address} did not answer within 50ms")),
        "{error}"
    );
    assert!(error.is_passing());
}

#[tokio::test]
async fn a_file_that_is_missing_empty_or_odd_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    let door = signed("http://127.0.0.1:9", SignIn::Bearer(Word::File(path.clone())));
    let missing = ask(&door).await.expect_err("no file").to_string();
    let place = path.display();
    assert!(
        missing.starts_with(&format!("the bearer token cannot be read from {place}: No such file")),
        "{missing}"
    );
    for (bytes, why) in [(&b" \n"[..], "it is empty"), (&b"\xff\xfe"[..], "it is not UTF-8")] {
        std::fs::write(&path, bytes).expect("the folder is writable");
        let error = ask(&door).await.expect_err("no token").to_string();
        assert_eq!(
            error,
            format!("the bearer token in {place} cannot be used: {why}: write the file anew")
        );
    }
    std::fs::write(&path, "hunter2\nhunter3").expect("the folder is writable");
    let error = ask(&door).await.expect_err("two lines").to_string();
    assert_eq!(
        error,
        "what signs in cannot be used: it has characters that no header can have: correct it"
    );
}

#[tokio::test]
async fn a_certificate_that_is_none_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = super::write(folder.path(), "ca.crt", "hello");
    let identity = Identity { certificate: path.clone(), key: path.clone() };
    for (tls, words) in [
        (Tls { authority: Some(path.clone()), ..Tls::default() }, "the CA certificate in "),
        (Tls { identity: Some(identity), ..Tls::default() }, "the client certificate in "),
    ] {
        let address = "https://127.0.0.1:9".to_owned();
        let config = DoorConfig { address, tls, ..DoorConfig::default() };
        let error = ask(&door(NEVER, config)).await.expect_err("no certificate").to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_asked() {
    let header = |name: &str| Header { name: name.into(), value: Secret::from("x").into() };
    let with = |address: &str| DoorConfig { address: address.into(), ..DoorConfig::default() };
    for (config, words) in [
        (
            with("prometheus:9090"),
            "the address of the Prometheus cannot be used: it does not begin with http",
        ),
        (with(""), "the address of the Prometheus cannot be used: "),
        (
            DoorConfig { headers: vec![header("Host")], ..with("http://a") },
            "the header \"Host\" cannot be used: it is not one that can be set",
        ),
        (
            DoorConfig {
                headers: vec![header("authorization")],
                sign_in: bearer(),
                ..with("http://a")
            },
            "the header Authorization cannot be used: the sign-in sets it already",
        ),
        (
            DoorConfig {
                sign_in: SignIn::Basic { user: "a:b".into(), password: Secret::from("x").into() },
                ..with("http://a")
            },
            "the name to sign in with cannot be used: it has a colon",
        ),
    ] {
        let error = Door::new(config, Wall::new(|| Time::EPOCH)).expect_err("refused").to_string();
        assert!(error.starts_with(words), "{error}");
    }
}
