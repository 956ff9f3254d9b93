//! `plimsoll explain`: the supported kinds, and what their commands share.

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

/// The user agent of requests to the API server.
const USER_AGENT: &str = concat!("plimsoll-explain/", env!("CARGO_PKG_VERSION"));

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll explain vpa shop/web             how its recommendation was computed
  plimsoll explain pod shop/web-5d9c-x2x4z  why the updater skips it
  plimsoll explain wpa shop/web             why it has this number of replicas

The first two recompute the result with the code of the recommender and of the
updater; the third shows the last decision of the watermark controller. See also
plimsoll explain pod --help. Nothing is written.";

/// Explains the recommendation, pending update or replicas of an object
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct ExplainArgs {
    #[command(subcommand)]
    kind: ExplainCommand,
}

/// The supported kinds.
#[derive(Debug, Subcommand)]
enum ExplainCommand {
    #[command(aliases = ["verticalpodautoscaler", "verticalpodautoscalers"])]
    Vpa(Box<vpa::VpaArgs>),
    #[command(aliases = ["pods", "po"])]
    Pod(Box<pod::PodArgs>),
    #[command(aliases = ["watermarkpodautoscaler", "watermarkpodautoscalers"])]
    Wpa(Box<wpa::WpaArgs>),
}

/// The object to explain, and the output format.
#[derive(Clone, Debug, Args)]
pub struct ObjectArgs {
    /// Name of the object; the default namespace is that of the kubeconfig context
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = parse_object_name)]
    object: (Option<String>, String),
    /// Namespace of the object
    #[arg(long, short, value_name = "NAMESPACE")]
    #[arg(env = "PLIMSOLL_FLAG_NAMESPACE", hide_env = true)]
    namespace: Option<String>,
    /// Path of the kubeconfig file
    #[arg(long, value_name = "FILE")]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig file
    #[arg(long, value_name = "NAME")]
    #[arg(env = "PLIMSOLL_FLAG_CONTEXT", hide_env = true)]
    context: Option<String>,
    /// Output format
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    #[arg(env = "PLIMSOLL_FLAG_OUTPUT", hide_env = true)]
    output: OutputFormat,
}

/// Parses `shop/web` or `web`.
pub(super) fn parse_object_name(text: &str) -> Result<(Option<String>, String), String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    let is_valid = |name: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        !name.is_empty() && name.chars().all(allowed)
    };
    if !is_valid(name) || !namespace.is_none_or(is_valid) {
        return Err("give NAME or NAMESPACE/NAME".to_owned());
    }
    Ok((namespace.map(ToOwned::to_owned), name.to_owned()))
}

impl ObjectArgs {
    /// Returns the namespace, if it is given, and the name.
    fn resolve_object(&self) -> Result<(Option<String>, String), CliError> {
        let (spelled, name) = self.object.clone();
        match (spelled, self.namespace.clone()) {
            (Some(namespace), Some(other)) if namespace != other => Err(CliError::new(
                Exit::Usage,
                format!(
                    "{namespace}/{name} conflicts with namespace {other}: set only one of them"
                ),
            )),
            (namespace, flag) => Ok((namespace.or(flag), name)),
        }
    }

    fn cluster_options(&self) -> ClusterOptions {
        ClusterOptions { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

/// Prints the explanation. The exit code depends on the findings.
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

/// Checks whether the command line is valid.
pub fn check(arguments: &ExplainArgs, typed: &ParsedFlags) -> Result<(), CliError> {
    match &arguments.kind {
        ExplainCommand::Vpa(arguments) => arguments.config().map(drop),
        ExplainCommand::Pod(arguments) => arguments.config(typed, |_| String::new()).map(drop),
        ExplainCommand::Wpa(arguments) => arguments.check(),
    }
}

/// Connects to the cluster and runs `explain`.
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
    let spinner = Spinner::start(terminal, &format!("reading {name} from the cluster"));
    // This fails if a provider is already installed, which is then also ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: String| CliError::new(Exit::Findings, escape_to_one_line(&error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("cannot start: {error}")))?;
    let result = runtime.block_on(async {
        let cluster = cluster::connect(&object.cluster_options(), USER_AGENT).await?;
        explain(cluster).await
    });
    drop(spinner);
    result.map_err(|error: E| failed(error.to_string()))
}

/// Prints a report in the selected format.
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
    fn an_object_name_may_include_its_namespace() {
        assert_eq!(parse_object_name("web"), Ok((None, "web".into())));
        assert_eq!(parse_object_name("shop/web"), Ok((Some("shop".into()), "web".into())));
        for bad in ["", "/", "shop/", "/web", "a/b/c", "a b", "web\n"] {
            assert!(parse_object_name(bad).is_err(), "{bad:?}");
        }
    }
}
