//! `plimsoll hpa`: adopts, releases, pauses and resumes HorizontalPodAutoscalers.

use clap::{Args, Subcommand, ValueEnum};
use plimsoll_core::hpa::takeover::{
    ObjectMode, manifest,
    transition::{FieldChange, Transition, TransitionPatch},
};
use serde_json::Value;

use super::{
    Exit,
    explain::{parse_object_name, resolve_object},
    one_shot::with_cluster,
    output::{self, CliError, escape_to_one_line},
    terminal::Terminal,
};
use crate::controllers::{
    horizontal::takeover::{self, TakeoverObject},
    runtime::command_client::{Cluster, ClusterOptions},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll hpa adopt --assist shop/web   the built-in controller adds replicas,
                                         Plimsoll adds and removes them
  plimsoll hpa adopt shop/web            only Plimsoll changes replicas
  plimsoll hpa adopt web -o kustomize    prints the patch, writes nothing
  plimsoll hpa release --all             the built-in controller scales again
  plimsoll hpa pause shop/web            nothing changes replicas
  plimsoll hpa resume shop/web

Adopted objects are scaled by plimsoll horizontal. Without it, replicas of an
object that was adopted without --assist stay as they are, within the bounds.
The rules of spec.behavior are kept in an annotation, and release and resume
restore them. See docs/horizontal.md.
Exit code 1: an object was not found, or was not changed.";

/// Lets Plimsoll scale HorizontalPodAutoscalers, or pauses them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct HpaArgs {
    #[command(subcommand)]
    action: HpaCommand,
}

#[derive(Debug, Subcommand)]
enum HpaCommand {
    /// Hands objects over to Plimsoll
    Adopt(AdoptArgs),
    /// Gives objects back to the built-in controller
    Release(ReleaseArgs),
    /// Stops scaling of objects, also by the built-in controller
    Pause(ObjectsArgs),
    /// Ends the pause of objects
    Resume(ObjectsArgs),
}

#[derive(Debug, Args)]
struct AdoptArgs {
    /// The built-in controller continues to add replicas
    #[arg(long)]
    assist: bool,
    #[command(flatten)]
    objects: ObjectsArgs,
}

#[derive(Debug, Args)]
struct ReleaseArgs {
    /// Names of objects; the default namespace is that of the kubeconfig context
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = parse_object_name)]
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    objects: Vec<ObjectName>,
    /// All adopted objects, of the namespace if --namespace is set
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    options: ChangeArgs,
}

#[derive(Debug, Args)]
struct ObjectsArgs {
    /// Names of objects; the default namespace is that of the kubeconfig context
    #[arg(value_name = "[NAMESPACE/]NAME", value_parser = parse_object_name, required = true)]
    objects: Vec<ObjectName>,
    #[command(flatten)]
    options: ChangeArgs,
}

/// Where the objects are, and whether they are changed.
#[derive(Debug, Args)]
struct ChangeArgs {
    /// Namespace of the objects
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Prints what would change, and writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints the patch for a repository of manifests, and writes nothing
    #[arg(long, short, value_name = "FORM", conflicts_with = "dry_run")]
    output: Option<PatchFormat>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// The form of a printed patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PatchFormat {
    /// The changed fields as a manifest
    Yaml,
    /// Patches for a kustomization.yaml
    Kustomize,
}

/// Namespace and name of an object; `None` is the default namespace.
type ObjectName = (Option<String>, String);

/// The objects that are selected by name, or by being adopted.
type Selection = Option<Vec<ObjectName>>;

impl HpaArgs {
    fn parts(&self) -> (Transition, Option<&[ObjectName]>, &ChangeArgs) {
        match &self.action {
            HpaCommand::Adopt(AdoptArgs { assist, objects }) => {
                let mode = if *assist { ObjectMode::Assist } else { ObjectMode::Drive };
                (Transition::Adopt(mode), Some(&objects.objects), &objects.options)
            }
            HpaCommand::Release(ReleaseArgs { objects, all, options }) => {
                (Transition::Release, (!all).then_some(objects), options)
            }
            HpaCommand::Pause(arguments) => {
                (Transition::Pause, Some(&arguments.objects), &arguments.options)
            }
            HpaCommand::Resume(arguments) => {
                (Transition::Resume, Some(&arguments.objects), &arguments.options)
            }
        }
    }

    fn selection(&self) -> Result<Selection, CliError> {
        let (_, names, options) = self.parts();
        let Some(names) = names else { return Ok(None) };
        let resolve = |object| resolve_object(object, options.namespace.as_ref());
        names.iter().map(resolve).collect::<Result<_, _>>().map(Some)
    }

    pub fn check(&self) -> Result<(), CliError> {
        self.selection().map(drop)
    }
}

/// Changes the selected objects one after the other, or prints what would change.
pub fn run(arguments: &HpaArgs, terminal: &Terminal) -> Result<Exit, CliError> {
    let selection = arguments.selection()?;
    let (transition, _, options) = arguments.parts();
    with_cluster(&options.cluster, "plimsoll-hpa", terminal, async |cluster| {
        let (objects, mut exit) = find(&cluster, selection, options).await?;
        let mut planned = Vec::new();
        for object in objects {
            match object.plan(transition) {
                Ok(patch) => planned.push((object, patch)),
                Err(refusal) => {
                    output::print_escaped_warning(&format!(
                        "{} is not changed: {refusal}",
                        title(&object)
                    ));
                    exit = Exit::Findings;
                }
            }
        }
        if let Some(format) = options.output {
            output::print_result(&print_patches(&planned, format)?)?;
            return Ok(exit);
        }
        for (object, patch) in &planned {
            if options.dry_run {
                output::print_result(&dry_run_text(transition, object, patch))?;
            } else if !change(&cluster, transition, object, patch).await? {
                exit = Exit::Findings;
            }
        }
        Ok(exit)
    })
}

/// Reads the selected objects. Those that are not found are reported.
async fn find(
    cluster: &Cluster,
    selection: Selection,
    options: &ChangeArgs,
) -> Result<(Vec<TakeoverObject>, Exit), CliError> {
    let Some(names) = selection else {
        let namespace = options.namespace.as_deref();
        let found = takeover::find_adopted(cluster, namespace).await.map_err(CliError::failed)?;
        if found.is_empty() {
            let place = namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
            output::print_result(&format!("no adopted HorizontalPodAutoscaler{place}\n"))?;
        }
        return Ok((found, Exit::Fine));
    };
    let (mut found, mut exit) = (Vec::new(), Exit::Fine);
    for (namespace, name) in names {
        let namespace = namespace.as_ref().unwrap_or(&cluster.namespace);
        match takeover::find(cluster, namespace, &name).await {
            Ok(object) => found.push(object),
            Err(message) => {
                output::print_escaped_warning(&message);
                exit = Exit::Findings;
            }
        }
    }
    Ok((found, exit))
}

/// Patches one object and prints the result. Returns whether it succeeded.
async fn change(
    cluster: &Cluster,
    transition: Transition,
    object: &TakeoverObject,
    patch: &TransitionPatch,
) -> Result<bool, CliError> {
    if let Err(message) = takeover::apply(cluster, object, patch).await {
        output::print_escaped_warning(&message);
        return Ok(false);
    }
    output::print_result(&format!("{} is {}\n", title(object), participle(transition)))?;
    if let Some(tool) = object.gitops_tool() {
        output::print_escaped_warning(&format!(
            "warning: {tool} manages {} and may revert this: add the patch that --output prints to its repository",
            title(object)
        ));
    }
    Ok(true)
}

fn print_patches(
    planned: &[(TakeoverObject, TransitionPatch)],
    format: PatchFormat,
) -> Result<String, CliError> {
    let printed = match format {
        PatchFormat::Yaml => planned
            .iter()
            .map(|(object, patch)| manifest::to_manifest(object.namespace(), object.name(), patch))
            .collect::<Result<Vec<_>, _>>()
            .map(|manifests| manifests.join("---\n")),
        PatchFormat::Kustomize if planned.is_empty() => Ok(String::new()),
        PatchFormat::Kustomize => {
            manifest::to_kustomization(planned.iter().map(|(object, patch)| (object.name(), patch)))
        }
    };
    printed.map_err(|error| CliError::new(Exit::Internal, format!("patch: {error}")))
}

fn dry_run_text(
    transition: Transition,
    object: &TakeoverObject,
    patch: &TransitionPatch,
) -> String {
    let mut text = format!("{} would be {}:\n", title(object), participle(transition));
    for FieldChange { path, before, after } in &patch.changes {
        let (before, after) = (value_text(before.as_ref()), value_text(after.as_ref()));
        text.push_str(&escape_to_one_line(&format!("  {path}: {before} -> {after}")));
        text.push('\n');
    }
    text
}

fn value_text(value: Option<&Value>) -> String {
    match value {
        None => "not set".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

fn title(object: &TakeoverObject) -> String {
    format!("HorizontalPodAutoscaler {}/{}", object.namespace(), object.name())
}

fn participle(transition: Transition) -> String {
    match transition {
        Transition::Adopt(mode) => format!("adopted ({mode})"),
        Transition::Release => "released".to_owned(),
        Transition::Pause => "paused".to_owned(),
        Transition::Resume => "resumed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::check;

    #[test]
    fn objects_are_named_or_all_and_a_patch_is_printed_or_applied() {
        let of = |line: &str| {
            check(&["plimsoll", "hpa"].into_iter().chain(line.split(' ')).collect::<Vec<_>>())
        };
        for good in [
            "adopt shop/web shop/api --assist",
            "adopt web -n shop --context prod --kubeconfig file",
            "release --all",
            "release --all -n shop",
            "release web -o yaml",
            "pause web --dry-run",
            "resume web --output kustomize",
        ] {
            assert_eq!(of(good), Ok(()), "{good}");
        }
        for (bad, message) in [
            ("adopt", "required"),
            ("adopt a/b/c", "give NAME or NAMESPACE/NAME"),
            ("adopt --all", "unexpected argument '--all'"),
            ("release", "required"),
            ("release web --all", "cannot be used with"),
            ("pause web --dry-run -o yaml", "cannot be used with"),
            ("pause web -o json", "invalid value 'json'"),
            ("resume shop/web -n bank", "conflicts with namespace bank"),
        ] {
            let error = of(bad).expect_err(bad);
            assert!(error.contains(message), "{bad}: {error}");
        }
    }
}
