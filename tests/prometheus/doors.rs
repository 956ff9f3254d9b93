//! Every door passes against a server that verifies it, takes what was rotated, and tells no secret.

mod aws;
mod exchanged;
mod refusals;
mod secrecy;
pub(super) mod server;
mod signature;
mod tls;
mod words;

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::clock::Clock;
use plimsoll_storage::prometheus::door::config::{Pace, SignIn};
use plimsoll_storage::prometheus::door::{Door, DoorConfig, DoorError, Transport as _, Wall};

use crate::support::wait;

/// Longer than any test: what is seen before was seen because of a refusal.
const NEVER: Duration = Duration::from_hours(1);
/// What is promised for a rotated secret.
const MINUTE: Duration = Duration::from_mins(1);

/// A door that looks at its files this often.
fn door(look: Duration, config: DoorConfig) -> Door {
    let clock = Clock::wall();
    let pace = Pace { look, ..Pace::default() };
    Door::new(DoorConfig { pace, ..config }, Wall::new(move || clock.now())).expect("a door")
}

/// A door with this sign-in, which looks at its files again only when it was refused.
fn signed(address: &str, sign_in: SignIn) -> Door {
    door(NEVER, DoorConfig { address: address.to_owned(), sign_in, ..DoorConfig::default() })
}

/// Asks a question with characters that every encoding treats differently.
async fn ask(door: &Door) -> Result<String, DoorError> {
    let form = [("query", "up{job=~\"a+b ü/*\"}".to_owned()), ("time", "1.5".to_owned())];
    let answer = door.send("/api/v1/query", &form, Duration::from_secs(30)).await?;
    assert_eq!(answer.status().as_u16(), 200);
    Ok(answer.text().await.expect("a text"))
}

/// Asks until the answer is this: within the minute that a rotated secret may take.
async fn until_told(door: &Door, told: &str) {
    let look = || async { (ask(door).await.ok()? == told).then_some(()) };
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
