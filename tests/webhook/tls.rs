//! Certificates and protocols of the webhook, over real sockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use plimsoll::cluster::server::webhook::{
    MinVersion, SelfCheckError, WebhookLimits, check_webhook,
};
use rustls::version::{TLS12, TLS13};

use super::{
    fixture::{certificate, serve},
    webhook_client::{LIMIT, NAME, WebhookClient, connect},
};
use crate::support::wait;

#[tokio::test]
async fn new_connections_get_a_new_certificate_and_old_ones_stay_open() {
    let ((first_pair, trusts_one), (second_pair, trusts_two)) = (certificate(), certificate());
    let served = serve(&first_pair, WebhookLimits::default(), MinVersion::Tls12).await;
    let mut old = WebhookClient::http2(served.port, &trusts_one).await.expect("trusted");
    old.review("before").await.expect("response");
    assert!(WebhookClient::http2(served.port, &trusts_two).await.is_err(), "not served yet");

    served.set_certificate(&second_pair);
    WebhookClient::http2(served.port, &trusts_two)
        .await
        .expect("trusted")
        .review("b")
        .await
        .expect("b");
    let refused =
        WebhookClient::http2(served.port, &trusts_one).await.err().expect("is not served");
    assert!(refused.starts_with("tls: "), "{refused}");
    old.review("after").await.expect("connected");
    wait::until("the refusals are counted", || async {
        (served.counts.of("handshake") == 2).then_some(())
    })
    .await;
    served.stop().await;
}

#[tokio::test]
async fn http_1_and_http_2_are_negotiated_and_serve_many_concurrent_requests() {
    let (pair, trusts) = certificate();
    let served = serve(&pair, WebhookLimits::default(), MinVersion::Tls12).await;
    let mut client = WebhookClient::http1(served.port, &trusts).await.expect("connects");
    for name in ["a", "b"] {
        let answer = client.review(name).await.expect("response");
        assert_eq!(answer["patchType"], "JSONPatch");
        assert!(answer["patch"].is_string(), "base64: {answer}");
    }
    let mut two = WebhookClient::http2(served.port, &trusts).await.expect("connects");
    // From now on the client knows the limit of concurrent streams, and queues the others.
    two.review("c").await.expect("response");
    let WebhookClient::Http2(sender) = two else { panic!("it speaks HTTP/2") };
    let reviews = (0..200).map(|number| {
        let mut caller = WebhookClient::Http2(sender.clone());
        async move { caller.review(&format!("pod-{number}")).await.map(drop) }
    });
    let answers = futures::future::join_all(reviews).await;
    assert_eq!(
        answers.into_iter().collect::<Result<Vec<_>, _>>().map(|responses| responses.len()),
        Ok(200)
    );
    assert_eq!(served.counts.of("patched"), 203);
    served.stop().await;
}

#[tokio::test]
async fn the_minimum_tls_version_is_the_configured_one() {
    let (pair, trusts) = certificate();
    for (minimum, old) in [(MinVersion::Tls12, true), (MinVersion::Tls13, false)] {
        let served = serve(&pair, WebhookLimits::default(), minimum).await;
        let speaks = connect(served.port, &trusts, &[], &[&TLS12]).await.is_ok();
        assert_eq!(speaks, old, "{minimum:?}");
        connect(served.port, &trusts, &[], &[&TLS13]).await.expect("always supported");
        served.stop().await;
    }
}

#[tokio::test]
async fn no_request_fails_while_certificates_change() {
    let ((first_pair, trusts_one), (second_pair, trusts_two)) = (certificate(), certificate());
    let trusts = trusts_one.union(&trusts_two);
    let served = serve(&first_pair, WebhookLimits::default(), MinVersion::Tls12).await;
    let (stopped, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let (stopped, answers, trusts) =
                (Arc::clone(&stopped), Arc::clone(&answers), trusts.clone());
            let port = served.port;
            tokio::spawn(async move {
                let mut persistent = WebhookClient::http2(port, &trusts).await?;
                while !stopped.load(SeqCst) {
                    // Half of them use a new connection each time, as API servers do that just started.
                    let mut fresh = None;
                    if caller % 2 == 0 {
                        fresh = Some(WebhookClient::http2(port, &trusts).await?);
                    }
                    fresh.as_mut().unwrap_or(&mut persistent).review("web").await?;
                    answers.fetch_add(1, SeqCst);
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    let mut changes = 0;
    while changes < 200 {
        for pair in [&second_pair, &first_pair] {
            served.set_certificate(pair);
            changes += 1;
            let before = answers.load(SeqCst);
            wait::until("other requests get a response", || async {
                (answers.load(SeqCst) > before
                    || callers.iter().any(tokio::task::JoinHandle::is_finished))
                .then_some(())
            })
            .await;
        }
    }
    stopped.store(true, SeqCst);
    for caller in callers {
        assert_eq!(caller.await.expect("no panic"), Ok(()), "after {changes} changes");
    }
    assert!(answers.load(SeqCst) >= 200);
    assert_eq!(served.counts.of("handshake"), 0);
    served.stop().await;
}

#[tokio::test]
async fn the_self_check_succeeds_only_for_a_client_that_trusts_the_certificate() {
    let ((pair, trusts), (_, other_trusts)) = (certificate(), certificate());
    let served = serve(&pair, WebhookLimits::default(), MinVersion::Tls12).await;
    let address = ([127, 0, 0, 1], served.port).into();
    let limit = Duration::from_secs(10);
    check_webhook(address, NAME, trusts.root_store(), limit).await.expect("response");
    let foreign = check_webhook(address, NAME, other_trusts.root_store(), limit).await;
    assert!(matches!(foreign, Err(SelfCheckError::Tls(..))), "{foreign:?}");
    let renamed = check_webhook(address, "other.svc", trusts.root_store(), limit).await;
    assert!(matches!(renamed, Err(SelfCheckError::Tls(..))), "{renamed:?}");
    assert_eq!(served.counts.of("content_type"), 0, "a self-check is not a bad request");
    served.stop().await;
    let stopped = check_webhook(address, NAME, trusts.root_store(), limit).await;
    assert!(matches!(stopped, Err(SelfCheckError::Connect(..))), "{stopped:?}");
    // A server that accepts connections and never responds.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = mute.local_addr().expect("valid address");
    let silent =
        check_webhook(address, NAME, trusts.root_store(), Duration::from_millis(100)).await;
    assert!(matches!(silent, Err(SelfCheckError::Timeout(_))), "{silent:?}");
}

#[tokio::test]
async fn responses_in_progress_are_finished_at_shutdown() {
    let (pair, trusts) = certificate();
    let served = serve(&pair, WebhookLimits::default(), MinVersion::Tls12).await;
    let (port, gate) = (served.port, Arc::clone(&served.gate));
    let mut caller = WebhookClient::http2(port, &trusts).await.expect("connects");
    caller.review("first").await.expect("response");
    let WebhookClient::Http2(sender) = &caller else { panic!("it is HTTP/2") };
    let mut slow = WebhookClient::Http2(sender.clone());
    let pending = tokio::spawn(async move { slow.review("slow").await });
    gate.entered.notified().await;
    let stopped = tokio::spawn(served.stop());
    wait::until("no other connection is accepted", || async {
        WebhookClient::http2(port, &trusts).await.is_err().then_some(())
    })
    .await;
    assert!(!pending.is_finished(), "it still waits for the response");
    gate.open.notify_one();
    assert!(pending.await.expect("no panic").is_ok(), "the request gets a response");
    tokio::time::timeout(LIMIT, stopped).await.expect("in time").expect("no panic");
}
