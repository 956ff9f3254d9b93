//! Orders of containers, with and without prices.

use proptest::prelude::*;

use super::*;
use crate::{
    rightsizing::{
        ReportOptions,
        evidence::ContainerEvidence,
        prices::Prices,
        report as make_report,
        survey::{Survey, Workload},
        testing::{MI, amounts, container, deployment, evidence},
    },
    types::Time,
};

/// A report of workloads with one container each: name, pods, requests and targets of CPU and memory in MiB.
fn report_of(workloads: &[(&str, u32, [i64; 2], [i64; 2])], prices: Option<&str>) -> Report {
    let survey = Survey {
        workloads: workloads
            .iter()
            .map(|(name, pods, [cpu, _], [memory, _])| {
                let requests = amounts(Some(*cpu), Some(*memory * MI));
                deployment(name, *pods, vec![container(requests, amounts(None, None))])
            })
            .collect(),
        ..Survey::default()
    };
    let histories: Vec<(String, ContainerEvidence)> = workloads
        .iter()
        .map(|(name, _, [_, cpu], [_, memory])| {
            let memory = memory * MI;
            ((*name).to_owned(), evidence([*cpu, *cpu, 1 << 40], [memory, memory, 1 << 50]))
        })
        .collect();
    let of = |workload: &Workload, _: &_| {
        histories.iter().find(|(name, _)| **name == *workload.name).map(|(_, evidence)| evidence)
    };
    let prices = prices.map(|text| Prices::parse(text).expect("prices"));
    make_report(&survey, &of, &ReportOptions { prices, ..ReportOptions::default() }, Time::EPOCH)
}

fn names(rows: &Rows<'_>) -> Vec<String> {
    rows.shown.iter().map(|row| row.workload.name.clone()).collect()
}

const WORKLOADS: [(&str, u32, [i64; 2], [i64; 2]); 5] = [
    // Saves 3 cores a pod of 2.
    ("cpu", 2, [4000, 1000], [100, 100]),
    // Saves 8000 MiB.
    ("memory", 1, [100, 100], [16_000, 8000]),
    // Needs 10 cores more.
    ("small", 1, [1000, 11_000], [100, 100]),
    ("fits", 9, [100, 100], [100, 100]),
    // Saves 2 cores, and needs 200 MiB more.
    ("both", 1, [4000, 2000], [100, 300]),
];

#[test]
fn orders() {
    // A core costs 73 a month, and a GiB 7.30.
    let prices = "cpuCoreHour: 0.1\nmemoryGiBHour: 0.01";
    let report = report_of(&WORKLOADS, Some(prices));
    for (sort, expected) in [
        // 438, 2 x 73 - 1.43 = 144.57, 57.03, 0, -730.
        (SortKey::Money, ["cpu", "both", "memory", "fits", "small"]),
        // High for 10 cores and for 200 MiB too few, then by money.
        (SortKey::Risk, ["both", "small", "cpu", "memory", "fits"]),
        (SortKey::Waste, ["cpu", "both", "memory", "fits", "small"]),
        (SortKey::Cpu, ["small", "cpu", "both", "fits", "memory"]),
        (SortKey::Memory, ["memory", "both", "cpu", "fits", "small"]),
        (SortKey::Name, ["both", "cpu", "fits", "memory", "small"]),
    ] {
        assert_eq!(names(&all(&report, sort, None)), expected, "{sort}");
    }
}

#[test]
fn without_prices_the_share_of_all_requests_counts() {
    let report = report_of(&WORKLOADS, None);
    // Requested: 8000 + 100 + 1000 + 900 + 4000 = 14000 millicores, 200 + 16000 + 100 + 900 + 100 = 17300
    // MiB. Saved: memory 8000/17300 = 46 %, cpu 6000/14000 = 43 %, both 2000/14000 - 200/17300 = 13 %, small
    // -71 %.
    let expected = ["memory", "cpu", "both", "fits", "small"];
    assert_eq!(names(&all(&report, SortKey::Money, None)), expected);
}

#[test]
fn the_lists_of_a_report() {
    let mut workloads = WORKLOADS.to_vec();
    workloads.push(("unknown", 1, [100, 100], [100, 100]));
    let mut report = report_of(&workloads, None);
    for row in &mut report.workloads[5].containers[0].resources {
        row.target = None;
    }
    let little = too_little(&report, None);
    assert_eq!(names(&little), ["both", "small"]);
    let much = too_much(&report, SortKey::Money, Some(1));
    assert_eq!((names(&much), much.total), (vec!["memory".to_owned()], 2));
    assert_eq!(names(&unsaid(&report)), ["unknown"]);
}

#[test]
fn orders_are_parsed_and_printed() {
    for text in ["money", "risk", "waste", "cpu", "memory", "name"] {
        assert_eq!(text.parse::<SortKey>().expect(text).to_string(), text);
    }
    let error = "cost".parse::<SortKey>().expect_err("invalid").to_string();
    assert_eq!(
        error,
        "invalid value `cost` of --sort; use money, risk, waste, cpu, memory or name"
    );
}

proptest! {
    #[test]
    fn the_first_rows_of_an_order_are_a_prefix(
        requests in prop::collection::vec((1..9000_i64, 1..9000_i64), 1..12),
        top in 0..12_usize,
        sort in prop::sample::select(&[SortKey::Money, SortKey::Risk, SortKey::Waste, SortKey::Cpu, SortKey::Memory, SortKey::Name][..]),
    ) {
        let names_of: Vec<String> = (0..requests.len()).map(|index| format!("w{index:02}")).collect();
        let workloads: Vec<_> = names_of.iter().zip(&requests).map(|(name, (request, target))| {
            (name.as_str(), 1, [*request, *target], [*target, *request])
        }).collect();
        let report = report_of(&workloads, None);
        let (first, every) = (all(&report, sort, Some(top)), all(&report, sort, None));
        prop_assert_eq!(first.total, requests.len());
        prop_assert_eq!(&first.shown[..], &every.shown[..top.min(requests.len())]);
        let mut sorted = names(&every);
        sorted.sort();
        prop_assert_eq!(sorted, names_of);
    }
}
