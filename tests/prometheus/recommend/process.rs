//! The command as a process.

use std::{
    path::Path,
    process::{Command, Stdio},
};

/// What a command has printed, and its exit code.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `plimsoll recommend` with this kubeconfig and nothing else in its environment.
pub async fn recommend(kubeconfig: &Path, flags: &[&str]) -> Finished {
    plimsoll(kubeconfig, &[&["recommend"], flags].concat()).await
}

/// Runs a command with this kubeconfig and nothing else in its environment.
pub async fn plimsoll(kubeconfig: &Path, words: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(words).env_clear().env("KUBECONFIG", kubeconfig);
    command.env("LANG", "C.UTF-8").stdin(Stdio::null());
    // Servers of the test answer meanwhile.
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    let output = output.expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Finished {
        code: output.status.code(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}
