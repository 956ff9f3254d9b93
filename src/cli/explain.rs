//! `plimsoll explain`: flags and run of each supported kind.

use clap::{ArgAction, Args, Subcommand};
use serde::Serialize;

use super::{
    Exit,
    config_from_flags::parse_command,
    environment::Environment,
    feature_gates::{FeatureGate, FeatureGates},
    hpa_controller::HpaControllerArgs,
    one_shot::ReportArgs,
    output::CliError,
    parsed_flags::ParsedFlags,
    recommender_model::{ModelArgs, PodCapArgs},
    terminal::Terminal,
    updater_policy::UpdaterPolicyArgs,
    watch::WatchArgs,
};
use crate::{
    cluster::clock::Clock,
    controllers::{recommender::config::StorageChoice, runtime::command_client::Cluster},
    report::{
        collect::{self, lookup::ExplainError, pod::ExplainPodConfig, vpa::ExplainConfig},
        explain::{Finding, hpa, pod, vpa, wpa},
        style::Style,
    },
};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll explain vpa shop/web             how its recommendation was computed
  plimsoll explain pod shop/web-5d9c-x2x4z  why the updater skips it
  plimsoll explain hpa shop/web             why it has this number of replicas
  plimsoll explain wpa shop/web             the last decision about it, and why

The first three recompute the result with the code of the recommender, of the
updater and of the HPA controller; the last shows the decision of the watermark
controller. See also plimsoll explain pod --help. Nothing is written.";

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
    Vpa(Box<VpaArgs>),
    #[command(aliases = ["pods", "po"])]
    Pod(Box<PodArgs>),
    #[command(aliases = ["horizontalpodautoscaler", "horizontalpodautoscalers"])]
    Hpa(Box<HpaArgs>),
    #[command(aliases = ["watermarkpodautoscaler", "watermarkpodautoscalers"])]
    Wpa(Box<WpaArgs>),
}

/// The object to explain, and the output format.
#[derive(Clone, Debug, Args)]
pub struct ObjectArgs {
    /// Name of the object; the default namespace is that of the kubeconfig context
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = parse_object_name)]
    object: (Option<String>, String),
    /// Namespace of the object
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    report: ReportArgs,
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

/// Returns the namespace, if the object or a flag names one, and the name.
pub(super) fn resolve_object(
    (spelled, name): &(Option<String>, String),
    flag: Option<&String>,
) -> Result<(Option<String>, String), CliError> {
    match (spelled, flag) {
        (Some(namespace), Some(other)) if namespace != other => Err(CliError::usage(format!(
            "{namespace}/{name} conflicts with namespace {other}: set only one of them"
        ))),
        (namespace, flag) => Ok((namespace.as_ref().or(flag).cloned(), name.clone())),
    }
}

impl ObjectArgs {
    fn resolve(&self) -> Result<(Option<String>, String), CliError> {
        resolve_object(&self.object, self.namespace.as_ref())
    }

    fn explain<R: Serialize>(
        &self,
        terminal: &Terminal,
        explain: impl AsyncFnMut(Cluster) -> Result<R, ExplainError>,
        render: impl Fn(&R, &Style) -> String,
        findings: impl FnOnce(&R) -> &[Finding],
    ) -> Result<Exit, CliError> {
        let message = format!("reading {} from the cluster", self.object.1);
        let is_fine = |report: &R| findings(report).is_empty();
        let request = ("plimsoll-explain", &*message);
        self.report.show(self.watch, request, terminal, explain, (render, is_fine))
    }
}

/// Prints the explanation. The exit code depends on the findings.
pub fn run(
    arguments: &ExplainArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    match &arguments.kind {
        ExplainCommand::Vpa(arguments) => arguments.run(terminal),
        ExplainCommand::Pod(arguments) => arguments.run(typed, terminal),
        ExplainCommand::Hpa(arguments) => arguments.run(terminal),
        ExplainCommand::Wpa(arguments) => arguments.run(terminal),
    }
}

pub fn check(arguments: &ExplainArgs, typed: &ParsedFlags) -> Result<(), CliError> {
    match &arguments.kind {
        ExplainCommand::Vpa(arguments) => arguments.config().map(drop),
        ExplainCommand::Pod(arguments) => arguments.config(typed).map(drop),
        ExplainCommand::Hpa(arguments) => arguments.object.resolve().map(drop),
        ExplainCommand::Wpa(arguments) => arguments.object.resolve().map(drop),
    }
}

/// The configurations of `explain pod` and `explain vpa` without flags: their defaults, and what the environment sets.
pub(super) fn defaults(
    environment: &Environment,
) -> Result<(ExplainPodConfig, ExplainConfig), CliError> {
    let parsed = |kind: &str| match parse_command(
        "explain",
        &[kind, "default/any"].map(Into::into),
        environment,
    )? {
        (super::Command::Explain(arguments), typed) => Ok((arguments.kind, typed)),
        _ => Err(CliError::usage("not the flags of explain")),
    };
    match (parsed("pod")?, parsed("vpa")?) {
        ((ExplainCommand::Pod(pod), typed), (ExplainCommand::Vpa(vpa), _)) => {
            Ok((pod.config(&typed)?, vpa.config()?))
        }
        _ => Err(CliError::usage("not the flags of explain")),
    }
}

pub(super) const VPA_EXAMPLES: &str = "\
Examples:
  plimsoll explain vpa web                      in the context's namespace
  plimsoll explain vpa shop/web --context prod
  plimsoll explain vpa -n shop web -o json | jq .containers
  plimsoll explain vpa web --watch              every 5 s, and what changed

The numbers are recomputed from the stored history, the VPA and its pods, with
the recommender's own code: pass the flags of the recommender (--help lists
those of the model). Without checkpoints, the explanation that the recommender
stored on the VPA is shown. Nothing is written, and no running recommender is
contacted.
Exit code 1: there are findings, or the object does not exist.
The JSON follows docs/schema/explain-vpa.v1.json.";

/// Explains the recommendation of a VPA
#[derive(Debug, Args)]
#[command(after_help = VPA_EXAMPLES)]
pub struct VpaArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// Storage of the history: `checkpoint`, or `local[:DIR]` while no recommender uses it
    #[arg(long, value_name = "PLACE", default_value = "checkpoint")]
    storage: StorageChoice,
    /// Feature gates of the recommender, such as PerVPAConfig=true
    #[arg(long, value_name = "GATES", action = ArgAction::Append, hide_short_help = true)]
    feature_gates: Vec<FeatureGates>,
    #[command(flatten)]
    caps: PodCapArgs,
    #[command(flatten)]
    model: ModelArgs,
}

impl VpaArgs {
    fn config(&self) -> Result<ExplainConfig, CliError> {
        let compat = self.model.compat;
        let gates = FeatureGates::merged(self.feature_gates.iter().cloned());
        let mut settings = self.model.settings();
        settings.per_vpa_config = gates.is_enabled(FeatureGate::PerVpaConfig, compat);
        let (namespace, name) = self.object.resolve()?;
        Ok(ExplainConfig {
            namespace,
            name,
            compat,
            settings,
            storage: self.storage.clone(),
            native_sidecars: gates.is_enabled(FeatureGate::NativeSidecar, compat),
            cap_to_largest_node: self.caps.cap_to_largest_node,
            pod_cap: self.caps.pod(),
        })
    }

    fn run(&self, terminal: &Terminal) -> Result<Exit, CliError> {
        let config = self.config()?;
        let explain =
            async |cluster| collect::vpa::explain(&config, &cluster, Clock::wall().now()).await;
        self.object.explain(terminal, explain, vpa::text::render, |report| &report.findings)
    }
}

pub(super) const POD_EXAMPLES: &str = "\
Examples:
  plimsoll explain pod web-5d9c-x2x4z           in the context's namespace
  plimsoll explain pod shop/web-5d9c-x2x4z --context prod
  plimsoll explain pod -n shop web-0 -o json | jq .verdict
  plimsoll explain pod web-0 --watch            every 5 s, and what changed

The updater's own code decides, based on the pod, its workload and its VPA, and
on the stored state of their last changes: pass the flags of the updater (--help
lists all). Nothing is written, and no running updater is contacted. Resources
that you are not allowed to read are assumed healthy, and listed.
Exit code 1: a change is needed but blocked, or the pod does not exist.
The JSON follows docs/schema/explain-pod.v1.json.";

/// Explains whether the updater would change a pod, how, or why not
#[derive(Debug, Args)]
#[command(after_help = POD_EXAMPLES)]
pub struct PodArgs {
    #[command(flatten)]
    object: ObjectArgs,
    /// Name of the updater's Lease, which stores its recent changes
    #[arg(long, value_name = "NAME", default_value = "vpa-updater", hide_short_help = true)]
    leader_elect_resource_name: String,
    /// Namespace of that Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", hide_short_help = true)]
    leader_elect_resource_namespace: String,
    #[command(flatten)]
    policy: UpdaterPolicyArgs,
}

impl PodArgs {
    fn config(&self, typed: &ParsedFlags) -> Result<ExplainPodConfig, CliError> {
        let (namespace, name) = self.object.resolve()?;
        let policy = &self.policy;
        Ok(ExplainPodConfig {
            namespace,
            name,
            settings: policy.settings(typed)?,
            native_sidecars: policy.native_sidecars(),
            limit_policy: policy.sizing.limit_policy,
            admission_check: policy.admission(typed)?,
            heartbeat_namespace: policy.recommender_heartbeat_namespace.clone(),
            retarget_hpas: policy.sizing.retarget_hpas()?,
            horizontal_lease_namespace: policy.sizing.horizontal_lease_namespace.clone(),
            lease_namespace: self.leader_elect_resource_namespace.clone(),
            lease_name: self.leader_elect_resource_name.clone(),
        })
    }

    fn run(&self, typed: &ParsedFlags, terminal: &Terminal) -> Result<Exit, CliError> {
        let config = self.config(typed)?;
        let explain =
            async |cluster| collect::pod::explain(&config, &cluster, Clock::wall().now()).await;
        self.object.explain(terminal, explain, pod::text::render, |report| &report.findings)
    }
}

pub(super) const HPA_EXAMPLES: &str = "\
Examples:
  plimsoll explain hpa web                      in the context's namespace
  plimsoll explain hpa shop/web --context prod
  plimsoll explain hpa -n shop web -o json | jq .metrics
  plimsoll explain hpa web --watch              every 5 s, and what changed

Repeats one pass of the HPA controller with the same rules: pass its flags if
they differ from the defaults. Usage is read from the metrics API; values of
Pods, Object and External metrics are those in the status. Nothing is written.
Exit code 1: there are findings, or the object does not exist.
The JSON follows docs/schema/explain-hpa.v1.json.";

/// Explains the number of replicas that a HorizontalPodAutoscaler wants
#[derive(Debug, Args)]
#[command(after_help = HPA_EXAMPLES)]
pub struct HpaArgs {
    #[command(flatten)]
    object: ObjectArgs,
    #[command(flatten)]
    controller: HpaControllerArgs,
}

impl HpaArgs {
    fn run(&self, terminal: &Terminal) -> Result<Exit, CliError> {
        let (namespace, name) = self.object.resolve()?;
        let config = self.controller.config();
        let explain = async |cluster| {
            let (object, now) = ((namespace.as_deref(), &*name), Clock::wall().now());
            collect::hpa::explain(&config, &cluster, object, now).await
        };
        self.object.explain(terminal, explain, hpa::text::render, |report| &report.findings)
    }
}

pub(super) const WPA_EXAMPLES: &str = "\
Examples:
  plimsoll explain wpa web                      in the context's namespace
  plimsoll explain wpa shop/web --context prod
  plimsoll explain wpa -n shop web -o json | jq .decision
  plimsoll explain wpa web --watch              every 5 s, and what changed

Shows the last decision of the watermark controller step by step, from the
status of the object: past metric values cannot be queried again.
Exit code 1: there are findings, or the object does not exist.
The JSON follows docs/schema/explain-wpa.v1.json.";

/// Explains the number of replicas of a workload
#[derive(Debug, Args)]
#[command(after_help = WPA_EXAMPLES)]
pub struct WpaArgs {
    #[command(flatten)]
    object: ObjectArgs,
}

impl WpaArgs {
    fn run(&self, terminal: &Terminal) -> Result<Exit, CliError> {
        let (namespace, name) = self.object.resolve()?;
        let explain = async |cluster| {
            let now = Clock::wall().now();
            collect::wpa::explain(&cluster, namespace.as_deref(), &name, now).await
        };
        self.object.explain(terminal, explain, wpa::text::render, |report| &report.findings)
    }
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
