//! Owns the processes of a bed and its folder, so that neither outlives the test: not after a panic, a Ctrl-C or a
//! kill -9. A small shell script holds them and ends with the pipe to this process, which only the kernel closes for sure.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const SCRIPT: &str = include_str!("keeper.sh");
const SHELL_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps processes and the folder they work in.
#[derive(Debug)]
pub struct ProcessGuard {
    folder: PathBuf,
    script: Child,
    commands: Mutex<Option<ChildStdin>>,
    process_states: Arc<ProcessStates>,
}

#[derive(Debug, Default)]
struct ProcessStates {
    states: Mutex<HashMap<String, ProcessState>>,
    changed: Condvar,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs under this id.
    Running(u32),
    /// It ended with this code; 128 and the signal's number when a signal ended it.
    Exited(i32),
}

// === impl Keeper ===

impl ProcessGuard {
    /// A keeper with a fresh folder.
    pub fn new(purpose: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir()
            .join("plimsoll-beds")
            .join(format!("{purpose}-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
        let mut script = Command::new("sh")
            .args(["-c", SCRIPT, "keeper"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Out of the terminal's foreground group: a Ctrl-C is for the tests, the keeper cleans up after them.
            .process_group(0)
            .spawn()
            .expect("there is a shell");
        let news = Arc::new(ProcessStates::default());
        let output = script.stdout.take().expect("piped");
        thread::spawn({
            let news = Arc::clone(&news);
            move || listen(output, &news)
        });
        Self { folder, commands: Mutex::new(script.stdin.take()), script, process_states: news }
    }

    /// The folder, gone when the keeper is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a process; its output goes to `NAME.log` in the folder. A name is used again after its process ended.
    pub fn start<A: AsRef<OsStr>>(
        &self,
        name: &str,
        program: &Path,
        arguments: &[A],
        environment: &[(&str, &str)],
    ) {
        self.process_states.lock().remove(name);
        let mut line = format!("start {}", quoted(name));
        if !environment.is_empty() {
            line.push_str(" env");
            for (key, value) in environment {
                let _ = write!(line, " {}", quoted(&format!("{key}={value}")));
            }
        }
        let arguments = arguments.iter().map(AsRef::as_ref);
        for word in std::iter::once(program.as_os_str()).chain(arguments) {
            let _ = write!(line, " {}", quoted(word.to_str().expect("arguments are text")));
        }
        self.command(&line);
        let states = self.process_states.lock();
        let unknown = |states: &mut HashMap<_, _>| !states.contains_key(name);
        let (states, _) = self
            .process_states
            .changed
            .wait_timeout_while(states, SHELL_START_TIMEOUT, unknown)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(states.contains_key(name), "the keeper has not started {name}");
    }

    /// What has become of a process; `None` when none of that name was ever started.
    pub fn state(&self, name: &str) -> Option<ProcessState> {
        self.process_states.lock().get(name).copied()
    }

    /// Sends a signal (`TERM`, `KILL`, `STOP`, ...) to a process that runs.
    pub fn signal(&self, name: &str, signal: &str) {
        if let Some(ProcessState::Running(id)) = self.state(name) {
            // Noise beside a run stops and continues processes too, and must not continue one that a test has stopped.
            let mark = std::env::temp_dir().join(format!("stopped-{id}"));
            match signal {
                "STOP" => std::fs::write(mark, "by a test").expect("a writable folder"),
                // There is none unless the test has stopped it.
                _ => drop(std::fs::remove_file(mark)),
            }
            self.command(&format!("kill -s {signal} {id} 2>/dev/null"));
        }
    }

    /// Where a process writes its output.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// The end of a process's output, for a message about what went wrong.
    pub fn log_tail(&self, name: &str, lines: usize) -> String {
        let text = fs::read(self.log(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<_> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn command(&self, line: &str) {
        assert!(!line.contains('\n'), "a command is one line: {line}");
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = commands.as_mut().expect("open until the keeper is dropped");
        writeln!(pipe, "{line}").expect("the keeper lives as long as its pipe");
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The script ends by itself, so there is nothing to be done about an error here.
        let _ = self.script.wait();
    }
}

// === impl News ===

impl ProcessStates {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ProcessState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listen(output: ChildStdout, news: &ProcessStates) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let words: Vec<_> = line.split(' ').collect();
        let state = match words[..] {
            ["started", name, id] => id.parse().ok().map(|id| (name, ProcessState::Running(id))),
            ["exited", name, code] => {
                code.parse().ok().map(|code| (name, ProcessState::Exited(code)))
            }
            _ => None,
        };
        if let Some((name, state)) = state {
            news.lock().insert(name.to_owned(), state);
            news.changed.notify_all();
        }
    }
}

/// A word that the shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
