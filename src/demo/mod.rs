//! The demo: a virtual cluster lives the same days twice, without and with recommendations.
//!
//! ```text
//!   fleet, seed ─┬─▶ life without ──────────────────────▶ Account ─┐
//!                └─▶ life with ◀─▶ recommend ◀─▶ storage ▶ Account ─┴─▶ Report ─▶ text | JSON
//! ```
//!
//! What is invented is the load. Savings and kills are the measured difference of the two lives.

pub mod chart;
pub mod config;
mod curves;
pub mod fleet;
pub mod ledger;
pub mod life;
pub mod report;
pub mod spark;
mod tables;
pub mod text;

use std::sync::Arc;

pub use config::Config;
pub use fleet::{Member, fleet};
pub use life::{Failure, Life, Opener, START, Witness};
pub use report::Report;

use self::{
    life::Account,
    report::{ContainerReport, HistoryReport, Lives, Recommended, Savings, Why},
};
use plimsoll_core::sim::{Advised, Kind, Part};

/// Lives both lives, and reports.
pub async fn run(
    config: &Config,
    open: &Opener<'_>,
    witness: &mut dyn Witness,
) -> Result<Report, Failure> {
    let fleet = fleet();
    let without = life::live_without(config, &fleet, witness)?;
    let (with, said, history) = life::live_with(config, &fleet, open, witness).await?;
    Ok(report(config, &fleet, &Lives { without, with }, &said, history))
}

fn report(
    config: &Config,
    fleet: &[Member],
    lives: &Lives<Account>,
    said: &[Advised],
    history: HistoryReport,
) -> Report {
    let totals = Lives { without: lives.without.ledger.total(), with: lives.with.ledger.total() };
    Report {
        schema_version: report::SCHEMA_VERSION,
        kind: "demo".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        synthetic_load: true,
        seed: config.seed,
        days: config.days,
        start: START,
        savings: Savings::between(&totals),
        lives: totals,
        history,
        containers: fleet.iter().flat_map(|member| containers(member, lives, said)).collect(),
        chart_point_minutes: chart::POINT_MINUTES,
    }
}

fn containers<'a>(
    member: &'a Member,
    lives: &'a Lives<Account>,
    said: &'a [Advised],
) -> impl Iterator<Item = ContainerReport> + 'a {
    let workload = &member.workload;
    workload.containers.iter().map(move |spec| {
        let place = (&workload.name, &spec.name);
        let found = said.iter().find(|advised| {
            advised.workload.name == *place.0 && advised.recommendation.container == *place.1
        });
        ContainerReport {
            namespace: Arc::clone(&workload.namespace),
            workload: Arc::clone(place.0),
            container: Arc::clone(place.1),
            story: member.story.to_owned(),
            sidecar: spec.part == Part::Sidecar,
            replicas: match workload.kind {
                Kind::Deployment { replicas } => Some(replicas),
                Kind::CronJob { .. } => None,
            },
            template: spec.share,
            recommendation: found.map(recommended),
            lives: Lives {
                without: lives.without.ledger.of(place.0, place.1),
                with: lives.with.ledger.of(place.0, place.1),
            },
            charts: Lives {
                without: lives.without.charts.of(place.0, place.1),
                with: lives.with.charts.of(place.0, place.1),
            },
        }
    })
}

fn recommended(advised: &Advised) -> Recommended {
    let explanation = advised.recommendation.explanation.clone();
    let why = Why {
        cpu: explanation.cpu.as_ref().map(ToString::to_string).unwrap_or_default(),
        memory: explanation.memory.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    Recommended { advice: advised.advice(), why, explanation }
}
