//! Token exchange for OAuth 2, Azure and Google. The endpoints reject every request that is not exactly right.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use futures::future::join_all;
use http::Method;
use plimsoll_core::api::scale_target::TlsConfig;
use plimsoll_storage::prometheus::transport::Secret;
use plimsoll_storage::prometheus::transport::config::{
    AuthConfig, Azure, Google, OAuth2, SecretSource,
};
use ring::signature;
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};

use super::loopback_server::{
    LoopbackServer, ReceivedRequest, TestResponse, error_response, ok_response,
};
use super::{send_query, transport_with_sign_in, write};

const KEY: &str = include_str!("../../data/service-account-key.pem");

/// Issued tokens that are still valid, shared between the token endpoint and Prometheus.
#[derive(Clone, Default)]
struct TokenIssuer {
    good: Arc<Mutex<Vec<String>>>,
    given: Arc<AtomicUsize>,
}

impl TokenIssuer {
    fn issue(&self, expires_in: impl Into<Value>) -> TestResponse {
        let token = format!("token-{}", self.given.fetch_add(1, Ordering::Relaxed) + 1);
        self.good.lock().expect("no panic").push(token.clone());
        let response =
            json!({"access_token": token, "token_type": "Bearer", "expires_in": expires_in.into()});
        ok_response(response.to_string())
    }

    fn revoke(&self) {
        self.good.lock().expect("no panic").clear();
    }

    fn count(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }

    /// A Prometheus that accepts the valid tokens.
    async fn prometheus(&self) -> LoopbackServer {
        let own = self.clone();
        LoopbackServer::start(move |request| {
            let token = request.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
            let good = own.good.lock().expect("no panic");
            if good.iter().any(|good| good == token) {
                ok_response(token)
            } else {
                error_response(401)
            }
        })
        .await
    }
}

fn refuse(error: &str) -> TestResponse {
    let body = json!({"error": error, "error_description": format!("{error} it is")});
    TestResponse { status: 401, location: None, body: body.to_string() }
}

/// An authorization server with the client secret in the mutex.
async fn authorization(
    tokens: &TokenIssuer,
    secret: &Arc<Mutex<String>>,
    in_form: bool,
) -> LoopbackServer {
    let (tokens, secret) = (tokens.clone(), Arc::clone(secret));
    LoopbackServer::start(move |request| {
        let form = request.form();
        let secret = secret.lock().expect("no panic");
        let right = if in_form {
            form.get("client_id").is_some_and(|id| id == "vpa")
                && form.get("client_secret").is_some_and(|own| *own == *secret)
                && request.header("authorization").is_empty()
        } else {
            let encoded: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
            let basic = format!("Basic {}", STANDARD.encode(format!("vpa:{encoded}")));
            request.header("authorization") == basic && !form.contains_key("client_secret")
        };
        let field = |name: &str| form.get(name).map(String::as_str);
        if request.method != Method::POST || field("grant_type") != Some("client_credentials") {
            return refuse("unsupported_grant_type");
        }
        if field("scope") != Some("read write") || field("audience") != Some("mimir") {
            return refuse("invalid_scope");
        }
        if right { tokens.issue(3600) } else { refuse("invalid_client") }
    })
    .await
}

fn client(server: &LoopbackServer, secret: SecretSource) -> AuthConfig {
    AuthConfig::OAuth2(OAuth2 {
        token_url: format!("{}/oauth/token", server.address),
        tls: TlsConfig::default(),
        client_id: "vpa".into(),
        client_secret: secret,
        scopes: vec!["read".into(), "write".into()],
        parameters: vec![("audience".into(), "mimir".into())],
    })
}

#[tokio::test]
async fn concurrent_requests_share_one_client_credentials_exchange() {
    for in_form in [false, true] {
        let tokens = TokenIssuer::default();
        let prometheus = tokens.prometheus().await;
        let secret = Arc::new(Mutex::new("s3:cret ü".to_owned()));
        let server = authorization(&tokens, &secret, in_form).await;
        let word = Secret::from("s3:cret ü").into();
        let transport = transport_with_sign_in(&prometheus.address, client(&server, word));
        let answers = join_all((0..20).map(|_| send_query(&transport))).await;
        assert!(answers.iter().all(|response| response.as_deref().is_ok_and(|it| it == "token-1")));
        assert_eq!(tokens.count(), 1);
    }
}

#[tokio::test]
async fn a_rotated_client_secret_is_used_after_its_token_is_rejected() {
    let tokens = TokenIssuer::default();
    let prometheus = tokens.prometheus().await;
    let secret = Arc::new(Mutex::new("old".to_owned()));
    let server = authorization(&tokens, &secret, false).await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = write(folder.path(), "secret", "old");
    let transport = transport_with_sign_in(&prometheus.address, client(&server, file.into()));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");

    *secret.lock().expect("no panic") = "new".into();
    tokens.revoke();
    write(folder.path(), "secret", "new");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-2");
}

#[tokio::test]
async fn a_token_endpoint_error_is_one_line_without_the_secret() {
    let tokens = TokenIssuer::default();
    let prometheus = tokens.prometheus().await;
    let secret = Arc::new(Mutex::new("right".to_owned()));
    let server = authorization(&tokens, &secret, false).await;
    let transport =
        transport_with_sign_in(&prometheus.address, client(&server, Secret::from("wrong").into()));
    let error = send_query(&transport).await.expect_err("wrong secret");
    assert_eq!(
        error.to_string(),
        format!(
            "failed to get a token from {}/oauth/token: 401: invalid_client: invalid_client it is: check the token URL, \
             the client ID and the client secret",
            server.address
        )
    );
    assert!(!error.is_transient());
    assert_eq!(prometheus.request_count(), 0);

    // It echoes the request.
    let echo = LoopbackServer::start(|request| TestResponse {
        status: 400,
        location: None,
        body: json!({"error": "bad", "error_description": request.form().get("client_secret")})
            .to_string(),
    })
    .await;
    let transport =
        transport_with_sign_in(&prometheus.address, client(&echo, Secret::from("hunter2").into()));
    let error = send_query(&transport).await.expect_err("refused").to_string();
    assert!(!error.contains("hunter2"), "{error}");

    let busy = LoopbackServer::start(|_| error_response(503)).await;
    let transport =
        transport_with_sign_in(&prometheus.address, client(&busy, Secret::from("hunter2").into()));
    let error = send_query(&transport).await.expect_err("busy");
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("check whether it is running"), "{error}");
    let before = busy.request_count();
    send_query(&transport).await.expect_err("still busy");
    assert_eq!(busy.request_count(), before, "a failed endpoint is not retried at once");
}

#[tokio::test]
async fn azure_workload_identity_uses_the_current_service_account_token() {
    let tokens = TokenIssuer::default();
    let prometheus = tokens.prometheus().await;
    let assertion = Arc::new(Mutex::new("jwt-1".to_owned()));
    let server = LoopbackServer::start({
        let (tokens, assertion) = (tokens.clone(), Arc::clone(&assertion));
        move |request: &ReceivedRequest| {
            let form = request.form();
            let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
            let right = request.uri.path() == "/directory/oauth2/v2.0/token"
                && field("grant_type") == "client_credentials"
                && field("client_id") == "app"
                && field("scope") == "https://prometheus.monitor.azure.com/.default"
                && field("client_assertion_type")
                    == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
                && field("client_assertion") == *assertion.lock().expect("no panic");
            if right { tokens.issue(3599) } else { refuse("invalid_client") }
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = write(folder.path(), "token", "jwt-1");
    let azure = Azure::from_environment(|name| match name {
        "AZURE_CLIENT_ID" => Some("app".into()),
        "AZURE_TENANT_ID" => Some("directory".into()),
        "AZURE_FEDERATED_TOKEN_FILE" => Some(file.display().to_string()),
        "AZURE_AUTHORITY_HOST" => Some(format!("{}/", server.address)),
        _ => None,
    });
    let transport = transport_with_sign_in(&prometheus.address, AuthConfig::Azure(azure));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");

    *assertion.lock().expect("no panic") = "jwt-2".into();
    tokens.revoke();
    let error = send_query(&transport).await.expect_err("both are expired").to_string();
    assert!(error.contains("this Azure identity's token (401)"), "{error}");
    write(folder.path(), "token", "jwt-2");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-2");
}

#[tokio::test]
async fn azure_metadata_returns_a_token_of_the_managed_identity() {
    let tokens = TokenIssuer::default();
    let prometheus = tokens.prometheus().await;
    let server = LoopbackServer::start({
        let tokens = tokens.clone();
        move |request: &ReceivedRequest| {
            let query = request.query();
            let field = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
            let right = request.method == Method::GET
                && request.uri.path() == "/metadata/identity/oauth2/token"
                && request.header("metadata") == "true"
                && field("api-version") == "2018-02-01"
                && field("resource") == "https://prometheus.monitor.azure.com"
                && field("client_id") == "app";
            if right { tokens.issue("86399") } else { error_response(400) }
        }
    })
    .await;
    let azure = Azure::from_environment(|name| (name == "AZURE_CLIENT_ID").then(|| "app".into()));
    let azure = Azure { metadata_endpoint: server.address.clone(), ..azure };
    let transport = transport_with_sign_in(&prometheus.address, AuthConfig::Azure(azure));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");
}

#[tokio::test]
async fn google_metadata_returns_a_service_account_token_and_renews_it_before_it_expires() {
    let tokens = TokenIssuer::default();
    let prometheus = tokens.prometheus().await;
    let server = LoopbackServer::start({
        let tokens = tokens.clone();
        move |request: &ReceivedRequest| {
            let path = "/computeMetadata/v1/instance/service-accounts/default/token";
            let right = request.uri.path() == path
                && request.header("metadata-flavor") == "Google"
                && request.query()["scopes"] == "https://www.googleapis.com/auth/monitoring.read";
            // It has expired on arrival: the next request needs another.
            if right { tokens.issue(0) } else { error_response(403) }
        }
    })
    .await;
    let host = server.address.trim_start_matches("http://").to_owned();
    let google =
        Google::from_environment(|name| (name == "GCE_METADATA_HOST").then(|| host.clone()));
    let transport = transport_with_sign_in(&prometheus.address, AuthConfig::Google(google));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-2");
}

fn google(file: &std::path::Path) -> AuthConfig {
    AuthConfig::Google(Google::from_environment(|name| {
        (name == "GOOGLE_APPLICATION_CREDENTIALS").then(|| file.display().to_string())
    }))
}

/// Whether the assertion is a valid statement of the key's owner, for this audience, now.
fn is_genuine(assertion: &str, audience: &str, id: &str) -> bool {
    let der = PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes()).expect("PEM");
    let key = ring::rsa::KeyPair::from_pkcs8(der.secret_pkcs8_der()).expect("a key");
    let public = signature::UnparsedPublicKey::new(
        &signature::RSA_PKCS1_2048_8192_SHA256,
        signature::KeyPair::public_key(&key).as_ref().to_vec(),
    );
    let Some((signing_input, signed)) = assertion.rsplit_once('.') else { return false };
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).expect("base64");
    if public.verify(signing_input.as_bytes(), &decoded(signed)).is_err() {
        return false;
    }
    let (header, claims) = signing_input.split_once('.').expect("two parts");
    let header: Value = serde_json::from_slice(&decoded(header)).expect("JSON");
    let claims: Value = serde_json::from_slice(&decoded(claims)).expect("JSON");
    let now = plimsoll::cluster::clock::Clock::wall().now().as_secs();
    let (begin, end) =
        (claims["iat"].as_i64().expect("an integer"), claims["exp"].as_i64().expect("an integer"));
    header["alg"] == "RS256"
        && header["kid"] == id
        && claims["iss"] == "vpa@project.iam.gserviceaccount.com"
        && claims["scope"] == "https://www.googleapis.com/auth/monitoring.read"
        && claims["aud"] == audience
        && (now - 300..=now).contains(&begin)
        && end == begin + 3600
}

#[tokio::test]
async fn a_google_service_account_key_signs_assertions_and_follows_its_file() {
    let tokens = TokenIssuer::default();
    let prometheus = tokens.prometheus().await;
    let wanted = Arc::new(Mutex::new("k1"));
    let server = LoopbackServer::start({
        let (tokens, wanted) = (tokens.clone(), Arc::clone(&wanted));
        move |request: &ReceivedRequest| {
            let form = request.form();
            let audience = format!("http://{}/token", request.header("host"));
            let right = form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
                && is_genuine(&form["assertion"], &audience, *wanted.lock().expect("no panic"));
            if right { tokens.issue(3599) } else { refuse("invalid_grant") }
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = json!({
        "type": "service_account",
        "client_email": "vpa@project.iam.gserviceaccount.com",
        "private_key_id": "k1",
        "private_key": KEY,
        "token_uri": format!("{}/token", server.address),
    });
    let path = write(folder.path(), "key.json", &file.to_string());
    let transport = transport_with_sign_in(&prometheus.address, google(&path));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");

    *wanted.lock().expect("no panic") = "k2";
    tokens.revoke();
    write(folder.path(), "key.json", &file.to_string().replace("\"k1\"", "\"k2\""));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-2");

    let path = write(folder.path(), "odd.json", &file.to_string().replace("PRIVATE KEY", "KEY"));
    let error = send_query(&transport_with_sign_in(&prometheus.address, google(&path)))
        .await
        .expect_err("no key");
    let place = path.display();
    assert_eq!(
        error.to_string(),
        format!(
            "the Google credentials file in {place} is invalid: its private_key is not an RSA key in PKCS#8 format: replace \
             the file"
        )
    );
}

#[tokio::test]
async fn a_service_account_token_is_exchanged_with_google_and_used_for_impersonation() {
    let tokens = TokenIssuer::default();
    let prometheus = tokens.prometheus().await;
    let server = LoopbackServer::start({
        let tokens = tokens.clone();
        move |request: &ReceivedRequest| {
            if request.uri.path() == "/impersonate" {
                let body: Value = serde_json::from_slice(&request.body).expect("JSON");
                let right = request.header("authorization") == "Bearer first"
                    && body["scope"][0] == "https://www.googleapis.com/auth/monitoring.read";
                let given = tokens.issue(0);
                let token: Value = serde_json::from_str(&given.body).expect("JSON");
                let response = json!({
                    "accessToken": token["access_token"], "expireTime": "2100-01-01T00:00:00Z",
                });
                return if right { ok_response(response.to_string()) } else { error_response(403) };
            }
            let form = request.form();
            let right = form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
                && form["audience"] == "//iam.googleapis.com/pool"
                && form["scope"] == "https://www.googleapis.com/auth/cloud-platform"
                && form["subject_token_type"] == "urn:ietf:params:oauth:token-type:jwt"
                && form["subject_token"] == "jwt-1";
            let response = json!({"access_token": "first", "expires_in": 3600});
            if right { ok_response(response.to_string()) } else { refuse("invalid_grant") }
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let token = write(folder.path(), "token", r#"{"id": "jwt-1"}"#);
    let mut file = json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{}/token", server.address),
        "service_account_impersonation_url": format!("{}/impersonate", server.address),
        "credential_source": {
            "file": token, "format": {"type": "json", "subject_token_field_name": "id"},
        },
    });
    let path = write(folder.path(), "pool.json", &file.to_string());
    let transport = transport_with_sign_in(&prometheus.address, google(&path));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "token-1");

    file["credential_source"] = json!({"executable": {"command": "/bin/rm -rf /"}});
    let path = write(folder.path(), "pool.json", &file.to_string());
    let error = send_query(&transport_with_sign_in(&prometheus.address, google(&path)))
        .await
        .expect_err("a program");
    assert!(error.to_string().contains("its credential_source has no file"), "{error}");
}
