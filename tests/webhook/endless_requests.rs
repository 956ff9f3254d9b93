//! Many clients with requests that never end: how much memory and how many connections they take, and that other clients are
//! served.

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, StatusCode, header::CONTENT_TYPE};
use hyper::{
    body::{Body, Frame, SizeHint},
    client::conn::http2,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::cluster::server::{
    certificate::CaBundle,
    webhook::{MinVersion, WebhookLimits},
};
use tokio::{io::AsyncWriteExt as _, task::JoinSet};

use super::{
    fixture::{WebhookFixture, certificate, serve},
    webhook_client::{LIMIT, NAME, WebhookClient, connect_as, connect_from},
};
use crate::support::wait;

/// The maximum size of a body.
const WHOLE: usize = 5 << 20;
const PIECE: usize = 16 << 10;
/// The addresses of these clients: all of 127.0.0.0/8 is local.
const CROWD: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
    Ipv4Addr::new(127, 0, 0, 5),
];

/// A body that is sent as far as it is accepted, except for its last chunk.
struct EndlessBody {
    left: usize,
}

impl Body for EndlessBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left <= PIECE {
            return Poll::Pending;
        }
        self.left -= PIECE;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; PIECE])))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// Sends such bodies over one connection, this many concurrently, and each again after it is rejected.
pub async fn send_endless_requests(
    name: &'static str,
    from: Ipv4Addr,
    port: u16,
    trusts: &CaBundle,
    streams: usize,
) -> Result<JoinSet<()>, String> {
    let stream = connect_as(name, from, port, trusts, &[b"h2"], rustls::ALL_VERSIONS).await?;
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|why| why.to_string())?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async { drop(connection.await) });
    for _ in 0..streams {
        let mut sender: http2::SendRequest<EndlessBody> = sender.clone();
        tasks.spawn(async move {
            loop {
                let request = Request::post("https://webhook/")
                    .header(CONTENT_TYPE, "application/json")
                    .body(EndlessBody { left: WHOLE })
                    .expect("valid request");
                match sender.send_request(request).await {
                    // There is not enough memory for it, or it took too long.
                    Ok(refused) => assert!(
                        [StatusCode::SERVICE_UNAVAILABLE, StatusCode::REQUEST_TIMEOUT]
                            .contains(&refused.status())
                    ),
                    Err(_) if sender.is_closed() => return,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
    }
    Ok(tasks)
}

async fn serve_with_limits(limits: WebhookLimits) -> (WebhookFixture, CaBundle) {
    let (pair, trusts) = certificate();
    (serve(&pair, limits, MinVersion::Tls12).await, trusts)
}

#[tokio::test]
async fn slow_request_bodies_stay_within_their_memory_and_do_not_block_others() {
    let limits = WebhookLimits {
        // As long as the test's timeout: bodies do not end and make room within it.
        body_timeout: 2 * LIMIT,
        body_memory: 8 << 20,
        body_memory_per_peer: 3 << 20,
        slow_body_after: Duration::from_millis(300),
        ..WebhookLimits::default()
    };
    let (served, trusts) = serve_with_limits(limits).await;
    let mut before = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    before.review("before").await.expect("response");
    let mut clients = vec![
        send_endless_requests(NAME, CROWD[0], served.port, &trusts, 63).await.expect("connects"),
    ];
    let budget = &served.budget;
    wait::until("one address has reached its share", || async {
        // Less than a frame of it is left.
        (budget.in_use() > (3 << 20) - PIECE).then_some(())
    })
    .await;
    before.review("beside-one").await.expect("response");
    let used = budget.in_use();
    assert!(used <= 4 << 20, "one address has more than its share: {used}");
    for from in &CROWD[1..] {
        clients.push(
            send_endless_requests(NAME, *from, served.port, &trusts, 63).await.expect("connects"),
        );
    }
    wait::until("all memory is taken", || async {
        (budget.in_use() > (8 << 20) - PIECE).then_some(())
    })
    .await;
    for name in ["one", "two", "three"] {
        before.review(name).await.expect("an earlier client gets a response");
        let mut newcomer = WebhookClient::http2(served.port, &trusts).await.expect("connects");
        newcomer.review(name).await.expect("a new client gets a response");
        let mut newcomer = WebhookClient::http1(served.port, &trusts).await.expect("connects");
        newcomer.review(name).await.expect("a new client gets a response");
    }
    assert!(served.counts.of("no_memory") > 0, "no connection was closed");
    drop(clients);
    wait::until("all memory is released", || async { (budget.in_use() == 0).then_some(()) }).await;
    served.stop().await;
}

#[tokio::test]
async fn one_address_has_a_limited_share_of_the_connections() {
    let limits =
        WebhookLimits { connections: 8, connections_per_peer: 3, ..WebhookLimits::default() };
    let (served, trusts) = serve_with_limits(limits).await;
    let mut other = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    other.review("before").await.expect("response");
    let mut clients = Vec::new();
    for from in CROWD.iter().cycle().take(40) {
        let stream = connect_from(*from, served.port, &trusts, &[], rustls::ALL_VERSIONS).await;
        let mut stream = stream.expect("accepted in place of an idle connection");
        // The request has started, so the connection is not idle, and it never ends.
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.expect("sent");
        clients.push(stream);
        other.review("beside").await.expect("connection of the other client stays open");
    }
    let mut newcomer = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    newcomer.review("after").await.expect("response");
    assert_eq!(served.counts.of("crowded"), 0);
    drop(clients);
    served.stop().await;
}
