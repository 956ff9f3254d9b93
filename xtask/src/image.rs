//! Builds what deploy/Dockerfile puts into the images, by its own command, and tries it where there is nothing else.

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

/// Where in the target folder it is built.
const FOLDER: &str = "image";
/// The certificates that the image brings, and that not every machine has.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// By what the images start it, and what its help says then.
const NAMES: [(&str, &str); 5] = [
    ("/recommender", "recommender"),
    ("/updater", "updater"),
    ("/admission-controller", "admission-controller"),
    ("/manager", "watermark"),
    ("/usr/local/bin/plimsoll", "[OPTIONS] <COMMAND>"),
];

/// What the stage `build` says: its environment, and its last command.
struct BuildStage {
    environment: Vec<(String, String)>,
    command: String,
}

/// Builds it, twice where that is wanted, and starts it by each of its names.
pub fn image(is_twice: bool) -> Result<bool> {
    let text = fs::read_to_string(root().join("deploy/Dockerfile")).context("deploy/Dockerfile")?;
    let recipe = recipe(&text).context("deploy/Dockerfile has no stage `build` with a RUN")?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    let folder = std::path::absolute(target)?.join(FOLDER);
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
    ensure!(!is_dynamic(&bytes)?, "{} asks for a loader: it is not static", program.display());
    for (name, word) in NAMES {
        let output = start(&image, name, &["--help"])?;
        let said = combined_output(&output);
        ensure!(output.status.success(), "{name}: {}: {said}", output.status);
        let wanted = format!("Usage: plimsoll {word}");
        ensure!(said.contains(&wanted), "{name} does not say {wanted:?}:\n{said}");
    }
    ensure!(
        resolves_names(&image)?,
        "it cannot look names up where nothing but the image is there"
    );
    let size = bytes.len() / 1_000_000;
    progress(format_args!(
        "{}: static, {size} MB, starts by all its names, and finds others by theirs",
        image.display()
    ));
    Ok(true)
}

/// What a Dockerfile says of its first stage.
fn recipe(text: &str) -> Option<BuildStage> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    let stage = text.split("\nFROM ").find(|stage| {
        stage.lines().next().is_some_and(|first| first.trim_end().ends_with(" AS build"))
    })?;
    let said = |word: &'static str| stage.lines().filter_map(move |line| line.strip_prefix(word));
    let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.into(), value.into()));
    let environment = said("ENV ").flat_map(str::split_whitespace).filter_map(pair).collect();
    Some(BuildStage { environment, command: said("RUN ").next_back()?.to_owned() })
}

/// Runs the command here as it is run there, but for where it puts things.
fn build(recipe: &BuildStage, folder: &Path, image: &Path) -> Result<()> {
    if image.exists() {
        fs::remove_dir_all(image)?;
    }
    let built = folder.join("target");
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
    let mut command = recipe
        .command
        .replace("/image", &text(image)?)
        .replace("\"target/", &format!("\"{}/", text(&built)?));
    if !Path::new(AUTHORITIES).exists() {
        progress(format_args!("no {AUTHORITIES} here: an empty one is laid beside it"));
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

/// Whether a program of ELF asks for a loader or for libraries.
fn is_dynamic(bytes: &[u8]) -> Result<bool> {
    let number = |at: usize, length: usize| -> Result<usize> {
        let bytes = bytes.get(at..at + length).context("the program is cut off")?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    // 64 bits, the small end first: of what else there is, nothing is supported.
    if bytes.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, 1][..]) {
        bail!("the program is of another kind than those that are built here");
    }
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for place in 0..count {
        // An interpreter is what loads libraries before the program itself begins.
        if number(table + place * entry, 4)? == 3 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has it ask somebody by a name, as in a pod: a static program has to bring along what looks names up.
fn resolves_names(image: &Path) -> Result<bool> {
    let listener = TcpListener::bind("127.0.0.1:0").context("a port")?;
    let address = format!("http://somebody.test:{}", listener.local_addr()?.port());
    let hosts = image.join("etc/hosts");
    fs::write(&hosts, "127.0.0.1 somebody.test\n")?;
    let asked = Arc::new(AtomicBool::new(false));
    let was_asked = Arc::clone(&asked);
    // It hangs up on whoever comes, and ends with this process.
    thread::spawn(move || {
        for _ in listener.incoming().flatten() {
            was_asked.store(true, Ordering::Relaxed);
        }
    });
    let output =
        start(image, "/usr/local/bin/plimsoll", &["doctor", "--prometheus-address", &address]);
    fs::remove_file(&hosts)?;
    let is_found = asked.load(Ordering::Relaxed);
    if !is_found {
        progress(combined_output(&output?));
    }
    Ok(is_found)
}

fn combined_output(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

/// Starts it as nobody in a world of its own, as in a container: nothing is there but the image.
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
