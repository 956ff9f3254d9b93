//! How much anybody who connects can ask of the webhook, over real sockets.

use std::time::Duration;

use http::StatusCode;
use plimsoll::cluster::server::{
    certificate::CaBundle,
    webhook::{MinVersion, WebhookLimits},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    fixture::{WebhookFixture, certificate, serve},
    webhook_client::{LIMIT, WebhookClient, connect, pod},
};
use crate::support::wait;

/// Long enough for whoever does what they should, on a machine that is busy.
const SHORT: Duration = Duration::from_secs(2);

async fn impatient(connections: usize) -> (WebhookFixture, CaBundle) {
    let (pair, trusts) = certificate();
    let limits = WebhookLimits {
        connections,
        handshake_timeout: SHORT,
        request_timeout: SHORT,
        body_timeout: SHORT,
        idle_timeout: SHORT,
        body_bytes: 10_000,
        ..WebhookLimits::default()
    };
    (serve(&pair, limits, MinVersion::Tls12).await, trusts)
}

async fn counted(served: &WebhookFixture, word: &str, times: usize) {
    wait::until(word, || async { (served.counts.of(word) == times).then_some(()) }).await;
}

/// Whatever comes until the other side closes.
async fn rest(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut said)).await;
    assert!(read.is_ok(), "the connection is never closed");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn who_does_not_get_on_with_it_is_cut_off() {
    let (served, trusts) = impatient(100).await;
    // Nothing at all, in place of a handshake.
    let stream = TcpStream::connect(("127.0.0.1", served.port)).await.expect("connects");
    assert_eq!(rest(stream).await, "");
    counted(&served, "slow_handshake", 1).await;
    // A handshake, and then nothing.
    for protocols in [&[][..], &[&b"h2"[..]]] {
        let stream = connect(served.port, &trusts, protocols, rustls::ALL_VERSIONS).await;
        rest(stream.expect("TLS stands")).await;
    }
    // Half a head.
    let mut stream =
        connect(served.port, &trusts, &[], rustls::ALL_VERSIONS).await.expect("TLS stands");
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\n").await.expect("is sent");
    rest(stream).await;
    // Half a body.
    let mut stream =
        connect(served.port, &trusts, &[], rustls::ALL_VERSIONS).await.expect("TLS stands");
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.expect("is sent");
    let said = rest(stream).await;
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    counted(&served, "slow_body", 1).await;
    // Whoever asks as they should is served all the same, and let go when they ask no more.
    let mut caller = WebhookClient::http1(served.port, &trusts).await.expect("connects");
    caller.review("web").await.expect("an answer");
    wait::until("the idle connection is closed", || async {
        let WebhookClient::Http1(sender) = &caller else { return None };
        sender.is_closed().then_some(())
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_and_not_kept() {
    let (served, trusts) = impatient(100).await;
    let mut two = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    let (status, _) = two.post(vec![b' '; 10_001]).await.expect("an answer");
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    two.review("web").await.expect("others on the connection are served");
    let mut one = WebhookClient::http1(served.port, &trusts).await.expect("connects");
    let (status, _) = one.post(vec![b' '; 10_001]).await.expect("an answer");
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // Nobody said how long it would be.
    let mut stream =
        connect(served.port, &trusts, &[], rustls::ALL_VERSIONS).await.expect("TLS stands");
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("is sent");
    let chunk = format!("{:x}\r\n{}\r\n", 6_000, "x".repeat(6_000));
    let _ = stream.write_all(chunk.as_bytes()).await;
    let _ = stream.write_all(chunk.as_bytes()).await;
    let said = rest(stream).await;
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    counted(&served, "too_large", 3).await;
    // As long as it may be, in pieces.
    let mut padded = pod("web");
    padded.resize(10_000, b' ');
    let mut two = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    let (status, answer) = two.post(padded).await.expect("an answer");
    assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &"web".into()));
    served.stop().await;
}

#[tokio::test]
async fn a_crowd_that_asks_nothing_keeps_nobody_out() {
    let (pair, trusts) = certificate();
    let limits = WebhookLimits { connections: 4, ..WebhookLimits::default() };
    let served = serve(&pair, limits, MinVersion::Tls12).await;
    let mut first = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    first.review("first").await.expect("an answer");
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.push(TcpStream::connect(("127.0.0.1", served.port)).await.expect("connects"));
        let mut caller = WebhookClient::http2(served.port, &trusts).await.expect("is let in");
        caller.review("web").await.expect("an answer");
    }
    // Each of them was closed to make room, and found out.
    for stream in crowd.drain(..40) {
        rest(stream).await;
    }
    served.stop().await;
}
