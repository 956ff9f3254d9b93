//! Our families compared with those of upstream's programs: the same names, types, labels and buckets.
//!
//! The gate compares with recorded scrapes of upstream's programs; the deep tier scrapes them.

mod deep;

use std::fmt::Write as _;

use super::{Exposition, registry, scrape};
use crate::support::upstream_recording::UpstreamOutput;

/// Families that only upstream has: metrics of the Go runtime, of its HTTP handler, and of the process, none of which
/// a dashboard for the autoscaler uses.
const EXCLUDED_FAMILIES: [&str; 5] = [
    "go_",
    "promhttp_",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
    "process_virtual_memory_max_bytes",
];

/// Prefix of the metrics of the admission controller.
const ADMISSION: &str = "vpa_admission_controller_";

/// Prefix of the metrics of the updater: upstream exports most of them only after the first event.
const UPDATER: &str = "vpa_updater_";

/// All series of this family exist before the first event.
const COUNTS: &str = "vpa_recommender_vpa_objects_count";

const ADMISSION_ONLY: UpstreamOutput =
    UpstreamOutput { name: "metrics/admission-controller.txt", part: "metrics" };
const RECOMMENDER_ONLY: UpstreamOutput =
    UpstreamOutput { name: "metrics/recommender.txt", part: "metrics" };

fn is_of_recommender(name: &str) -> bool {
    name.starts_with("vpa_") && ![ADMISSION, UPDATER].iter().any(|other| name.starts_with(other))
}

/// A line for each of these families: its name, type, labels and buckets, and its compared series.
fn page<'a>(exposition: &Exposition, names: impl IntoIterator<Item = &'a str>) -> String {
    let mut page = String::new();
    for name in names {
        if !exposition.names().any(|known| known == name) {
            writeln!(page, "{name} is missing").expect("fits");
            continue;
        }
        let family = exposition.family(name);
        let (labels, buckets) = (family.labels.join(","), family.buckets.join(","));
        writeln!(page, "{name} {} labels={labels} buckets={buckets}", family.kind).expect("fits");
        if name == COUNTS {
            for series in &family.series {
                writeln!(page, "  {series}").expect("fits");
            }
        }
    }
    page
}

/// The families of a page.
fn names(page: &str) -> impl Iterator<Item = &str> {
    let families = page.lines().filter(|line| !line.starts_with(' '));
    families.filter_map(|line| line.split(' ').next())
}

/// Lines of upstream's page that differ from ours, and families of ours that are not on upstream's page.
fn differences(expected: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let ours = Exposition::parse(&scrape(registry()));
    let missing =
        ours.names().filter(|name| is_wanted(name) && !names(expected).any(|it| it == *name));
    let mut found: Vec<_> = missing.map(|name| format!("upstream has no {name}")).collect();
    let page = page(&ours, names(expected));
    let (mut theirs, mut of_ours) = (expected.lines(), page.lines());
    loop {
        match (theirs.next(), of_ours.next()) {
            (None, None) => return found,
            (one, other) if one == other => {}
            (one, other) => found.push(format!("upstream {one:?}, ours {other:?}")),
        }
    }
}

fn admission_differences(expected: &str) -> Vec<String> {
    differences(expected, |name| name.starts_with(ADMISSION))
}

fn recommender_differences(expected: &str) -> Vec<String> {
    differences(expected, is_of_recommender)
}

#[test]
fn every_family_of_upstreams_admission_controller_is_exported() {
    assert_eq!(admission_differences(&ADMISSION_ONLY.read()), Vec::<String>::new());
}

#[test]
fn every_family_of_upstreams_recommender_is_exported() {
    let expected = RECOMMENDER_ONLY.read();
    assert_eq!(recommender_differences(&expected), Vec::<String>::new());
    assert_eq!(expected.lines().filter(|line| line.starts_with(' ')).count(), 144);
}

#[test]
fn a_missing_bucket_or_series_is_reported_as_a_difference() {
    let expected = RECOMMENDER_ONLY.read();
    let bucket = expected.replacen(",+Inf", ",7,+Inf", 1);
    assert_eq!(recommender_differences(&bucket).len(), 1, "{bucket}");
    let series = expected.replacen("  ", "  other=\"label\",", 1);
    assert_eq!(recommender_differences(&series).len(), 1, "{series}");
    let without = expected.lines().skip_while(|line| !line.starts_with(COUNTS)).skip(1);
    let without = without.collect::<Vec<_>>().join("\n") + "\n";
    assert!(
        recommender_differences(&without).contains(&format!("upstream has no {COUNTS}")),
        "{without}"
    );
}
