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
pub struct UpstreamRecording {
    name: &'static str,
    header: Header,
}

/// A recording that people can read: `tests/golden/upstream-1.8.1/NAME`, of what needs no inputs.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamOutput {
    /// Its path below the folder.
    pub name: &'static str,
    /// The part of `cargo xtask record` that writes it.
    pub part: &'static str,
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
struct RecordingToWrite<'a, T> {
    header: &'a Header,
    recorded: &'a T,
}

#[derive(Deserialize)]
struct RecordingRead {
    header: Header,
    recorded: serde_json::Value,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/upstream-{UPSTREAM}"))
}

fn record_hint(part: &str) -> String {
    format!("run `cargo xtask record {part}` and review the difference")
}

/// Whether live tests are to write recordings.
pub fn is_recording() -> bool {
    std::env::var_os(RECORD).is_some()
}

// === impl Golden ===

impl UpstreamRecording {
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

    /// What `cargo xtask record` calls it: several recordings may be of one part.
    fn part(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    fn path(&self) -> PathBuf {
        folder().join(format!("{}.json.gz", self.name))
    }

    /// Writes what upstream did.
    pub fn write<T: Serialize>(&self, recorded: &T) {
        let path = self.path();
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        let file = BufWriter::new(File::create(&path).expect("the recording is writable"));
        let mut encoder = GzEncoder::new(file, Compression::best());
        let written = RecordingToWrite { header: &self.header, recorded };
        serde_json::to_writer(&mut encoder, &written).expect("recordings are JSON");
        encoder.finish().and_then(|mut file| std::io::Write::flush(&mut file)).expect("written");
    }

    /// What upstream did. Fails with one line if there is no recording, or one of other inputs.
    pub fn read<T: DeserializeOwned>(&self) -> T {
        self.try_read().unwrap_or_else(|why| panic!("{why}: {}", record_hint(self.part())))
    }

    fn try_read<T: DeserializeOwned>(&self) -> Result<T, String> {
        let path = self.path();
        let unreadable = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(&path).map_err(|error| unreadable(&error))?;
        let read: RecordingRead = serde_json::from_reader(GzDecoder::new(BufReader::new(file)))
            .map_err(|error| unreadable(&error))?;
        if read.header != self.header {
            return Err(format!(
                "the recording {} was made from other inputs ({:?}, now {:?})",
                self.name, read.header, self.header
            ));
        }
        serde_json::from_value(read.recorded).map_err(|error| unreadable(&error))
    }
}

// === impl Page ===

impl UpstreamOutput {
    /// What upstream said. Fails with one line if it was not recorded.
    pub fn read(self) -> String {
        let path = folder().join(self.name);
        fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}: {}", path.display(), record_hint(self.part))
        })
    }

    /// Writes what upstream says, or else fails if that is not what was recorded.
    pub fn write_or_compare(self, said: &str) {
        if !is_recording() {
            assert_eq!(said, self.read(), "{} is another: {}", self.name, record_hint(self.part));
            return;
        }
        let path = folder().join(self.name);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        fs::write(path, said).expect("the recording is writable");
    }
}

#[test]
fn a_recording_is_read_only_for_the_inputs_that_it_was_made_from() {
    // Recorded of other inputs: here it is only the header that counts.
    let other = |seed, inputs: &[&str]| {
        let golden = UpstreamRecording::new("model", seed, &inputs);
        golden.try_read::<serde_json::Value>().expect_err("other inputs")
    };
    for why in [other(0, &["another"]), other(1, &[])] {
        assert!(why.starts_with("the recording model was made from other inputs ("), "{why}");
        assert!(!why.contains('\n'), "{why}");
    }
    let nameless = UpstreamRecording::new("no such recording", 0, &0);
    let why = nameless.try_read::<serde_json::Value>().expect_err("there is none");
    assert!(why.contains("no such recording.json.gz: "), "{why}");
    assert_eq!(record_hint("model"), "run `cargo xtask record model` and review the difference");
}
