//! `plimsoll watermark dry-run`: lists objects in dry run, and enables or disables it.

use std::{io::Read as _, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::dry_run_file::{self, ParsedLine};
use crate::{
    cli::{
        Exit,
        explain::{parse_object_name, resolve_object},
        go_values,
        one_shot::with_cluster,
        output::{self, CliError},
        terminal::Terminal,
    },
    controllers::{
        runtime::command_client::{Cluster, ClusterOptions},
        watermark::dry_run::{self, DryRunSetting, ObjectSelection},
    },
};

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  plimsoll watermark dry-run list --all --all-namespaces
  plimsoll watermark dry-run enable shop/web
  plimsoll watermark dry-run disable -n shop -l team=web

  plimsoll watermark dry-run list --all -o csv > saved.csv
  plimsoll watermark dry-run revert -f saved.csv

An object in dry run is still evaluated and reported, but its workload is not
scaled. Exit code 1: no object was found, or an operation failed.";

/// Lists objects in dry run, and enables or disables it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct DryRunArgs {
    #[command(subcommand)]
    action: DryRunCommand,
}

#[derive(Debug, Subcommand)]
enum DryRunCommand {
    /// Lists objects and whether they are in dry run
    List(ListArgs),
    /// Enables dry run for objects
    Enable(SelectionArgs),
    /// Disables dry run for objects
    Disable(SelectionArgs),
    /// Restores the dry-run setting of objects from a saved list
    Revert(RevertArgs),
}

/// The selection of objects.
#[derive(Debug, Args)]
struct SelectionArgs {
    /// Name of one object
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = parse_object_name)]
    object: Option<(Option<String>, String)>,
    /// Label selector of objects, such as team=web,tier!=db
    #[arg(long, short = 'l', value_name = "SELECTOR", default_value = "")]
    label_selector: String,
    /// All objects of the namespace, or of all namespaces
    #[arg(long)]
    all: bool,
    /// Objects of all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Namespace of the objects, if not that of the kubeconfig context
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    kubeconfig: ClusterOptions,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Output format
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    output: ListFormat,
}

/// The output format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// Human-readable text
    Text,
    /// CSV for `revert`
    Csv,
}

#[derive(Debug, Args)]
struct RevertArgs {
    /// The list, as printed by list --output csv; - reads standard input
    #[arg(long, short = 'f', value_name = "FILE", value_parser = go_values::path())]
    csv_file: PathBuf,
    #[command(flatten)]
    kubeconfig: ClusterOptions,
}

impl SelectionArgs {
    fn selection(&self) -> Result<ObjectSelection, CliError> {
        let selector = self.label_selector.clone();
        let many = self.all || !selector.is_empty();
        let Some(object) = &self.object else {
            return match (many, self.all_namespaces) {
                (false, _) => {
                    Err(CliError::usage("select objects with a name, --label-selector or --all"))
                }
                (true, true) => Ok(ObjectSelection::AllNamespaces { selector }),
                (true, false) => {
                    Ok(ObjectSelection::InNamespace { namespace: self.namespace.clone(), selector })
                }
            };
        };
        if many || self.all_namespaces {
            return Err(CliError::usage(format!(
                "{} selects one object: remove --label-selector, --all and --all-namespaces, or the name",
                object.1
            )));
        }
        let (namespace, name) = resolve_object(object, self.namespace.as_ref())?;
        Ok(ObjectSelection::One { namespace, name })
    }
}

impl DryRunArgs {
    pub fn check(&self) -> Result<(), CliError> {
        match &self.action {
            DryRunCommand::List(ListArgs { selection, .. })
            | DryRunCommand::Enable(selection)
            | DryRunCommand::Disable(selection) => selection.selection().map(drop),
            DryRunCommand::Revert(_) => Ok(()),
        }
    }
}

pub fn run(arguments: &DryRunArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    match &arguments.action {
        DryRunCommand::List(ListArgs { selection: arguments, output }) => {
            let selection = arguments.selection()?;
            let found = with_cluster(
                &arguments.kubeconfig,
                "plimsoll-dry-run",
                terminal,
                async |cluster| dry_run::find(&cluster, &selection).await.map_err(CliError::failed),
            )?;
            output::print_result(
                &found.iter().map(|object| list_line(object, *output)).collect::<String>(),
            )?;
            Ok(Exit::Fine)
        }
        DryRunCommand::Enable(selection) => set_all(selection, terminal, true),
        DryRunCommand::Disable(selection) => set_all(selection, terminal, false),
        DryRunCommand::Revert(arguments) => revert_all(arguments, terminal),
    }
}

fn set_all(arguments: &SelectionArgs, terminal: &Terminal, on: bool) -> Result<Exit, CliError> {
    let selection = arguments.selection()?;
    with_cluster(&arguments.kubeconfig, "plimsoll-dry-run", terminal, async |cluster| {
        let mut exit = Exit::Fine;
        for object in dry_run::find(&cluster, &selection).await.map_err(CliError::failed)? {
            if !set_one(&cluster, &object, on).await? {
                exit = Exit::Findings;
            }
        }
        Ok(exit)
    })
}

fn revert_all(arguments: &RevertArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let file = arguments.csv_file.display().to_string();
    let lines = dry_run_file::read(&file, &text(&arguments.csv_file)?);
    if lines.is_empty() {
        return Err(CliError::failed(format!("{file}: the file contains no rows")));
    }
    with_cluster(&arguments.kubeconfig, "plimsoll-dry-run", terminal, async |cluster| {
        let mut exit = Exit::Fine;
        for line in lines {
            let row = match line {
                ParsedLine::Row(row) => row,
                ParsedLine::Ambiguous(row, warning) => {
                    output::print_escaped_warning(&warning);
                    row
                }
                ParsedLine::Invalid(why) => {
                    output::print_escaped_warning(&why);
                    exit = Exit::Findings;
                    continue;
                }
            };
            let is_set = match dry_run::find_one(&cluster, &row.namespace, &row.name).await {
                Ok(object) if object.dry_run == row.dry_run => true,
                Ok(object) => set_one(&cluster, &object, row.dry_run).await?,
                Err(why) => {
                    output::print_escaped_warning(&why);
                    false
                }
            };
            if !is_set {
                exit = Exit::Findings;
            }
        }
        Ok(exit)
    })
}

/// Sets dry run of one object and prints the result. Returns whether it succeeded.
async fn set_one(cluster: &Cluster, object: &DryRunSetting, on: bool) -> Result<bool, CliError> {
    match dry_run::switch_dry_run(cluster, object, on).await {
        Ok(()) => {
            let DryRunSetting { namespace, name, .. } = object;
            output::print_result(&format!(
                "WatermarkPodAutoscaler '{namespace}/{name}' dry-run option is now {on}\n"
            ))?;
            Ok(true)
        }
        Err(why) => {
            output::print_escaped_warning(&why);
            Ok(false)
        }
    }
}

fn list_line(object: &DryRunSetting, form: ListFormat) -> String {
    let DryRunSetting { namespace, name, dry_run } = object;
    match form {
        ListFormat::Text => {
            format!("WatermarkPodAutoscaler '{namespace}/{name}' dry-run option is: {dry_run}\n")
        }
        ListFormat::Csv => dry_run_file::write(object),
    }
}

fn text(path: &std::path::Path) -> Result<String, CliError> {
    let read = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|why| CliError::failed(format!("{}: {why}", path.display())))
}
