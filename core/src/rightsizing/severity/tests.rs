//! The two tables of levels, row by row and at their edges.

use proptest::prelude::*;

use super::*;
use crate::{
    rightsizing::{evidence::MemoryPeak, testing::MI, thresholds::Thresholds},
    types::{Bytes, Time},
};

const GI: i64 = 1 << 30;

fn configured(request: Option<i64>, limit: Option<i64>) -> Configured {
    Configured { request, limit, is_unknown: false }
}

fn need(lower: i64, target: i64, upper: i64) -> Need {
    Need { target, lower: Some(lower), upper: Some(upper) }
}

fn peak(bytes: i64) -> MemoryPeak {
    MemoryPeak { bytes: Bytes(bytes), at: Time::EPOCH }
}

fn memory(configured: Configured, need: Need, evidence: &ContainerEvidence) -> Risk {
    memory_risk(configured, &need, evidence, &MemoryRiskThresholds::default())
}

fn cpu(configured: Configured, need: Need, evidence: &ContainerEvidence) -> Risk {
    cpu_risk(configured, &need, evidence, &CpuRiskThresholds::default())
}

#[test]
fn an_oom_kill_under_a_limit_that_stands_is_critical() {
    let fits = need(400 * MI, 500 * MI, 900 * MI);
    let killed = |at_kill: Option<i64>| ContainerEvidence {
        oom_kills: 9,
        last_oom_kill: Some(Time::from_secs(7)),
        oom_kill_limit: at_kill.map(Bytes),
        ..ContainerEvidence::default()
    };
    let reason = RiskReason::OomKilled { kills: 9, last: Some(Time::from_secs(7)) };
    let limited = configured(Some(512 * MI), Some(512 * MI));
    for (configured, at_kill, level) in [
        (limited, None, Level::Critical),
        (limited, Some(512 * MI), Level::Critical),
        (limited, Some(600 * MI), Level::Critical),
        (limited, Some(256 * MI), Level::Ok),
        (configured(Some(512 * MI), None), None, Level::Ok),
    ] {
        let risk = memory(configured, fits, &killed(at_kill));
        let reasons = if level == Level::Ok { vec![] } else { vec![reason.clone()] };
        assert_eq!(risk, Risk { level, reasons }, "{configured:?}, {at_kill:?} at the kill");
    }
    let never = ContainerEvidence { oom_kills: 0, ..killed(None) };
    assert_eq!(memory(limited, fits, &never).level, Level::Ok);
}

#[test]
fn levels_of_memory() {
    let at = |bytes: i64| ContainerEvidence {
        memory_peak: Some(peak(bytes)),
        ..ContainerEvidence::default()
    };
    let none = ContainerEvidence::default();
    let near = |share: f64| Some(RiskReason::PeakNearLimit { share });
    let (below, missing) = (Some(RiskReason::BelowNeed), Some(RiskReason::NoRequest));
    for (name, configured, need, evidence, level, reason) in vec![
        (
            "95 % of the limit",
            configured(Some(GI), Some(1000)),
            need(1, 2, GI),
            at(950),
            Level::High,
            near(0.95),
        ),
        (
            "94.9 % of the limit",
            configured(Some(GI), Some(1000)),
            need(1, 2, GI),
            at(949),
            Level::Ok,
            None,
        ),
        (
            "peak without limit",
            configured(Some(GI), None),
            need(1, 2, GI),
            at(950),
            Level::Ok,
            None,
        ),
        (
            "64 MiB below",
            configured(Some(936 * MI), None),
            need(937 * MI, 1000 * MI, GI),
            none.clone(),
            Level::High,
            below.clone(),
        ),
        (
            "63 MiB below, more than 90 %",
            configured(Some(937 * MI), None),
            need(938 * MI, 1000 * MI, GI),
            none.clone(),
            Level::Ok,
            None,
        ),
        (
            "at the lower bound",
            configured(Some(600 * MI), None),
            need(600 * MI, 1000 * MI, GI),
            none.clone(),
            Level::Medium,
            below.clone(),
        ),
        (
            "90 % of the target",
            configured(Some(900), None),
            need(1, 1000, 2000),
            none.clone(),
            Level::Ok,
            None,
        ),
        (
            "less than 90 %",
            configured(Some(899), None),
            need(1, 1000, 2000),
            none.clone(),
            Level::Medium,
            below,
        ),
        (
            "no request, 128 MiB",
            configured(None, None),
            need(1, 2, 3),
            at(128 * MI),
            Level::High,
            missing,
        ),
        (
            "no request, less",
            configured(None, None),
            need(1, 2, 3),
            at(128 * MI - 1),
            Level::Ok,
            None,
        ),
        (
            "no request, peak unknown",
            configured(None, None),
            need(1, GI, GI),
            none,
            Level::Ok,
            None,
        ),
    ] {
        let expected = Risk { level, reasons: reason.into_iter().collect() };
        assert_eq!(memory(configured, need, &evidence), expected, "{name}");
    }
}

#[test]
fn levels_of_cpu() {
    let throttled = |share: f64| ContainerEvidence {
        throttled_share: Some(share),
        ..ContainerEvidence::default()
    };
    let above = |share: f64| ContainerEvidence {
        cpu_above_request: Some(share),
        ..ContainerEvidence::default()
    };
    let none = ContainerEvidence::default();
    let by_throttling = |share: f64| Some(RiskReason::Throttled { share });
    let by_usage = |share: f64| Some(RiskReason::UsageAboveRequest { share });
    let (below, missing) = (Some(RiskReason::BelowNeed), Some(RiskReason::NoRequest));
    let limited = configured(Some(1000), Some(2000));
    let open = configured(Some(1000), None);
    let fits = need(800, 1000, 2000);
    for (name, configured, need, evidence, level, reason) in vec![
        ("throttled 25 %", limited, fits, throttled(0.25), Level::Critical, by_throttling(0.25)),
        ("throttled 24.9 %", limited, fits, throttled(0.249), Level::High, by_throttling(0.249)),
        ("throttled 10 %", limited, fits, throttled(0.1), Level::High, by_throttling(0.1)),
        ("throttled 9.9 %", limited, fits, throttled(0.099), Level::Ok, None),
        ("limit removed", open, fits, throttled(0.9), Level::Ok, None),
        ("above the request 20 %", open, fits, above(0.2), Level::High, by_usage(0.2)),
        ("above the request 19.9 %", open, fits, above(0.199), Level::Ok, None),
        ("100m below", open, need(1001, 1100, 2000), none.clone(), Level::High, below.clone()),
        ("99m below, 91 %", open, need(1001, 1099, 2000), none.clone(), Level::Ok, None),
        ("less than 90 %", open, need(900, 1112, 2000), none.clone(), Level::Medium, below),
        (
            "no request, 25m",
            configured(None, None),
            need(1, 25, 30),
            none.clone(),
            Level::Medium,
            missing,
        ),
        ("no request, 24m", configured(None, None), need(1, 24, 30), none, Level::Ok, None),
    ] {
        let expected = Risk { level, reasons: reason.into_iter().collect() };
        assert_eq!(cpu(configured, need, &evidence), expected, "{name}");
    }
}

#[test]
fn the_most_severe_reason_is_first() {
    let evidence = ContainerEvidence {
        throttled_share: Some(0.3),
        cpu_above_request: Some(0.5),
        ..ContainerEvidence::default()
    };
    let risk = cpu(configured(Some(100), Some(100)), need(150, 1000, 2000), &evidence);
    let expected = Risk {
        level: Level::Critical,
        reasons: vec![
            RiskReason::Throttled { share: 0.3 },
            RiskReason::UsageAboveRequest { share: 0.5 },
            RiskReason::BelowNeed,
        ],
    };
    assert_eq!(risk, expected);
    let killed = ContainerEvidence {
        oom_kills: 1,
        memory_peak: Some(peak(99)),
        ..ContainerEvidence::default()
    };
    let risk = memory(configured(Some(1), Some(100)), need(2, 2, 3), &killed);
    assert_eq!(risk.level, Level::Critical);
    assert!(matches!(
        risk.reasons[..],
        [RiskReason::OomKilled { .. }, RiskReason::PeakNearLimit { .. }, RiskReason::BelowNeed]
    ));
}

#[test]
fn requests_that_could_not_be_read_are_never_fine() {
    let unknown = Configured { is_unknown: true, ..Configured::default() };
    let evidence =
        ContainerEvidence { memory_peak: Some(peak(GI)), ..ContainerEvidence::default() };
    let fits = need(1, 1000, 2000);
    let unsaid = Risk { level: Level::Unsaid, reasons: vec![] };
    assert_eq!(memory(unknown, fits, &evidence), unsaid);
    assert_eq!(cpu(unknown, fits, &evidence), unsaid);
    let thresholds = WasteThresholds::default();
    assert_eq!(waste(Resource::Cpu, unknown, &fits, Some(9.0), None, &thresholds), Level::Unsaid);
    let throttled = ContainerEvidence { throttled_share: Some(0.5), ..evidence };
    assert_eq!(cpu(unknown, fits, &throttled).level, Level::Critical);
}

#[test]
fn without_a_number_only_oom_kills_are_said() {
    let limited = configured(Some(GI), Some(GI));
    let killed = ContainerEvidence {
        oom_kills: 2,
        memory_peak: Some(peak(GI)),
        ..ContainerEvidence::default()
    };
    for (resource, evidence, gap, level) in [
        (Resource::Memory, Some(&killed), EvidenceGap::TooYoung, Level::Critical),
        (Resource::Memory, Some(&killed), EvidenceGap::AmbiguousOwner, Level::Unsaid),
        (Resource::Cpu, Some(&killed), EvidenceGap::TooYoung, Level::Unsaid),
        (Resource::Memory, None, EvidenceGap::WithoutSeries, Level::Unsaid),
    ] {
        let risk = risk_without_need(resource, limited, evidence, gap);
        assert_eq!(risk.level, level, "{resource} {gap}");
        assert_eq!(risk.reasons.len(), usize::from(level == Level::Critical));
    }
}

#[test]
fn levels_of_waste() {
    let thresholds = Thresholds::default().waste;
    let cores = |cores: i64| cores * 1000;
    for (name, resource, request, target, upper, pods, saving, level) in [
        (
            "half, one core",
            Resource::Cpu,
            cores(2),
            cores(1),
            cores(4),
            Some(1.0),
            None,
            Level::High,
        ),
        ("half, 999m", Resource::Cpu, 1998, 999, cores(4), Some(1.0), None, Level::Medium),
        ("half, 2 x 500m", Resource::Cpu, 1000, 500, cores(4), Some(2.0), None, Level::High),
        ("49 %, ten cores", Resource::Cpu, 1000, 510, cores(4), Some(20.0), None, Level::Medium),
        ("30 %, 250m", Resource::Cpu, 1000, 700, 1000, Some(0.84), None, Level::Medium),
        ("30 %, 249m", Resource::Cpu, 830, 581, 1000, Some(1.0), None, Level::Low),
        ("29 %", Resource::Cpu, 1000, 710, 1000, Some(100.0), None, Level::Low),
        ("10 %", Resource::Cpu, 1000, 900, 1000, Some(100.0), None, Level::Low),
        ("9.9 %", Resource::Cpu, 1000, 901, 1000, Some(100.0), None, Level::Ok),
        (
            "9.9 %, above the upper bound",
            Resource::Cpu,
            1000,
            901,
            999,
            Some(100.0),
            None,
            Level::Low,
        ),
        ("none", Resource::Cpu, 1000, 1000, 1000, Some(100.0), None, Level::Ok),
        ("too little", Resource::Cpu, 1000, 2000, 3000, Some(100.0), None, Level::Ok),
        ("half, 2 GiB", Resource::Memory, 4 * GI, 2 * GI, 9 * GI, Some(1.0), None, Level::High),
        ("half, 1 GiB", Resource::Memory, 2 * GI, GI, 9 * GI, Some(1.0), None, Level::Medium),
        ("half, 100 MiB", Resource::Memory, 200 * MI, 100 * MI, GI, Some(1.0), None, Level::Low),
        (
            "half, 100 MiB at 50 a month",
            Resource::Memory,
            200 * MI,
            100 * MI,
            GI,
            Some(1.0),
            Some(50.0),
            Level::High,
        ),
        (
            "half, 100 MiB at 10 a month",
            Resource::Memory,
            200 * MI,
            100 * MI,
            GI,
            Some(1.0),
            Some(10.0),
            Level::Medium,
        ),
        (
            "20 % at 500 a month",
            Resource::Memory,
            500 * MI,
            400 * MI,
            GI,
            Some(1.0),
            Some(500.0),
            Level::Low,
        ),
        (
            "half of one core, pods unknown",
            Resource::Cpu,
            cores(9),
            cores(1),
            cores(9),
            None,
            None,
            Level::Low,
        ),
        ("no pods", Resource::Cpu, cores(9), cores(1), cores(9), Some(0.0), None, Level::Low),
    ] {
        let need = need(1, target, upper);
        let found =
            waste(resource, configured(Some(request), None), &need, pods, saving, &thresholds);
        assert_eq!(found, level, "{name}");
    }
    let found =
        waste(Resource::Cpu, configured(None, None), &need(1, 2, 3), None, None, &thresholds);
    assert_eq!(found, Level::Ok, "no request wastes nothing");
}

proptest! {
    /// Asking for more never adds risk, and never removes waste.
    #[test]
    fn levels_are_monotonic_in_the_request(
        target in 1..10_000_i64,
        lower in 1..10_000_i64,
        upper in 1..20_000_i64,
        less in 1..20_000_i64,
        more in 0..20_000_i64,
        pods in 0.0..50.0_f64,
    ) {
        let need = Need { target, lower: Some(lower), upper: Some(upper) }.with_target(target);
        let evidence = ContainerEvidence::default();
        let [small, large] = [less, less + more].map(|request| configured(Some(request), None));
        let thresholds = Thresholds::default();
        prop_assert!(cpu(large, need, &evidence).level <= cpu(small, need, &evidence).level);
        prop_assert!(memory(large, need, &evidence).level <= memory(small, need, &evidence).level);
        let of = |configured| waste(Resource::Cpu, configured, &need, Some(pods), None, &thresholds.waste);
        prop_assert!(of(large) >= of(small));
    }

    /// A request at the target has neither.
    #[test]
    fn the_target_is_always_fine(target in 1..1_000_000_000_i64, lower in 1..1_000_000_000_i64, pods in 0.0..1e6_f64) {
        let need = Need { target, lower: Some(lower), upper: Some(lower) }.with_target(target);
        let evidence = ContainerEvidence::default();
        let at = configured(Some(target), None);
        prop_assert_eq!(cpu(at, need, &evidence).level, Level::Ok);
        prop_assert_eq!(memory(at, need, &evidence).level, Level::Ok);
        let thresholds = WasteThresholds::default();
        prop_assert_eq!(waste(Resource::Memory, at, &need, Some(pods), Some(1e9), &thresholds), Level::Ok);
    }
}

#[test]
fn reasons_have_levels_of_their_own() {
    let row = |resource, amounts: [i64; 3], risk, risk_reasons| ResourceReport {
        resource,
        request: Some(amounts[0]),
        limit: None,
        template: None,
        target: Some(amounts[2]),
        lower: Some(amounts[1]),
        upper: None,
        change: crate::rightsizing::report::Change::default(),
        risk,
        risk_reasons,
        waste: Level::Ok,
        cost: None,
        new_cost: None,
        unsaid: None,
        explanation: None,
    };
    let killed = RiskReason::OomKilled { kills: 1, last: None };
    let throttled = RiskReason::Throttled { share: 0.2 };
    let below = || RiskReason::BelowNeed;
    let (cpu, memory) = (Resource::Cpu, Resource::Memory);
    for (row, expected) in [
        (
            row(cpu, [80, 70, 100], Level::High, vec![throttled.clone(), below()]),
            vec![Level::High, Level::Medium],
        ),
        (
            row(cpu, [50, 90, 200], Level::High, vec![throttled, below()]),
            vec![Level::High, Level::High],
        ),
        (
            row(
                memory,
                [1 << 20, 1 << 29, 1 << 30],
                Level::Critical,
                vec![killed, RiskReason::PeakNearLimit { share: 1.0 }, below()],
            ),
            vec![Level::Critical, Level::High, Level::High],
        ),
        // Thresholds of the user: the level of the row is right.
        (row(cpu, [50, 90, 200], Level::Medium, vec![below()]), vec![Level::Medium]),
    ] {
        let levels: Vec<_> = reason_levels(&row).map(|(_, level)| level).collect();
        assert_eq!(levels, expected, "{row:?}");
    }
}
