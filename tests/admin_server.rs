//! The admin server of a role: its responses, and that no client can block it or fill its memory.

use std::{
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use plimsoll::cluster::server::{AdminLimits, AdminServer, Probes, ScrapePages, Stalled};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

use crate::support::wait;

#[derive(Default)]
struct TestProbes {
    stalled: AtomicBool,
    unready: AtomicBool,
}

impl Probes for TestProbes {
    fn check_liveness(&self) -> Result<(), Stalled> {
        if !self.stalled.load(SeqCst) {
            return Ok(());
        }
        let last_activity = Duration::from_millis(301_500);
        Err(Stalled { what: "the recommender's loop".to_owned(), last_activity })
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        if !self.unready.load(SeqCst) {
            return Ok(());
        }
        Err(vec!["pods are not synced".to_owned(), "history is loading".to_owned()])
    }
}

struct RunningServer {
    port: u16,
    role: Arc<TestProbes>,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

async fn serve(exposition: impl Fn() -> ScrapePages + Send + Sync + 'static) -> RunningServer {
    serve_within(AdminLimits::default(), exposition).await
}

async fn serve_within(
    limits: AdminLimits,
    exposition: impl Fn() -> ScrapePages + Send + Sync + 'static,
) -> RunningServer {
    let admin = AdminServer::bind("127.0.0.1:0").await.expect("a free port").with_limits(limits);
    let port = admin.address().port();
    let role = Arc::new(TestProbes::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let done = tokio::spawn(admin.serve(Arc::new(exposition), role.clone(), shutdown));
    RunningServer { port, role, stop, done }
}

fn two_chunks() -> ScrapePages {
    Box::new([&b"a 1\n"[..], b"b 2\n"].into_iter().map(Bytes::from_static))
}

async fn ask(port: u16, method: Method, path: &str) -> (StatusCode, HeaderMap, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let request = Request::builder().method(method).uri(format!("http://127.0.0.1:{port}{path}"));
    let response = client.request(request.body(Empty::new()).expect("a request"));
    let answer = tokio::time::timeout(wait::PATIENCE, response).await.expect("in time");
    let (head, body) = answer.expect("an answer").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).expect("UTF-8"))
}

async fn get(port: u16, path: &str) -> (u16, String) {
    let (status, _, body) = ask(port, Method::GET, path).await;
    (status.as_u16(), body)
}

#[tokio::test]
async fn metrics_are_served_in_the_prometheus_text_format() {
    let served = serve(two_chunks).await;
    let (status, headers, body) = ask(served.port, Method::GET, "/metrics?a=b").await;
    assert_eq!((status.as_u16(), &*body), (200, "a 1\nb 2\n"));
    assert_eq!(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let (status, headers, body) = ask(served.port, Method::HEAD, "/metrics").await;
    assert_eq!((status.as_u16(), &*body), (200, ""));
    assert_eq!(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
}

#[tokio::test]
async fn failing_probes_report_the_reason_and_health_check_uses_upstreams_wording() {
    let served = serve(two_chunks).await;
    for (path, expected) in [
        ("/livez", "ok\n"),
        ("/readyz", "ok\n"),
        ("/health-check", "OK"),
        ("/healthz", "ok\n"),
        ("/healthz/", "ok\n"),
        ("/healthz/health-probe", "ok\n"),
    ] {
        assert_eq!(get(served.port, path).await, (200, expected.to_owned()), "{path}");
    }
    served.role.stalled.store(true, SeqCst);
    served.role.unready.store(true, SeqCst);
    let expected =
        "the recommender's loop has made no progress for 5m1.5s: check its last log line\n";
    assert_eq!(get(served.port, "/livez").await, (500, expected.to_owned()));
    let expected = "Error: last activity more than 5m1.5s ago\n";
    assert_eq!(get(served.port, "/health-check").await, (500, expected.to_owned()));
    let expected = "pods are not synced\nhistory is loading\n";
    assert_eq!(get(served.port, "/readyz").await, (503, expected.to_owned()));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_rejected() {
    let served = serve(two_chunks).await;
    for path in ["/", "/metrics/", "/debug/pprof/", "/debug/pprof/heap"] {
        let (status, body) = get(served.port, path).await;
        assert_eq!((status, body.lines().count()), (404, 1), "{path}: {body}");
    }
    for path in ["/metrics", "/livez", "/nothing"] {
        let (status, headers, _) = ask(served.port, Method::POST, path).await;
        assert_eq!(status.as_u16(), 405, "{path}");
        assert_eq!(headers["allow"], "GET, HEAD", "{path}");
    }
}

#[tokio::test]
async fn an_address_that_is_in_use_or_invalid_is_named_in_the_error() {
    let served = serve(two_chunks).await;
    let address = format!("127.0.0.1:{}", served.port);
    let error = AdminServer::bind(&address).await.expect_err("taken").to_string();
    assert!(error.contains(&address) && error.contains("--address"), "{error}");
    for invalid in [":http", ":70000", "nowhere.invalid:80", "127.0.0.1"] {
        let error = AdminServer::bind(invalid).await.expect_err("an invalid address").to_string();
        assert!(error.contains(invalid) && error.lines().count() == 1, "{error}");
    }
}

#[tokio::test]
async fn an_address_without_a_host_listens_on_all_interfaces() {
    let admin = AdminServer::bind(":0").await.expect("a free port");
    let port = admin.address().port();
    let role = Arc::new(TestProbes::default());
    let served = tokio::spawn(admin.serve(Arc::new(two_chunks), role, std::future::pending()));
    assert_eq!(get(port, "/livez").await.0, 200);
    // Not every machine that runs tests has IPv6.
    if let Ok(mut stream) = TcpStream::connect(("::1", port)).await {
        stream.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    }
    served.abort();
}

#[tokio::test]
async fn shutdown_finishes_responses_in_progress_and_closes_idle_connections() {
    let served = serve(two_chunks).await;
    let mut idle = TcpStream::connect(("127.0.0.1", served.port)).await.expect("connected");
    assert_eq!(get(served.port, "/livez").await.0, 200);
    served.stop.send(()).expect("it listens");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(wait::PATIENCE, idle.read_to_end(&mut rest)).await;
    closed.expect("closed in time").expect("closed in order");
    tokio::time::timeout(wait::PATIENCE, served.done).await.expect("in time").expect("no panic");
    assert!(TcpStream::connect(("127.0.0.1", served.port)).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn an_incomplete_request_is_dropped_when_its_client_disconnects() {
    let served = serve(two_chunks).await;
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).await.expect("connected");
    stream.write_all(b"GET /met").await.expect("sent");
    stream.shutdown().await.expect("closed on our side");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(wait::PATIENCE, stream.read_to_end(&mut rest)).await;
    closed.expect("closed in time").expect("closed in order");
}

/// Limits that are reached while a test waits, one of them at a time.
const NO_TIMEOUT: AdminLimits = AdminLimits {
    request_timeout: Duration::from_hours(1),
    max_connection_age: Duration::from_hours(1),
    drain_timeout: Duration::from_hours(1),
};
const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

async fn connect(port: u16, text: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    stream.write_all(text).await.expect("sent");
    stream
}

/// Waits until the server has closed a connection, and returns what it had sent.
async fn closed(mut stream: TcpStream) -> String {
    let mut received = Vec::new();
    let end = tokio::time::timeout(wait::PATIENCE, stream.read_to_end(&mut received)).await;
    // One that is dropped with an answer in it ends with an error, which is an end as well.
    let _ = end.expect("it is closed in time");
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn incomplete_requests_and_idle_connections_are_closed() {
    let served =
        serve_within(AdminLimits { request_timeout: SHORT_TIMEOUT, ..NO_TIMEOUT }, two_chunks)
            .await;
    for sent in ["", "GET /met", "GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: "] {
        assert_eq!(closed(connect(served.port, sent.as_bytes()).await).await, "", "{sent:?}");
    }
    // A request in time gets a response; if the machine stalls, a later one does.
    wait::until("a response, and then the end", || async {
        let whole = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
        let received = closed(connect(served.port, whole).await).await;
        received.starts_with("HTTP/1.1 200 OK").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_busy_connection_is_closed_after_a_response_when_it_is_too_old() {
    const ASK: &[u8] = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
    let served =
        serve_within(AdminLimits { max_connection_age: SHORT_TIMEOUT, ..NO_TIMEOUT }, two_chunks)
            .await;
    wait::until("more than one response, and then the end", || async {
        let mut stream = connect(served.port, ASK).await;
        let mut received = String::new();
        let exchange = async {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                received.push_str(&String::from_utf8_lossy(&buffer[..count]));
                // A request that is too late is not sent, or gets no response.
                if received.ends_with("ok\n") && stream.write_all(ASK).await.is_err() {
                    break;
                }
            }
        };
        exchange.await;
        let responses = received.matches("HTTP/1.1 200 OK").count();
        assert_eq!(responses, received.matches("ok\n").count(), "every response is complete");
        (responses > 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_connection_whose_client_does_not_read_is_closed() {
    let counts = Arc::new(ScrapeCounts::default());
    let limits = AdminLimits {
        max_connection_age: SHORT_TIMEOUT,
        drain_timeout: SHORT_TIMEOUT,
        ..NO_TIMEOUT
    };
    let served = serve_within(limits, endless(&counts)).await;
    let _unread = connect(served.port, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
    wait::until("the scrape is given up", || {
        let (begun, held) = (counts.begun.load(SeqCst), counts.held.load(SeqCst));
        std::future::ready((begun == 1 && held == 0).then_some(()))
    })
    .await;
}

/// How many scrapes have begun and are still held, and how many chunks were made.
#[derive(Default)]
struct ScrapeCounts {
    begun: AtomicUsize,
    held: AtomicUsize,
    chunks: AtomicUsize,
}

struct HeldScrape(Arc<ScrapeCounts>);

impl Drop for HeldScrape {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, SeqCst);
    }
}

/// A scrape that has no end.
fn endless(counts: &Arc<ScrapeCounts>) -> impl Fn() -> ScrapePages + Send + Sync + 'static {
    let counts = counts.clone();
    move || {
        counts.begun.fetch_add(1, SeqCst);
        counts.held.fetch_add(1, SeqCst);
        let held = HeldScrape(counts.clone());
        Box::new(iter::repeat_with(move || {
            held.0.chunks.fetch_add(1, SeqCst);
            Bytes::from(vec![b'#'; 32 << 10])
        }))
    }
}

#[test]
fn clients_that_do_not_read_use_little_memory_and_do_not_block_probes() {
    const READERS: usize = 100;
    // One thread for both sides, so that every allocation is seen.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let counts = Arc::new(ScrapeCounts::default());
    let used = allocation_counter::measure(|| {
        runtime.block_on(async {
            let served = serve(endless(&counts)).await;
            let mut readers = Vec::new();
            for number in 1..=READERS {
                let mut reader =
                    TcpStream::connect(("127.0.0.1", served.port)).await.expect("connected");
                reader.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
                readers.push(reader);
                wait::until("the scrape begins", || {
                    std::future::ready((counts.begun.load(SeqCst) == number).then_some(()))
                })
                .await;
            }
            assert_eq!(get(served.port, "/livez").await.0, 200);
            let held = counts.held.load(SeqCst);
            assert!((1..=64).contains(&held), "{held} scrapes are held");
            drop(readers);
            wait::until("dropped connections are released", || {
                std::future::ready((counts.held.load(SeqCst) == 0).then_some(()))
            })
            .await;
            served.stop.send(()).expect("it listens");
            served.done.await.expect("no panic");
        });
    });
    assert!(counts.chunks.load(SeqCst) >= READERS, "nothing was sent");
    let most = 64 * (256 << 10);
    assert!(used.bytes_max < most, "{} bytes at once", used.bytes_max);
}
