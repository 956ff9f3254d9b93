//! `plimsoll explain`: the kinds that can be explained, and what their commands have in common.

pub(super) mod pod;
pub(super) mod vpa;
pub(super) mod wpa;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{
    Exit,
    output::{self, CliError, OutputFormat, escape_to_one_line},
    parsed_flags::ParsedFlags,
    spinner::Spinner,
    terminal::Terminal,
};
use crate::{
    controllers::runtime::cluster::{self, Cluster, ClusterOptions, NoCluster},
    report::style::Style,
};

/// Who asks.
const USER_AGENT: &str = concat!("plimsoll-explain/", env!("CARGO_PKG_VERSION"));

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll explain vpa shop/web             why its numbers are what they are
  plimsoll explain pod shop/web-5d9c-x2x4z  why the updater leaves it as it is
  plimsoll explain wpa shop/web             why it has so many replicas

The first two decide anew, by the code of the recommender and of the updater,
the third tells what the watermark controller decided. All say more with --help:
plimsoll explain pod --help. Nothing is written.";

/// Says why the numbers of an object are what they are, or what becomes of it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct ExplainArgs {
    #[command(subcommand)]
    kind: ExplainCommand,
}

/// What can be explained.
#[derive(Debug, Subcommand)]
enum ExplainCommand {
    #[command(aliases = ["verticalpodautoscaler", "verticalpodautoscalers"])]
    Vpa(Box<vpa::VpaArgs>),
    #[command(aliases = ["pods", "po"])]
    Pod(Box<pod::PodArgs>),
    #[command(aliases = ["watermarkpodautoscaler", "watermarkpodautoscalers"])]
    Wpa(Box<wpa::WpaArgs>),
}

/// Which object, where, and in which form it is explained.
#[derive(Clone, Debug, Args)]
pub struct ObjectArgs {
    /// Its name, in the namespace of the kubeconfig's context unless it says another
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = parse_object_name)]
    object: (Option<String>, String),
    /// Namespace of the object
    #[arg(long, short, value_name = "NAMESPACE")]
    #[arg(env = "PLIMSOLL_FLAG_NAMESPACE", hide_env = true)]
    namespace: Option<String>,
    /// File that says how to reach the cluster
    #[arg(long, value_name = "FILE")]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of that file
    #[arg(long, value_name = "NAME")]
    #[arg(env = "PLIMSOLL_FLAG_CONTEXT", hide_env = true)]
    context: Option<String>,
    /// What to print
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    #[arg(env = "PLIMSOLL_FLAG_OUTPUT", hide_env = true)]
    output: OutputFormat,
}

/// `shop/web` or `web`.
pub(super) fn parse_object_name(text: &str) -> Result<(Option<String>, String), String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let plain = |name: &str| {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
        !name.is_empty() && name.chars().all(allowed)
    };
    if !plain(name) || !namespace.is_none_or(plain) {
        return Err("give NAME or NAMESPACE/NAME".to_owned());
    }
    Ok((namespace.map(ToOwned::to_owned), name.to_owned()))
}

impl ObjectArgs {
    /// Namespace, if one is said, and name.
    fn resolve_object(&self) -> Result<(Option<String>, String), CliError> {
        let (spelled, name) = self.object.clone();
        match (spelled, self.namespace.clone()) {
            (Some(one), Some(other)) if one != other => Err(CliError::new(
                Exit::Usage,
                format!("{one}/{name} is not in namespace {other}: give one of the two"),
            )),
            (one, other) => Ok((one.or(other), name)),
        }
    }

    fn cluster_options(&self) -> ClusterOptions {
        ClusterOptions { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

/// Explains, and exits by whether there is anything to look at.
pub fn run(
    arguments: &ExplainArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    match &arguments.kind {
        ExplainCommand::Vpa(arguments) => vpa::run(arguments, terminal),
        ExplainCommand::Pod(arguments) => pod::run(arguments, typed, terminal),
        ExplainCommand::Wpa(arguments) => wpa::run(arguments, terminal),
    }
}

/// Whether this could be run as far as the command line itself decides.
pub fn check(arguments: &ExplainArgs, typed: &ParsedFlags) -> Result<(), CliError> {
    match &arguments.kind {
        ExplainCommand::Vpa(arguments) => arguments.config().map(drop),
        ExplainCommand::Pod(arguments) => arguments.config(typed, |_| String::new()).map(drop),
        ExplainCommand::Wpa(arguments) => arguments.check(),
    }
}

/// Asks a cluster, and answers with what it makes of that.
fn with_cluster<R, E, F>(
    object: &ObjectArgs,
    terminal: &Terminal,
    explain: impl FnOnce(Cluster) -> F,
) -> Result<R, CliError>
where
    E: From<NoCluster> + std::fmt::Display,
    F: Future<Output = Result<R, E>>,
{
    let (_, name) = object.resolve_object()?;
    let waiting = Spinner::start(terminal, &format!("asking the cluster about {name}"));
    // Somebody else may have installed one, and then it is the same: there is only ring in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: String| CliError::new(Exit::Findings, escape_to_one_line(&error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("cannot start: {error}")))?;
    let explained = runtime.block_on(async {
        let cluster = cluster::connect(&object.cluster_options(), USER_AGENT).await?;
        explain(cluster).await
    });
    drop(waiting);
    explained.map_err(|error: E| failed(error.to_string()))
}

/// Prints a report in the form that was asked for.
fn print<R: Serialize>(
    object: &ObjectArgs,
    terminal: &Terminal,
    report: &R,
    render: impl FnOnce(&R, &Style) -> String,
    is_fine: bool,
) -> Result<Exit, CliError> {
    output::print_result(&match object.output {
        OutputFormat::Text => render(report, &terminal.style),
        OutputFormat::Json => output::json(report)?,
    })?;
    Ok(if is_fine { Exit::Fine } else { Exit::Findings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_say_its_namespace() {
        assert_eq!(parse_object_name("web"), Ok((None, "web".into())));
        assert_eq!(parse_object_name("shop/web"), Ok((Some("shop".into()), "web".into())));
        for bad in ["", "/", "shop/", "/web", "a/b/c", "a b", "web\n"] {
            assert!(parse_object_name(bad).is_err(), "{bad:?}");
        }
    }
}
