//! Limits on what clients can use of the webhook, over real sockets.

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

/// Long enough for correct clients on a busy machine.
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

/// Reads until the other side closes the connection.
async fn read_to_end_of_response(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut received = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut received)).await;
    assert!(read.is_ok(), "the connection is never closed");
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn clients_that_are_too_slow_are_disconnected() {
    let (served, trusts) = impatient(100).await;
    // Nothing at all, instead of a handshake.
    let stream = TcpStream::connect(("127.0.0.1", served.port)).await.expect("connects");
    assert_eq!(read_to_end_of_response(stream).await, "");
    counted(&served, "slow_handshake", 1).await;
    // A handshake, and then nothing.
    for protocols in [&[][..], &[&b"h2"[..]]] {
        let stream = connect(served.port, &trusts, protocols, rustls::ALL_VERSIONS).await;
        read_to_end_of_response(stream.expect("TLS connection")).await;
    }
    // Half of the headers.
    let mut stream =
        connect(served.port, &trusts, &[], rustls::ALL_VERSIONS).await.expect("TLS connection");
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\n").await.expect("sent");
    read_to_end_of_response(stream).await;
    // Half of a body.
    let mut stream =
        connect(served.port, &trusts, &[], rustls::ALL_VERSIONS).await.expect("TLS connection");
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let response = read_to_end_of_response(stream).await;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    counted(&served, "slow_body", 1).await;
    // Correct clients are still served, and closed when idle.
    let mut caller = WebhookClient::http1(served.port, &trusts).await.expect("connects");
    caller.review("web").await.expect("response");
    wait::until("the idle connection is closed", || async {
        let WebhookClient::Http1(sender) = &caller else { return None };
        sender.is_closed().then_some(())
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_rejected_without_buffering_it() {
    let (served, trusts) = impatient(100).await;
    let mut two = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    let (status, _) = two.post(vec![b' '; 10_001]).await.expect("response");
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    two.review("web").await.expect("other requests on the connection get a response");
    let mut client = WebhookClient::http1(served.port, &trusts).await.expect("connects");
    let (status, _) = client.post(vec![b' '; 10_001]).await.expect("response");
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // Without a Content-Length.
    let mut stream =
        connect(served.port, &trusts, &[], rustls::ALL_VERSIONS).await.expect("TLS connection");
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let chunk = format!("{:x}\r\n{}\r\n", 6_000, "x".repeat(6_000));
    let _ = stream.write_all(chunk.as_bytes()).await;
    let _ = stream.write_all(chunk.as_bytes()).await;
    let response = read_to_end_of_response(stream).await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    counted(&served, "too_large", 3).await;
    // The maximum length, in chunks.
    let mut padded = pod("web");
    padded.resize(10_000, b' ');
    let mut two = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    let (status, answer) = two.post(padded).await.expect("response");
    assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &"web".into()));
    served.stop().await;
}

#[tokio::test]
async fn idle_connections_do_not_block_other_clients() {
    let (pair, trusts) = certificate();
    let limits = WebhookLimits { connections: 4, ..WebhookLimits::default() };
    let served = serve(&pair, limits, MinVersion::Tls12).await;
    let mut first = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    first.review("first").await.expect("response");
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(TcpStream::connect(("127.0.0.1", served.port)).await.expect("connects"));
        let mut caller = WebhookClient::http2(served.port, &trusts).await.expect("accepted");
        caller.review("web").await.expect("response");
    }
    // Each of them was closed to make room, and notices that.
    for stream in idle.drain(..40) {
        read_to_end_of_response(stream).await;
    }
    served.stop().await;
}
