//! The recording of the day: the metrics exported in a full run, for the gate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::scrape_record::ScrapeRecord;
use super::script::ScriptedDay;
use crate::boards::families::{documented, family_of};

/// The script of the day: a change requires a new recording.
const SCRIPT: &str = include_str!("script.rs");
/// How the families of the horizontal controller alone begin.
const HORIZONTAL: [&str; 2] = ["plimsoll_horizontal_", "plimsoll_shadow_"];
/// Only metrics of boards and rules are recorded: durations differ between runs and are most of a page.
const QUERY_SOURCES: [&str; 2] = ["grafana", "deploy/monitoring"];

const RECORD_HINT: &str = "run `cargo xtask record day` and look at what has changed";

#[derive(Debug, Serialize, Deserialize)]
struct Recording {
    /// A hash of the script.
    script: String,
    from: Timestamp,
    step_seconds: i64,
    scrapes: usize,
    moments: Moments,
    series: BTreeMap<String, Vec<Change>>,
}

/// Times of the events of the day.
#[derive(Debug, Serialize, Deserialize)]
struct Moments {
    growth: Timestamp,
    flapping: Timestamp,
    calm: Timestamp,
    outage: Timestamp,
    back: Timestamp,
}

/// The value of a series from this scrape on, as text because JSON cannot represent some values; `None` where it is
/// not exported.
#[derive(Debug, Serialize, Deserialize)]
struct Change(usize, Option<String>);

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/day.json.gz")
}

fn script_hash() -> String {
    format!("{:016x}", XxHash3_64::oneshot(SCRIPT.as_bytes()))
}

/// The sources of all boards, alerts and recording rules: every family in use is named there.
static QUERY_TEXTS: LazyLock<String> = LazyLock::new(|| {
    let folders = QUERY_SOURCES.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let entries =
        folders.iter().flat_map(|folder| fs::read_dir(folder).expect("temporary directory"));
    let files = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_file());
    files.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
});

/// Whether a board or a rule uses a family.
pub fn is_queried(family: &str) -> bool {
    QUERY_TEXTS.contains(family)
}

/// Writes the recording.
pub fn write(day: &ScriptedDay) {
    let record = &day.record;
    let series = record.all().filter(|(series, _)| is_queried(family(series)));
    let recording = Recording {
        script: script_hash(),
        from: record.start(),
        step_seconds: record.step().as_secs(),
        scrapes: record.scrapes(),
        moments: Moments {
            growth: day.growth,
            flapping: day.flapping,
            calm: day.calm,
            outage: day.outage,
            back: day.back,
        },
        series: series
            .map(|(series, values)| (series.to_owned(), changes(values, record.scrapes())))
            .collect(),
    };
    let file = BufWriter::new(File::create(path()).expect("the recording is writable"));
    let mut encoder = GzEncoder::new(file, Compression::best());
    serde_json::to_writer(&mut encoder, &recording).expect("JSON");
    encoder.finish().and_then(|mut file| file.flush()).expect("written");
}

/// Reads the recording. Fails with one line if there is none for this script.
pub fn read() -> ScriptedDay {
    let file =
        File::open(path()).unwrap_or_else(|error| panic!("no recording: {error}: {RECORD_HINT}"));
    let recording: Recording = serde_json::from_reader(GzDecoder::new(BufReader::new(file)))
        .unwrap_or_else(|error| {
            panic!("the recording of the day is damaged: {error}: {RECORD_HINT}")
        });
    let script = script_hash();
    assert!(
        recording.script == script,
        "the day was recorded from script {}, now {script}: {RECORD_HINT}",
        recording.script
    );
    let step = SignedDuration::from_secs(recording.step_seconds);
    let mut record = ScrapeRecord::new(recording.from, step);
    for (series, changes) in recording.series {
        let values = values(&changes, recording.scrapes);
        record.add_series(series, values);
    }
    record.ends_after(recording.scrapes);
    let Moments { growth, flapping, calm, outage, back } = recording.moments;
    ScriptedDay { record, growth, flapping, calm, outage, back }
}

/// The family of a series, including the suffix of a histogram's parts.
pub fn family(series: &str) -> &str {
    series.split_once('{').map_or(series, |(family, _)| family)
}

/// The families with their label names, as `family{a,b}`.
pub fn shapes<'a>(series: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    series
        .map(|series| {
            let (family, labels) = super::scrape_record::parse_series(series);
            let names: Vec<_> = labels.iter().map(|(name, _)| name.as_str()).collect();
            format!("{family}{{{}}}", names.join(","))
        })
        .collect()
}

fn changes(values: &BTreeMap<usize, f64>, scrapes: usize) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for scrape in 0..scrapes {
        // Rust prints the shortest number that parses to the same value.
        let value = values.get(&scrape).map(ToString::to_string);
        let is_same = match changes.last() {
            Some(last) => last.1 == value,
            None => value.is_none(),
        };
        if !is_same {
            changes.push(Change(scrape, value));
        }
    }
    changes
}

fn values(changes: &[Change], scrapes: usize) -> BTreeMap<usize, f64> {
    let ends = changes.iter().skip(1).map(|change| change.0).chain([scrapes]);
    let mut values = BTreeMap::new();
    for (Change(from, value), to) in changes.iter().zip(ends) {
        if let Some(value) = value {
            let value: f64 = value.parse().expect("a number");
            values.extend((*from..to).map(|scrape| (scrape, value)));
        }
    }
    values
}

#[test]
fn a_recording_reads_back_with_its_gaps_bit_by_bit() {
    let expected: BTreeMap<usize, f64> =
        [(1, 0.1 + 0.2), (2, 0.1 + 0.2), (5, f64::INFINITY), (6, 1e300)].into();
    let recorded = changes(&expected, 9);
    let starts: Vec<_> = recorded.iter().map(|change| (change.0, change.1.is_some())).collect();
    assert_eq!(starts, [(1, true), (3, false), (5, true), (6, true), (7, false)]);
    assert_eq!(values(&recorded, 9), expected);
    assert!(changes(&BTreeMap::new(), 9).is_empty());
}

/// Families that depend on an event may be missing from a day; those that are always exported may not.
#[test]
fn the_recording_has_every_family_that_is_always_exported_and_used() {
    let known = documented();
    let day = read();
    let recorded: BTreeSet<&str> =
        day.record.all().filter_map(|(series, _)| family_of(family(series), &known)).collect();
    let missing: Vec<&str> = known
        .iter()
        .filter(|(name, family)| family.absent.is_empty() && is_queried(name))
        // The day has no horizontal controller.
        .filter(|(name, _)| !HORIZONTAL.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, _)| name.as_str())
        .filter(|name| !recorded.contains(name))
        .collect();
    assert!(missing.is_empty(), "not recorded: {}: {RECORD_HINT}", missing.join(", "));
}
