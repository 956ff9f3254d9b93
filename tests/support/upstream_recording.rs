//! Recordings of upstream's programs: `cargo xtask record` writes them, and the gate compares ours with them.
//!
//! A recording stores what it was made from: the versions of upstream and Kubernetes, the seed, and a hash of the
//! generated inputs. The gate generates the inputs again, so a changed generator is detected before the comparison.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// Set by `cargo xtask record`: live tests then write recordings.
pub const RECORD: &str = "PLIMSOLL_RECORD";
/// The release of upstream's VPA in tests/cluster/autoscaler/go.mod.
pub const UPSTREAM: &str = "1.8.1";
/// The release of Kubernetes in tests/cluster/controlplane/go.mod.
const KUBERNETES: &str = "1.36.3";

/// A recording in `tests/golden/upstream-1.8.1/NAME.json.gz`.
#[derive(Debug)]
pub struct UpstreamRecording {
    name: &'static str,
    header: Header,
}

/// A text recording in `tests/golden/upstream-1.8.1/NAME`, for output that does not depend on inputs.
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

/// Whether live tests write recordings.
pub fn is_recording() -> bool {
    std::env::var_os(RECORD).is_some()
}

// === impl UpstreamRecording ===

impl UpstreamRecording {
    /// The recording with this name, for inputs that were generated from this seed.
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

    /// Its name in `cargo xtask record`: a part may have several recordings.
    fn part(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    fn path(&self) -> PathBuf {
        folder().join(format!("{}.json.gz", self.name))
    }

    /// Writes the recording.
    pub fn write<T: Serialize>(&self, recorded: &T) {
        let path = self.path();
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        let file = BufWriter::new(File::create(&path).expect("the recording is writable"));
        let mut encoder = GzEncoder::new(file, Compression::best());
        let written = RecordingToWrite { header: &self.header, recorded };
        serde_json::to_writer(&mut encoder, &written).expect("recordings are JSON");
        encoder.finish().and_then(|mut file| std::io::Write::flush(&mut file)).expect("written");
    }

    /// Reads the recording. Fails with one line if it is missing or has other inputs.
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

// === impl UpstreamOutput ===

impl UpstreamOutput {
    /// Reads the recording. Fails with one line if it is missing.
    pub fn read(self) -> String {
        let path = folder().join(self.name);
        fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}: {}", path.display(), record_hint(self.part))
        })
    }

    /// Writes the recording when recording, else fails if it differs.
    pub fn write_or_compare(self, output: &str) {
        if !is_recording() {
            assert_eq!(output, self.read(), "{} differs: {}", self.name, record_hint(self.part));
            return;
        }
        let path = folder().join(self.name);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("a folder");
        fs::write(path, output).expect("the recording is writable");
    }
}

#[test]
fn a_recording_is_read_only_with_the_inputs_of_its_header() {
    // Recorded with other inputs: this test only uses the header.
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
