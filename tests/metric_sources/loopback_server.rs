//! Loopback servers that answer as a test specifies, with or without TLS, and record the requests that they receive.

use std::{
    convert::Infallible,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
}

impl ReceivedRequest {
    /// Returns the value of a header, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A response of the server.
#[derive(Clone, Debug)]
pub struct TestResponse {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// Delay before the response is sent.
    pub after: Duration,
}

impl TestResponse {
    pub fn json(body: impl ToString) -> Self {
        Self::new(200, body)
    }

    #[expect(clippy::needless_pass_by_value, reason = "texts and JSON are written where they go")]
    pub fn new(status: u16, body: impl ToString) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: body.to_string(), after: Duration::ZERO }
    }

    pub fn redirect(status: u16, to: &str) -> Self {
        let headers = vec![("location", to.to_owned())];
        Self { status, headers, body: "elsewhere".to_owned(), after: Duration::ZERO }
    }

    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

type ResponseHandler = Arc<dyn Fn(&ReceivedRequest) -> TestResponse + Send + Sync>;

/// A running server. Stops when dropped.
pub struct LoopbackServer {
    pub port: u16,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl LoopbackServer {
    /// Starts a server without TLS.
    pub async fn start_plain(
        answers: impl Fn(&ReceivedRequest) -> TestResponse + Send + Sync + 'static,
    ) -> Self {
        Self::serve(None, Arc::new(answers)).await
    }

    /// Starts a server with TLS.
    pub async fn start_tls(
        config: ServerConfig,
        answers: impl Fn(&ReceivedRequest) -> TestResponse + Send + Sync + 'static,
    ) -> Self {
        Self::serve(Some(TlsAcceptor::from(Arc::new(config))), Arc::new(answers)).await
    }

    async fn serve(tls: Option<TlsAcceptor>, answers: ResponseHandler) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("valid address").port();
        let received = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let recorded = Arc::clone(&received);
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (tls, recorded, answers) =
                    (tls.clone(), Arc::clone(&recorded), Arc::clone(&answers));
                tokio::spawn(async move {
                    match tls {
                        None => speak(stream, recorded, answers).await,
                        // A failed handshake is the client's problem, so ignore it.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                speak(stream, recorded, answers).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, received, task }
    }

    /// Returns the URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the requests received so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.received.lock().expect("no panic").clone()
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    recorded: Arc<Mutex<Vec<ReceivedRequest>>>,
    answers: ResponseHandler,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (recorded, answers) = (Arc::clone(&recorded), Arc::clone(&answers));
        async move {
            let (parts, body) = request.into_parts();
            let body =
                body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let received = ReceivedRequest {
                method: parts.method.to_string(),
                path: parts.uri.path_and_query().map_or("", |path| path.as_str()).to_owned(),
                headers: parts.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            };
            let reply = answers(&received);
            recorded.lock().expect("no panic").push(received);
            tokio::time::sleep(reply.after).await;
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            let body = Full::new(Bytes::from(reply.body));
            Ok::<_, Infallible>(response.body(body).expect("valid response"))
        }
    });
    // Ignore clients that disconnect.
    let _ =
        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}
