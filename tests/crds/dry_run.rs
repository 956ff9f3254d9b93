//! `plimsoll watermark dry-run` on a real control plane with our CRD: output, changes and errors.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use kube::api::{Api, ListParams, PostParams};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use serde_json::json;

use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, wait},
};

/// The output and exit code of a command.
#[derive(Debug)]
struct CommandOutput {
    out: String,
    err: String,
    code: Option<i32>,
}

/// Runs `plimsoll watermark dry-run` with these arguments and standard input.
fn dry_run(kubeconfig: &Path, words: &[&str], input: &str) -> CommandOutput {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["watermark", "dry-run"])
        .args(words)
        .env_clear()
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that does not read its input may have exited.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput {
        out: text(&output.stdout),
        err: text(&output.stderr),
        code: output.status.code(),
    }
}

async fn create_wpa(api: &Api<WatermarkPodAutoscaler>, name: &str, team: &str) {
    let object = serde_json::from_value(json!({
        "apiVersion": "datadoghq.com/v1alpha1",
        "kind": "WatermarkPodAutoscaler",
        "metadata": {"name": name, "labels": {"team": team}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 5,
            "tolerance": "50m",
        },
    }));
    let object: WatermarkPodAutoscaler = object.expect("a WPA");
    let made = api.create(&PostParams::default(), &object).await.expect("the server accepts it");
    assert_eq!(made.spec, object.spec, "nothing was written into it or lost");
}

#[tokio::test]
async fn wpa_dry_run_is_listed_changed_and_restored() {
    let Some(bed) = Testbed::shared().await else { return };
    create_definitions(&bed).await;
    let every = Api::<WatermarkPodAutoscaler>::all(bed.client());
    wait::until("watermarks can be listed", || async {
        every.list(&ListParams::default().limit(1)).await.ok()
    })
    .await;
    let namespace = bed.namespace("dry-run").await;
    let api = Api::<WatermarkPodAutoscaler>::namespaced(bed.client(), &namespace);
    for (name, team) in [("api", "a"), ("db", "b"), ("web", "a")] {
        create_wpa(&api, name, team).await;
    }
    let kubeconfig = bed.kubeconfig_path();
    let work = tokio::task::spawn_blocking(move || assert_listing(&kubeconfig, &namespace));
    work.await.expect("no panic");
    let web = api.get("web").await.expect("exists");
    assert!(web.spec.dry_run && web.spec.max_replicas == 5, "{:?}", web.spec);
}

fn assert_listing(kubeconfig: &Path, namespace: &str) {
    let run = |words: &[&str], input: &str| dry_run(kubeconfig, words, input);
    let line = |name: &str, rest: &str| {
        format!("WatermarkPodAutoscaler '{namespace}/{name}' dry-run option is{rest}\n")
    };
    let here = ["-n", namespace];
    let with = |words: &[&'static str]| [words, &here].concat();

    let result = run(&with(&["list", "web"]), "");
    assert_eq!((result.out, result.code), (line("web", ": false"), Some(0)), "{}", result.err);
    let result = run(&with(&["enable", "-l", "team=a"]), "");
    let both = line("api", " now true") + &line("web", " now true");
    assert_eq!((result.out, result.code), (both, Some(0)), "{}", result.err);
    let result = run(&with(&["list", "--all", "-o", "csv"]), "");
    let saved =
        format!("{namespace},api,enabled\n{namespace},db,disabled\n{namespace},web,enabled\n");
    assert_eq!((&result.out, result.code), (&saved, Some(0)), "{}", result.err);

    // Ambiguous selections change nothing.
    let result = run(&with(&["enable"]), "");
    assert_eq!((result.out.as_str(), result.code), ("", Some(2)));
    assert!(result.err.contains("select objects with"), "{}", result.err);
    let result = run(&with(&["disable", "-l", "team=none"]), "");
    assert_eq!(result.code, Some(1));
    let expected =
        format!("plimsoll: no WatermarkPodAutoscaler with team=none in namespace {namespace}\n");
    assert_eq!(result.err, expected);
    let result = run(&with(&["disable", "nobody"]), "");
    let expected = format!("plimsoll: WatermarkPodAutoscaler {namespace}/nobody not found\n");
    assert_eq!((result.err, result.code), (expected, Some(1)));

    let result = run(&with(&["disable", "--all"]), "");
    assert_eq!((result.out.lines().count(), result.code), (3, Some(0)), "{}", result.err);
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), &saved).expect("is written");
    let path = file.path().to_str().expect("UTF-8");
    let result = run(&["revert", "-f", path], "");
    let both = line("api", " now true") + &line("web", " now true");
    assert_eq!((result.out, result.code), (both, Some(0)), "{}", result.err);
    let result = run(&["revert", "-f", path], "");
    assert_eq!((result.out.as_str(), result.code), ("", Some(0)), "{}", result.err);

    // An invalid row does not prevent the others from being restored.
    let input = format!("{namespace},api\n{namespace},nobody,enabled\n{namespace},api,disabled\n");
    let result = run(&["revert", "-f", "-"], &input);
    assert_eq!((result.out, result.code), (line("api", " now false"), Some(1)));
    let lines: Vec<&str> = result.err.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("plimsoll: -:1: expected 3 fields"), "{lines:?}");
    assert!(lines[1].ends_with("/nobody not found"), "{lines:?}");
}
