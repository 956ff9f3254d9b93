//! Owns the processes of a testbed and its folder, so that neither outlives the test: not after a panic, Ctrl-C or
//! kill -9. A small shell script starts them and ends when the pipe to this process closes, which the kernel
//! guarantees.

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

/// Processes and their working folder.
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

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs with this process id.
    Running(u32),
    /// It exited with this code; 128 plus the signal number if it was killed.
    Exited(i32),
}

// === impl ProcessGuard ===

impl ProcessGuard {
    /// Starts a guard with an empty folder.
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
            // In its own process group: Ctrl-C is for the tests, and the guard cleans up after them.
            .process_group(0)
            .spawn()
            .expect("a shell");
        let news = Arc::new(ProcessStates::default());
        let output = script.stdout.take().expect("piped");
        thread::spawn({
            let news = Arc::clone(&news);
            move || listen(output, &news)
        });
        Self { folder, commands: Mutex::new(script.stdin.take()), script, process_states: news }
    }

    /// The folder, which is removed with the guard.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a process; its output goes to `NAME.log` in the folder. A name can be reused after its process ended.
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

    /// The state of a process; `None` if no process with this name was started.
    pub fn state(&self, name: &str) -> Option<ProcessState> {
        self.process_states.lock().get(name).copied()
    }

    /// Sends a signal (`TERM`, `KILL`, `STOP`, ...) to a running process.
    pub fn signal(&self, name: &str, signal: &str) {
        if let Some(ProcessState::Running(id)) = self.state(name) {
            // `--noise` pauses and continues processes too, and must not continue one that a test has stopped.
            let mark = std::env::temp_dir().join(format!("stopped-{id}"));
            match signal {
                "STOP" => std::fs::write(mark, "by a test").expect("a writable folder"),
                // The file only exists if the test has stopped the process.
                _ => drop(std::fs::remove_file(mark)),
            }
            self.command(&format!("kill -s {signal} {id} 2>/dev/null"));
        }
    }

    /// Path of a process's log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// The tail of a process's log, for failure messages.
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
        writeln!(pipe, "{line}").expect("the guard process reads until its pipe is closed");
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The script exits on its own, so an error can be ignored.
        let _ = self.script.wait();
    }
}

// === impl ProcessStates ===

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

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
