//! The files of a release: archives, the chart, checksums, the bill of materials, the provenance statement and the
//! manifest of the kubectl plugin. All of them are the same to the last byte if they are made again.

mod provenance;
mod sbom;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};
use xtask::archive::{self, Entry};
use xtask::chart;
use xtask::console::{progress, timed};
use xtask::krew;

use self::provenance::Source;
use crate::image;
use crate::workspace::{cargo, root};

const CHECKSUMS: &str = "checksums.txt";

/// What to release.
#[derive(Clone, Debug)]
pub struct Release {
    /// Output folder. Its files are replaced.
    pub out: PathBuf,
    /// The folder from which the files can be downloaded.
    pub url: String,
    /// Page of the project.
    pub homepage: String,
    /// Repository of the image, such as `ghcr.io/owner/plimsoll`.
    pub image: Option<String>,
}

/// A platform that this machine may be able to build for.
struct Platform {
    /// As in the names of archives.
    name: &'static str,
    /// As rustc names it.
    target: &'static str,
    /// The linker that it needs, if this machine is another one.
    linker: &'static str,
}

const PLATFORMS: [Platform; 2] = [
    Platform {
        name: "linux-amd64",
        target: "x86_64-unknown-linux-gnu",
        linker: "x86_64-linux-gnu-gcc",
    },
    Platform {
        name: "linux-arm64",
        target: "aarch64-unknown-linux-gnu",
        linker: "aarch64-linux-gnu-gcc",
    },
];

/// Makes the files of a release, twice if requested, and compares them.
pub fn release(release: &Release, is_twice: bool) -> Result<bool> {
    let version = version()?;
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "a release is made from a commit; not committed:\n{changed}");
    make(release, &version, &commit)?;
    if is_twice {
        let second = Release { out: release.out.with_extension("again"), ..release.clone() };
        image::clean()?;
        make(&second, &version, &commit)?;
        let difference = difference(&release.out, &second.out)?;
        fs::remove_dir_all(&second.out)?;
        ensure!(difference.is_empty(), "two releases of {commit} differ in {difference:?}");
        progress("two releases of this commit are the same to the last byte");
    }
    Ok(true)
}

fn make(release: &Release, version: &str, commit: &str) -> Result<()> {
    let Release { out, url, homepage, image } = release;
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("Cargo.lock")?;
    let mut archives = Vec::new();
    for platform in &PLATFORMS {
        if let Some(reason) = missing_toolchain(platform) {
            progress(format_args!("NOT BUILT: {}: {reason}", platform.name));
            continue;
        }
        let bytes = timed(platform.name, || image::program(platform.target))?;
        progress(format_args!("{}: {} bytes", platform.name, bytes.len()));
        let linked = sbom::Linked::of(&tree(platform.target)?);
        let bill = sbom::bill(&metadata(platform.target)?, &lock, "plimsoll", &linked, &bytes)?;
        write(&out.join(format!("plimsoll-{}.cdx.json", platform.name)), &json_text(&bill)?)?;
        let entries = [
            Entry { path: "plimsoll".to_owned(), bytes, is_program: true },
            Entry::of(&root().join("LICENSE"), "LICENSE", false)?,
        ];
        let path = out.join(format!("plimsoll-{}.tar.gz", platform.name));
        archives.push(archive::write(&path, &entries)?);
    }
    ensure!(!archives.is_empty(), "nothing was built");
    progress(
        "NOT BUILT: the image, which needs docker: docker build -f deploy/Dockerfile --target plimsoll .",
    );
    if image.is_none() {
        progress("the chart names no image: pass --image, or users set image.repository");
    }
    let values = chart::Release {
        commit: commit.to_owned(),
        homepage: homepage.clone(),
        image: image.clone(),
    };
    archive::write(
        &out.join(format!("plimsoll-{version}.tgz")),
        &chart::entries(&root(), &values)?,
    )?;
    let plugin = krew::Release {
        version: format!("v{version}"),
        homepage: homepage.clone(),
        url: url.clone(),
        archives,
    };
    write(&out.join("plimsoll.yaml"), &krew::manifest(&root(), &plugin)?)?;
    let digests = digests(out)?;
    let mut checksums = String::new();
    for (name, digest) in &digests {
        writeln!(checksums, "{digest}  {name}")?;
    }
    write(&out.join(CHECKSUMS), &checksums)?;
    let source = Source {
        repository: homepage.clone(),
        commit: commit.to_owned(),
        compiler: run(Command::new("rustc").arg("--version"))?,
        command: image::command()?,
    };
    let statement = provenance::statement(&source, &digests);
    write(&out.join("provenance.intoto.json"), &json_text(&statement)?)?;
    for name in fs::read_dir(out)? {
        progress(format_args!("written: {}", name?.path().display()));
    }
    Ok(())
}

/// Why this machine cannot build for a platform; `None` if it can.
fn missing_toolchain(platform: &Platform) -> Option<String> {
    let own = run(Command::new("rustc").args(["--print", "host-tuple"])).unwrap_or_default();
    if own == platform.target {
        return None;
    }
    let installed = run(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
    if !Path::new(&installed).join("lib/rustlib").join(platform.target).exists() {
        let target = platform.target;
        return Some(format!("the compiler has no {target}: rustup target add {target}"));
    }
    let linker = platform.linker;
    run(Command::new(linker).arg("--version"))
        .err()
        .map(|_| format!("{linker} is not on PATH: install the cross compiler of gcc"))
}

/// What cargo resolves for a platform.
fn metadata(target: &str) -> Result<sbom::Metadata> {
    let text = run(Command::new(cargo())
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", target])
        .current_dir(root()))?;
    serde_json::from_str(&text).context("the output of cargo metadata")
}

/// The packages that are linked for a platform, one a line.
fn tree(target: &str) -> Result<String> {
    run(Command::new(cargo())
        .args(["tree", "--package=plimsoll", "--edges=normal,no-proc-macro", "--prefix=none"])
        .args(["--locked", "--target", target])
        .current_dir(root()))
}

/// The version of the workspace, which is that of the chart too.
fn version() -> Result<String> {
    let field = |path: &str, name: &str| -> Result<String> {
        let text = fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.with_context(|| format!("{path} has no {name}"))?;
        Ok(value.trim_matches([' ', '=', ':', '"']).to_owned())
    };
    let version = field("Cargo.toml", "version")?;
    for name in ["version", "appVersion"] {
        let chart = field(&format!("{}/Chart.yaml", chart::FOLDER), &format!("{name}:"))?;
        ensure!(chart == version, "Chart.yaml has {name} {chart}, and Cargo.toml has {version}");
    }
    Ok(version)
}

/// The SHA-256 of all files of a folder, sorted by name.
fn digests(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut digests = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let digest = format!("{:x}", Sha256::digest(fs::read(file.path())?));
        digests.push((file.file_name().to_string_lossy().into_owned(), digest));
    }
    digests.sort();
    Ok(digests)
}

/// The names of the files that are not the same in two folders.
fn difference(one: &Path, other: &Path) -> Result<Vec<String>> {
    let (one, other) = (digests(one)?, digests(other)?);
    let names =
        one.iter().chain(&other).filter(|file| !one.contains(file) || !other.contains(file));
    let mut names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
    names.dedup();
    Ok(names)
}

fn json_text(value: &serde_json::Value) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn git(arguments: &[&str]) -> Result<String> {
    run(Command::new("git").args(arguments).current_dir(root()))
}

/// Runs a program and returns what it prints, without the line end.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| name.clone())?;
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout).with_context(|| name)?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_has_the_version_of_the_program() {
        assert_eq!(version().expect("equal versions"), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn files_that_differ_or_are_missing_are_named() {
        let (one, other) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        for (folder, name, text) in [
            (&one, "same", "1"),
            (&other, "same", "1"),
            (&one, "other", "1"),
            (&other, "other", "2"),
            (&one, "only", "1"),
        ] {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let names = difference(one.path(), other.path()).expect("readable");
        assert!(
            ["only", "other"].iter().all(|name| names.iter().any(|one| one == name)),
            "{names:?}"
        );
        assert!(!names.contains(&"same".to_owned()));
    }

    #[test]
    fn the_bill_of_the_program_has_what_is_linked_alone() {
        let target = run(Command::new("rustc").args(["--print", "host-tuple"])).expect("rustc");
        let bill = sbom::bill(
            &metadata(&target).expect("metadata"),
            &fs::read_to_string(root().join("Cargo.lock")).expect("the lock file"),
            "plimsoll",
            &sbom::Linked::of(&tree(&target).expect("a tree")),
            b"program",
        )
        .expect("a bill");
        let names: Vec<&str> = bill["components"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|component| component["name"].as_str())
            .collect();
        for linked in ["kube", "plimsoll-core", "plimsoll-storage", "ring", "serde_core"] {
            assert!(names.contains(&linked), "{linked}: {names:?}");
        }
        for not_linked in ["proptest", "serde_derive", "clap_derive", "cc", "num_threads"] {
            assert!(
                !names.contains(&not_linked),
                "{not_linked} runs in tests or builds, or not here"
            );
        }
    }
}
