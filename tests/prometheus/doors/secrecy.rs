//! No secret is in any log line or error, whatever the door and however it goes wrong.

use plimsoll_storage::prometheus::door::Secret;
use plimsoll_storage::prometheus::door::config::{Aws, Azure, Google, Header, OAuth2, SignIn, Tls};
use plimsoll_storage::prometheus::door::{DoorConfig, DoorError};
use serde_json::json;

use super::server::{Reply, Server, fine, no};
use super::{NEVER, ask, door, write};
use crate::support::log;

/// In every secret.
const WORD: &str = "hunter2";

fn sign_ins(endpoint: &str, folder: &std::path::Path) -> Vec<SignIn> {
    let secret = || Secret::from(format!("{WORD}/+"));
    let token = write(folder, "token", WORD).display().to_string();
    let key = json!({
        "type": "service_account", "client_email": "a", "private_key": WORD, "token_uri": endpoint,
    });
    let key = write(folder, "key.json", &key.to_string());
    let encoded = write(folder, "odd.json", &format!("{{\"type\": \"{WORD}\", \"{WORD}\": 1}}"));
    let google = |path: &std::path::Path| {
        SignIn::Google(Google {
            credentials: Some(path.to_owned()),
            ..Google::from_environment(|_| None)
        })
    };
    let aws = |variables: &[(&str, &str)]| {
        SignIn::Aws(Box::new(Aws::from_environment(Some("eu-west-1".into()), |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })))
    };
    vec![
        SignIn::Basic { user: "vpa".into(), password: secret().into() },
        SignIn::Bearer(secret().into()),
        SignIn::Bearer(std::path::PathBuf::from(&token).into()),
        SignIn::Bearer(Secret::from(format!("{WORD}\n")).into()),
        SignIn::OAuth2(OAuth2 {
            token_url: endpoint.to_owned(),
            tls: Tls::default(),
            id: "vpa".into(),
            secret: secret().into(),
            scopes: Vec::new(),
            parameters: Vec::new(),
        }),
        SignIn::Azure(Azure {
            client: Some("app".into()),
            tenant: Some("directory".into()),
            federated_token: Some(token.clone().into()),
            authority: endpoint.to_owned(),
            ..Azure::from_environment(|_| None)
        }),
        google(&key),
        google(&encoded),
        aws(&[
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", WORD),
            ("AWS_SESSION_TOKEN", WORD),
        ]),
        aws(&[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", &token),
            ("AWS_ROLE_ARN", "arn"),
            ("AWS_ENDPOINT_URL_STS", endpoint),
        ]),
        aws(&[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", endpoint),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", WORD),
        ]),
    ]
}

#[tokio::test]
async fn no_secret_is_in_any_log_line_error_or_debug_output() {
    // Down to the last detail of the libraries below.
    let (log, guard) = log::keep_of("trace");
    let folder = tempfile::tempdir().expect("a folder");
    let mut told: Vec<DoorError> = Vec::new();
    let mut shown = Vec::new();

    // One that gives tokens, one that repeats what it was told, as what it says of an error.
    let giving = Server::start(|_| {
        fine(
            json!({"access_token": WORD, "AccessKeyId": "AKID", "SecretAccessKey": WORD})
                .to_string(),
        )
    })
    .await;
    let telling = Server::start(|asked| {
        let form = asked.form();
        let secret = ["client_secret", "client_assertion", "WebIdentityToken"]
            .iter()
            .find_map(|name| form.get(*name).cloned());
        let words = secret.unwrap_or_else(|| asked.header("authorization").to_owned());
        let body = json!({"error": "invalid", "error_description": words}).to_string();
        Reply { status: 400, location: None, body }
    })
    .await;
    for status in [200, 401, 403, 302] {
        let server = Server::start(move |_| no(status)).await;
        for endpoint in [&giving, &telling] {
            for sign_in in sign_ins(&endpoint.address, folder.path()) {
                let header = Header { name: "X-Key".into(), value: Secret::from(WORD).into() };
                let config = DoorConfig {
                    address: format!("{}?key={WORD}", server.address),
                    sign_in,
                    headers: vec![header],
                    ..DoorConfig::default()
                };
                shown.push(format!("{config:?}"));
                let door = door(NEVER, config);
                told.extend(ask(&door).await.err());
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
        let line = text.lines().find(|line| line.contains(WORD));
        assert_eq!(line, None, "a secret is in the {what}");
    }
}
