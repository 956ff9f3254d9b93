//! The manifest of the kubectl plugin for krew: fills in deploy/krew/plimsoll.yaml for a release, and checks
//! it by krew's rules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// The template, relative to the root of the workspace.
pub const TEMPLATE: &str = "deploy/krew/plimsoll.yaml";

/// The name of the plugin.
const NAME: &str = "plimsoll";
const API_VERSION: &str = "krew.googlecontainertools.github.com/v1alpha2";
/// What every archive has to contain.
const LICENSE: &str = "LICENSE";
/// krew's guide for descriptions in the output of `kubectl krew search`.
const LONGEST_SHORT_DESCRIPTION: usize = 50;

/// Values of a release.
#[derive(Clone, Debug)]
pub struct Release {
    /// Starts with `v`.
    pub version: String,
    /// Address of the project's page.
    pub homepage: String,
    /// The folder of the archives.
    pub url: String,
    /// Files whose names end with their platform, such as `plimsoll-linux-amd64.tar.gz`.
    pub archives: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Manifest {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    version: String,
    homepage: String,
    short_description: String,
    description: String,
    #[serde(default)]
    caveats: String,
    platforms: Vec<Platform>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Platform {
    selector: Selector,
    uri: String,
    sha256: String,
    bin: String,
    files: Vec<FileOperation>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOperation {
    from: String,
    to: String,
}

/// Fills in the template. Every archive has a platform; a platform without an archive is left out.
pub fn fill_in(template: &str, release: &Release) -> Result<String> {
    ensure!(is_https(&release.url), "--url={}: start it with https://", release.url);
    let lines: Vec<&str> = template.lines().filter(|line| !line.starts_with('#')).collect();
    let mut text = (lines.join("\n") + "\n")
        .replace("${VERSION}", &release.version)
        .replace("${HOMEPAGE}", &release.homepage);
    for path in &release.archives {
        let place = path.display();
        let file = path.file_name().and_then(|name| name.to_str());
        let file = file.with_context(|| format!("{place}: not the name of a file"))?;
        let suffix = platform_suffix(file)
            .with_context(|| format!("{place}: name it plimsoll-OS-ARCHITECTURE.tar.gz"))?;
        let variable = format!("${{SHA256_{suffix}}}");
        ensure!(
            text.contains(&variable),
            "{place}: {TEMPLATE} has no such platform, or there are two archives of it"
        );
        let archive = fs::read(path).with_context(|| place.to_string())?;
        check_archive(&archive).with_context(|| place.to_string())?;
        let url = format!("{}/{file}", release.url.trim_end_matches('/'));
        text = text
            .replace(&variable, &format!("{:x}", Sha256::digest(&archive)))
            .replace(&format!("${{URL_{suffix}}}"), &url);
    }
    let text = without_unfilled_platforms(&text);
    validate(&text)?;
    Ok(text)
}

/// `LINUX_AMD64` of `plimsoll-linux-amd64.tar.gz`.
fn platform_suffix(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".tar.gz")?.strip_prefix(NAME)?;
    let mut words = stem.rsplit('-');
    let (architecture, system) = (words.next()?, words.next()?);
    Some(format!("{system}_{architecture}").to_uppercase())
}

/// Removes the platforms whose variables are not filled in.
fn without_unfilled_platforms(text: &str) -> String {
    const START: &str = "    - selector:";
    let mut parts = text.split_inclusive('\n').fold(vec![String::new()], |mut parts, line| {
        if line.trim_end() == START {
            parts.push(String::new());
        }
        parts.last_mut().into_iter().for_each(|part| part.push_str(line));
        parts
    });
    parts.retain(|part| !part.contains("${SHA256_"));
    parts.concat()
}

/// Checks that an archive contains the program and the licence.
fn check_archive(archive: &[u8]) -> Result<()> {
    let names = entry_names(GzDecoder::new(archive)).context("not a readable .tar.gz")?;
    for wanted in [NAME, LICENSE] {
        let is_there = names.iter().any(|name| name.trim_start_matches("./") == wanted);
        ensure!(is_there, "the archive does not contain {wanted}: it has {}", names.join(", "));
    }
    Ok(())
}

fn entry_names(archive: impl std::io::Read) -> Result<Vec<String>> {
    let mut archive = tar::Archive::new(archive);
    let name = |entry: std::io::Result<tar::Entry<'_, _>>| {
        Ok(entry?.path()?.to_string_lossy().into_owned())
    };
    archive.entries()?.map(name).collect()
}

/// Checks a manifest by the rules of krew and of its index.
pub fn validate(text: &str) -> Result<()> {
    let manifest: Manifest = serde_saphyr::from_str(text).context("the manifest of the plugin")?;
    let Manifest { api_version, kind, metadata, spec } = manifest;
    ensure!(api_version == API_VERSION, "apiVersion {api_version}: krew accepts {API_VERSION}");
    ensure!(kind == "Plugin", "kind {kind}: krew accepts Plugin");
    ensure!(metadata.name == NAME, "metadata.name {}: it has to be {NAME}", metadata.name);
    ensure!(is_version(&spec.version), "spec.version {}: it has to be like v1.2.3", spec.version);
    ensure!(is_https(&spec.homepage), "spec.homepage {}: start it with https://", spec.homepage);
    let short = &spec.short_description;
    let is_short = !short.is_empty()
        && short.chars().count() <= LONGEST_SHORT_DESCRIPTION
        && !short.contains(['\r', '\n']);
    ensure!(
        is_short,
        "spec.shortDescription: one line of at most {LONGEST_SHORT_DESCRIPTION} characters"
    );
    ensure!(!spec.description.trim().is_empty(), "spec.description is empty");
    ensure!(
        spec.caveats.is_empty() || !spec.caveats.trim().is_empty(),
        "spec.caveats: leave it out, or say something"
    );
    ensure!(!spec.platforms.is_empty(), "spec.platforms is empty");
    for platform in &spec.platforms {
        validate_platform(platform).with_context(|| format!("platform {}", platform.uri))?;
    }
    Ok(())
}

fn validate_platform(platform: &Platform) -> Result<()> {
    let Platform { selector, uri, sha256, bin, files } = platform;
    let labels: Vec<&str> = selector.match_labels.keys().map(String::as_str).collect();
    ensure!(labels == ["arch", "os"], "selector: match os and arch");
    ensure!(
        selector.match_labels.values().all(|value| !value.is_empty()),
        "selector: a value is empty"
    );
    ensure!(is_https(uri), "uri: start it with https://");
    let is_hex = |letter: char| letter.is_ascii_digit() || ('a'..='f').contains(&letter);
    ensure!(
        sha256.len() == 64 && sha256.chars().all(is_hex),
        "sha256 {sha256}: 64 digits of a-f and 0-9"
    );
    ensure!(
        !files.iter().any(|file| file.from.is_empty() || file.to.is_empty()),
        "files: a name is empty"
    );
    for wanted in [bin.as_str(), LICENSE] {
        let is_copied = files.iter().any(|file| file.from == wanted && file.to == ".");
        ensure!(is_copied, "files: {wanted:?} is not copied to the folder of the plugin");
    }
    Ok(())
}

fn is_https(url: &str) -> bool {
    url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty())
}

/// Whether a version is semantic, with a leading v.
fn is_version(version: &str) -> bool {
    let Some(version) = version.strip_prefix('v') else { return false };
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let suffix = &version[core.len()..];
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-.+".contains(letter);
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && suffix.chars().all(is_allowed)
        && suffix.len() != 1
}

/// Reads the template of the workspace and fills it in.
pub fn manifest(root: &Path, release: &Release) -> Result<String> {
    let path = root.join(TEMPLATE);
    let template = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    fill_in(&template, release)
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};
    use tempfile::TempDir;

    use super::*;

    fn template() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(TEMPLATE);
        fs::read_to_string(path).expect("the template")
    }

    /// An archive with files of these names.
    fn archive(names: &[&str]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for name in names {
            let mut header = tar::Header::new_ustar();
            header.set_size(1);
            archive.append_data(&mut header, name, &b"x"[..]).expect("memory");
        }
        archive.into_inner().expect("memory").finish().expect("memory")
    }

    fn release(folder: &TempDir, archives: &[(&str, &[&str])]) -> Release {
        let write = |(file, names): &(&str, &[&str])| {
            let path = folder.path().join(file);
            fs::write(&path, archive(names)).expect("an archive");
            path
        };
        Release {
            version: "v0.1.0".to_owned(),
            homepage: "https://example.com/plimsoll".to_owned(),
            url: "https://example.com/v0.1.0/".to_owned(),
            archives: archives.iter().map(write).collect(),
        }
    }

    const FILES: &[&str] = &["./plimsoll", "LICENSE"];
    const AMD64: (&str, &[&str]) = ("plimsoll-linux-amd64.tar.gz", FILES);
    const ARM64: (&str, &[&str]) = ("plimsoll-v0.1.0-linux-arm64.tar.gz", FILES);

    #[test]
    fn the_template_becomes_a_manifest_that_krew_accepts() {
        let folder = tempfile::tempdir().expect("a folder");
        let filled = fill_in(&template(), &release(&folder, &[AMD64, ARM64])).expect("valid");
        let manifest: Manifest = serde_saphyr::from_str(&filled).expect("YAML");
        assert_eq!(manifest.spec.version, "v0.1.0");
        let platforms: Vec<(&str, &str)> = manifest
            .spec
            .platforms
            .iter()
            .map(|platform| (&*platform.selector.match_labels["arch"], &*platform.uri))
            .collect();
        assert_eq!(
            platforms,
            [
                ("amd64", "https://example.com/v0.1.0/plimsoll-linux-amd64.tar.gz"),
                ("arm64", "https://example.com/v0.1.0/plimsoll-v0.1.0-linux-arm64.tar.gz"),
            ]
        );
        let bytes = fs::read(folder.path().join(AMD64.0)).expect("the archive");
        assert_eq!(manifest.spec.platforms[0].sha256, format!("{:x}", Sha256::digest(bytes)));
        assert!(!filled.contains("${") && !filled.contains('#'), "{filled}");
        assert!(manifest.spec.platforms.iter().all(|p| p.selector.match_labels["os"] == "linux"));
    }

    #[test]
    fn a_platform_that_was_not_built_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        for (built, arch) in [(AMD64, "amd64"), (ARM64, "arm64")] {
            let filled = fill_in(&template(), &release(&folder, &[built])).expect("valid");
            let manifest: Manifest = serde_saphyr::from_str(&filled).expect("YAML");
            let labels = manifest.spec.platforms.iter().map(|p| &*p.selector.match_labels["arch"]);
            assert_eq!(labels.collect::<Vec<_>>(), [arch]);
        }
    }

    #[test]
    fn a_release_that_does_not_fit_the_template_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let refuse = |release: &Release| {
            format!("{:#}", fill_in(&template(), release).expect_err("refused"))
        };
        let no_license: (&str, &[&str]) = (ARM64.0, &["plimsoll", "README.md"]);
        for (archives, expected) in [
            (&[AMD64, AMD64][..], "there are two archives of it"),
            (&[], "spec.platforms"),
            (&[("plimsoll-darwin-arm64.tar.gz", FILES)], "has no such platform"),
            (&[("tool.tar.gz", FILES)], "name it plimsoll-OS-ARCHITECTURE.tar.gz"),
            (&[AMD64, no_license], "does not contain LICENSE: it has plimsoll, README.md"),
        ] {
            let message = refuse(&release(&folder, archives));
            assert!(message.contains(expected), "{message}");
        }
        let good = release(&folder, &[AMD64, ARM64]);
        let message = refuse(&Release { url: "http://example.com".to_owned(), ..good.clone() });
        assert!(message.contains("--url="), "{message}");
        let message = refuse(&Release { version: "0.1.0".to_owned(), ..good.clone() });
        assert!(message.contains("spec.version 0.1.0"), "{message}");
        fs::write(&good.archives[0], "no archive").expect("a file");
        assert!(refuse(&good).contains("not a readable .tar.gz"));
    }

    #[test]
    fn a_manifest_without_a_field_that_krew_requires_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let filled = fill_in(&template(), &release(&folder, &[AMD64, ARM64])).expect("valid");
        for (before, after) in [
            ("v1alpha2", "v1alpha1"),
            ("kind: Plugin", "kind: Plugins"),
            ("name: plimsoll", "name: plimsol"),
            ("  version: v0.1.0\n", ""),
            ("version: v0.1.0", "version: v0.1"),
            ("  homepage: https://example.com/plimsoll\n", ""),
            ("shortDescription: Report", "shortDescription: \"\" #"),
            ("shortDescription: Report", "shortDescription: Report at great length"),
            ("arch: amd64", "cpu: amd64"),
            ("arch: amd64", "arch: amd64, libc: gnu"),
            ("uri: https://example.com/v0.1.0/plimsoll-linux-amd64.tar.gz", "uri: \"\""),
            ("sha256: ", "sha256: 0"),
            ("bin: plimsoll", "bin: \"\""),
            ("bin: plimsoll", "bin: plim"),
            ("        - {from: LICENSE, to: .}\n", ""),
            ("to: .}", "to: \"\"}"),
            ("  platforms:", "  platforms: []\n  others:"),
            ("    - selector:\n        matchLabels: {os: linux, arch: amd64}\n", "    -\n"),
        ] {
            let broken = filled.replacen(before, after, 1);
            assert_ne!(broken, filled, "{before}");
            assert!(validate(&broken).is_err(), "{before} -> {after}");
        }
        assert!(validate(&template()).is_err(), "a template is no manifest");
    }

    #[test]
    fn versions_are_semantic() {
        for good in ["v0.1.0", "v1.20.3", "v1.0.0-rc.1", "v1.0.0+build"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["1.0.0", "v1.0", "v1.0.0.0", "v01.0.0", "v1.0.x", "v1.0.0-", "v", "v1.0.0-a b"]
        {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
