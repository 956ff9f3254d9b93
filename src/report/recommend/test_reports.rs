//! Reports for tests of the forms: a sample, and made-up ones.

use std::{fs, path::Path};

use plimsoll_core::rightsizing::{
    report::{Report, WorkloadReport},
    survey::Unread,
};

use crate::report::style::{Glyphs, Style};

/// The sample of the documentation.
pub(super) fn sample() -> Report {
    serde_json::from_str(include_str!("../../../tests/data/recommend.json")).expect("a report")
}

pub(super) fn without_prices() -> Report {
    let mut report = sample();
    report.currency = None;
    let of_namespaces = report.namespaces.values_mut();
    for totals in of_namespaces.chain([&mut report.totals]) {
        for resource in [&mut totals.cpu, &mut totals.memory] {
            (resource.cost, resource.needed_cost) = (None, None);
        }
    }
    let containers = report.workloads.iter_mut().flat_map(|workload| &mut workload.containers);
    for resource in containers.flat_map(|container| &mut container.resources) {
        (resource.cost, resource.new_cost) = (None, None);
    }
    report
}

/// The workload with a risk in memory.
fn checkout(report: &Report) -> WorkloadReport {
    let found = report.workloads.iter().find(|workload| workload.name == "checkout");
    found.expect("the workload").clone()
}

/// A report of one workload at risk, with this name in every text that comes from a cluster.
pub(super) fn named(name: &str) -> Report {
    let mut report = sample();
    let mut workload = checkout(&report);
    name.clone_into(&mut workload.name);
    workload.vpa = Some(name.to_owned());
    for container in &mut workload.containers {
        name.clone_into(&mut container.name);
        container.remarks.push(name.to_owned());
        for resource in &mut container.resources {
            resource.change.held = Some(name.to_owned());
        }
    }
    workload.target_changes.clear();
    report.workloads = vec![workload];
    report.unread = vec![Unread { what: name.to_owned(), why: name.to_owned() }];
    report.remarks = vec![name.to_owned()];
    for source in &mut report.sources {
        name.clone_into(&mut source.server);
        source.cluster = Some(name.to_owned());
    }
    report
}

/// A report of this many workloads, each of them both at risk and overprovisioned.
pub(super) fn large(workloads: usize) -> Report {
    let mut report = sample();
    let mut workload = checkout(&report);
    let search = report.workloads.iter().find(|workload| workload.name == "search");
    let cpu = search.expect("the workload").containers[0].resources[0].clone();
    workload.containers[0].resources[0] = cpu;
    report.workloads = (0..workloads)
        .map(|index| WorkloadReport { name: format!("checkout-{index}"), ..workload.clone() })
        .collect();
    report
}

/// Compares text with a file in `testdata`; `UPDATE=1` writes it.
pub(super) fn assert_golden(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/recommend/testdata");
    let path = folder.join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).expect("the file can be written");
    }
    let expected = fs::read_to_string(&path).expect("the file is in the repository");
    assert_eq!(text, expected, "{name} is out of date; run the tests with UPDATE=1");
}

pub(super) fn ascii(width: usize) -> Style {
    Style { width, colour: false, glyphs: Glyphs::Ascii, command: "plimsoll".to_owned() }
}

pub(super) fn unicode(width: usize) -> Style {
    Style { glyphs: Glyphs::Unicode, ..ascii(width) }
}
