//! No secret is in any log line or error, whatever the door and however it goes wrong.

use plimsoll_storage::prometheus::transport::Secret;
use plimsoll_storage::prometheus::transport::config::{
    AuthConfig, Aws, Azure, Google, Header, OAuth2, Tls,
};
use plimsoll_storage::prometheus::transport::{TransportConfig, TransportError};
use serde_json::json;

use super::loopback_server::{LoopbackServer, TestResponse, error_response, ok_response};
use super::{NO_RELOAD, send_query, transport, write};
use crate::support::captured_log;

/// In every secret.
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
            tls: Tls::default(),
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
async fn no_secret_is_in_any_log_line_error_or_debug_output() {
    // Down to the last detail of the libraries below.
    let (log, guard) = captured_log::capture_filtered("trace");
    let folder = tempfile::tempdir().expect("a folder");
    let mut told: Vec<TransportError> = Vec::new();
    let mut shown = Vec::new();

    // One that gives tokens, one that repeats what it was told, as what it says of an error.
    let giving = LoopbackServer::start(|_| {
        ok_response(
            json!({"access_token": SECRET, "AccessKeyId": "AKID", "SecretAccessKey": SECRET})
                .to_string(),
        )
    })
    .await;
    let telling = LoopbackServer::start(|asked| {
        let form = asked.form();
        let secret = ["client_secret", "client_assertion", "WebIdentityToken"]
            .iter()
            .find_map(|name| form.get(*name).cloned());
        let words = secret.unwrap_or_else(|| asked.header("authorization").to_owned());
        let body = json!({"error": "invalid", "error_description": words}).to_string();
        TestResponse { status: 400, location: None, body }
    })
    .await;
    for status in [200, 401, 403, 302] {
        let server = LoopbackServer::start(move |_| error_response(status)).await;
        for endpoint in [&giving, &telling] {
            for sign_in in sign_ins(&endpoint.address, folder.path()) {
                let header = Header { name: "X-Key".into(), value: Secret::from(SECRET).into() };
                let config = TransportConfig {
                    address: format!("{}?key={SECRET}", server.address),
                    auth: sign_in,
                    headers: vec![header],
                    ..TransportConfig::default()
                };
                shown.push(format!("{config:?}"));
                let door = transport(NO_RELOAD, config);
                told.extend(send_query(&door).await.err());
                shown.push(format!("{} {door:?}", door.address()));
            }
        }
    }
    drop(guard);
    let log = log.text();
    assert!(log.contains("hyper"), "the libraries log too: {log:.2000}");
    assert!(told.len() > 60, "only {} were refused", told.len());
    let errors = told.iter().map(|error| format!("{error} {error:?}"));
    let told = shown.into_iter().chain(errors).collect::<Vec<_>>().join("\n");
    for (what, text) in [("errors", &told), ("log", &log)] {
        let line = text.lines().find(|line| line.contains(SECRET));
        assert_eq!(line, None, "a secret is in the {what}");
    }
}
