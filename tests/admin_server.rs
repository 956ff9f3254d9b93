//! The listener of a role: what it answers, and that nobody who connects can hold it up or fill its memory.

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
use plimsoll::cluster::server::{AdminLimits, AdminServer, Exposition, Probes, Stalled};
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

async fn serve(exposition: impl Exposition + 'static) -> RunningServer {
    serve_within(AdminLimits::default(), exposition).await
}

async fn serve_within(limits: AdminLimits, exposition: impl Exposition + 'static) -> RunningServer {
    let admin = AdminServer::bind("127.0.0.1:0").await.expect("a free port").with_limits(limits);
    let port = admin.address().port();
    let role = Arc::new(TestProbes::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let done = tokio::spawn(admin.serve(Arc::new(exposition), role.clone(), shutdown));
    RunningServer { port, role, stop, done }
}

fn two_chunks() -> impl Iterator<Item = Bytes> {
    [&b"a 1\n"[..], b"b 2\n"].into_iter().map(Bytes::from_static)
}

async fn ask(port: u16, method: Method, path: &str) -> (StatusCode, HeaderMap, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let request = Request::builder().method(method).uri(format!("http://127.0.0.1:{port}{path}"));
    let asked = client.request(request.body(Empty::new()).expect("a request"));
    let answer = tokio::time::timeout(wait::PATIENCE, asked).await.expect("in time");
    let (head, body) = answer.expect("an answer").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).expect("UTF-8"))
}

async fn get(port: u16, path: &str) -> (u16, String) {
    let (status, _, body) = ask(port, Method::GET, path).await;
    (status.as_u16(), body)
}

#[tokio::test]
async fn metrics_come_in_prometheus_text_format() {
    let served = serve(two_chunks).await;
    let (status, headers, body) = ask(served.port, Method::GET, "/metrics?a=b").await;
    assert_eq!((status.as_u16(), &*body), (200, "a 1\nb 2\n"));
    assert_eq!(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let (status, headers, body) = ask(served.port, Method::HEAD, "/metrics").await;
    assert_eq!((status.as_u16(), &*body), (200, ""));
    assert_eq!(headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
}

#[tokio::test]
async fn probes_say_what_is_wrong_and_upstreams_says_it_in_upstreams_words() {
    let served = serve(two_chunks).await;
    for (path, wanted) in [
        ("/livez", "ok\n"),
        ("/readyz", "ok\n"),
        ("/health-check", "OK"),
        ("/healthz", "ok\n"),
        ("/healthz/", "ok\n"),
        ("/healthz/health-probe", "ok\n"),
    ] {
        assert_eq!(get(served.port, path).await, (200, wanted.to_owned()), "{path}");
    }
    served.role.stalled.store(true, SeqCst);
    served.role.unready.store(true, SeqCst);
    let wanted =
        "the recommender's loop has made no progress for 5m1.5s: check its last log line\n";
    assert_eq!(get(served.port, "/livez").await, (500, wanted.to_owned()));
    let wanted = "Error: last activity more than 5m1.5s ago\n";
    assert_eq!(get(served.port, "/health-check").await, (500, wanted.to_owned()));
    let wanted = "pods are not synced\nhistory is loading\n";
    assert_eq!(get(served.port, "/readyz").await, (503, wanted.to_owned()));
}

#[tokio::test]
async fn nothing_else_is_answered() {
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
async fn an_address_that_is_taken_is_an_error_that_names_it() {
    let served = serve(two_chunks).await;
    let address = format!("127.0.0.1:{}", served.port);
    let error = AdminServer::bind(&address).await.expect_err("taken").to_string();
    assert!(error.contains(&address) && error.contains("--address"), "{error}");
    for nonsense in [":http", ":70000", "nowhere.invalid:80", "127.0.0.1"] {
        let error = AdminServer::bind(nonsense).await.expect_err("nonsense").to_string();
        assert!(error.contains(nonsense) && error.lines().count() == 1, "{error}");
    }
}

#[tokio::test]
async fn an_address_without_a_host_is_all_interfaces() {
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
async fn an_answer_under_way_is_finished_at_shutdown_and_idle_connections_are_closed() {
    let served = serve(two_chunks).await;
    let mut idle = TcpStream::connect(("127.0.0.1", served.port)).await.expect("connected");
    assert_eq!(get(served.port, "/livez").await.0, 200);
    served.stop.send(()).expect("it listens");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(wait::PATIENCE, idle.read_to_end(&mut rest)).await;
    closed.expect("closed in time").expect("closed in order");
    tokio::time::timeout(wait::PATIENCE, served.done).await.expect("in time").expect("no panic");
    assert!(TcpStream::connect(("127.0.0.1", served.port)).await.is_err(), "nobody listens");
}

#[tokio::test]
async fn half_a_request_is_not_waited_for_once_its_sender_has_hung_up() {
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

/// Waits until the server has closed a connection, and answers what it had said.
async fn closed(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    let end = tokio::time::timeout(wait::PATIENCE, stream.read_to_end(&mut said)).await;
    // One that is dropped with an answer in it ends with an error, which is an end as well.
    let _ = end.expect("it is closed in time");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn who_does_not_finish_a_request_or_asks_no_more_is_hung_up_on() {
    let served =
        serve_within(AdminLimits { request_timeout: SHORT_TIMEOUT, ..NO_TIMEOUT }, two_chunks)
            .await;
    for sent in ["", "GET /met", "GET /livez HTTP/1.1\r\nHost: a\r\nX-Slow: "] {
        assert_eq!(closed(connect(served.port, sent.as_bytes()).await).await, "", "{sent:?}");
    }
    // A request in time gets an answer; on a machine that stands still, a later one does.
    wait::until("an answer, and then the end", || async {
        let whole = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
        let said = closed(connect(served.port, whole).await).await;
        said.starts_with("HTTP/1.1 200 OK").then_some(())
    })
    .await;
}

#[tokio::test]
async fn who_asks_and_asks_is_hung_up_on_after_an_answer() {
    const ASK: &[u8] = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
    let served =
        serve_within(AdminLimits { max_connection_age: SHORT_TIMEOUT, ..NO_TIMEOUT }, two_chunks)
            .await;
    wait::until("more than one answer, and then the end", || async {
        let mut stream = connect(served.port, ASK).await;
        let mut said = String::new();
        let talk = async {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                said.push_str(&String::from_utf8_lossy(&buffer[..count]));
                // What is asked too late is not sent, or not answered.
                if said.ends_with("ok\n") && stream.write_all(ASK).await.is_err() {
                    break;
                }
            }
        };
        talk.await;
        let asked = said.matches("HTTP/1.1 200 OK").count();
        assert_eq!(asked, said.matches("ok\n").count(), "every answer is whole");
        (asked > 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn who_does_not_read_an_answer_is_hung_up_on() {
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
fn endless(counts: &Arc<ScrapeCounts>) -> impl Exposition + 'static {
    let counts = counts.clone();
    move || {
        counts.begun.fetch_add(1, SeqCst);
        counts.held.fetch_add(1, SeqCst);
        let held = HeldScrape(counts.clone());
        iter::repeat_with(move || {
            held.0.chunks.fetch_add(1, SeqCst);
            Bytes::from(vec![b'#'; 32 << 10])
        })
    }
}

#[test]
fn readers_that_do_not_read_take_little_memory_and_keep_no_probe_out() {
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
            wait::until("hung-up readers are forgotten", || {
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
