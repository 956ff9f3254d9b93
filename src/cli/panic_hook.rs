//! The panic hook: prints one line, removes the temporary directory and exits with code 3.

use std::{
    fs,
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    path::PathBuf,
    process,
    sync::Mutex,
};

use super::{Exit, invocation::Invocation, output::escape_to_one_line};

/// A temporary directory to remove on a panic, because the stack is not unwound.
static TEMPORARY_DIRECTORY: Mutex<Option<PathBuf>> = Mutex::new(None);

pub fn install() {
    panic::set_hook(Box::new(|panic_info| {
        let command = Invocation::current().command();
        let _ = writeln!(io::stderr(), "{command}: {}", message_line(panic_info));
        // Do not wait for the lock: the panicking thread itself may hold it.
        let doomed = TEMPORARY_DIRECTORY.try_lock().ok().and_then(|mut doomed| doomed.take());
        if let Some(directory) = doomed {
            let _ = fs::remove_dir_all(directory);
        }
        process::exit(Exit::Internal as i32)
    }));
}

/// Sets the directory to remove on a panic; `None` if there is none any more.
pub fn remove_on_panic(directory: Option<PathBuf>) {
    if let Ok(mut doomed) = TEMPORARY_DIRECTORY.lock() {
        *doomed = directory;
    }
}

fn message_line(panic_info: &PanicHookInfo<'_>) -> String {
    let message = panic_info.payload_as_str().unwrap_or("no message");
    let place = panic_info.location().map(ToString::to_string).unwrap_or_default();
    escape_to_one_line(&format!("a bug in this program at {place}: {message}: please report it"))
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;

    const CHILD: &str = "PLIMSOLL_TEST_CRASH_IN";

    #[test]
    fn a_panic_is_one_line_with_exit_code_3_and_leaves_no_files() {
        if let Some(directory) = env::var_os(CHILD) {
            install();
            remove_on_panic(Some(directory.into()));
            let crashed = std::thread::spawn(|| panic!("of two\nlines")).join();
            unreachable!("{crashed:?}: the thread ends the process");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let doomed = directory.path().join("doomed");
        fs::create_dir(&doomed).expect("is made");
        fs::write(doomed.join("file"), "left").expect("writes");
        let module = module_path!().split_once("::").map_or("", |(_, module)| module);
        let name = format!("{module}::a_panic_is_one_line_with_exit_code_3_and_leaves_no_files");
        let output = Command::new(env::current_exe().expect("has a path"))
            .args(["--exact", &name, "--nocapture"])
            .env(CHILD, &doomed)
            .output()
            .expect("starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(
            stderr.starts_with("plimsoll: a bug in this program at src/cli/panic_hook.rs:"),
            "{stderr}"
        );
        assert!(stderr.contains(r"of two\nlines: please report it"), "{stderr}");
        assert!(!doomed.exists(), "it is still there");
    }
}
