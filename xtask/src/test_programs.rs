//! The programs that tests run against, and their paths. Builds or downloads them if needed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

use crate::debian;
use crate::go_toolchain::{Go, Module, Target};

const CONTROL_PLANE: Module = Module {
    folder: "controlplane",
    targets: &[Target { name: "controlplane", package: "." }],
    flags: &[],
    // Without these the server's version is v0.0.0-master, and clients that check it disable features.
    link: "-X k8s.io/component-base/version.gitVersion=v1.36.3 \
           -X k8s.io/component-base/version.gitMajor=1 \
           -X k8s.io/component-base/version.gitMinor=36",
};
const AUTOSCALER: Module = Module {
    folder: "autoscaler",
    targets: &[
        Target {
            name: "recommender",
            package: "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender",
        },
        Target {
            name: "updater",
            package: "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater",
        },
        Target {
            name: "admission-controller",
            package: "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller",
        },
        Target { name: "model", package: "./model" },
    ],
    flags: &[],
    link: "",
};
const PROMETHEUS: Module = Module {
    folder: "prometheus",
    targets: &[
        Target { name: "prometheus", package: "github.com/prometheus/prometheus/cmd/prometheus" },
        Target { name: "promtool", package: "github.com/prometheus/prometheus/cmd/promtool" },
        Target { name: "history", package: "./history" },
    ],
    // Service discovery of every cloud provider would double the build time, and the tests do not use it.
    flags: &["-tags=remove_all_sd"],
    link: "-X github.com/prometheus/common/version.Version=3.15.0",
};

const HELM: Module = Module {
    folder: "helm",
    targets: &[Target { name: "helm", package: "helm.sh/helm/v3/cmd/helm" }],
    flags: &[],
    // The version that templates see without a cluster; the default is 1.20.
    link: "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 \
           -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36 \
           -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 \
           -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36",
};
const KUSTOMIZE: Module = Module {
    folder: "kustomize",
    targets: &[Target { name: "kustomize", package: "sigs.k8s.io/kustomize/kustomize/v5" }],
    flags: &[],
    link: "",
};
const KREW: Module = Module {
    folder: "krew",
    targets: &[Target { name: "krew", package: "sigs.k8s.io/krew/cmd/krew" }],
    flags: &[],
    link: "",
};
const JSONNET: Module = Module {
    folder: "jsonnet",
    targets: &[Target { name: "jsonnet", package: "github.com/google/go-jsonnet/cmd/jsonnet" }],
    flags: &[],
    link: "",
};
/// Upstream's HorizontalPodAutoscaler controller, driven by stdin and stdout.
const HPA_ORACLE: Module = Module {
    folder: "hpa-oracle",
    targets: &[Target { name: "hpa-oracle", package: "." }],
    flags: &[],
    link: "",
};
/// Not built: only its CRDs are used.
const OPERATOR: Module = Module { folder: "operator", targets: &[], flags: &[], link: "" };
/// Not built, because its dependencies are not available: only Datadog's manifests and chart are used.
const WATERMARK: Module = Module { folder: "watermark", targets: &[], flags: &[], link: "" };

/// A program and the arguments that come before all others.
#[derive(Clone, Debug)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Arguments that select the program inside the executable.
    pub first: Vec<OsString>,
}

/// The programs of a control plane.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    /// The store.
    pub etcd: Program,
    /// The API server.
    pub api_server: Program,
    /// Controller manager and scheduler: `KUBEBUILDER_ASSETS` does not have them.
    pub others: Option<(Program, Program)>,
    /// The server's version: known if it is built here, not if it is from `KUBEBUILDER_ASSETS`.
    pub version: Option<&'static str>,
}

/// Upstream's vertical pod autoscaler, release 1.8.1.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    /// Writes recommendations.
    pub recommender: PathBuf,
    /// Evicts and resizes.
    pub updater: PathBuf,
    /// The webhook.
    pub admission_controller: PathBuf,
}

/// A Prometheus server with its tool.
#[derive(Clone, Debug)]
pub struct Prometheus {
    /// The server.
    pub server: PathBuf,
    /// promtool.
    pub tool: PathBuf,
}

/// Chromium without windows, and the folders of the libraries that it needs and that are not installed.
#[derive(Clone, Debug)]
pub struct Chromium {
    /// The program.
    pub program: PathBuf,
    /// Folders for `LD_LIBRARY_PATH`.
    pub libraries: Vec<PathBuf>,
}

/// A release of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrometheusRelease {
    /// 2.42 as Debian 12 ships it; ranges are closed on both ends.
    V2,
    /// 3.15; ranges are open on the left.
    V3,
}

/// The folder with the binaries of a module.
fn built_module(module: &Module) -> Result<PathBuf> {
    once(module.folder.to_owned(), || Go::find()?.build(module))
}

/// The folder of a dependency of a module.
fn dependency(module: &Module, name: &str) -> Result<PathBuf> {
    once(format!("{} {name}", module.folder), || Go::find()?.module_folder(module, name))
}

/// Caches the result for the rest of the process: sources do not change while tests run. The lock is not held during
/// the search, so a program that must be built only delays the tests that need it.
fn once(key: String, find: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    static FOUND: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let known = FOUND.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
    if let Some(folder) = known {
        return Ok(folder);
    }
    let folder = find()?;
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).insert(key, folder.clone());
    Ok(folder)
}

/// The control plane: from `KUBEBUILDER_ASSETS` if that is set, else built.
pub fn control_plane() -> Result<ControlPlane> {
    if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|path| !path.is_empty()) {
        return from_assets(Path::new(&assets));
    }
    let path = built_module(&CONTROL_PLANE)?.join("controlplane");
    let program = |name: &str| Program { path: path.clone(), first: vec![OsString::from(name)] };
    Ok(ControlPlane {
        etcd: program("etcd"),
        api_server: program("kube-apiserver"),
        others: Some((program("kube-controller-manager"), program("kube-scheduler"))),
        version: Some("v1.36.3"),
    })
}

fn from_assets(assets: &Path) -> Result<ControlPlane> {
    let program = |name: &str| -> Result<Program> {
        let path = assets.join(name);
        ensure!(
            path.is_file(),
            "the folder in KUBEBUILDER_ASSETS has no {name}: unset the variable to build it"
        );
        Ok(Program { path, first: Vec::new() })
    };
    let others = program("kube-controller-manager")
        .and_then(|manager| Ok((manager, program("kube-scheduler")?)));
    Ok(ControlPlane {
        etcd: program("etcd")?,
        api_server: program("kube-apiserver")?,
        others: others.ok(),
        version: None,
    })
}

/// Upstream's three binaries.
pub fn autoscaler() -> Result<Autoscaler> {
    let folder = built_module(&AUTOSCALER)?;
    Ok(Autoscaler {
        recommender: folder.join("recommender"),
        updater: folder.join("updater"),
        admission_controller: folder.join("admission-controller"),
    })
}

/// Upstream's recommender model, driven by stdin and stdout: `model replay` and `model bench`.
pub fn autoscaler_model() -> Result<PathBuf> {
    Ok(built_module(&AUTOSCALER)?.join("model"))
}

/// Upstream's HorizontalPodAutoscaler controller, release 1.36.3: `hpa-oracle run < SCENARIOS`.
pub fn hpa_oracle() -> Result<PathBuf> {
    Ok(built_module(&HPA_ORACLE)?.join("hpa-oracle"))
}

/// Upstream's CRDs VerticalPodAutoscaler and VerticalPodAutoscalerCheckpoint, a YAML file.
pub fn autoscaler_crds() -> Result<PathBuf> {
    let module = dependency(&AUTOSCALER, "k8s.io/autoscaler/vertical-pod-autoscaler")?;
    Ok(module.join("deploy/vpa-v1-crd-gen.yaml"))
}

/// The folder of upstream's manifests.
pub fn autoscaler_manifests() -> Result<PathBuf> {
    let module = dependency(&AUTOSCALER, "k8s.io/autoscaler/vertical-pod-autoscaler")?;
    Ok(module.join("deploy"))
}

/// Datadog's watermark controller, release 0.11.0: `chart/watermarkpodautoscaler`, and `config` for kustomize.
pub fn watermark_manifests() -> Result<PathBuf> {
    dependency(&WATERMARK, "github.com/DataDog/watermarkpodautoscaler")
}

/// Helm 3.
pub fn helm() -> Result<PathBuf> {
    Ok(built_module(&HELM)?.join("helm"))
}

/// kustomize 5.
pub fn kustomize() -> Result<PathBuf> {
    Ok(built_module(&KUSTOMIZE)?.join("kustomize"))
}

/// krew, the package manager of kubectl plugins.
pub fn krew() -> Result<PathBuf> {
    Ok(built_module(&KREW)?.join("krew"))
}

/// jsonnet.
pub fn jsonnet() -> Result<PathBuf> {
    Ok(built_module(&JSONNET)?.join("jsonnet"))
}

/// The Prometheus operator's CRDs, a folder of YAML files.
pub fn operator_crds() -> Result<PathBuf> {
    let module = dependency(&OPERATOR, "github.com/prometheus-operator/prometheus-operator")?;
    Ok(module.join("example/prometheus-operator-crd"))
}

/// The Prometheus of this release.
pub fn prometheus(release: PrometheusRelease) -> Result<Prometheus> {
    let folder = once(format!("prometheus {release:?}"), || prometheus_folder(release))?;
    Ok(Prometheus { server: folder.join("prometheus"), tool: folder.join("promtool") })
}

fn prometheus_folder(release: PrometheusRelease) -> Result<PathBuf> {
    let folder = match release {
        PrometheusRelease::V2 => match installed_prometheus_2() {
            Some(folder) => folder,
            None => debian::package("prometheus")?.join("usr/bin"),
        },
        PrometheusRelease::V3 => built_module(&PROMETHEUS)?,
    };
    let server = folder.join("prometheus");
    let version = version(&server).with_context(|| format!("{} does not run", server.display()))?;
    if release == PrometheusRelease::V2 {
        ensure!(
            is_2_42(&version),
            "Prometheus 2.42 is needed, and the archive of this system has {version}: put a 2.42 with its promtool on \
             PATH, or use Debian 12"
        );
    }
    Ok(folder)
}

/// Debian's Chromium without windows.
pub fn chromium() -> Result<Chromium> {
    let folder = once("chromium".to_owned(), || {
        debian::package_with_dependencies("chromium-headless-shell")
    })?;
    let program = folder.join("usr/lib/chromium/chromium-headless-shell");
    ensure!(program.is_file(), "{} is missing: remove the folder", program.display());
    let triples = fs::read_dir(folder.join("usr/lib"))?;
    let triples = triples.filter_map(|entry| Some(entry.ok()?.path()));
    let triples = triples.filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
    // The library of PulseAudio has another one in a folder of its own.
    let libraries = triples.flat_map(|path| [path.join("pulseaudio"), path]).collect();
    Ok(Chromium { program, libraries })
}

/// The writer of TSDB blocks: `history DIR < samples`.
pub fn history() -> Result<PathBuf> {
    Ok(built_module(&PROMETHEUS)?.join("history"))
}

/// A Prometheus 2.42 on PATH, with promtool in the same folder.
fn installed_prometheus_2() -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).find(|folder| {
        folder.join("promtool").is_file()
            && version(&folder.join("prometheus")).is_some_and(|found| is_2_42(&found))
    })
}

fn is_2_42(version: &str) -> bool {
    version == "2.42" || version.starts_with("2.42.")
}

/// Extracts `2.42.0+ds` from `prometheus, version 2.42.0+ds (branch: ...`.
fn version(server: &Path) -> Option<String> {
    let output = Command::new(server).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()? + &String::from_utf8(output.stderr).ok()?;
    let (_, rest) = text.split_once("version ")?;
    Some(rest.split_whitespace().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prometheus_2_42_is_accepted_as_such() {
        assert!(is_2_42("2.42.0+ds") && is_2_42("2.42"));
        assert!(!is_2_42("2.53.3") && !is_2_42("2.420.0") && !is_2_42("3.15.0"));
    }
}
