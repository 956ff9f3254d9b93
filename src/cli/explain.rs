//! `plimsoll explain`: its flags, and the question behind them.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::{
    Exit,
    caps::CapArgs,
    gates::{Gate, Gates},
    model::ModelArgs,
    output::{self, Form, Problem, on_one_line},
    terminal::Terminal,
    waiting::Waiting,
};
use crate::{
    clock::Clock,
    explain::text,
    run::{
        cluster::{self, Reach},
        config::StorageChoice,
        explain::{self, ExplainConfig},
    },
};

/// Who asks.
const AGENT: &str = concat!("plimsoll-explain/", env!("CARGO_PKG_VERSION"));

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll explain vpa web                      in the context's namespace
  plimsoll explain vpa shop/web --context prod
  plimsoll explain vpa -n shop web -o json | jq .containers

The numbers are worked out anew from the stored history, the VPA and its pods,
by the recommender's own code: give the flags that the recommender has (--help
lists those of the model). Where no checkpoints are kept, they are explained
from what the recommender left on the VPA. Nothing is written, and no
recommender is asked.
Exit code 1: something is to be looked at, or there is no such object.
The JSON follows docs/schema/explain-vpa.v1.json.";

/// Says why the numbers of an object are what they are
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// Kind of the object
    kind: Kind,
    /// Its name, in the namespace of the kubeconfig's context unless it says another
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = name)]
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
    output: Form,
    /// Where the history is: `checkpoint`, or `local[:DIR]` while no recommender runs there
    #[arg(long, value_name = "PLACE", default_value = "checkpoint")]
    #[arg(env = "PLIMSOLL_FLAG_STORAGE", hide_env = true)]
    storage: StorageChoice,
    /// Features that the recommender has on, as in PerVPAConfig=true
    #[arg(long, value_name = "GATES", action = ArgAction::Append)]
    #[arg(env = "PLIMSOLL_FLAG_FEATURE_GATES", hide_short_help = true, hide_env = true)]
    feature_gates: Vec<Gates>,
    #[command(flatten)]
    caps: CapArgs,
    #[command(flatten)]
    model: ModelArgs,
}

/// What can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A VerticalPodAutoscaler
    #[value(aliases = ["verticalpodautoscaler", "verticalpodautoscalers"])]
    Vpa,
}

/// `shop/web` or `web`.
fn name(text: &str) -> Result<(Option<String>, String), String> {
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

impl ExplainArgs {
    fn config(&self) -> Result<ExplainConfig, Problem> {
        let compat = self.model.compat();
        let gates = Gates::all(self.feature_gates.iter().cloned());
        let mut settings = self.model.settings();
        settings.per_vpa_config = gates.open(Gate::PerVpaConfig, compat);
        let (spelled, name) = self.object.clone();
        let namespace = match (spelled, self.namespace.clone()) {
            (Some(one), Some(other)) if one != other => {
                return Err(Problem::new(
                    Exit::Usage,
                    format!("{one}/{name} is not in namespace {other}: give one of the two"),
                ));
            }
            (one, other) => one.or(other),
        };
        Ok(ExplainConfig {
            namespace,
            name,
            reach: Reach { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() },
            compat,
            settings,
            storage: self.storage.clone(),
            native_sidecars: gates.open(Gate::NativeSidecar, compat),
            cap_to_largest_node: self.caps.to_largest_node(),
            pod_cap: self.caps.pod(),
        })
    }
}

/// Explains, and exits by whether there is anything to look at.
pub fn run(arguments: &ExplainArgs, terminal: &Terminal) -> Result<Exit, Problem> {
    let Kind::Vpa = arguments.kind;
    let config = arguments.config()?;
    let waiting = Waiting::begin(terminal, &format!("asking the cluster about {}", config.name));
    // Somebody else may have installed one, and then it is the same: there is only ring in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: String| Problem::new(Exit::Findings, on_one_line(&error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("cannot start: {error}")))?;
    let explained = runtime.block_on(async {
        let cluster = cluster::connect(&config.reach, AGENT).await?;
        explain::explain(&config, &cluster, Clock::wall().now()).await
    });
    drop(waiting);
    let report = explained.map_err(|error| failed(error.to_string()))?;
    output::say(&match arguments.output {
        Form::Text => text::render(&report, &terminal.look),
        Form::Json => output::json(&report)?,
    })?;
    Ok(if report.findings.is_empty() { Exit::Fine } else { Exit::Findings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_say_its_namespace() {
        assert_eq!(name("web"), Ok((None, "web".into())));
        assert_eq!(name("shop/web"), Ok((Some("shop".into()), "web".into())));
        for bad in ["", "/", "shop/", "/web", "a/b/c", "a b", "web\n"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
    }
}
