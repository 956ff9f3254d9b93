//! The HTTPS server: TLS on loopback, one task per connection, with the faults that the test sets.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::exposition;
use super::responses;
use super::state::{ApiRead, ApiResponse, Fault, MetricsApi, Responder, State};
use crate::support::certificates::CertificateAuthority;
use crate::support::clock::wall_now;

type Body = BoxBody<Bytes, std::io::Error>;

/// Opens the port.
pub async fn listen(port: u16) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("the port is claimed")
}

/// Serves until it is aborted; its connections end with it.
pub async fn serve(listener: TcpListener, state: Arc<State>) {
    let acceptor = TlsAcceptor::from(Arc::new(tls()));
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request| respond(Arc::clone(&state), request));
            // Ignore clients that disconnect.
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn tls() -> ServerConfig {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let identity = CertificateAuthority::new("plimsoll-usage").sign("usage");
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
        .expect("the key is the certificate's");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

async fn respond(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    match path {
        "/metrics/cadvisor" => return Ok(text(exposition::cadvisor(&state, false))),
        "/metrics/cadvisor/stamped" => return Ok(text(exposition::cadvisor(&state, true))),
        "/metrics/kube-state" => return Ok(text(exposition::kube_state(&state))),
        _ => {}
    }
    let agent = request.headers().get(http::header::USER_AGENT);
    let agent = agent.and_then(|agent| agent.to_str().ok()).unwrap_or("unknown").to_owned();
    let responder = state.lock().responder.clone();
    let responds = |responder: &Responder| responder(ApiRead { agent: &agent, path, query });
    match responder.as_deref().and_then(responds) {
        Some(ApiResponse::Json(body)) => return Ok(json_text(body)),
        Some(ApiResponse::Hang) => std::future::pending::<()>().await,
        None => {}
    }
    let namespace = responses::namespace(path);
    let namespace = namespace.as_deref();
    let fault = responses::api(path)
        .filter(|_| !responses::is_discovery(path))
        .and_then(|api| state.lock().scope(namespace).faults.get(&api).copied().flatten());
    if responses::api(path) == Some(MetricsApi::External)
        && !responses::is_discovery(path)
        && let Some(noted) = &mut state.lock().scope(namespace).noted
    {
        noted.push((format!("{path}?{query}"), wall_now()));
    }
    let is_usage = responses::is_usage_of_pods(path);
    let turn = {
        let mut known = state.lock();
        let known = known.scope(namespace);
        let written = known.rendered.as_ref().filter(|_| is_usage && fault.is_none());
        if let Some(body) = written.and_then(|rendered| rendered.answer(path)) {
            let turn = known.turn;
            known.count(agent, turn);
            return Ok(json_text(body));
        }
        known.turn
    };
    let mut metrics = responses::answer(&state, path, query);
    if is_usage {
        state.lock().scope(namespace).count(agent, turn);
    }
    match fault {
        Some(Fault::Status(code)) => return Ok(failure(code, "injected fault")),
        Some(Fault::Hang) => std::future::pending::<()>().await,
        Some(Fault::Malformed) => {
            return Ok(json_text(Bytes::from_static(b"{\"kind\": \"PodMetr")));
        }
        Some(Fault::Truncated) => {
            let body = metrics.map(|value| value.to_string()).unwrap_or_default();
            return Ok(truncated(body.as_bytes()));
        }
        Some(Fault::Partial) => metrics.iter_mut().for_each(drop_some_items),
        Some(Fault::NotANumber) => metrics.iter_mut().for_each(|value| amounts(value, "NaN")),
        Some(Fault::Negative) => metrics.iter_mut().for_each(|value| amounts(value, "-1")),
        None => {}
    }
    Ok(match metrics {
        Some(value) => json_text(value.to_string().into()),
        None => failure(404, "the metric is not known"),
    })
}

/// Drops every other item.
fn drop_some_items(value: &mut Value) {
    if let Some(items) = value["items"].as_array_mut() {
        let mut index = 0;
        items.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}

/// Replaces every amount.
fn amounts(value: &mut Value, text: &str) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| amounts(value, text)),
        Value::Object(fields) => {
            for (name, field) in fields {
                if matches!(name.as_str(), "cpu" | "memory" | "value") && field.is_string() {
                    *field = text.into();
                } else {
                    amounts(field, text);
                }
            }
        }
        _ => {}
    }
}

fn full(content: Bytes) -> Body {
    http_body_util::Full::new(content).map_err(|never| match never {}).boxed()
}

fn text(content: String) -> Response<Body> {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let response = Response::builder().header(http::header::CONTENT_TYPE, kind);
    response.body(full(content.into())).expect("a response")
}

fn json_text(content: Bytes) -> Response<Body> {
    let response = Response::builder().header(http::header::CONTENT_TYPE, "application/json");
    response.body(full(content)).expect("a response")
}

fn failure(code: u16, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
    });
    let mut response = json_text(status.to_string().into());
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    response
}

/// Announces the full length and sends half.
fn truncated(content: &[u8]) -> Response<Body> {
    let half = Bytes::from(content[..content.len() / 2].to_vec());
    let pieces = [Ok(Frame::data(half)), Err(std::io::Error::other("cut"))];
    let body = StreamBody::new(futures::stream::iter(pieces)).boxed();
    let response = Response::builder().header(http::header::CONTENT_TYPE, "application/json");
    response.header(http::header::CONTENT_LENGTH, content.len()).body(body).expect("a response")
}
