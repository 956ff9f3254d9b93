//! The images: the contents of each in deploy/Dockerfile, its user, and its entry point.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::ROOT;

/// A stage of the Dockerfile.
#[derive(Debug, Default)]
struct Target {
    from: String,
    steps: Vec<(String, String)>,
}

/// Upstream's name of each role, and our subcommand.
const ROLES: [(&str, &str); 4] = [
    ("recommender", "recommender"),
    ("updater", "updater"),
    ("admission-controller", "admission-controller"),
    ("watermark", "manager"),
];

fn dockerfile() -> String {
    fs::read_to_string(Path::new(ROOT).join("deploy/Dockerfile")).expect("a Dockerfile")
}

/// Stages by name, and the arguments before the first one.
fn targets() -> (BTreeMap<String, Target>, BTreeMap<String, String>) {
    let text = dockerfile();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let (mut targets, mut arguments) = (BTreeMap::new(), BTreeMap::new());
    let mut current: Option<String> = None;
    for line in joined.lines().filter(|line| !line.trim().is_empty()) {
        let (word, rest) = line.trim().split_once(' ').expect("a word and more");
        match (word, &current) {
            ("FROM", _) => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let [from, "AS", name] = words[..] else { panic!("{line}: a target has a name") };
                let target = Target { from: from.to_owned(), steps: Vec::new() };
                assert!(targets.insert(name.to_owned(), target).is_none(), "{name} twice");
                current = Some(name.to_owned());
            }
            ("ARG", None) => {
                let (name, value) = rest.split_once('=').expect("a default");
                arguments.insert(name.to_owned(), value.to_owned());
            }
            (_, Some(name)) => {
                let target = targets.get_mut(name).expect("it was begun");
                target.steps.push((word.to_owned(), rest.trim().to_owned()));
            }
            _ => panic!("{line}: before the first target"),
        }
    }
    (targets, arguments)
}

/// The last value of an instruction in a stage or its base stages.
fn last(targets: &BTreeMap<String, Target>, name: &str, word: &str) -> Option<String> {
    let target = targets.get(name)?;
    let own = target.steps.iter().rev().find(|(step, _)| step == word);
    own.map(|(_, rest)| rest.clone()).or_else(|| last(targets, &target.from, word))
}

/// The entry point of an image.
pub fn entry_point(target: &str) -> Vec<String> {
    let (targets, _) = targets();
    let value = last(&targets, target, "ENTRYPOINT").unwrap_or_else(|| panic!("no {target}"));
    serde_json::from_str(&value).unwrap_or_else(|why| panic!("{target}: {why}: {value}"))
}

/// Unpacks the images' only layer into a folder, as the first stage does, with the program that was built for the
/// tests. Returns its `PATH`.
pub fn unpack(folder: &Path) -> PathBuf {
    let (targets, _) = targets();
    let text = &targets["build"].steps.last().expect("steps").1;
    let path = last(&targets, "base", "ENV").expect("a PATH");
    let path = path.strip_prefix("PATH=").expect("a PATH");
    let inside = |place: &str| folder.join(place.trim_start_matches('/'));
    let program = inside(&format!("{path}/plimsoll"));
    assert!(text.contains(&format!(" /image{path}/plimsoll")), "it is copied to {path}");
    fs::create_dir_all(inside(path)).expect("writable");
    symlink(env!("CARGO_BIN_EXE_plimsoll"), program).expect("writable");
    // for name in recommender updater ...; do ln -s usr/local/bin/plimsoll "/image/$name"; done
    let (_, rest) = text.split_once("for name in ").expect("names");
    let (names, rest) = rest.split_once(';').expect("a loop");
    let (_, link) = rest.split_once("ln -s ").expect("links");
    let source = link.split_whitespace().next().expect("a source");
    for name in names.split_whitespace() {
        symlink(source, folder.join(name)).expect("writable");
    }
    inside(path)
}

#[test]
fn each_role_has_an_image_that_runs_as_non_root() {
    let (targets, _) = targets();
    let folder = tempfile::tempdir().expect("a folder");
    unpack(folder.path());
    let built = fs::canonicalize(env!("CARGO_BIN_EXE_plimsoll")).expect("it was built");
    for (role, program) in ROLES {
        let words = entry_point(role);
        assert_eq!(words, [format!("/{program}")], "{role}");
        let link = folder.path().join(program);
        let there = fs::canonicalize(&link).unwrap_or_else(|why| panic!("{role}: {why}"));
        assert_eq!(there, built, "{role}");
        let started = std::process::Command::new(&link).arg("--help").output().expect("it starts");
        let help = String::from_utf8_lossy(&started.stdout).into_owned();
        let command = if role == "watermark" { "watermark" } else { role };
        assert!(help.contains(&format!("Usage: plimsoll {command}")), "{role}: {help}");
    }
    assert_eq!(entry_point("plimsoll"), ["/usr/local/bin/plimsoll"]);
    for name in ROLES.map(|(role, _)| role).iter().chain(&["plimsoll"]) {
        let user = last(&targets, name, "USER").expect("a user");
        let ids: Vec<u32> = user.split(':').map(|id| id.parse().expect("numeric ids")).collect();
        assert_eq!(ids, [65534, 65534], "{name}");
        assert_eq!(targets[*name].from, "base", "{name}");
        assert_eq!(targets[*name].steps.len(), 1, "{name}: all images are one layer");
    }
    assert_eq!(targets["base"].from, "scratch");
    assert_eq!(last(&targets, "base", "COPY").as_deref(), Some("--from=build /image/ /"));
    let text = dockerfile();
    let listed = text.rfind("\nFROM base AS plimsoll").expect("all roles");
    assert_eq!(text.rfind("\nFROM "), Some(listed), "it is the default target");
}

#[test]
fn the_image_is_built_from_pinned_versions_without_paths_and_timestamps() {
    let (targets, arguments) = targets();
    let build = &targets["build"];
    assert_eq!(build.from, "rust:${RUST}");
    let (release, _) = arguments["RUST"].split_once('-').expect("a release and a system");
    let numbers: Vec<u32> =
        release.split('.').map(|part| part.parse().expect("a whole release")).collect();
    assert_eq!(numbers.len(), 3, "{release} does not pin a toolchain");
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let oldest = manifest["workspace"]["package"]["rust-version"].as_str().expect("a release");
    let oldest: Vec<u32> = oldest.split('.').map(|part| part.parse().expect("numbers")).collect();
    assert!(numbers[..2] >= oldest[..], "{release} is too old for {oldest:?}");
    let run = &build.steps.last().expect("steps").1;
    for word in
        ["+crt-static", "--locked", "--profile dist", "--remap-path-prefix=/src=", "--target"]
    {
        assert!(run.contains(word), "{word}");
    }
    assert!(
        last(&targets, "build", "ENV").expect("an environment").contains("SOURCE_DATE_EPOCH=0")
    );
}

#[test]
fn copied_files_exist_and_are_not_ignored() {
    let (targets, _) = targets();
    let ignored = fs::read_to_string(Path::new(ROOT).join(".dockerignore")).expect("a file");
    let lines: Vec<&str> =
        ignored.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert_eq!(lines[0], "*", "everything else is excluded");
    let mut named: Vec<&str> =
        lines[1..].iter().map(|line| line.strip_prefix('!').expect("an exception")).collect();
    let mut copied = Vec::new();
    for (word, rest) in &targets["build"].steps {
        if word == "COPY" {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let (_, sources) = words.split_last().expect("sources and a place");
            copied.extend(sources.iter().map(|source| (*source).to_owned()));
        }
    }
    for source in &copied {
        assert!(Path::new(ROOT).join(source).exists(), "{source} is not there");
    }
    copied.sort();
    named.sort_unstable();
    assert_eq!(named, copied, "exactly the copied files");
}
