//! The load generator: each connection is a thread that sends the next request after the response, or at a fixed
//! rate.

use std::{
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::try_join_all;
use http::{Request, StatusCode, Uri, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{net::TcpStream, runtime::Builder};
use tokio_rustls::TlsConnector;

use super::{http1_connection::Http1Connection, review_request::ReviewRequest};

/// The host name of both certificates.
const NAME: &str = "localhost";
const H2: &[u8] = b"h2";
/// The URL that API servers use.
const PATH: &str = "https://localhost/?timeout=30s";

/// Number of connections and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadPattern {
    /// HTTP/1.1 on one keep-alive connection.
    One,
    /// HTTP/1.1 on eight connections.
    Eight,
    /// HTTP/1.1 on eight connections at a fixed rate, the same for both implementations.
    Paced,
    /// HTTP/2: eight concurrent requests on one connection.
    Streams,
}

/// Address and CA of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookAddress {
    port: u16,
    tls: Arc<ClientConfig>,
}

/// The result of a run.
#[derive(Debug)]
pub struct LoadResult {
    /// Latency of each response, in nanoseconds.
    pub latencies: Vec<u32>,
    /// Duration of the run.
    pub took: Duration,
}

/// An HTTP/2 stream.
#[derive(Clone)]
struct Stream(http2::SendRequest<Full<Bytes>>);

// === impl LoadPattern ===

impl LoadPattern {
    /// All load patterns.
    pub const ALL: [Self; 4] = [Self::One, Self::Eight, Self::Paced, Self::Streams];

    /// Display name.
    pub const fn words(self) -> &'static str {
        match self {
            Self::One => "1 connection",
            Self::Eight => "8 connections, without a pause",
            Self::Paced => "8 connections, at one pace",
            Self::Streams => "HTTP/2, 8 at once",
        }
    }
}

// === impl WebhookAddress ===

impl WebhookAddress {
    /// A webhook on this machine with this CA certificate.
    pub fn new(port: u16, certificate: &str) -> Self {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
        roots.add(certificate.expect("a certificate")).expect("a certificate");
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { port, tls: Arc::new(tls) }
    }

    fn wire(&self) -> Result<Http1Connection, String> {
        let wire = Http1Connection::connect(self.port, NAME, ClientConfig::clone(&self.tls));
        wire.map_err(|why| why.to_string())
    }

    async fn stream(&self) -> Result<Stream, String> {
        let mut tls = ClientConfig::clone(&self.tls);
        tls.alpn_protocols = vec![H2.to_vec()];
        let text = |why: &dyn std::fmt::Display| why.to_string();
        let stream =
            TcpStream::connect(("127.0.0.1", self.port)).await.map_err(|why| text(&why))?;
        stream.set_nodelay(true).map_err(|why| text(&why))?;
        let name = ServerName::try_from(NAME).expect("a name");
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
        let stream = stream.map_err(|why| text(&why))?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(H2), "it speaks HTTP/2");
        let made = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let made = made.await.map_err(|why| text(&why))?;
        tokio::spawn(made.1);
        Ok(Stream(made.0))
    }
}

// === impl Stream ===

impl Stream {
    async fn ask(&mut self, question: &ReviewRequest) -> Result<Bytes, hyper::Error> {
        let request = Request::post(Uri::from_static(PATH))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(question.body.clone()))
            .expect("a request");
        let response = self.0.send_request(request).await?;
        assert_eq!(response.status(), StatusCode::OK);
        Ok(response.into_body().collect().await?.to_bytes())
    }
}

/// Serializes a request.
fn written(question: &ReviewRequest) -> Vec<u8> {
    let length = question.body.len();
    let head = format!(
        "POST /?timeout=30s HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), &question.body].concat()
}

/// Sends each request once and returns the responses.
pub async fn each(
    address: &WebhookAddress,
    questions: &[ReviewRequest],
) -> Result<Vec<Bytes>, String> {
    let (address, questions) = (address.clone(), questions.to_vec());
    let task = tokio::task::spawn_blocking(move || {
        let mut wire = address.wire()?;
        let answers = questions.iter().map(|question| wire.ask(&written(question)));
        answers.map(|answer| answer.map(Bytes::from).map_err(|why| why.to_string())).collect()
    });
    task.await.map_err(|why| why.to_string())?
}

/// Sends requests for some time; with a rate, this many per second over all connections. Panics if a response has no
/// patch, because counting errors as responses would distort the result.
pub async fn run(
    address: &WebhookAddress,
    pattern: LoadPattern,
    time: Duration,
    questions: &Arc<[ReviewRequest]>,
    rate: f64,
) -> LoadResult {
    let threads = if matches!(pattern, LoadPattern::Eight | LoadPattern::Paced) { 8 } else { 1 };
    let pause = Duration::from_secs_f64(threads as f64 / rate);
    let pace = (pattern == LoadPattern::Paced).then_some(pause);
    let connected = Arc::new(Barrier::new(threads));
    let tasks: Vec<_> = (0..threads)
        .map(|thread| {
            let (address, connected) = (address.clone(), Arc::clone(&connected));
            let questions = Arc::clone(questions);
            tokio::task::spawn_blocking(move || {
                let first = thread * questions.len() / threads;
                if pattern == LoadPattern::Streams {
                    let runtime = Builder::new_current_thread().enable_all().build();
                    return runtime.expect("a runtime").block_on(async {
                        let stream = address.stream().await.expect("it listens");
                        on_streams(&stream, time, &questions).await
                    });
                }
                let written: Vec<Vec<u8>> = questions.iter().map(written).collect();
                let wire = address.wire();
                // Also on an error: the other threads would wait for this one forever.
                connected.wait();
                let requests = questions.iter().zip(&written).cycle().skip(first);
                on_wire(wire.expect("it listens"), time, requests, pace)
            })
        })
        .collect();
    let all = try_join_all(tasks).await.expect("every answer is a patch");
    LoadResult {
        took: all.iter().map(|result| result.took).max().unwrap_or_default(),
        latencies: all.into_iter().flat_map(|result| result.latencies).collect(),
    }
}

/// Sends one request at a time on a connection.
fn on_wire<'a>(
    mut wire: Http1Connection,
    time: Duration,
    mut questions: impl Iterator<Item = (&'a ReviewRequest, &'a Vec<u8>)>,
    pace: Option<Duration>,
) -> LoadResult {
    let begun = Instant::now();
    let mut latencies = Vec::with_capacity(1 << 15);
    let mut due = begun;
    while begun.elapsed() < time {
        let (question, written) = questions.next().expect("there are some");
        let mut sent = Instant::now();
        if let Some(pause) = pace {
            due += pause;
            match due.checked_duration_since(sent) {
                Some(early) => {
                    std::thread::sleep(early);
                    sent = Instant::now();
                }
                // A late response delays the next request: its latency counts from when it was due.
                None => sent = due,
            }
        }
        let answer = wire.ask(written).expect("an answer");
        latencies.push(nanos(sent));
        assert!(question.is_answered_by(&answer), "{}", String::from_utf8_lossy(&answer));
    }
    LoadResult { latencies, took: begun.elapsed() }
}

/// Keeps eight requests in flight on one connection.
async fn on_streams(stream: &Stream, time: Duration, questions: &[ReviewRequest]) -> LoadResult {
    let (begun, count) = (Instant::now(), 8);
    let lanes = (0..count).map(|lane| async move {
        let mut stream = stream.clone();
        let mut latencies = Vec::with_capacity(1 << 15);
        let mut questions = questions.iter().cycle().skip(lane * questions.len() / count);
        while begun.elapsed() < time {
            let question = questions.next().expect("there are some");
            let sent = Instant::now();
            let answer = stream.ask(question).await.expect("an answer");
            latencies.push(nanos(sent));
            assert!(question.is_answered_by(&answer), "{}", String::from_utf8_lossy(&answer));
        }
        latencies
    });
    let latencies = futures::future::join_all(lanes).await.concat();
    LoadResult { latencies, took: begun.elapsed() }
}

fn nanos(since: Instant) -> u32 {
    since.elapsed().as_nanos().try_into().unwrap_or(u32::MAX)
}
