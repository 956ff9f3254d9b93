//! The demo: simulates the same days of a virtual cluster twice, without and with recommendations.
//!
//! ```text
//!   workloads, seed ─┬─▶ run_without ───────────────────────────▶ ScenarioResult ─┐
//!                    ├─▶ run_with ◀─▶ recommender ◀─▶ storage ──▶ ScenarioResult ─┼─▶ DemoReport ─▶ text | JSON
//!                    └─▶ both_autoscalers: a service with an HPA and a VPA ────────┘
//! ```
//!
//! Only the load is synthetic. Savings and OOM kills are the measured difference of the two runs.

mod both_autoscalers;
pub(crate) mod report;
pub(crate) mod scenario_run;
mod sparklines;
mod tables;
pub(crate) mod text;
pub(crate) mod totals;
pub(crate) mod workloads;

use std::sync::Arc;

pub use report::DemoReport;
pub use scenario_run::{Config, DemoError, OpenStorage, ProgressObserver, START, Scenario};
pub use workloads::{DemoWorkload, workloads};

use self::{
    both_autoscalers::BothAutoscalers,
    report::{BothScenarios, ContainerReport, HistoryReport, Reasons, Recommended, Savings},
    scenario_run::ScenarioResult,
};
use plimsoll_core::sim::{ContainerType, WorkloadKind, WorkloadRecommendation};

/// Simulates both scenarios, and reports.
pub async fn run(
    config: &Config,
    open: &OpenStorage<'_>,
    observer: &mut dyn ProgressObserver,
) -> Result<DemoReport, DemoError> {
    let workloads = workloads();
    let without = scenario_run::run_without(config, &workloads, observer)?;
    let (with, recommendations, history) =
        scenario_run::run_with(config, &workloads, open, observer).await?;
    let both_autoscalers = both_autoscalers::simulate(config.seed, observer)?;
    let results = BothScenarios { without, with };
    Ok(report(config, &workloads, &results, &recommendations, history, both_autoscalers))
}

fn report(
    config: &Config,
    workloads: &[DemoWorkload],
    results: &BothScenarios<ScenarioResult>,
    recommendations: &[WorkloadRecommendation],
    history: HistoryReport,
    both_autoscalers: BothAutoscalers,
) -> DemoReport {
    let totals = results.map(|result| result.totals.total());
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
        containers: workloads
            .iter()
            .flat_map(|workload| containers(workload, results, recommendations))
            .collect(),
        chart_point_minutes: totals::POINT_MINUTES,
        both_autoscalers,
    }
}

fn containers<'a>(
    demo_workload: &'a DemoWorkload,
    results: &'a BothScenarios<ScenarioResult>,
    recommendations: &'a [WorkloadRecommendation],
) -> impl Iterator<Item = ContainerReport> + 'a {
    let workload = &demo_workload.workload;
    workload.containers.iter().map(move |spec| {
        let names = (&workload.name, &spec.name);
        let found = recommendations.iter().find(|recommended| {
            recommended.workload.name == *names.0
                && recommended.recommendation.container == *names.1
        });
        ContainerReport {
            namespace: Arc::clone(&workload.namespace),
            workload: Arc::clone(names.0),
            container: Arc::clone(names.1),
            story: demo_workload.story.to_owned(),
            sidecar: spec.container_type == ContainerType::Sidecar,
            replicas: match workload.workload_kind {
                WorkloadKind::Deployment { replicas } => Some(replicas),
                WorkloadKind::CronJob { .. } => None,
            },
            template: spec.resources,
            recommendation: found.map(to_recommended),
            lives: results.map(|result| result.totals.container_totals(names.0, names.1)),
            charts: results.map(|result| result.charts.container_chart(names.0, names.1)),
        }
    })
}

fn to_recommended(workload: &WorkloadRecommendation) -> Recommended {
    let explanation = workload.recommendation.explanation.clone();
    let why = Reasons {
        cpu: explanation.cpu.as_ref().map(ToString::to_string).unwrap_or_default(),
        memory: explanation.memory.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    Recommended { advice: workload.recommendation(), why, explanation }
}
