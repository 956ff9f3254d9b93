//! Connections to a webhook: TLS with a server name and a CA bundle, and reviews over HTTP/2 or HTTP/1.1.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::cluster::server::certificate::CaBundle;
use rustls::{ClientConfig, SupportedProtocolVersion, crypto::ring, pki_types::ServerName};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The server name of the webhooks in these tests.
pub const NAME: &str = "vpa-webhook.kube-system.svc";
/// Upper limit of a request.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Opens a TLS connection to a local port with this CA bundle.
pub async fn connect(
    port: u16,
    trusts: &CaBundle,
    protocols: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<TlsStream<TcpStream>, String> {
    connect_from(Ipv4Addr::LOCALHOST, port, trusts, protocols, versions).await
}

/// Like [`connect`], from another local address.
pub async fn connect_from(
    from: Ipv4Addr,
    port: u16,
    trusts: &CaBundle,
    protocols: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<TlsStream<TcpStream>, String> {
    connect_as(NAME, from, port, trusts, protocols, versions).await
}

/// Like [`connect`], with another server name.
pub async fn connect_as(
    name: &'static str,
    from: Ipv4Addr,
    port: u16,
    trusts: &CaBundle,
    protocols: &[&[u8]],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<TlsStream<TcpStream>, String> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(trusts.root_store())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let stream = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect((Ipv4Addr::LOCALHOST, port).into()).await
    };
    let stream = stream.await.map_err(|why: std::io::Error| format!("tcp: {why}"))?;
    let name = ServerName::try_from(name).expect("has a name");
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let result = tokio::time::timeout(LIMIT, handshake).await.map_err(|_| "late".to_owned())?;
    result.map_err(|why| format!("tls: {why}"))
}

/// A client of a webhook.
pub enum WebhookClient {
    /// Over HTTP/2.
    Http2(http2::SendRequest<Full<Bytes>>),
    /// Over HTTP/1.1.
    Http1(http1::SendRequest<Full<Bytes>>),
}

impl WebhookClient {
    /// Connects with HTTP/2.
    pub async fn http2(port: u16, trusts: &CaBundle) -> Result<Self, String> {
        let stream = connect(port, trusts, &[b"h2"], rustls::ALL_VERSIONS).await?;
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed.as_deref(), Some(&b"h2"[..]));
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|why| why.to_string())?;
        tokio::spawn(connection);
        Ok(Self::Http2(sender))
    }

    /// Connects with HTTP/1.1.
    pub async fn http1(port: u16, trusts: &CaBundle) -> Result<Self, String> {
        Self::http1_as(NAME, port, trusts).await
    }

    /// Like [`Self::http1`], with another server name.
    pub async fn http1_as(
        name: &'static str,
        port: u16,
        trusts: &CaBundle,
    ) -> Result<Self, String> {
        let from = Ipv4Addr::LOCALHOST;
        let stream = connect_as(name, from, port, trusts, &[], rustls::ALL_VERSIONS).await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
        tokio::spawn(connection);
        Ok(Self::Http1(sender))
    }

    /// Sends a request, and returns the response.
    pub async fn post(&mut self, body: Vec<u8>) -> Result<(StatusCode, Value), String> {
        let mut request = Request::post("https://webhook/?timeout=10s")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("valid request");
        let exchange = async {
            let response = match self {
                Self::Http2(sender) => sender.send_request(request).await,
                Self::Http1(sender) => {
                    // HTTP/1.1 requires it, and nothing adds it on a plain connection.
                    request.headers_mut().insert(HOST, HeaderValue::from_static("webhook"));
                    sender.ready().await.map_err(|why| why.to_string())?;
                    sender.send_request(request).await
                }
            };
            let (head, body) = response.map_err(|why| why.to_string())?.into_parts();
            let body = body.collect().await.map_err(|why| why.to_string())?.to_bytes();
            Ok((head.status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
        };
        tokio::time::timeout(LIMIT, exchange).await.map_err(|_| "late".to_owned())?
    }

    /// Sends a review of a pod of that name, and returns the response.
    pub async fn review(&mut self, name: &str) -> Result<Value, String> {
        let (status, answer) = self.post(pod(name)).await?;
        let response = &answer["response"];
        if status != StatusCode::OK || response["uid"] != name || response["allowed"] != true {
            return Err(format!("{status}: {answer}"));
        }
        Ok(response.clone())
    }
}

/// Returns a review of a pod of that name, which is also its uid.
pub fn pod(name: &str) -> Vec<u8> {
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({"request": {"uid": name, "resource": resource, "name": name}}).to_string().into()
}
