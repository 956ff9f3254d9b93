//! No log line and no error contains a secret, for any authentication method and any failure.

use plimsoll_core::api::scale_target::TlsConfig;
use plimsoll_storage::prometheus::transport::Secret;
use plimsoll_storage::prometheus::transport::config::{
    AuthConfig, Aws, Azure, Google, Header, OAuth2,
};
use plimsoll_storage::prometheus::transport::{TransportConfig, TransportError};
use serde_json::json;

use super::loopback_server::{LoopbackServer, TestResponse, error_response, ok_response};
use super::{NO_RELOAD, send_query, transport, write};
use crate::support::captured_log;

/// Part of every secret.
const SECRET: &str = "hunter2";

fn sign_ins(endpoint: &str, folder: &std::path::Path) -> Vec<AuthConfig> {
    let secret = || Secret::from(format!("{SECRET}/+"));
    let token = write(folder, "token", SECRET).display().to_string();
    let key = json!({
        "type": "service_account", "client_email": "a", "private_key": SECRET, "token_uri": endpoint,
    });
    let key = write(folder, "key.json", &key.to_string());
    let encoded =
        write(folder, "odd.json", &format!("{{\"type\": \"{SECRET}\", \"{SECRET}\": 1}}"));
    let google = |path: &std::path::Path| {
        AuthConfig::Google(Google {
            credentials_file: Some(path.to_owned()),
            ..Google::from_environment(|_| None)
        })
    };
    let aws = |variables: &[(&str, &str)]| {
        AuthConfig::Aws(Box::new(Aws::from_environment(Some("eu-west-1".into()), |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })))
    };
    vec![
        AuthConfig::Basic { user: "vpa".into(), password: secret().into() },
        AuthConfig::Bearer(secret().into()),
        AuthConfig::Bearer(std::path::PathBuf::from(&token).into()),
        AuthConfig::Bearer(Secret::from(format!("{SECRET}\n")).into()),
        AuthConfig::OAuth2(OAuth2 {
            token_url: endpoint.to_owned(),
            tls: TlsConfig::default(),
            client_id: "vpa".into(),
            client_secret: secret().into(),
            scopes: Vec::new(),
            parameters: Vec::new(),
        }),
        AuthConfig::Azure(Azure {
            client_id: Some("app".into()),
            tenant_id: Some("directory".into()),
            federated_token_file: Some(token.clone().into()),
            authority_host: endpoint.to_owned(),
            ..Azure::from_environment(|_| None)
        }),
        google(&key),
        google(&encoded),
        aws(&[
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_SESSION_TOKEN", SECRET),
        ]),
        aws(&[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", &token),
            ("AWS_ROLE_ARN", "arn"),
            ("AWS_ENDPOINT_URL_STS", endpoint),
        ]),
        aws(&[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", endpoint),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", SECRET),
        ]),
    ]
}

#[tokio::test]
async fn no_secret_appears_in_any_log_line_error_or_debug_output() {
    // At trace level, which includes the libraries.
    let (log, guard) = captured_log::capture_filtered("trace");
    let folder = tempfile::tempdir().expect("temporary directory");
    let mut errors_seen: Vec<TransportError> = Vec::new();
    let mut shown = Vec::new();

    // One server that issues tokens, and one that echoes the request in its error.
    let giving = LoopbackServer::start(|_| {
        ok_response(
            json!({"access_token": SECRET, "AccessKeyId": "AKID", "SecretAccessKey": SECRET})
                .to_string(),
        )
    })
    .await;
    let echoing = LoopbackServer::start(|request| {
        let form = request.form();
        let secret = ["client_secret", "client_assertion", "WebIdentityToken"]
            .iter()
            .find_map(|name| form.get(*name).cloned());
        let words = secret.unwrap_or_else(|| request.header("authorization").to_owned());
        let body = json!({"error": "invalid", "error_description": words}).to_string();
        TestResponse { status: 400, location: None, body }
    })
    .await;
    for status in [200, 401, 403, 302] {
        let server = LoopbackServer::start(move |_| error_response(status)).await;
        for endpoint in [&giving, &echoing] {
            for sign_in in sign_ins(&endpoint.address, folder.path()) {
                let header = Header { name: "X-Key".into(), value: Secret::from(SECRET).into() };
                let config = TransportConfig {
                    address: format!("{}?key={SECRET}", server.address),
                    auth: sign_in,
                    headers: vec![header],
                    ..TransportConfig::default()
                };
                shown.push(format!("{config:?}"));
                let http_transport = transport(NO_RELOAD, config);
                errors_seen.extend(send_query(&http_transport).await.err());
                shown.push(format!("{} {http_transport:?}", http_transport.address()));
            }
        }
    }
    drop(guard);
    let log = log.text();
    assert!(log.contains("hyper"), "the libraries log too: {log:.2000}");
    assert!(errors_seen.len() > 60, "only {} requests were rejected", errors_seen.len());
    let errors = errors_seen.iter().map(|error| format!("{error} {error:?}"));
    let all_errors = shown.into_iter().chain(errors).collect::<Vec<_>>().join("\n");
    for (place, text) in [("errors", &all_errors), ("log", &log)] {
        let line = text.lines().find(|line| line.contains(SECRET));
        assert_eq!(line, None, "the {place} contains a secret");
    }
}
