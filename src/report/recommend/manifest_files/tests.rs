//! Manifests in real folders: what is read, refused and written.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use plimsoll_core::rightsizing::report::Report;
use serde_json::json;
use tempfile::TempDir;

use super::*;

const WEB: &str = "kind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      containers:\n      - name: main\n        resources: {requests: {cpu: 1}} # one\n";

/// A report that wants 250m for the containers of these Deployments.
fn report(names: &[&str]) -> Report {
    let totals = json!({
        "workloads": 0, "containers": 0, "cpu": {"requested": 0, "needed": 0}, "memory": {"requested": 0, "needed": 0},
        "risk": {}, "waste": {}, "unsaid": {}
    });
    let workloads: Vec<_> = names
        .iter()
        .map(|name| {
            json!({"namespace": "shop", "kind": "Deployment", "name": name, "containers": [{
                "name": "main", "role": "main", "oomKills": 0, "resources": [
                    {"resource": "cpu", "change": {"request": 250}, "risk": "ok", "waste": "ok"}
                ]
            }]})
        })
        .collect();
    serde_json::from_value(json!({
        "schemaVersion": 1, "kind": "recommend", "version": "0", "at": "2026-11-26T00:00:00Z", "sources": [], "settings": [],
        "totals": totals, "namespaces": {}, "workloads": workloads, "unread": [], "remarks": []
    }))
    .expect("a report")
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    }
    folder
}

fn text(folder: &TempDir, path: &str) -> String {
    fs::read_to_string(folder.path().join(path)).expect("a text")
}

fn named(name: &str) -> String {
    WEB.replace("web", name)
}

fn edited(name: &str) -> String {
    named(name).replace("cpu: 1}", "cpu: 250m}")
}

/// Plans and writes; returns why nothing was written.
fn written(root: &Path, names: &[&str], allow_dirty: bool) -> Option<String> {
    let plan = plan(root, &report(names)).expect("a plan");
    assert!(!plan.files.is_empty(), "{plan:?}");
    write(root, &plan, allow_dirty).err().map(|error| error.to_string())
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

#[test]
fn files_are_replaced_with_their_permissions() {
    let folder =
        folder(&[("a/web.yml", WEB), ("b/api.json", &named("api")), (".git.yaml", "kind: x")]);
    let web = folder.path().join("a/web.yml");
    fs::set_permissions(&web, fs::Permissions::from_mode(0o640)).expect("set");
    let before = fs::metadata(&web).expect("a file");
    assert_eq!(written(folder.path(), &["web", "api"], false), None);
    assert_eq!(text(&folder, "a/web.yml"), edited("web"));
    assert_eq!(text(&folder, "b/api.json"), edited("api"));
    let after = fs::metadata(&web).expect("a file");
    assert_eq!(after.mode(), before.mode());
    assert_ne!(after.ino(), before.ino());
    assert_eq!(entries(&folder.path().join("a")), 1, "no temporary file is left");
    let again = plan(folder.path(), &report(&["web", "api"])).expect("a plan");
    assert_eq!(again.files, []);
}

#[test]
fn hidden_folders_and_other_files_are_passed_over() {
    let folder = folder(&[
        (".cache/web.yaml", WEB),
        ("web.txt", WEB),
        ("large.yaml", &"#".repeat(5 << 20)),
        ("sub/deep/web.yaml", WEB),
    ]);
    fs::write(folder.path().join("latin.yaml"), b"kind: \xe9\n").expect("written");
    let plan = plan(folder.path(), &report(&["web"])).expect("a plan");
    let [file] = &plan.files[..] else { panic!("{plan:?}") };
    assert!(file.path.ends_with("/sub/deep/web.yaml"));
    let problems: Vec<_> = plan.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].ends_with("large.yaml:1: the file is larger than 4 MiB: split it"));
    assert!(
        problems[1].ends_with("latin.yaml:1: the text is not UTF-8: convert it"),
        "{problems:?}"
    );
    // One file can be named too.
    assert_eq!(written(&folder.path().join("sub/deep/web.yaml"), &["web"], false), None);
    let missing = super::plan(&folder.path().join("missing"), &report(&["web"]));
    assert!(matches!(missing, Err(ManifestFilesError::Io { .. })));
}

#[test]
fn a_read_only_file_keeps_all_files_as_they_are() {
    let folder = folder(&[("api.yaml", &named("api")), ("web.yaml", WEB)]);
    let web = folder.path().join("web.yaml");
    fs::set_permissions(&web, fs::Permissions::from_mode(0o444)).expect("set");
    let why = written(folder.path(), &["web", "api"], false).expect("refused");
    assert!(
        why.starts_with("nothing was written: ") && why.ends_with("web.yaml is read-only"),
        "{why}"
    );
    assert_eq!(text(&folder, "api.yaml"), named("api"));
}

#[test]
fn links_are_not_a_way_out_of_the_folder() {
    let outside = folder(&[("web.yaml", WEB), ("sub/api.yaml", &named("api"))]);
    let inside = folder(&[("real.yaml", &named("real"))]);
    let link =
        |target: &Path, name: &str| symlink(target, inside.path().join(name)).expect("a link");
    link(&outside.path().join("web.yaml"), "web.yaml");
    link(&outside.path().join("sub"), "sub");
    link(&inside.path().join("real.yaml"), "again.yaml");
    link(inside.path(), "loop");
    link(Path::new("/missing"), "broken.yaml");
    let plan = plan(inside.path(), &report(&["web", "real", "api"])).expect("a plan");
    assert_eq!(plan.files.len(), 2, "{plan:?}");
    assert_eq!(plan.missing, ["shop/api"]);
    assert_eq!(plan.problems.len(), 2, "{:?}", plan.problems);
    let why = write(inside.path(), &plan, false).expect_err("refused").to_string();
    assert!(
        why.contains("web.yaml is a link to ") && why.ends_with("outside of the path"),
        "{why}"
    );
    assert_eq!(text(&inside, "real.yaml"), named("real"));
    assert_eq!(text(&outside, "web.yaml"), WEB);
    // The path itself may be a link.
    fs::remove_file(inside.path().join("web.yaml")).expect("removed");
    let path = outside.path().join("link");
    symlink(inside.path(), &path).expect("a link");
    assert_eq!(written(&path, &["real"], false), None);
    assert_eq!(text(&inside, "real.yaml"), edited("real"));
}

#[test]
fn a_file_that_changed_in_the_meantime_is_refused() {
    let folder = folder(&[("web.yaml", WEB)]);
    let plan = plan(folder.path(), &report(&["web"])).expect("a plan");
    fs::write(folder.path().join("web.yaml"), "kind: Other\n").expect("written");
    let why = write(folder.path(), &plan, false).expect_err("refused").to_string();
    assert!(why.ends_with("has changed since it was read"), "{why}");
    assert_eq!(text(&folder, "web.yaml"), "kind: Other\n");
}

#[test]
fn uncommitted_changes_are_refused_unless_allowed() {
    let folder =
        folder(&[("deploy/web.yaml", WEB), ("deploy/api.yaml", &named("api")), ("other.txt", "")]);
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
        let output =
            Command::new("git").arg("-C").arg(folder.path()).args(identity).args(words).output();
        let output = output.expect("git runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "--quiet"]);
    git(&["add", "deploy/web.yaml"]);
    git(&["commit", "--quiet", "--message=Add"]);
    let root = folder.path().join("deploy");
    // The other file is not tracked, so git could not bring it back.
    let why = written(&root, &["web", "api"], false).expect("refused");
    assert_eq!(why, "nothing was written: deploy/api.yaml has changes that git has not committed");
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message=Add the rest"]);
    fs::write(root.join("web.yaml"), format!("# mine\n{WEB}")).expect("written");
    let why = written(&root, &["web", "api"], false).expect("refused");
    assert_eq!(why, "nothing was written: deploy/web.yaml has changes that git has not committed");
    assert_eq!(text(&folder, "deploy/api.yaml"), named("api"));
    assert_eq!(written(&root, &["web", "api"], true), None);
    assert_eq!(text(&folder, "deploy/web.yaml"), format!("# mine\n{}", edited("web")));
}

#[test]
fn a_component_replaces_only_one_of_its_own() {
    let folder = folder(&[]);
    let files = kustomize::component(&report(&["web"]));
    let target = folder.path().join("patches/new");
    write_component(&target, &files).expect("written");
    write_component(&target, &files).expect("written again");
    assert_eq!(entries(&target), files.len());
    fs::write(target.join("kustomization.yaml"), "resources: []\n").expect("written");
    let refused = write_component(&target, &files);
    assert!(matches!(refused, Err(ManifestFilesError::ForeignFolder(_))));
    assert_eq!(text(&folder, "patches/new/kustomization.yaml"), "resources: []\n");
}

#[test]
fn kustomizations_of_other_names_are_not_joined_by_one() {
    for name in ["kustomization.yml", "Kustomization"] {
        let folder = folder(&[(name, "resources: []\n")]);
        let refused = write_component(folder.path(), &kustomize::component(&report(&["web"])));
        assert!(matches!(refused, Err(ManifestFilesError::ForeignFolder(_))), "{name}");
        assert_eq!(entries(folder.path()), 1, "{name}");
    }
}

#[test]
fn a_component_follows_no_links_and_is_written_as_a_whole() {
    let outside = folder(&[]);
    let files = kustomize::component(&report(&["web"]));
    for name in ["kustomization.yaml", "shop_deployment_web.yaml"] {
        let folder = folder(&[]);
        let target = outside.path().join("created");
        symlink(&target, folder.path().join(name)).expect("a link");
        let why = write_component(folder.path(), &files).expect_err("refused").to_string();
        assert!(why.contains(name) && why.ends_with("it is not a regular file"), "{why}");
        assert!(!target.exists(), "{name}");
        assert_eq!(entries(folder.path()), 1, "{name}: nothing else was written");
    }
}

#[test]
fn files_that_git_ignores_are_refused() {
    let folder = folder(&[("build/web.yaml", WEB), (".gitignore", "build/\n")]);
    let output =
        Command::new("git").arg("-C").arg(folder.path()).args(["init", "--quiet"]).output();
    assert!(output.expect("git runs").status.success());
    let root = folder.path().join("build");
    let why = written(&root, &["web"], false).expect("refused");
    assert!(why.ends_with(" is ignored by git, which could not bring it back"), "{why}");
    assert_eq!(text(&folder, "build/web.yaml"), WEB);
    assert_eq!(written(&root, &["web"], true), None);
}
