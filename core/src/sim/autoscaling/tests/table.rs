//! The table of docs/vpa-and-hpa.md.

use crate::sim::autoscaling::{LoadCurve, Mode, Outcome, Scenario, run};

fn rows() -> Vec<(&'static str, Scenario)> {
    let daily = Scenario::daily(1);
    let with = |mode| Scenario { mode, ..daily };
    let small = Scenario { template_request: 100, ..daily };
    let idle = LoadCurve::Daily { night: 30.0, peak: 250.0, weekend: 1.0 };
    vec![
        ("VPA on memory only", with(Mode::MemoryOnly)),
        ("VPA on memory only, idle", Scenario { curve: idle, ..with(Mode::MemoryOnly) }),
        ("both, upstream", with(Mode::Unaware)),
        ("both, upstream, at most 400", Scenario { max_replicas: 400, ..with(Mode::Unaware) }),
        ("both, upstream, idle", Scenario { curve: idle, ..with(Mode::Unaware) }),
        ("both, upstream, target 95 %", Scenario { target_percent: 95, ..with(Mode::Unaware) }),
        ("scale point", with(Mode::Coordinated)),
        ("scale point, idle", Scenario { curve: idle, ..with(Mode::Coordinated) }),
        ("target follows request", with(Mode::Retargeted)),
        ("template of 100m, VPA on memory only", Scenario { mode: Mode::MemoryOnly, ..small }),
        ("template of 100m, scale point", Scenario { raises_at_max: false, ..small }),
        ("template of 100m, raised at max", small),
    ]
}

fn line(name: &str, outcome: &Outcome) -> String {
    format!(
        "| {name} | {:.1} / {} | {:.2} | {}m | {:.0} % |",
        outcome.mean_replicas,
        outcome.max_replicas,
        outcome.requested_cores,
        outcome.request_at_end,
        100.0 * outcome.share_at_max
    )
}

mod deep {
    use super::*;

    #[test]
    fn the_documented_table_is_what_the_simulator_measures() {
        let page = include_str!("../../../../../docs/vpa-and-hpa.md");
        let measured: Vec<String> =
            rows().iter().map(|(name, scenario)| line(name, &run(scenario))).collect();
        let missing: Vec<_> =
            measured.iter().filter(|line| !page.contains(line.as_str())).collect();
        assert!(missing.is_empty(), "docs/vpa-and-hpa.md does not have {missing:#?}");
    }
}
