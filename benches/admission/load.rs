//! Whoever asks: each connection is a thread of its own that asks again as soon as it was answered, or at a pace.

use std::{
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::try_join_all;
use http::{
    Request, StatusCode, Uri,
    header::{CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{net::TcpStream, runtime::Builder};
use tokio_rustls::TlsConnector;

use super::question::Question;

/// The name that both certificates are for.
const NAME: &str = "localhost";
const H2: &[u8] = b"h2";
/// As API servers ask.
const PATH: &str = "https://localhost/?timeout=30s";

/// How many ask, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// HTTP/1.1 on one connection that is kept.
    One,
    /// The same on eight connections.
    Eight,
    /// The same on eight connections that ask at a pace, the same for whoever answers.
    Paced,
    /// HTTP/2: eight at once on one connection.
    Streams,
}

/// Where a webhook is, and whom to trust there.
#[derive(Clone, Debug)]
pub struct Address {
    port: u16,
    tls: Arc<ClientConfig>,
}

/// What was asked.
#[derive(Debug)]
pub struct Asked {
    /// How long each answer took, in nanoseconds.
    pub latencies: Vec<u32>,
    /// How long was asked.
    pub took: Duration,
}

enum Caller {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

// === impl Way ===

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::One, Self::Eight, Self::Paced, Self::Streams];

    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::One => "1 connection",
            Self::Eight => "8 connections, without a pause",
            Self::Paced => "8 connections, at one pace",
            Self::Streams => "HTTP/2, 8 at once",
        }
    }
}

// === impl Address ===

impl Address {
    /// On this machine, vouched for by a certificate.
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

    async fn connect(&self, way: Way) -> Result<Caller, String> {
        let mut tls = ClientConfig::clone(&self.tls);
        if way == Way::Streams {
            tls.alpn_protocols = vec![H2.to_vec()];
        }
        let text = |why: &dyn std::fmt::Display| why.to_string();
        let stream =
            TcpStream::connect(("127.0.0.1", self.port)).await.map_err(|why| text(&why))?;
        stream.set_nodelay(true).map_err(|why| text(&why))?;
        let name = ServerName::try_from(NAME).expect("a name");
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
        let stream = stream.map_err(|why| text(&why))?;
        let agreed = stream.get_ref().1.alpn_protocol();
        if way != Way::Streams {
            let made = http1::handshake(TokioIo::new(stream)).await.map_err(|why| text(&why))?;
            tokio::spawn(made.1);
            return Ok(Caller::One(made.0));
        }
        assert_eq!(agreed, Some(H2), "it speaks HTTP/2");
        let made = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let made = made.await.map_err(|why| text(&why))?;
        tokio::spawn(made.1);
        Ok(Caller::Two(made.0))
    }
}

// === impl Caller ===

impl Caller {
    async fn ask(&mut self, question: &Question) -> Result<Bytes, hyper::Error> {
        let mut request = Request::post(Uri::from_static(PATH))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(question.body.clone()))
            .expect("a request");
        let response = match self {
            Self::Two(sender) => sender.send_request(request).await?,
            Self::One(sender) => {
                let host = http::HeaderValue::from_static(NAME);
                request.headers_mut().insert(HOST, host);
                *request.uri_mut() = Uri::from_static("/?timeout=30s");
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        assert_eq!(response.status(), StatusCode::OK);
        Ok(response.into_body().collect().await?.to_bytes())
    }
}

/// Asks each of these once, and answers what was answered.
pub async fn each(address: &Address, questions: &[Question]) -> Result<Vec<Bytes>, String> {
    let mut caller = address.connect(Way::One).await?;
    let mut answers = Vec::new();
    for question in questions {
        answers.push(caller.ask(question).await.map_err(|why| why.to_string())?);
    }
    Ok(answers)
}

/// Asks for some time; so often a second, all connections together, where there is a pace. Panics when an answer carries no patch: who counts what went wrong as answers, lies.
pub async fn run(
    address: &Address,
    way: Way,
    time: Duration,
    questions: &Arc<[Question]>,
    rate: f64,
) -> Asked {
    let threads = if matches!(way, Way::Eight | Way::Paced) { 8 } else { 1 };
    let pause = Duration::from_secs_f64(threads as f64 / rate);
    let pace = (way == Way::Paced).then_some(pause);
    let connected = Arc::new(Barrier::new(threads));
    let tasks: Vec<_> = (0..threads)
        .map(|thread| {
            let (address, connected) = (address.clone(), Arc::clone(&connected));
            let questions = Arc::clone(questions);
            tokio::task::spawn_blocking(move || {
                let runtime = Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let first = thread * questions.len() / threads;
                    let caller = address.connect(way).await;
                    // Also when it failed: the others would wait for this one for ever.
                    connected.wait();
                    on(caller.expect("it listens"), time, &questions, first, pace).await
                })
            })
        })
        .collect();
    let all = try_join_all(tasks).await.expect("every answer is a patch");
    Asked {
        took: all.iter().map(|asked| asked.took).max().unwrap_or_default(),
        latencies: all.into_iter().flat_map(|asked| asked.latencies).collect(),
    }
}

/// Asks on one connection: one at a time, or as many as it can carry at once.
async fn on(
    caller: Caller,
    time: Duration,
    questions: &[Question],
    first: usize,
    pace: Option<Duration>,
) -> Asked {
    let mut lanes = match caller {
        Caller::One(_) => vec![caller],
        Caller::Two(sender) => (0..8).map(|_| Caller::Two(sender.clone())).collect(),
    };
    let (begun, count) = (Instant::now(), lanes.len());
    let lanes = lanes.iter_mut().enumerate().map(|(lane, caller)| async move {
        let mut latencies = Vec::with_capacity(1 << 15);
        let mut questions = questions.iter().cycle().skip(first + lane * questions.len() / count);
        let mut due = begun;
        while begun.elapsed() < time {
            let question = questions.next().expect("there are some");
            let mut asked = Instant::now();
            if let Some(pause) = pace {
                due += pause;
                match due.checked_duration_since(asked) {
                    // This thread has nothing else to do, and timers of the runtime are too coarse.
                    Some(early) => {
                        std::thread::sleep(early);
                        asked = Instant::now();
                    }
                    // Whoever is answered late waits from when it was to ask.
                    None => asked = due,
                }
            }
            let answer = caller.ask(question).await.expect("an answer");
            latencies.push(asked.elapsed().as_nanos().try_into().unwrap_or(u32::MAX));
            assert!(question.is_answered_by(&answer), "{}", String::from_utf8_lossy(&answer));
        }
        latencies
    });
    let latencies = futures::future::join_all(lanes).await.concat();
    Asked { latencies, took: begun.elapsed() }
}
