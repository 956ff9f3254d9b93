//! The table of docs/vpa-and-hpa.md.

use crate::sim::autoscaling::{LoadCurve, Mode, Outcome, Scenario, run};

fn rows() -> Vec<(&'static str, Scenario)> {
    let daily = Scenario::daily(1);
    let with = |mode| Scenario { mode, ..daily };
    let small = Scenario { template_request: 100, ..daily };
    let idle = LoadCurve::Daily { night: 30.0, peak: 300.0, weekend: 1.0 };
    vec![
        ("VPA on memory only", with(Mode::MemoryOnly)),
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

#[test]
fn print() {
    for (name, scenario) in rows() {
        let outcome = run(&scenario);
        eprintln!("{}", line(name, &outcome));
        eprintln!("{outcome:?}");
    }
}
