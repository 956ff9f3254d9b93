//! Runs `plimsoll recommend`: makes the report, prints its forms, edits manifests, and chooses the exit code.

use std::{io, path::PathBuf, time::Duration};

use plimsoll_core::{
    manifests::{EditPlan, helm_values, kustomize, strategic, unified_diff, vpa},
    rightsizing::{baseline::Baseline, fail_on::FailOn, report::Report, thresholds::Thresholds},
};

use super::{
    Exit,
    one_shot::{block_on, watch_report},
    output::{self, CliError, OutputFormat, escape_to_one_line},
    recommend::RecommendArgs,
    recommend_options::RecommendCommand,
    report_run::{TerminalProgress, exit_code, interruptible, print_unread, style_for, write_file},
    terminal::Terminal,
};
use crate::{
    cluster::clock::Clock,
    report::{
        recommend::{
            Form, FormOptions, OutputTarget, Placement, html, manifest_files, render,
            run::{self, NoProgress, run_recommend},
            why, write_json,
        },
        style::{Style, format_span},
    },
};

/// How many findings of `--fail-on` are named on standard error.
const MAX_NAMED: usize = 10;
const SECONDS_PER_DAY: u64 = 86_400;

/// Makes the report and prints it.
pub fn run(mut command: RecommendCommand, terminal: &Terminal) -> Result<Exit, CliError> {
    if command.prints_thresholds() {
        let yaml = Thresholds::default().to_yaml().map_err(CliError::failed)?;
        output::print_result(&yaml)?;
        return Ok(Exit::Fine);
    }
    check_baseline(&command)?;
    let baseline = command.read_files()?;
    // Before the network, which may take long or fail.
    output::print_note(&format!("plimsoll: {}", opening(&command)));
    let clock = Clock::wall();
    if let Some(interval) = command.arguments.watch {
        return watch(&command, interval, &clock, terminal);
    }
    let mut progress = TerminalProgress::new(terminal, "reading history");
    let config = &command.config;
    if command.arguments.estimate {
        let work = async { run::estimate(config, &clock, &mut progress).await };
        let estimates = interruptible(work, CliError::failed)?;
        drop(progress);
        let strategy = config.strategy;
        let texts: Vec<String> =
            estimates.iter().map(|(server, estimate)| estimate.text(server, strategy)).collect();
        output::print_result(&texts.concat())?;
        return Ok(Exit::Fine);
    }
    let work = async { run_recommend(config, &clock, &mut progress).await };
    let report = interruptible(work, CliError::failed)?;
    drop(progress);
    finish(&command, baseline.as_ref(), &report, terminal)
}

/// Manifests have no earlier state to compare with.
fn check_baseline(command: &RecommendCommand) -> Result<(), CliError> {
    let RecommendArgs { diff, write, baseline, .. } = &command.arguments;
    let edits_manifests = diff.is_some() || write.is_some();
    if edits_manifests && command.fail_on == FailOn::Change && baseline.is_some() {
        return Err(CliError::usage(
            "--baseline cannot be combined with --fail-on=change and --diff or --write, which fail on changes of \
             manifests: leave out one of them",
        ));
    }
    Ok(())
}

/// What is read, in one line.
fn opening(command: &RecommendCommand) -> String {
    let until = command.config.until.map_or_else(String::new, |time| format!(" until {time}"));
    let history = history_text(command.config.prometheus.history_length);
    format!("reading workloads and {history} of history{until}")
}

/// A length in days, if it is a number of them.
fn history_text(length: Duration) -> String {
    match length.as_secs() {
        seconds if seconds > 0 && seconds.is_multiple_of(SECONDS_PER_DAY) => {
            let days = seconds / SECONDS_PER_DAY;
            format!("{days} day{}", if days == 1 { "" } else { "s" })
        }
        _ => format_span(length),
    }
}

/// Makes the report every interval and shows it, until a signal.
fn watch(
    command: &RecommendCommand,
    interval: Duration,
    clock: &Clock,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    let form = command.outputs.first().map_or(Form::Table, |output| output.form);
    let format = if form == Form::Json { OutputFormat::Json } else { OutputFormat::Text };
    let read = async || run_recommend(&command.config, clock, &mut NoProgress).await;
    let text = |report: &Report, style: &Style| {
        render(form, report, style, &command.forms).unwrap_or_else(|error| format!("{error}\n"))
    };
    let shown = (terminal, "reading workloads and history");
    block_on(watch_report(interval, format, shown, read, text))
}

/// Prints and writes everything that was asked for.
fn finish(
    command: &RecommendCommand,
    baseline: Option<&Baseline>,
    report: &Report,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    let RecommendArgs { why: explained, diff, write, allow_dirty, .. } = &command.arguments;
    let plan = |root: &PathBuf| manifest_files::plan(root, report).map_err(CliError::failed);
    let plan = diff.as_ref().or(write.as_ref()).map(plan).transpose()?;
    let mut forms = command.forms.clone();
    if let Some(plan) = &plan {
        forms.placements = placements(plan, report);
    }
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    let mut on_stdout = Vec::new();
    let shows_nothing_else = explained.is_none() && plan.is_none();
    let default = OutputTarget { form: Form::Table, path: None };
    let default = Some(&default).filter(|_| command.outputs.is_empty() && shows_nothing_else);
    for output in command.outputs.iter().chain(default) {
        match &output.path {
            None => on_stdout.push(rendered(output, report, &forms, terminal)?),
            Some(folder) if output.form.is_directory() => folders.push(folder.clone()),
            Some(path) => {
                files.push((path.clone(), rendered(output, report, &forms, terminal)?));
            }
        }
    }
    if let Some(name) = explained {
        let text = why(report, name, &terminal.style).map_err(CliError::failed)?;
        on_stdout.push(RenderedForm::Text(text));
    }
    match (write, &plan) {
        (Some(root), Some(plan)) => {
            let written = manifest_files::write(root, plan, *allow_dirty);
            written.map_err(CliError::failed)?;
        }
        (None, Some(plan)) => {
            let diffs =
                plan.files.iter().map(|file| unified_diff(&file.path, &file.before, &file.after));
            on_stdout.extend(diffs.map(RenderedForm::Text));
        }
        (_, None) => {}
    }
    for (path, form) in &files {
        write_file(path, &mut |out| form.write_to(out))?;
    }
    for folder in &folders {
        let written = manifest_files::write_component(folder, &kustomize::component(report));
        written.map_err(CliError::failed)?;
    }
    output::write_result(|out| on_stdout.iter().try_for_each(|form| form.write_to(out)))?;
    if let Some(plan) = &plan {
        for problem in &plan.problems {
            output::print_note(&escape_to_one_line(&problem.to_string()));
        }
        output::print_note(&escape_to_one_line(&plan.summary()));
    }
    print_unread(&report.unread);
    let found = report_failures(command.fail_on, report, baseline, plan.as_ref());
    Ok(exit_code(!report.unread.is_empty(), found))
}

/// Names what `--fail-on` found. With `--diff` or `--write` and `--fail-on=change`, the changes of the manifests count.
fn report_failures(
    fail_on: FailOn,
    report: &Report,
    baseline: Option<&Baseline>,
    plan: Option<&EditPlan>,
) -> bool {
    if let (FailOn::Change, Some(plan)) = (fail_on, plan) {
        return has_changes(plan);
    }
    let failures = fail_on.failures(report, baseline);
    for failure in failures.iter().take(MAX_NAMED) {
        let line = format!("plimsoll: --fail-on={fail_on}: {failure}");
        output::print_note(&escape_to_one_line(&line));
    }
    if failures.len() > MAX_NAMED {
        let more = failures.len() - MAX_NAMED;
        output::print_note(&format!("plimsoll: --fail-on={fail_on}: and {more} more"));
    }
    !failures.is_empty()
}

/// Whether manifests should change, even if a part of it has to be done by hand.
fn has_changes(plan: &EditPlan) -> bool {
    !plan.files.is_empty() || plan.problems.iter().any(|problem| problem.subject.is_some())
}

/// The places of resources in manifests, for code scanning.
fn placements(plan: &EditPlan, report: &Report) -> Vec<Placement> {
    let name = |workload: usize, container: usize| {
        Some(report.workloads.get(workload)?.containers.get(container)?.name.clone())
    };
    let known = plan.placements.iter().filter_map(|placement| {
        Some(Placement {
            file: placement.file.to_string(),
            line: u32::try_from(placement.line).unwrap_or(u32::MAX),
            workload: placement.workload,
            container: name(placement.workload, placement.container)?,
            resource: placement.resource,
        })
    });
    known.collect()
}

enum RenderedForm<'a> {
    Text(String),
    /// Rendered while it is written, because it is large.
    Json(&'a Report),
}

impl RenderedForm<'_> {
    fn write_to(&self, out: &mut dyn io::Write) -> io::Result<()> {
        match self {
            Self::Text(text) => out.write_all(text.as_bytes()),
            Self::Json(report) => write_json(report, out),
        }
    }
}

fn rendered<'a>(
    output: &OutputTarget,
    report: &'a Report,
    forms: &FormOptions,
    terminal: &Terminal,
) -> Result<RenderedForm<'a>, CliError> {
    Ok(RenderedForm::Text(match output.form {
        Form::Json => return Ok(RenderedForm::Json(report)),
        Form::Html => html::render(report),
        Form::Strategic => strategic::stream(report),
        Form::HelmValues => helm_values::values(report),
        Form::Vpa => vpa::objects(report),
        form => {
            let style = style_for(terminal, output.path.as_ref());
            render(form, report, &style, forms)
                .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?
        }
    }))
}

#[cfg(test)]
mod tests {
    use plimsoll_core::manifests::{EditedFile, Problem, Refusal};

    use super::*;

    #[test]
    fn refused_edits_are_changes_too() {
        let file = EditedFile {
            path: "a.yaml".into(),
            before: String::new(),
            after: String::new(),
            values: 1,
        };
        let problem = |subject: Option<&str>| Problem {
            file: "a.yaml".into(),
            line: 1,
            subject: subject.map(str::to_owned),
            reason: Refusal::Comment,
        };
        for (files, problems, expected) in [
            (vec![], vec![], false),
            (vec![file], vec![], true),
            (vec![], vec![problem(Some("shop/Deployment/web"))], true),
            (vec![], vec![problem(None)], false),
        ] {
            let plan = EditPlan { files, problems, ..EditPlan::default() };
            assert_eq!(has_changes(&plan), expected, "{plan:?}");
        }
    }

    #[test]
    fn a_history_of_hours_is_not_zero_days() {
        for (seconds, expected) in [
            (8 * 86_400, "8 days"),
            (86_400, "1 day"),
            (6 * 3600, "6 h"),
            (36 * 3600, "1 d 12 h"),
            (0, "0 s"),
        ] {
            assert_eq!(history_text(Duration::from_secs(seconds)), expected);
        }
    }
}
