//! Builds the program of the images with the command in deploy/Dockerfile, and tests it in an empty root.

use std::fmt::Display;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use xtask::console::progress;

use crate::workspace::root;

/// The build's subfolder of the target folder.
const FOLDER: &str = "image";
/// CA certificates that are in the image, and not on every machine.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The size that the program may have. People download it, and nodes pull it, before anything works.
const MAX_PROGRAM_BYTES: usize = 25_000_000;
/// Where the Dockerfile builds, and where the image of Rust has the sources of dependencies.
const DOCKER_SOURCES: &str = "/src";
const DOCKER_CARGO: &str = "/usr/local/cargo";
/// The names by which the images start the program, and the name that its help then prints.
const NAMES: [(&str, &str); 5] = [
    ("/recommender", "recommender"),
    ("/updater", "updater"),
    ("/admission-controller", "admission-controller"),
    ("/manager", "watermark"),
    ("/usr/local/bin/plimsoll", "[OPTIONS] <COMMAND>"),
];

/// The stage `build` of the Dockerfile: its environment and its last command.
struct BuildStage {
    environment: Vec<(String, String)>,
    command: String,
}

/// Builds the program, twice if requested, and starts it by each of its names.
pub fn image(is_twice: bool) -> Result<bool> {
    let recipe = build_stage()?;
    let folder = folder()?;
    let image = folder.join("root");
    let program = image.join("usr/local/bin/plimsoll");
    build(&recipe, &folder, &image)?;
    if is_twice {
        let first = fs::read(&program)?;
        fs::remove_dir_all(folder.join("target"))?;
        build(&recipe, &folder, &image)?;
        ensure!(first == fs::read(&program)?, "two builds of the same sources differ");
        progress("two builds are the same to the last byte");
    }
    let bytes = fs::read(&program)?;
    ensure!(!is_dynamic(&bytes)?, "{} needs a loader: it is not static", program.display());
    for (name, word) in NAMES {
        let output = start(&image, name, &["--help"])?;
        let help = combined_output(&output);
        ensure!(output.status.success(), "{name}: {}: {help}", output.status);
        let wanted = format!("Usage: plimsoll {word}");
        ensure!(help.contains(&wanted), "{name} does not print {wanted:?}:\n{help}");
    }
    ensure!(resolves_names(&image)?, "it cannot resolve host names in the image");
    check_size(image.display(), bytes.len())?;
    progress(format_args!(
        "{}: static, {} bytes, starts by all its names, and resolves host names",
        image.display(),
        bytes.len()
    ));
    Ok(true)
}

/// Builds the program of the images for a platform, as rustc names it, and returns it. Fails if it is not static or too
/// large.
pub fn program(target: &str) -> Result<Vec<u8>> {
    let mut recipe = build_stage()?;
    recipe.command = recipe.command.replace("$(rustc --print host-tuple)", target);
    let folder = folder()?;
    let image = folder.join(format!("root-{target}"));
    build(&recipe, &folder, &image)?;
    let path = image.join("usr/local/bin/plimsoll");
    let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
    ensure!(!is_dynamic(&bytes)?, "{} needs a loader: it is not static", path.display());
    check_size(target, bytes.len())?;
    Ok(bytes)
}

fn check_size(name: impl Display, bytes: usize) -> Result<()> {
    ensure!(
        bytes <= MAX_PROGRAM_BYTES,
        "{name}: the program has {bytes} bytes, and may have {MAX_PROGRAM_BYTES}"
    );
    Ok(())
}

/// The command that builds the program.
pub fn command() -> Result<String> {
    Ok(build_stage()?.command.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Removes what was built, so that the next build starts from nothing.
pub fn clean() -> Result<()> {
    fs::remove_dir_all(folder()?.join("target")).context("the target folder of the image")
}

fn build_stage() -> Result<BuildStage> {
    let text = fs::read_to_string(root().join("deploy/Dockerfile")).context("deploy/Dockerfile")?;
    recipe(&text).context("deploy/Dockerfile has no stage `build` with a RUN")
}

/// The folder of the build.
fn folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?.join(FOLDER))
}

/// Parses the first stage of a Dockerfile.
fn recipe(text: &str) -> Option<BuildStage> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let stage = text.split("\nFROM ").find(|stage| {
        stage.lines().next().is_some_and(|first| first.trim_end().ends_with(" AS build"))
    })?;
    let instructions =
        |word: &'static str| stage.lines().filter_map(move |line| line.strip_prefix(word));
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.into(), value.into()));
    let environment =
        instructions("ENV ").flat_map(str::split_whitespace).filter_map(pair).collect();
    Some(BuildStage { environment, command: instructions("RUN ").next_back()?.to_owned() })
}

/// The folders of a build on this machine.
#[derive(Debug)]
struct Folders {
    sources: String,
    cargo: String,
    built: String,
    image: String,
}

/// A command of the Dockerfile, with the folders of this machine. None of them must be in the program, so each is mapped
/// to what the Dockerfile maps its own to.
fn local_command(command: &str, folders: &Folders) -> Result<String> {
    let Folders { sources, cargo, built, image } = folders;
    for folder in [sources, cargo, built, image] {
        ensure!(!folder.contains(char::is_whitespace), "{folder}: a path with a space");
    }
    let map = |from: &str| format!("--remap-path-prefix={from}=");
    for wanted in [map(DOCKER_SOURCES), map(DOCKER_CARGO)] {
        ensure!(command.contains(&wanted), "deploy/Dockerfile: RUSTFLAGS has no {wanted}");
    }
    // The last one that matches counts, and the output may be below the sources.
    let both = format!("{}. {}./target", map(sources), map(built));
    Ok(command
        .replace("/image", image)
        .replace("\"target/", &format!("\"{built}/"))
        .replace(&format!("{}.", map(DOCKER_SOURCES)), &both)
        .replace(&map(DOCKER_CARGO), &map(cargo)))
}

/// The folder in which cargo keeps the sources of dependencies.
fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    let home = std::env::home_dir().context("neither CARGO_HOME nor a home folder is set")?;
    Ok(home.join(".cargo"))
}

/// Runs the build command on this machine, with other output folders.
fn build(recipe: &BuildStage, folder: &Path, image: &Path) -> Result<()> {
    if image.exists() {
        fs::remove_dir_all(image)?;
    }
    let built = folder.join("target");
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the path is not UTF-8");
    let mut command = local_command(
        &recipe.command,
        &Folders {
            sources: text(&root())?,
            cargo: text(&cargo_home()?)?,
            built: text(&built)?,
            image: text(image)?,
        },
    )?;
    if !Path::new(AUTHORITIES).exists() {
        progress(format_args!("{AUTHORITIES} not found: using an empty file"));
        let empty = folder.join("ca-certificates.crt");
        fs::create_dir_all(folder)?;
        fs::write(&empty, "")?;
        command =
            command.replacen(&format!("cp {AUTHORITIES}"), &format!("cp {}", text(&empty)?), 1);
    }
    let built = Command::new("sh")
        .args(["-euc", &command])
        .current_dir(root())
        .envs(recipe.environment.iter().map(|(name, value)| (name, value)))
        .env("CARGO_TARGET_DIR", &built)
        .env_remove("RUSTFLAGS")
        .status();
    let built = built.context("sh")?;
    ensure!(built.success(), "the command of deploy/Dockerfile failed: {built}");
    Ok(())
}

/// Whether an ELF program needs a loader or shared libraries.
fn is_dynamic(bytes: &[u8]) -> Result<bool> {
    let number = |at: usize, length: usize| -> Result<usize> {
        let bytes = bytes.get(at..at + length).context("the program is truncated")?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    // 64-bit and little-endian only: no other target is supported.
    if bytes.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, 1][..]) {
        bail!("the program is not a 64-bit little-endian ELF file");
    }
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for place in 0..count {
        // A program with an interpreter segment (PT_INTERP) is linked dynamically.
        if number(table + place * entry, 4)? == 3 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has the program connect to a host name, as in a pod: a static program must contain its own resolver.
fn resolves_names(image: &Path) -> Result<bool> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    let address = format!("http://server.test:{}", listener.local_addr()?.port());
    let hosts = image.join("etc/hosts");
    fs::write(&hosts, "127.0.0.1 server.test\n")?;
    let connected = Arc::new(AtomicBool::new(false));
    let on_connection = Arc::clone(&connected);
    // The listener closes each connection, and ends with this process.
    thread::spawn(move || {
        for _ in listener.incoming().flatten() {
            on_connection.store(true, Ordering::Relaxed);
        }
    });
    let output =
        start(image, "/usr/local/bin/plimsoll", &["doctor", "--prometheus-address", &address]);
    fs::remove_file(&hosts)?;
    let is_found = connected.load(Ordering::Relaxed);
    if !is_found {
        progress(combined_output(&output?));
    }
    Ok(is_found)
}

fn combined_output(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

/// Starts the program as an unprivileged user in a chroot that contains only the image.
fn start(image: &Path, name: &str, arguments: &[&str]) -> Result<Output> {
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let mut command = if is_root {
        let mut command = Command::new("chroot");
        command.arg("--userspec=65534:65534");
        command
    } else {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "chroot"]);
        command
    };
    command
        .arg(image)
        .arg(name)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .context("chroot")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> Folders {
        Folders {
            sources: "/home/me/plimsoll".to_owned(),
            cargo: "/home/me/.cargo".to_owned(),
            built: "/home/me/plimsoll/target/image/target".to_owned(),
            image: "/tmp/root".to_owned(),
        }
    }

    #[test]
    fn the_program_may_have_25_million_bytes() {
        assert!(check_size("linux-amd64", 25_000_000).is_ok());
        let why = check_size("linux-amd64", 25_000_001).expect_err("too large").to_string();
        assert!(why.starts_with("linux-amd64: the program has 25000001 bytes"), "{why}");
    }

    #[test]
    fn the_build_has_the_folders_of_this_machine_and_maps_all_of_them() {
        let command = local_command(&build_stage().expect("a stage").command, &folders());
        let command = command.expect("a command");
        for wanted in [
            "--remap-path-prefix=/home/me/plimsoll=. ",
            "--remap-path-prefix=/home/me/plimsoll/target/image/target=./target ",
            "--remap-path-prefix=/home/me/.cargo=cargo\"",
            "cp \"/home/me/plimsoll/target/image/target/$target/dist/plimsoll\" /tmp/root/usr/local/bin/",
            "-C force-unwind-tables=no",
            "-z,pack-relative-relocs",
        ] {
            assert!(command.contains(wanted), "{wanted}: {command}");
        }
        for gone in ["/image/usr", "=/src=", DOCKER_CARGO] {
            assert!(!command.contains(gone), "{gone}: {command}");
        }
    }

    #[test]
    fn a_path_with_a_space_is_refused() {
        let spaced = Folders { cargo: "/home/my user/.cargo".to_owned(), ..folders() };
        let why = local_command(&build_stage().expect("a stage").command, &spaced);
        assert!(
            why.expect_err("it would be two flags").to_string().contains("a path with a space")
        );
    }
}
