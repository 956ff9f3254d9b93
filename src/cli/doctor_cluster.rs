//! `plimsoll doctor --cluster`: runs the checks and chooses the exit code.

use plimsoll_core::diagnosis::Level;

use super::{
    Exit,
    one_shot::{ReportArgs, Spinner, block_on},
    output::CliError,
    terminal::Terminal,
};
use crate::{
    cluster::clock::Clock,
    report::{
        collect::doctor_cluster::{ClusterCheckConfig, examine_cluster},
        doctor::cluster_report::{ClusterReport, render},
    },
};

pub(super) fn run(
    config: &ClusterCheckConfig,
    (fail_on, user_agent): (Level, &'static str),
    arguments: &ReportArgs,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    let spinner = Spinner::start(terminal, "checking the cluster");
    let report = block_on(async {
        examine_cluster(config, user_agent, &Clock::wall()).await.map_err(CliError::failed)
    })?;
    drop(spinner);
    let exit = exit_code(&report, fail_on);
    arguments.print(terminal, &report, |report, style| render(report, style, exit as u8), true)?;
    Ok(exit)
}

/// What was found goes before what is not known: it is certain.
fn exit_code(report: &ClusterReport, fail_on: Level) -> Exit {
    if report.has(fail_on) {
        Exit::Findings
    } else if report.count(Level::Unknown) > 0 {
        Exit::Incomplete
    } else {
        Exit::Fine
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{
        diagnosis::{CheckId, Finding},
        types::Time,
    };

    use super::*;

    #[test]
    fn the_exit_code_depends_on_the_level_and_on_what_is_unknown() {
        use Level::{Ok, Problem, Unknown, Warning};
        for (levels, fail_on, exit) in [
            (&[Ok][..], Warning, Exit::Fine),
            (&[Ok, Warning], Warning, Exit::Findings),
            (&[Ok, Warning], Problem, Exit::Fine),
            (&[Warning, Unknown], Problem, Exit::Incomplete),
            (&[Problem, Unknown], Problem, Exit::Findings),
            (&[Ok, Unknown], Warning, Exit::Incomplete),
        ] {
            let finding = |level: &Level| Finding::new(CheckId::ApiVersion, *level, "");
            let report = ClusterReport {
                schema_version: 1,
                kind: String::new(),
                version: String::new(),
                at: Time::EPOCH,
                cluster: String::new(),
                api_version: None,
                prometheus: None,
                findings: levels.iter().map(finding).collect(),
            };
            assert_eq!(exit_code(&report, fail_on), exit, "{levels:?} {fail_on:?}");
        }
    }
}
