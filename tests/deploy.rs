//! What is installed in a cluster: manifests, overlays, the chart, images, rights, and what comes of it on a real server.

mod applied;
mod audit;
mod chart;
mod denials;
mod image;
mod installed;
mod inventory;
mod kinds;
mod life;
mod monitoring;
mod options;
mod original;
mod overlays;
mod overtaking;
mod policies;
mod rendered;
mod rights;
mod scraped;
mod stage;
mod threats;
mod upstream;

use std::{fs, path::Path};

pub use monitoring::monitor;
use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The objects of a file.
fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// What a role may do, and what is made for it to write: all of it as one text.
pub fn shipped(role: &str) -> String {
    let folder = Path::new(ROOT).join("deploy").join(role);
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let texts: Vec<String> =
        ["rbac.yaml", "lease.yaml", "registration.yaml"].into_iter().filter_map(read).collect();
    assert!(texts.len() > 1, "{role}: only {} files", texts.len());
    texts.join("\n---\n")
}
