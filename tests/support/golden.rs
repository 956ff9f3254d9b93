//! Owns recordings of upstream's programs: `cargo xtask record` writes them, the gate compares ours with them.
//!
//! A recording is bound to what it was made from: upstream's version, Kubernetes' version, the seed, and a hash of the
//! inputs that were generated from the seed. The gate generates the inputs again, so a changed generator is noticed
//! before anything is compared.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// Set by `cargo xtask record`: live tests then write what upstream did.
pub const RECORD: &str = "PLIMSOLL_RECORD";
/// The release of upstream's vertical pod autoscaler in tests/cluster/autoscaler/go.mod.
pub const UPSTREAM: &str = "1.8.1";
/// The release of Kubernetes in tests/cluster/controlplane/go.mod.
const KUBERNETES: &str = "1.36.3";

/// One recording: `tests/golden/upstream-1.8.1/NAME.json.gz`.
#[derive(Debug)]
pub struct Golden {
    name: &'static str,
    header: Header,
}

/// What a recording was made from.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    upstream: String,
    kubernetes: String,
    seed: u64,
    inputs: String,
}

#[derive(Serialize)]
struct Written<'a, T> {
    header: &'a Header,
    recorded: &'a T,
}

#[derive(Deserialize)]
struct Read {
    header: Header,
    recorded: serde_json::Value,
}

/// Whether live tests are to write recordings.
pub fn is_recording() -> bool {
    std::env::var_os(RECORD).is_some()
}

// === impl Golden ===

impl Golden {
    /// The recording of that name for inputs that were generated from this seed.
    pub fn new(name: &'static str, seed: u64, inputs: &impl Serialize) -> Self {
        let text = serde_json::to_vec(inputs).expect("inputs are JSON");
        let header = Header {
            upstream: UPSTREAM.to_owned(),
            kubernetes: KUBERNETES.to_owned(),
            seed,
            inputs: format!("{:016x}", XxHash3_64::oneshot(&text)),
        };
        Self { name, header }
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/golden/upstream-{UPSTREAM}/{}.json.gz", self.name))
    }

    /// Writes what upstream did.
    pub fn write<T: Serialize>(&self, recorded: &T) {
        let path = self.path();
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        let file = BufWriter::new(File::create(&path).expect("the recording is writable"));
        let mut encoder = GzEncoder::new(file, Compression::best());
        let written = Written { header: &self.header, recorded };
        serde_json::to_writer(&mut encoder, &written).expect("recordings are JSON");
        encoder.finish().and_then(|mut file| std::io::Write::flush(&mut file)).expect("written");
    }

    /// What upstream did. Fails with one line if there is no recording, or one of other inputs.
    pub fn read<T: DeserializeOwned>(&self) -> T {
        let (name, path) = (self.name, self.path());
        let part = name.split('-').next().unwrap_or(name);
        let again = format!("run `cargo xtask record {part}` and review the difference");
        let file = File::open(&path)
            .unwrap_or_else(|error| panic!("{}: {error}: {again}", path.display()));
        let read: Read = serde_json::from_reader(GzDecoder::new(BufReader::new(file)))
            .unwrap_or_else(|error| panic!("{}: {error}: {again}", path.display()));
        assert!(
            read.header == self.header,
            "the recording {name} was made from other inputs ({:?}, now {:?}): {again}",
            read.header,
            self.header
        );
        serde_json::from_value(read.recorded)
            .unwrap_or_else(|error| panic!("{}: {error}: {again}", path.display()))
    }
}
