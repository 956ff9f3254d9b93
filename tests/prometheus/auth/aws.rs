//! Requests signed for AWS, with credentials from every source that a pod may have.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::Method;
use plimsoll::cluster::clock::Clock;
use plimsoll_storage::prometheus::transport::config::{AuthConfig, Aws, AwsKeys};
use serde_json::json;

use super::loopback_server::{
    LoopbackServer, ReceivedRequest, TestResponse, error_response, ok_response,
};
use super::sigv4::{Key, verify};
use super::{send_query, transport_with_sign_in, write};

const REGION: &str = "eu-west-1";

/// Valid credentials: name of the access key, secret and session token.
type ValidKeys = Arc<Mutex<Vec<(String, String, String)>>>;

/// The name of the valid key that signed this request just now, if any.
fn signer(request: &ReceivedRequest, valid_keys: &ValidKeys, service: &str) -> Option<String> {
    let time = request.header("x-amz-date");
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
    if (time - Clock::wall().now().as_secs()).abs() > 300 {
        return None;
    }
    let valid_keys = valid_keys.lock().expect("no panic");
    let found = valid_keys.iter().find(|(id, secret, session)| {
        let key = Key { id, secret, region: REGION, service };
        request.header("x-amz-security-token") == session
            && verify(&key, &request.method, &request.uri, &request.headers, &request.body).is_ok()
    });
    found.map(|(id, ..)| id.clone())
}

/// An AWS Prometheus that responds 403 to unknown keys.
async fn prometheus(valid_keys: &ValidKeys) -> LoopbackServer {
    let valid_keys = Arc::clone(valid_keys);
    LoopbackServer::start(move |request| {
        signer(request, &valid_keys, "aps").map_or_else(|| error_response(403), ok_response)
    })
    .await
}

/// Issues new temporary credentials, which are valid at once.
fn issue_credentials(valid_keys: &ValidKeys, name: &str) -> (String, String, String) {
    let mut valid_keys = valid_keys.lock().expect("no panic");
    let number = valid_keys.len() + 1;
    let key = (
        format!("{name}{number}"),
        format!("{name}/secret+{number}"),
        format!("{name}/session=={number}"),
    );
    valid_keys.push(key.clone());
    key
}

/// Makes all credentials invalid. Those that are issued next are others.
fn revoke_all(valid_keys: &ValidKeys) {
    for (_, secret, _) in valid_keys.lock().expect("no panic").iter_mut() {
        secret.clear();
    }
}

fn as_json(key: &(String, String, String)) -> String {
    let (id, secret, session) = key;
    json!({
        "Code": "Success", "AccessKeyId": id, "SecretAccessKey": secret, "Token": session,
        "Expiration": "2100-01-01T00:00:00Z",
    })
    .to_string()
}

fn as_xml(action: &str, key: &(String, String, String)) -> String {
    let (id, secret, session) = key;
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><Credentials>\
         <AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\
         <SessionToken>{session}</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>\
         </Credentials></{action}Result></{action}Response>"
    )
}

fn environment(variables: &[(&str, &str)]) -> Aws {
    Aws::from_environment(None, |name| {
        if name == "AWS_REGION" {
            return Some(REGION.to_owned());
        }
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn sign_in(aws: Aws) -> AuthConfig {
    AuthConfig::Aws(Box::new(aws))
}

#[tokio::test]
async fn keys_from_the_environment_sign_every_request() {
    let valid_keys = ValidKeys::default();
    let server = prometheus(&valid_keys).await;
    let (id, secret, session) = issue_credentials(&valid_keys, "ENV");
    let variables = [
        ("AWS_ACCESS_KEY_ID", &*id),
        ("AWS_SECRET_ACCESS_KEY", &*secret),
        ("AWS_SESSION_TOKEN", &*session),
    ];
    // A workspace has a path, which is part of the signature.
    let address = format!("{}/workspaces/ws-1%20a/", server.address);
    let transport = transport_with_sign_in(&address, sign_in(environment(&variables)));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "ENV1");
    let form = [("match[]", "up{a=\"b c\"}".to_owned()), ("a", "~*".to_owned())];
    let response = transport.request(Method::GET, "/api/v1/series", &form, super::MINUTE).await;
    assert_eq!(response.expect("authenticated").text().await.expect("a text"), "ENV1");

    let wrong = [variables[0], ("AWS_SECRET_ACCESS_KEY", "other"), variables[2]];
    let error = send_query(&transport_with_sign_in(&address, sign_in(environment(&wrong))))
        .await
        .expect_err("a wrong key");
    assert!(error.to_string().contains("this AWS signature (403)"), "{error}");
}

#[tokio::test]
async fn keys_from_files_are_reloaded_after_a_rejection() {
    let valid_keys = ValidKeys::default();
    let server = prometheus(&valid_keys).await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let store = |key: &(String, String, String)| AwsKeys {
        access_key_id: write(folder.path(), "id", &key.0).into(),
        secret_access_key: write(folder.path(), "secret", &key.1).into(),
        session_token: Some(write(folder.path(), "session", &key.2).into()),
    };
    let keys = store(&issue_credentials(&valid_keys, "OLD"));
    let transport = transport_with_sign_in(
        &server.address,
        sign_in(Aws { keys: Some(keys), ..environment(&[]) }),
    );
    assert_eq!(send_query(&transport).await.expect("authenticated"), "OLD1");
    valid_keys.lock().expect("no panic").clear();
    store(&issue_credentials(&valid_keys, "NEW"));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "NEW1");
}

#[tokio::test]
async fn a_service_account_token_is_exchanged_for_the_keys_of_a_role() {
    let valid_keys = ValidKeys::default();
    let server = prometheus(&valid_keys).await;
    let wanted = Arc::new(Mutex::new("jwt-1".to_owned()));
    let sts = LoopbackServer::start({
        let (valid_keys, wanted) = (Arc::clone(&valid_keys), Arc::clone(&wanted));
        move |request: &ReceivedRequest| {
            let form = request.form();
            let right = form["Action"] == "AssumeRoleWithWebIdentity"
                && form["Version"] == "2011-06-15"
                && form["RoleArn"] == "arn:aws:iam::1:role/vpa"
                && form["RoleSessionName"] == "plimsoll"
                && form["WebIdentityToken"] == *wanted.lock().expect("no panic");
            if right {
                return ok_response(as_xml("AssumeRoleWithWebIdentity", &issue_credentials(&valid_keys, "ROLE")));
            }
            let body = "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>Not yours.</Message></Error>\
                        </ErrorResponse>";
            TestResponse { status: 400, location: None, body: body.into() }
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let token = write(folder.path(), "token", "jwt-1");
    let aws = environment(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &token.display().to_string()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/vpa"),
        ("AWS_ENDPOINT_URL_STS", &sts.address),
    ]);
    let transport = transport_with_sign_in(&server.address, sign_in(aws.clone()));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "ROLE1");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "ROLE1");

    revoke_all(&valid_keys);
    *wanted.lock().expect("no panic") = "jwt-2".into();
    let other = transport_with_sign_in(&server.address, sign_in(aws));
    let error = send_query(&other).await.expect_err("an old token").to_string();
    assert_eq!(
        error,
        format!(
            "failed to get a token from {}: 400: InvalidIdentityToken: Not yours: check the role, and that its trust policy names \
             this service account",
            sts.address
        )
    );
    write(folder.path(), "token", "jwt-2");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "ROLE2");
}

#[tokio::test]
async fn a_role_is_assumed_with_signed_credentials() {
    let valid_keys = ValidKeys::default();
    let own = ValidKeys::default();
    let server = prometheus(&valid_keys).await;
    let (id, secret, session) = issue_credentials(&own, "OWN");
    let sts = LoopbackServer::start({
        let (valid_keys, own) = (Arc::clone(&valid_keys), Arc::clone(&own));
        move |request: &ReceivedRequest| {
            let form = request.form();
            let right = signer(request, &own, "sts").is_some()
                && form["Action"] == "AssumeRole"
                && form["RoleArn"] == "arn:aws:iam::2:role/reader";
            if right {
                ok_response(as_xml("AssumeRole", &issue_credentials(&valid_keys, "READER")))
            } else {
                error_response(403)
            }
        }
    })
    .await;
    let aws = environment(&[
        ("AWS_ACCESS_KEY_ID", &id),
        ("AWS_SECRET_ACCESS_KEY", &secret),
        ("AWS_SESSION_TOKEN", &session),
        ("AWS_ENDPOINT_URL_STS", &sts.address),
    ]);
    let aws = Aws { role_arn: Some("arn:aws:iam::2:role/reader".into()), ..aws };
    let transport = transport_with_sign_in(&server.address, sign_in(aws));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "READER1");
}

#[tokio::test]
async fn the_pod_identity_agent_returns_keys_for_the_current_token() {
    let valid_keys = ValidKeys::default();
    let server = prometheus(&valid_keys).await;
    let wanted = Arc::new(Mutex::new("agent-1".to_owned()));
    let agent = LoopbackServer::start({
        let (valid_keys, wanted) = (Arc::clone(&valid_keys), Arc::clone(&wanted));
        move |request: &ReceivedRequest| {
            let right = request.method == Method::GET
                && request.uri.path() == "/v1/credentials"
                && request.header("authorization") == *wanted.lock().expect("no panic");
            if right {
                ok_response(as_json(&issue_credentials(&valid_keys, "POD")))
            } else {
                error_response(403)
            }
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let token = write(folder.path(), "token", "agent-1");
    let transport = transport_with_sign_in(
        &server.address,
        sign_in(environment(&[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("{}/v1/credentials", agent.address)),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token.display().to_string()),
        ])),
    );
    assert_eq!(send_query(&transport).await.expect("authenticated"), "POD1");
    revoke_all(&valid_keys);
    *wanted.lock().expect("no panic") = "agent-2".into();
    write(folder.path(), "token", "agent-2");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "POD2");
    assert_eq!(agent.request_count(), 2);
}

#[tokio::test]
async fn the_instance_metadata_service_returns_the_keys_of_its_role_in_a_session() {
    let valid_keys = ValidKeys::default();
    let server = prometheus(&valid_keys).await;
    let sessions = Arc::new(AtomicUsize::new(0));
    let metadata = LoopbackServer::start({
        let (valid_keys, sessions) = (Arc::clone(&valid_keys), Arc::clone(&sessions));
        move |request: &ReceivedRequest| {
            let path = request.uri.path();
            if path == "/latest/api/token" {
                let ttl = request.header("x-aws-ec2-metadata-token-ttl-seconds");
                if request.method != Method::PUT || ttl.parse::<u32>().is_err() {
                    return error_response(400);
                }
                sessions.fetch_add(1, Ordering::Relaxed);
                return ok_response("session");
            }
            if request.header("x-aws-ec2-metadata-token") != "session" {
                return error_response(401);
            }
            match path.strip_prefix("/latest/meta-data/iam/security-credentials/") {
                Some("") => ok_response("node-role"),
                Some("node-role") => ok_response(as_json(&issue_credentials(&valid_keys, "NODE"))),
                _ => error_response(404),
            }
        }
    })
    .await;
    let aws = environment(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.address)]);
    let transport = transport_with_sign_in(&server.address, sign_in(aws));
    assert_eq!(send_query(&transport).await.expect("authenticated"), "NODE1");
    assert_eq!(send_query(&transport).await.expect("authenticated"), "NODE1");
    assert_eq!(sessions.load(Ordering::Relaxed), 1);
}
