//! `plimsoll watermark dry-run`: tells which objects only compute, and turns that on and off.

use std::{io::Read as _, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::saved::{self, Line, Row};
use crate::{
    cli::{
        Exit,
        explain::name,
        output::{self, Problem, on_one_line},
        terminal::Terminal,
        value,
        waiting::Waiting,
    },
    run::{
        cluster::{self, Cluster, Reach},
        watermark::switch::{self, Switch, Which},
    },
};

/// Who asks.
const AGENT: &str = concat!("plimsoll-dry-run/", env!("CARGO_PKG_VERSION"));

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  plimsoll watermark dry-run list --all --all-namespaces
  plimsoll watermark dry-run enable shop/web
  plimsoll watermark dry-run disable -n shop -l team=web

  plimsoll watermark dry-run list --all -o csv > saved.csv
  plimsoll watermark dry-run revert -f saved.csv

An object in dry run goes on to compute and to show, and its workload is left
as it is. Exit code 1: nothing was meant, or something could not be done.";

/// Tells which objects only compute, and turns that on and off
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct DryRunArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Tells which objects are in dry run
    List(ListArgs),
    /// Puts objects into dry run
    Enable(WhichArgs),
    /// Takes objects out of dry run
    Disable(WhichArgs),
    /// Makes objects again what a list of before says
    Revert(RevertArgs),
}

/// How the cluster is reached.
#[derive(Clone, Debug, Args)]
struct ReachArgs {
    /// File that says how to reach the cluster
    #[arg(long, value_name = "FILE")]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of that file
    #[arg(long, value_name = "NAME")]
    #[arg(env = "PLIMSOLL_FLAG_CONTEXT", hide_env = true)]
    context: Option<String>,
}

/// Which objects.
#[derive(Debug, Args)]
struct WhichArgs {
    /// Name of one object
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = name)]
    object: Option<(Option<String>, String)>,
    /// Objects with these labels, as in team=web,tier!=db
    #[arg(
        long,
        short = 'l',
        value_name = "SELECTOR",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(env = "PLIMSOLL_FLAG_LABEL_SELECTOR", hide_env = true)]
    label_selector: String,
    /// All objects of the namespace, or of all namespaces
    #[arg(long, env = "PLIMSOLL_FLAG_ALL", hide_env = true)]
    all: bool,
    /// Objects of all namespaces
    #[arg(long, short = 'A', env = "PLIMSOLL_FLAG_ALL_NAMESPACES", hide_env = true)]
    all_namespaces: bool,
    /// Namespace of the objects, if not that of the kubeconfig's context
    #[arg(long, short, value_name = "NAMESPACE")]
    #[arg(env = "PLIMSOLL_FLAG_NAMESPACE", hide_env = true)]
    namespace: Option<String>,
    #[command(flatten)]
    reach: ReachArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// What to print
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    #[arg(env = "PLIMSOLL_FLAG_OUTPUT", hide_env = true)]
    output: Form,
}

/// Form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Text,
    /// For `revert`
    Csv,
}

#[derive(Debug, Args)]
struct RevertArgs {
    /// The list, made by list --output csv; - is standard input
    #[arg(long, short = 'f', value_name = "FILE", value_parser = value::path())]
    #[arg(env = "PLIMSOLL_FLAG_CSV_FILE", hide_env = true)]
    csv_file: PathBuf,
    #[command(flatten)]
    reach: ReachArgs,
}

impl WhichArgs {
    fn which(&self) -> Result<Which, Problem> {
        let usage = |line: String| Problem::new(Exit::Usage, line);
        let selector = self.label_selector.clone();
        let many = self.all || !selector.is_empty();
        let Some((spelled, name)) = self.object.clone() else {
            return match (many, self.all_namespaces) {
                (false, _) => Err(usage("say which: a name, --label-selector or --all".to_owned())),
                (true, true) => Ok(Which::Everywhere { selector }),
                (true, false) => Ok(Which::Within { namespace: self.namespace.clone(), selector }),
            };
        };
        if many || self.all_namespaces {
            return Err(usage(format!(
                "{name} is one object: leave --label-selector, --all and --all-namespaces out, or the name"
            )));
        }
        match (spelled, self.namespace.clone()) {
            (Some(one), Some(other)) if one != other => {
                Err(usage(format!("{one}/{name} is not in namespace {other}: give one of the two")))
            }
            (one, other) => Ok(Which::One { namespace: one.or(other), name }),
        }
    }
}

impl DryRunArgs {
    /// Whether this could be run as far as the command line itself decides.
    pub fn check(&self) -> Result<(), Problem> {
        match &self.action {
            Action::List(ListArgs { which, .. })
            | Action::Enable(which)
            | Action::Disable(which) => which.which().map(drop),
            Action::Revert(_) => Ok(()),
        }
    }
}

/// Does it.
pub fn run(arguments: &DryRunArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    match &arguments.action {
        Action::List(ListArgs { which, output }) => {
            let meant = which.which()?;
            let found = ask(&which.reach, terminal, async |cluster| {
                switch::find(&cluster, &meant).await.map_err(|why| failed(&why))
            })?;
            output::say(&found.iter().map(|object| listed(object, *output)).collect::<String>())?;
            Ok(Exit::Fine)
        }
        Action::Enable(which) => turn(which, terminal, true),
        Action::Disable(which) => turn(which, terminal, false),
        Action::Revert(arguments) => revert(arguments, terminal),
    }
}

fn turn(which: &WhichArgs, terminal: &Terminal, on: bool) -> Result<Exit, Problem> {
    let meant = which.which()?;
    ask(&which.reach, terminal, async |cluster| {
        let mut exit = Exit::Fine;
        for object in switch::find(&cluster, &meant).await.map_err(|why| failed(&why))? {
            if !turned(&cluster, &object, on).await? {
                exit = Exit::Findings;
            }
        }
        Ok(exit)
    })
}

fn revert(arguments: &RevertArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    let file = arguments.csv_file.display().to_string();
    let lines = saved::read(&file, &text(&arguments.csv_file)?);
    if lines.is_empty() {
        return Err(failed(&format!("{file}: there is no row in it")));
    }
    ask(&arguments.reach, terminal, async |cluster| {
        let mut exit = Exit::Fine;
        for line in lines {
            let row = match line {
                Line::Row(row) => row,
                Line::Doubtful(row, warning) => {
                    output::note(&format!("plimsoll: {}", on_one_line(&warning)));
                    row
                }
                Line::Bad(why) => {
                    output::note(&format!("plimsoll: {}", on_one_line(&why)));
                    exit = Exit::Findings;
                    continue;
                }
            };
            if !reverted(&cluster, &row).await? {
                exit = Exit::Findings;
            }
        }
        Ok(exit)
    })
}

/// Makes an object what its row says, if it is not. Whether it now is.
async fn reverted(cluster: &Cluster, row: &Row) -> Result<bool, Problem> {
    match switch::one(cluster, &row.namespace, &row.name).await {
        Ok(object) if object.dry_run == row.dry_run => Ok(true),
        Ok(object) => turned(cluster, &object, row.dry_run).await,
        Err(why) => {
            output::note(&format!("plimsoll: {}", on_one_line(&why)));
            Ok(false)
        }
    }
}

/// Turns one object and says so. Whether it could be.
async fn turned(cluster: &Cluster, object: &Switch, on: bool) -> Result<bool, Problem> {
    match switch::turn(cluster, object, on).await {
        Ok(()) => {
            let Switch { namespace, name, .. } = object;
            output::say(&format!(
                "WatermarkPodAutoscaler '{namespace}/{name}' dry-run option is now {on}\n"
            ))?;
            Ok(true)
        }
        Err(why) => {
            output::note(&format!("plimsoll: {}", on_one_line(&why)));
            Ok(false)
        }
    }
}

/// An object in a list.
fn listed(object: &Switch, form: Form) -> String {
    let Switch { namespace, name, dry_run } = object;
    match form {
        Form::Text => {
            format!("WatermarkPodAutoscaler '{namespace}/{name}' dry-run option is: {dry_run}\n")
        }
        Form::Csv => saved::write(&Row {
            namespace: namespace.clone(),
            name: name.clone(),
            dry_run: *dry_run,
        }),
    }
}

/// What is in a file, or comes from standard input.
fn text(path: &std::path::Path) -> Result<String, Problem> {
    let read = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|why| failed(&format!("{}: {why}", path.display())))
}

fn failed(why: &str) -> Problem {
    Problem::new(Exit::Findings, on_one_line(why))
}

/// Reaches the cluster and does something there.
fn ask<T>(
    reach: &ReachArgs,
    terminal: &Terminal,
    work: impl AsyncFnOnce(Cluster) -> Result<T, Problem>,
) -> Result<T, Problem> {
    // Somebody else may have installed one, and then it is the same: there is only ring in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(&format!("cannot start: {error}")))?;
    let reach = Reach { kubeconfig: reach.kubeconfig.clone(), context: reach.context.clone() };
    let waiting = Waiting::begin(terminal, "asking the cluster");
    let cluster = runtime.block_on(cluster::connect(&reach, AGENT));
    drop(waiting);
    let cluster = cluster.map_err(|why| failed(&why.to_string()))?;
    runtime.block_on(work(cluster))
}
