//! The program under the names by which kubectl starts it, its completion scripts, and its man pages.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use plimsoll::cli::flags::command;
use tempfile::TempDir;

use super::combined_output;

const PROGRAM: &str = env!("CARGO_BIN_EXE_plimsoll");

/// A kubeconfig with two contexts. Nothing listens on their port.
const KUBECONFIG: &str = "
clusters:
  - {name: closed, cluster: {server: 'http://127.0.0.1:9'}}
contexts:
  - {name: prod-eu, context: {cluster: closed, user: ''}}
  - {name: 'arn:aws:eks:dev', context: {cluster: closed, user: ''}}
current-context: prod-eu
";

/// A folder with the program under each of its names, and a kubeconfig.
struct Installed(TempDir);

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["plimsoll", "kubectl-plimsoll", "kubectl_complete-plimsoll"] {
            std::os::unix::fs::symlink(PROGRAM, folder.path().join(name)).expect("is linked");
        }
        fs::write(folder.path().join("kubeconfig"), KUBECONFIG).expect("a kubeconfig");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", path)
            .env("KUBECONFIG", self.path("kubeconfig"))
            .stdin(std::process::Stdio::null())
            .output()
            .expect("the program starts")
    }

    fn printed(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.run(&self.path(name), arguments);
        assert!(output.status.success(), "{}", combined_output(&output));
        assert!(output.stderr.is_empty(), "{}", combined_output(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

#[test]
fn the_plugin_names_kubectl_in_usage_and_errors_and_prints_the_same_otherwise() {
    let installed = Installed::new();
    let help = installed.printed("kubectl-plimsoll", &["status", "--help"]);
    assert!(help.contains("Usage: kubectl plimsoll status"), "{help}");
    assert!(help.contains("\n  kubectl plimsoll status --watch=10s "), "{help}");
    let [plugin, program] = ["kubectl-plimsoll", "plimsoll"].map(|name| {
        let output = installed.run(&installed.path(name), &["explain", "vpa", "a/b/c"]);
        assert_eq!(output.status.code(), Some(2));
        combined_output(&output)
    });
    assert!(plugin.starts_with("kubectl plimsoll: invalid value 'a/b/c'"), "{plugin}");
    assert_eq!(plugin.strip_prefix("kubectl "), Some(&*program));
    let crds = ["kubectl-plimsoll", "plimsoll"].map(|name| installed.printed(name, &["crds"]));
    assert_eq!(crds[0], crds[1]);
    let none = combined_output(&installed.run(&installed.path("kubectl-plimsoll"), &[]));
    assert!(none.contains("\n  kubectl plimsoll demo "), "{none}");
    assert!(!none.contains("kubectl kubectl"), "{none}");
}

#[test]
fn kubectl_completes_words_by_the_program() {
    let installed = Installed::new();
    let complete = |words: &[&str]| installed.printed("kubectl_complete-plimsoll", words);
    let kinds = complete(&["explain", ""]);
    assert!(kinds.starts_with("vpa\tExplains ") && kinds.ends_with("\n:4\n"), "{kinds}");
    assert_eq!(complete(&["status", "--context", "prod"]), "prod-eu\n:4\n");
    assert_eq!(complete(&["status", "--context=p"]), "--context=prod-eu\n:4\n");
    assert_eq!(complete(&["status", "--kubeconfig", ""]), ":0\n");
    // No cluster, and no message about it.
    assert_eq!(complete(&["explain", "vpa", ""]), ":4\n");
}

#[test]
fn scripts_ask_for_names_only() {
    let installed = Installed::new();
    let complete =
        |words: &[&str]| installed.printed("plimsoll", &[&["__complete"][..], words].concat());
    assert_eq!(complete(&["status", "--context", ""]), "prod-eu\narn:aws:eks:dev\n");
    for words in [&["explain", "vpa", ""][..], &["explain", ""], &["stat"], &[]] {
        assert_eq!(complete(words), "", "{words:?}");
    }
}

#[test]
fn bash_completes_commands_flags_and_names() {
    let installed = Installed::new();
    // What bash sets for a completion function, for a cursor at the end of the line.
    let script = r#"
        source <(plimsoll completion bash)
        COMP_LINE=$1 COMP_POINT=${#1}
        COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
        _plimsoll_names plimsoll "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let complete = |line: &str, words: &[&str]| {
        let arguments = [&["-c", script, "bash", line][..], words].concat();
        let output = installed.run(Path::new("bash"), &arguments);
        assert!(output.status.success(), "{}", combined_output(&output));
        combined_output(&output)
    };
    assert_eq!(complete("plimsoll expl", &["plimsoll", "expl"]), "explain\n");
    let flag = complete("plimsoll status --cont", &["plimsoll", "status", "--cont"]);
    assert_eq!(flag, "--context\n");
    let words = ["plimsoll", "status", "--context", "p"];
    assert_eq!(complete("plimsoll status --context p", &words), "prod-eu\n");
    // Words are split at the signs, of which candidates contain what follows.
    let words = ["plimsoll", "status", "--context", "=", "arn", ":", "a"];
    assert_eq!(complete("plimsoll status --context=arn:a", &words), "aws:eks:dev\n");
}

#[test]
fn every_command_has_a_man_page() {
    fn names(command: &clap::Command, name: &str, all: &mut Vec<String>) {
        all.push(format!("{name}.1"));
        for below in command.get_subcommands() {
            names(below, &format!("{name}-{}", below.get_name()), all);
        }
    }
    let (mut root, mut expected) = (command(), Vec::new());
    root.build();
    names(&root, "plimsoll", &mut expected);
    let pages = xtask::man::pages(command()).expect("pages");
    let files: Vec<&str> = pages.iter().map(|page| &*page.file).collect();
    assert_eq!(files, expected);
    assert!(files.contains(&"plimsoll-explain-vpa.1"), "{files:?}");
    let page = pages.iter().find(|page| page.file == "plimsoll-status.1").expect("a page");
    for part in [r"\-\-watch", ".SH EXAMPLES\n.nf\n  plimsoll status "] {
        assert!(page.roff.contains(part), "{part}: {}", page.roff);
    }
}
