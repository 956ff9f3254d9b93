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
pub mod report;
pub mod scenario_run;
pub mod sparkline;
mod sparklines;
mod tables;
pub mod text;
pub mod totals;
pub mod workloads;

use std::sync::Arc;

pub use config::Config;
pub use report::DemoReport;
pub use scenario_run::{DemoError, OpenStorage, ProgressObserver, START, Scenario};
pub use workloads::{DemoWorkload, workloads};

use self::{
    report::{BothScenarios, ContainerReport, HistoryReport, Reasons, Recommended, Savings},
    scenario_run::ScenarioResult,
};
use plimsoll_core::sim::{ContainerType, WorkloadKind, WorkloadRecommendation};

/// Lives both lives, and reports.
pub async fn run(
    config: &Config,
    open: &OpenStorage<'_>,
    witness: &mut dyn ProgressObserver,
) -> Result<DemoReport, DemoError> {
    let workloads = workloads();
    let without = scenario_run::run_without(config, &workloads, witness)?;
    let (with, said, history) = scenario_run::run_with(config, &workloads, open, witness).await?;
    Ok(report(config, &workloads, &BothScenarios { without, with }, &said, history))
}

fn report(
    config: &Config,
    workloads: &[DemoWorkload],
    lives: &BothScenarios<ScenarioResult>,
    said: &[WorkloadRecommendation],
    history: HistoryReport,
) -> DemoReport {
    let totals =
        BothScenarios { without: lives.without.totals.total(), with: lives.with.totals.total() };
    DemoReport {
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
        containers: workloads.iter().flat_map(|member| containers(member, lives, said)).collect(),
        chart_point_minutes: chart::POINT_MINUTES,
    }
}

fn containers<'a>(
    member: &'a DemoWorkload,
    lives: &'a BothScenarios<ScenarioResult>,
    said: &'a [WorkloadRecommendation],
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
            sidecar: spec.container_type == ContainerType::Sidecar,
            replicas: match workload.workload_kind {
                WorkloadKind::Deployment { replicas } => Some(replicas),
                WorkloadKind::CronJob { .. } => None,
            },
            template: spec.resources,
            recommendation: found.map(recommended),
            lives: BothScenarios {
                without: lives.without.totals.container_totals(place.0, place.1),
                with: lives.with.totals.container_totals(place.0, place.1),
            },
            charts: BothScenarios {
                without: lives.without.charts.container_chart(place.0, place.1),
                with: lives.with.charts.container_chart(place.0, place.1),
            },
        }
    })
}

fn recommended(advised: &WorkloadRecommendation) -> Recommended {
    let explanation = advised.recommendation.explanation.clone();
    let why = Reasons {
        cpu: explanation.cpu.as_ref().map(ToString::to_string).unwrap_or_default(),
        memory: explanation.memory.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    Recommended { advice: advised.recommendation(), why, explanation }
}
