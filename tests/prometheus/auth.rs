//! Every authentication method works against a server that verifies it, picks up rotated credentials, and leaks no
//! secret.

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

/// Longer than any test: a reload within it was caused by a 401 or 403.
const NO_RELOAD: Duration = Duration::from_hours(1);
/// The documented maximum delay for a rotated secret.
const MINUTE: Duration = Duration::from_mins(1);

/// A transport that checks its files at this interval.
fn transport(reload_interval: Duration, config: TransportConfig) -> HttpTransport {
    let clock = Clock::wall();
    let pace = AuthTiming { reload_interval, ..AuthTiming::default() };
    HttpTransport::new(
        TransportConfig { timing: pace, ..config },
        WallClock::new(move || clock.now()),
    )
    .expect("valid transport configuration")
}

/// A transport with this authentication, which reloads its files only after a 401 or 403.
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

/// Sends a query with characters that every encoding treats differently.
async fn send_query(http_transport: &HttpTransport) -> Result<String, TransportError> {
    let form = [("query", "up{job=~\"a+b ü/*\"}".to_owned()), ("time", "1.5".to_owned())];
    let response = http_transport.send("/api/v1/query", &form, Duration::from_secs(30)).await?;
    assert_eq!(response.status().as_u16(), 200);
    Ok(response.text().await.expect("a text"))
}

/// Sends queries until the response is `expected`, within the minute that a rotation may take.
async fn wait_for_response(http_transport: &HttpTransport, expected: &str) {
    let is_used = || async { (send_query(http_transport).await.ok()? == expected).then_some(()) };
    wait::within(MINUTE, "the new secret is used", is_used).await;
}

/// Writes a file that can be rotated as kubelet does it: by renaming another one over it.
fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, text).expect("the folder is writable");
    std::fs::rename(&new, &path).expect("the folder is writable");
    path
}
