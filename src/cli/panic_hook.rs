//! What a bug in this program looks like from outside: one line, exit code 3, and nothing left on disk.

use std::{
    fs,
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    path::PathBuf,
    process,
    sync::Mutex,
};

use super::{Exit, output::escape_to_one_line};

/// A temporary directory that would outlive a crash, where nothing is unwound.
static TEMPORARY_DIRECTORY: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From now on a panic ends the program in good order.
pub fn install() {
    panic::set_hook(Box::new(|crash| {
        let _ = writeln!(io::stderr(), "plimsoll: {}", words(crash));
        // Whoever holds this lock is in the middle of changing it, and may be the one that crashed.
        let doomed = TEMPORARY_DIRECTORY.try_lock().ok().and_then(|mut doomed| doomed.take());
        if let Some(directory) = doomed {
            let _ = fs::remove_dir_all(directory);
        }
        process::exit(Exit::Internal as i32)
    }));
}

/// Has a directory removed in a crash; `None` when it is gone.
pub fn remove_on_panic(directory: Option<PathBuf>) {
    if let Ok(mut doomed) = TEMPORARY_DIRECTORY.lock() {
        *doomed = directory;
    }
}

fn words(crash: &PanicHookInfo<'_>) -> String {
    let said = crash.payload_as_str().unwrap_or("no words");
    let place = crash.location().map(ToString::to_string).unwrap_or_default();
    escape_to_one_line(&format!("a bug in this program at {place}: {said}: please report it"))
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;

    const CHILD: &str = "PLIMSOLL_TEST_CRASH_IN";

    #[test]
    fn a_crash_is_one_line_and_code_three_and_leaves_nothing_on_disk() {
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
        let name =
            format!("{module}::a_crash_is_one_line_and_code_three_and_leaves_nothing_on_disk");
        let output = Command::new(env::current_exe().expect("has a path"))
            .args(["--exact", &name, "--nocapture"])
            .env(CHILD, &doomed)
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.starts_with("plimsoll: a bug in this program at src/cli/panic_hook.rs:"),
            "{said}"
        );
        assert!(said.contains(r"of two\nlines: please report it"), "{said}");
        assert!(!doomed.exists(), "it is still there");
    }
}
