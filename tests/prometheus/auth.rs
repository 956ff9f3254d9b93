//! Every door passes against a server that verifies it, takes what was rotated, and tells no secret.

mod auth_errors;
mod aws;
pub(super) mod loopback_server;
mod secret_redaction;
mod sigv4;
mod static_credentials;
mod tls;
mod token_exchange;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::cluster::clock::Clock;
use plimsoll_storage::prometheus::transport::config::{AuthConfig, AuthTiming};
use plimsoll_storage::prometheus::transport::{
    HttpTransport, Transport as _, TransportConfig, TransportError, WallClock,
};

use crate::support::wait;

/// Longer than any test: what is seen before was seen because of a refusal.
const NO_RELOAD: Duration = Duration::from_hours(1);
/// What is promised for a rotated secret.
const MINUTE: Duration = Duration::from_mins(1);

/// A door that looks at its files this often.
fn transport(look: Duration, config: TransportConfig) -> HttpTransport {
    let clock = Clock::wall();
    let pace = AuthTiming { reload_interval: look, ..AuthTiming::default() };
    HttpTransport::new(
        TransportConfig { timing: pace, ..config },
        WallClock::new(move || clock.now()),
    )
    .expect("a door")
}

/// A door with this sign-in, which looks at its files again only when it was refused.
fn transport_with_sign_in(address: &str, sign_in: AuthConfig) -> HttpTransport {
    transport(
        NO_RELOAD,
        TransportConfig {
            address: address.to_owned(),
            auth: sign_in,
            ..TransportConfig::default()
        },
    )
}

/// Asks a question with characters that every encoding treats differently.
async fn send_query(door: &HttpTransport) -> Result<String, TransportError> {
    let form = [("query", "up{job=~\"a+b ü/*\"}".to_owned()), ("time", "1.5".to_owned())];
    let answer = door.send("/api/v1/query", &form, Duration::from_secs(30)).await?;
    assert_eq!(answer.status().as_u16(), 200);
    Ok(answer.text().await.expect("a text"))
}

/// Asks until the answer is this: within the minute that a rotated secret may take.
async fn wait_for_response(door: &HttpTransport, told: &str) {
    let look = || async { (send_query(door).await.ok()? == told).then_some(()) };
    wait::within(MINUTE, "the new secret is used", look).await;
}

/// A file that can be rotated as kubelet does it: by another one in its place.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, text).expect("the folder is writable");
    std::fs::rename(&new, &path).expect("the folder is writable");
    path
}
