//! Runs `plimsoll recommend`: makes the report, prints its forms, edits manifests, and chooses the exit code.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use plimsoll_core::{
    manifests::{EditPlan, helm_values, kustomize, strategic, unified_diff, vpa},
    rightsizing::{baseline::Baseline, fail_on::FailOn, report::Report, thresholds::Thresholds},
};

use super::{
    Exit,
    one_shot::first_signal,
    output::{self, CliError, escape_to_one_line},
    progress::Progress,
    recommend_options::{ManifestEdit, RecommendCommand},
    terminal::Terminal,
};
use crate::{
    cluster::clock::Clock,
    report::{
        recommend::{
            Form, FormOptions, OutputTarget, Placement, html, manifest_files, render,
            run::{self, RecommendError, RecommendProgress, run_recommend},
            why,
        },
        style::Style,
    },
};

/// How many findings of `--fail-on` are named on standard error.
const MAX_NAMED: usize = 10;

/// Makes the report and prints it.
pub fn run(mut command: RecommendCommand, terminal: &Terminal) -> Result<Exit, CliError> {
    if command.prints_thresholds() {
        let yaml = Thresholds::default().to_yaml().map_err(CliError::failed)?;
        output::print_result(&yaml)?;
        return Ok(Exit::Fine);
    }
    let baseline = command.read_files()?;
    // Before the network, which may take long or fail.
    output::print_note(&format!("plimsoll: {}", opening(&command)));
    let clock = Clock::wall();
    let mut progress = TerminalProgress::new(terminal);
    let config = &command.config;
    if command.is_estimate {
        let estimates =
            interruptible(async { run::estimate(config, &clock, &mut progress).await })?;
        drop(progress);
        let strategy = config.strategy;
        let texts: Vec<String> =
            estimates.iter().map(|(server, estimate)| estimate.text(server, strategy)).collect();
        output::print_result(&texts.concat())?;
        return Ok(Exit::Fine);
    }
    let report = interruptible(async { run_recommend(config, &clock, &mut progress).await })?;
    drop(progress);
    finish(&command, baseline.as_ref(), &report, terminal)
}

/// What is read, in one line.
fn opening(command: &RecommendCommand) -> String {
    let days = command.config.prometheus.history_length.as_secs_f64() / 86_400.0;
    let until = command.config.until.map_or_else(String::new, |time| format!(" until {time}"));
    format!("reading workloads and {days:.0} days of history{until}")
}

/// Runs a future until it ends or a signal arrives. Signals that arrive later do not interrupt the output.
fn interruptible<T>(work: impl Future<Output = Result<T, RecommendError>>) -> Result<T, CliError> {
    // This fails if a provider is already installed, which is then also ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cannot_start = |error: io::Error| CliError::failed(format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(cannot_start)?;
    let result = runtime.block_on(async {
        let stop = first_signal().map_err(cannot_start)?;
        tokio::select! {
            result = work => result.map_err(CliError::failed),
            exit = stop => Err(CliError::new(exit, "interrupted; nothing was printed")),
        }
    });
    // Requests that are not finished must not delay the exit.
    runtime.shutdown_background();
    result
}

/// Prints and writes everything that was asked for.
fn finish(
    command: &RecommendCommand,
    baseline: Option<&Baseline>,
    report: &Report,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    let plan = command.edit.as_ref().map(|edit| plan(edit, report)).transpose()?;
    let mut forms = command.forms.clone();
    if let Some(plan) = &plan {
        forms.placements = placements(plan, report);
    }
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    let mut on_stdout = String::new();
    let shows_nothing_else = command.why.is_none() && plan.is_none();
    let default = OutputTarget { form: Form::Table, path: None };
    let default = Some(&default).filter(|_| command.outputs.is_empty() && shows_nothing_else);
    for output in command.outputs.iter().chain(default) {
        match &output.path {
            None => on_stdout.push_str(&rendered(output, report, &forms, terminal)?),
            Some(folder) if output.form.is_directory() => folders.push(folder.clone()),
            Some(path) => {
                files.push((path.clone(), rendered(output, report, &forms, terminal)?));
            }
        }
    }
    if let Some(name) = &command.why {
        on_stdout.push_str(&why(report, name, &terminal.style).map_err(CliError::failed)?);
    }
    match (&command.edit, &plan) {
        (Some(ManifestEdit::Diff(_)), Some(plan)) => {
            let diffs =
                plan.files.iter().map(|file| unified_diff(&file.path, &file.before, &file.after));
            on_stdout.extend(diffs);
        }
        (Some(ManifestEdit::Write(root)), Some(plan)) => {
            let written = manifest_files::write(root, plan, command.allows_dirty);
            written.map_err(CliError::failed)?;
        }
        _ => {}
    }
    for (path, text) in &files {
        write_file(path, text)?;
    }
    for folder in &folders {
        let written = manifest_files::write_component(folder, &kustomize::component(report));
        written.map_err(CliError::failed)?;
    }
    output::print_result(&on_stdout)?;
    if let Some(plan) = &plan {
        for problem in &plan.problems {
            output::print_note(&escape_to_one_line(&problem.to_string()));
        }
        output::print_note(&escape_to_one_line(&plan.summary()));
    }
    for unread in &report.unread {
        let line = format!("plimsoll: could not read {}: {}", unread.what, unread.why);
        output::print_note(&escape_to_one_line(&line));
    }
    let found = report_failures(command.fail_on, report, baseline, plan.as_ref());
    Ok(exit_code(!report.unread.is_empty(), found))
}

/// The exit code: incomplete goes first, because a pipeline must not take "nothing found" from half a cluster.
const fn exit_code(is_incomplete: bool, has_findings: bool) -> Exit {
    match (is_incomplete, has_findings) {
        (true, _) => Exit::Incomplete,
        (false, true) => Exit::Findings,
        (false, false) => Exit::Fine,
    }
}

/// Names what `--fail-on` found. With `--diff` or `--write` and `--fail-on=change`, the changes of the manifests count.
fn report_failures(
    fail_on: FailOn,
    report: &Report,
    baseline: Option<&Baseline>,
    plan: Option<&EditPlan>,
) -> bool {
    if let (FailOn::Change, Some(plan)) = (fail_on, plan) {
        return !plan.files.is_empty();
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

fn plan(edit: &ManifestEdit, report: &Report) -> Result<EditPlan, CliError> {
    let (ManifestEdit::Diff(root) | ManifestEdit::Write(root)) = edit;
    manifest_files::plan(root, report).map_err(CliError::failed)
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

/// The text of a form.
fn rendered(
    output: &OutputTarget,
    report: &Report,
    forms: &FormOptions,
    terminal: &Terminal,
) -> Result<String, CliError> {
    Ok(match output.form {
        Form::Html => html::render(report),
        Form::Strategic => strategic::stream(report),
        Form::HelmValues => helm_values::values(report, None).map_err(CliError::failed)?,
        Form::Vpa => vpa::objects(report),
        form => {
            // Files have no colours.
            let colour = terminal.style.colour && output.path.is_none();
            let style = Style { colour, ..terminal.style.clone() };
            render(form, report, &style, forms)
                .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?
        }
    })
}

fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let written = parent.map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let mut file = fs::File::create(path)?;
        file.write_all(text.as_bytes())
    });
    written.map_err(|error| CliError::failed(format!("{}: {error}", path.display())))
}

/// Shows progress on standard error, only on a terminal.
struct TerminalProgress(Progress);

impl TerminalProgress {
    fn new(terminal: &Terminal) -> Self {
        Self(Progress::new(terminal.stderr_is_tty, terminal.columns, terminal.style.glyphs))
    }
}

impl RecommendProgress for TerminalProgress {
    fn stage(&mut self, text: &str) {
        self.0.show_text(text);
    }

    fn histories(&mut self, done: usize, total: usize) {
        self.0.show_share("reading history", done, total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_goes_before_findings() {
        for (is_incomplete, has_findings, code) in
            [(false, false, 0), (false, true, 1), (true, false, 4), (true, true, 4)]
        {
            assert_eq!(exit_code(is_incomplete, has_findings) as u8, code);
        }
    }
}
